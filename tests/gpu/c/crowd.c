// One of many that start at once: a context, an allocation, and it is gone. Says how long the first allocation took. crowd [hold-seconds]
#include "cuda.h"

int main(int argc, char **argv) {
  find_driver();
  MUST(cuInit(0));
  CUcontext context;
  double start = now_seconds();
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  CUdeviceptr address = 0;
  CUresult got = cuMemAlloc_v2(&address, 1u << 20);
  double took = now_seconds() - start;
  printf("%u %.6f\n", got, took);
  if (argc > 1) usleep((useconds_t)(atof(argv[1]) * 1e6));
  return got != CUDA_SUCCESS;
}
