// Memory that no call allocates: a heap for kernels, set by a limit of the context. Within two looks of the agent's audit it counts
// against the container's limit. heap mebibytes
#include "spin.h"

int main(int argc, char **argv) {
  size_t bytes = (size_t)(argc > 1 ? atol(argv[1]) : 4096) << 20;
  begin(0);
  CUfunction spin = spin_kernel();
  MUST(launch_spin(spin, 10, NULL));
  MUST(cuCtxSynchronize());
  size_t before = free_bytes();
  MUST(cuCtxSetLimit(2, bytes)); // the heap of malloc in kernels
  MUST(launch_spin(spin_kernel(), 10, NULL));
  MUST(cuCtxSynchronize());
  double start = now_seconds();
  while (free_bytes() > before - bytes * 8 / 10 && now_seconds() - start < 60) usleep(20000);
  double took = now_seconds() - start;
  CHECK(free_bytes() <= before - bytes * 8 / 10, "%zu free of %zu with a heap of %zu", free_bytes(), before, bytes);
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, before - bytes / 2) == CUDA_OUT_OF_MEMORY, "no room beside the heap");
  printf("counted_after %.2f\n", took);
  return done();
}
