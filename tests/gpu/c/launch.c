// What a launch costs the calling thread: the best of many batches of an empty kernel, in nanoseconds of CPU time. Batches are short
// and start with an idle card, so that nobody waits for room in a queue. launch [batches]
#include "cuda.h"

static const char *image = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_ns_1()\n{\nret;\n}\n";

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  int batches = argc > 1 ? atoi(argv[1]) : 2000;
  enum { BATCH = 128 };
  begin(0);
  CUmodule module;
  CUfunction nothing;
  MUST(cuModuleLoadData(&module, image));
  MUST(cuModuleGetFunction(&nothing, module, "spin_ns_1"));
  double best = 1e9;
  for (int b = 0; b < batches; b++) {
    double start = cpu_seconds();
    for (int i = 0; i < BATCH; i++) MUST(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    double took = cpu_seconds() - start;
    MUST(cuStreamSynchronize(NULL));
    if (took < best) best = took;
  }
  printf("launch %.1f ns\n", best / BATCH * 1e9);
  return 0;
}
