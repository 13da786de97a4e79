// A steady load: kernels of a stated length, in bursts with a wait after each, for some seconds; says how many ran in each tenth of
// a second. load kernel-us seconds [burst [think-us [streams]]]
#include "cuda.h"

// Runs for about as many microseconds as its argument says: a chain of dependent operations, so that it is work and not a clock that
// is waited for, and takes as much of the card's time whoever else is there. The fake driver goes by the name.
static const char *image =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_arg_us(.param .u32 us, .param .u64 out)\n"
    "{\n.reg .u32 %n, %i; .reg .f32 %x; .reg .u64 %o; .reg .pred %more, %never;\n"
    "ld.param.u32 %n, [us]; ld.param.u64 %o, [out];\n"
    "mul.lo.u32 %n, %n, 480; mov.u32 %i, 0; mov.f32 %x, 0f3F800000;\n"
    "again:\nfma.rn.f32 %x, %x, 0f3F800001, 0f33D6BF95; add.u32 %i, %i, 1; setp.lt.u32 %more, %i, %n; @%more bra again;\n"
    "setp.eq.f32 %never, %x, 0f7F800000; @%never st.global.f32 [%o], %x;\nret;\n}\n";

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: load kernel-us seconds [burst [think-us [streams]]]\n");
    return 2;
  }
  uint32_t us = (uint32_t)atoi(argv[1]);
  double seconds = atof(argv[2]);
  int burst = argc > 3 ? atoi(argv[3]) : 20, think = argc > 4 ? atoi(argv[4]) : 0, streams = argc > 5 ? atoi(argv[5]) : 1;
  begin(0);
  CUmodule module;
  CUfunction spin;
  MUST(cuModuleLoadData(&module, image));
  MUST(cuModuleGetFunction(&spin, module, "spin_arg_us"));
  CUstream stream[64] = {0};
  for (int i = 0; i < streams && i < 64 && streams > 1; i++) MUST(cuStreamCreate(&stream[i], 1));
  uint64_t nowhere = 0;
  void *arguments[] = {&us, &nowhere};
  // As many blocks as the card has multiprocessors, so that it is full.
  unsigned blocks = 132;
  MUST(cuLaunchKernel(spin, blocks, 1, 1, 32, 1, 1, 0, stream[0], arguments, NULL));
  MUST(cuStreamSynchronize(stream[0]));
  printf("begun\n");
  fflush(stdout);
  static uint32_t tenth[6000];
  double start = now_seconds(), at = start;
  long launches = 0;
  while ((at = now_seconds()) - start < seconds) {
    for (int i = 0; i < burst; i++) {
      MUST(cuLaunchKernel(spin, blocks, 1, 1, 32, 1, 1, 0, stream[launches % streams], arguments, NULL));
      launches++;
    }
    for (int i = 0; i < streams; i++) MUST(cuStreamSynchronize(stream[i]));
    int slot = (int)((now_seconds() - start) * 10);
    if (slot < 6000) tenth[slot] += (uint32_t)burst;
    if (think) usleep((useconds_t)think);
  }
  printf("launches %ld seconds %.3f per_second %.1f tenths", launches, at - start, (double)launches / (at - start));
  for (int i = 0; i < (int)(seconds * 10) && i < 6000; i++) printf(" %u", tenth[i]);
  printf("\n");
  return 0;
}
