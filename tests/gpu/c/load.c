// A steady load: kernels of a stated length, in bursts with a wait after each, for some seconds; says how many ran in each tenth of
// a second. load kernel-us seconds [burst [think-us [streams [linked]]]]; of linked streams each waits for what the one before did.
#include "spin.h"

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: load kernel-us seconds [burst [think-us [streams [linked]]]]\n");
    return 2;
  }
  uint32_t us = (uint32_t)atoi(argv[1]);
  double seconds = atof(argv[2]);
  int burst = argc > 3 ? atoi(argv[3]) : 20, think = argc > 4 ? atoi(argv[4]) : 0, streams = argc > 5 ? atoi(argv[5]) : 1;
  int linked = argc > 6 && streams > 1;
  begin(0);
  CUfunction spin = spin_kernel();
  CUstream stream[64] = {0};
  for (int i = 0; i < streams && i < 64 && streams > 1; i++) MUST(cuStreamCreate(&stream[i], 1));
  CUevent done = NULL;
  MUST(cuEventCreate(&done, 2));
  MUST(launch_spin(spin, us, stream[0]));
  MUST(cuStreamSynchronize(stream[0]));
  printf("begun\n");
  fflush(stdout);
  static uint32_t tenth[6000];
  double start = now_seconds(), at = start;
  long launches = 0;
  while ((at = now_seconds()) - start < seconds) {
    for (int i = 0; i < burst; i++) {
      CUstream here = stream[launches++ % streams], next = stream[launches % streams];
      MUST(launch_spin(spin, us, here));
      if (linked) {
        MUST(cuEventRecord(done, here));
        MUST(cuStreamWaitEvent(next, done, 0));
      }
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
