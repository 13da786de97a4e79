// What no program should do, and some do: the driver's own answers, and no crash.
#include "cuda.h"

int main(void) {
  find_driver();
  size_t available = 1, total = 1;
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, 4096) != CUDA_SUCCESS, "before cuInit");
  MUST(cuInit(0));
  CHECK(cuMemAlloc_v2(&address, 4096) == CUDA_INVALID_CONTEXT, "without a context");
  CHECK(cuMemGetInfo_v2(&available, &total) == CUDA_INVALID_CONTEXT, "without a context");
  begin(0);
  size_t before = free_bytes();
  // Either half may be unwanted; the driver decides whether that is allowed, and what is told is the container's.
  CUresult half = cuMemGetInfo_v2(NULL, &total);
  CHECK(half == CUDA_SUCCESS ? total == total_bytes() : half == CUDA_INVALID_VALUE, "%u", half);
  half = cuMemGetInfo_v2(&available, NULL);
  CHECK(half == CUDA_SUCCESS ? available == before : half == CUDA_INVALID_VALUE, "%u", half);
  CHECK(cuMemAlloc_v2(NULL, 4096) == CUDA_INVALID_VALUE && free_bytes() == before, "nowhere to put the address");
  CHECK(cuMemAlloc_v2(&address, 0) == CUDA_INVALID_VALUE && free_bytes() == before, "nothing");
  CHECK(cuMemAlloc_v2(&address, (size_t)-1) == CUDA_OUT_OF_MEMORY && free_bytes() == before, "everything");
  CHECK(cuMemAllocPitch_v2(&address, &total, (size_t)-1, (size_t)-1, 16) != CUDA_SUCCESS && free_bytes() == before, "more than everything");
  CHECK(cuMemFree_v2(0) == CUDA_SUCCESS && free_bytes() == before, "freeing null is allowed");
  CHECK(cuMemFree_v2(0xdead0000) != CUDA_SUCCESS && free_bytes() == before, "not ours");
  MUST(cuMemAlloc_v2(&address, 8u << 20));
  MUST(cuMemFree_v2(address));
  CHECK(cuMemFree_v2(address) != CUDA_SUCCESS && free_bytes() == before, "twice");

  // Contexts take what is in them when they go.
  CUcontext primary, own;
  MUST(cuCtxGetCurrent(&primary));
  MUST(cuCtxCreate_v2(&own, 0, 0));
  MUST(cuMemAlloc_v2(&address, 8u << 20));
  MUST(cuMemAlloc_v2(&address, 8u << 20));
  CHECK(free_bytes() <= before - (16u << 20), "in a context of its own");
  MUST(cuCtxDestroy_v2(own));
  MUST(cuCtxSetCurrent(primary));
  CHECK(free_bytes() == before, "%zu of %zu after the context went", free_bytes(), before);
  MUST(cuMemAlloc_v2(&address, 8u << 20));
  MUST(cuDevicePrimaryCtxReset_v2(0));
  CUcontext fresh;
  MUST(cuDevicePrimaryCtxRetain(&fresh, 0));
  MUST(cuCtxSetCurrent(fresh));
  CHECK(free_bytes() == before, "%zu of %zu after a reset", free_bytes(), before);

  // Stacks and heaps that could never fit.
  CHECK(cuCtxSetLimit(2, total_bytes() + 1) == CUDA_OUT_OF_MEMORY, "a heap above the limit");
  CHECK(cuCtxSetLimit(0, 1024) == CUDA_SUCCESS, "a small stack");
  int processors = 0, threads = 0;
  MUST(cuDeviceGetAttribute(&processors, 16, 0));
  MUST(cuDeviceGetAttribute(&threads, 39, 0));
  size_t arena = (size_t)processors * (size_t)threads * 65536;
  CHECK(cuCtxSetLimit(0, 65536) == CUDA_OUT_OF_MEMORY || arena <= total_bytes(), "stacks of %zu MiB in all", arena >> 20);
  return done();
}
