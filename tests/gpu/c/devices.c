// Memory is charged to the card it is on, whichever is current. For two cards.
#include "cuda.h"

static CUcontext contexts[2];
static size_t at_first[2];

static size_t charged(int device) {
  CUcontext before;
  MUST(cuCtxGetCurrent(&before));
  MUST(cuCtxSetCurrent(contexts[device]));
  size_t available = free_bytes();
  MUST(cuCtxSetCurrent(before));
  return at_first[device] - available;
}

int main(void) {
  const size_t MiB = 1 << 20;
  find_driver();
  MUST(cuInit(0));
  for (int i = 0; i < 2; i++) {
    MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
    MUST(cuCtxSetCurrent(contexts[i]));
    at_first[i] = free_bytes();
  }
  CUstream streams[2];
  for (int i = 0; i < 2; i++) {
    MUST(cuCtxSetCurrent(contexts[i]));
    MUST(cuStreamCreate(&streams[i], 1));
  }
  CUdeviceptr a, b, c;
  MUST(cuCtxSetCurrent(contexts[0]));
  MUST(cuMemAlloc_v2(&a, 64 * MiB));
  MUST(cuCtxSetCurrent(contexts[1]));
  MUST(cuMemAlloc_v2(&b, 128 * MiB));
  CHECK(charged(0) == 64 * MiB && charged(1) == 128 * MiB, "%zu and %zu", charged(0), charged(1));
  // Freed while the other card is current.
  MUST(cuMemFree_v2(a));
  MUST(cuCtxSetCurrent(contexts[0]));
  MUST(cuMemFree_v2(b));
  CHECK(charged(0) == 0 && charged(1) == 0, "%zu and %zu", charged(0), charged(1));
  // Stream-ordered memory is the stream's card's.
  MUST(cuMemAllocAsync(&c, 96 * MiB, streams[1]));
  CHECK(charged(0) == 0 && charged(1) >= 96 * MiB, "%zu and %zu", charged(0), charged(1));
  MUST(cuMemFreeAsync(c, streams[1]));
  MUST(cuStreamSynchronize(streams[1]));
  CHECK(charged(0) == 0 && charged(1) == 0, "%zu and %zu", charged(0), charged(1));
  // Physical memory and pools name their card.
  CUmemAllocationProp there = {.type = 1, .location = {1, 1}};
  uint64_t handle;
  MUST(cuMemCreate(&handle, 64 * MiB, &there, 0));
  CHECK(charged(0) == 0 && charged(1) == 64 * MiB, "%zu and %zu", charged(0), charged(1));
  MUST(cuMemRelease(handle));
  CUmemPoolProps of_one = {.type = 1, .location = {1, 1}};
  CUmemoryPool pool;
  MUST(cuMemPoolCreate(&pool, &of_one));
  MUST(cuMemAllocFromPoolAsync(&c, 64 * MiB, pool, streams[1]));
  CHECK(charged(0) == 0 && charged(1) >= 64 * MiB, "%zu and %zu", charged(0), charged(1));
  MUST(cuMemFreeAsync(c, streams[1]));
  MUST(cuStreamSynchronize(streams[1]));
  MUST(cuMemPoolDestroy(pool));
  CHECK(charged(0) == 0 && charged(1) == 0, "%zu and %zu", charged(0), charged(1));
  // One card's limit is not the other's.
  MUST(cuCtxSetCurrent(contexts[0]));
  CHECK(cuMemAlloc_v2(&a, at_first[0] + 512) == CUDA_OUT_OF_MEMORY, "above the first card's limit");
  MUST(cuCtxSetCurrent(contexts[1]));
  CUresult other = cuMemAlloc_v2(&a, at_first[0] + 512);
  CHECK(other == (at_first[0] + 512 <= at_first[1] ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY), "%u", other);
  return done();
}
