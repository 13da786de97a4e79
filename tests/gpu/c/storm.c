// Allocates and frees as fast as it can until it is killed; says when it has begun. storm seconds
#include "cuda.h"

int main(int argc, char **argv) {
  double until = now_seconds() + (argc > 1 ? atof(argv[1]) : 60);
  begin(0);
  CUdeviceptr address[64] = {0};
  printf("begun\n");
  fflush(stdout);
  for (unsigned i = 0; now_seconds() < until; i++) {
    CUdeviceptr *slot = &address[i * 7 % 64];
    if (*slot) {
      MUST(cuMemFree_v2(*slot));
      *slot = 0;
    } else {
      CUresult got = cuMemAlloc_v2(slot, (size_t)(1 + i % 13) << 20);
      if (got) *slot = 0;
      if (got && got != CUDA_OUT_OF_MEMORY) return (int)got;
    }
  }
  return 0;
}
