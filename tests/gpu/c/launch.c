// What a launch costs the CPU: the best of many batches of an empty kernel, in nanoseconds. launch [batches]
#include "cuda.h"

static const char *image = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_ns_1()\n{\nret;\n}\n";

int main(int argc, char **argv) {
  int batches = argc > 1 ? atoi(argv[1]) : 400;
  enum { BATCH = 512 };
  begin(0);
  CUmodule module;
  CUfunction nothing;
  MUST(cuModuleLoadData(&module, image));
  MUST(cuModuleGetFunction(&nothing, module, "spin_ns_1"));
  double best = 1e9;
  for (int b = 0; b < batches; b++) {
    double start = now_seconds();
    for (int i = 0; i < BATCH; i++) MUST(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    double took = now_seconds() - start;
    MUST(cuStreamSynchronize(NULL));
    if (took < best) best = took;
  }
  printf("launch %.1f ns\n", best / BATCH * 1e9);
  return 0;
}
