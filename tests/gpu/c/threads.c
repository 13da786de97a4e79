// Many threads allocate and free in every way at once: the books end where they began. threads [threads] [rounds]
#include "cuda.h"
#include <pthread.h>

static CUcontext context;
static int rounds = 500;
static pthread_barrier_t start;
static _Atomic int refused, granted, strange;

static void *work(void *argument) {
  uint64_t seed = 88172645463325252u * ((uint64_t)(uintptr_t)argument + 1);
  CUstream stream;
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, 1));
  CUdeviceptr plain[8] = {0}, ordered[8] = {0};
  uint64_t handles[8] = {0};
  CUmemAllocationProp here = {.type = 1, .location = {1, 0}};
  pthread_barrier_wait(&start);
  for (int round = 0; round < rounds; round++) {
    seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
    int i = (int)(seed % 8), way = (int)(seed >> 60) % 3;
    size_t bytes = (size_t)((seed >> 16) % 64 + 1) << 20;
    CUresult got = CUDA_SUCCESS;
    if (way == 0) {
      if (plain[i]) { got = cuMemFree_v2(plain[i]); plain[i] = 0; }
      else { got = cuMemAlloc_v2(&plain[i], bytes); if (got) plain[i] = 0; }
    } else if (way == 1) {
      if (ordered[i]) { got = cuMemFreeAsync(ordered[i], stream); ordered[i] = 0; }
      else { got = cuMemAllocAsync(&ordered[i], bytes, stream); if (got) ordered[i] = 0; }
    } else {
      if (handles[i]) { got = cuMemRelease(handles[i]); handles[i] = 0; }
      else { got = cuMemCreate(&handles[i], (bytes + (2u << 20) - 1) & ~(size_t)((2u << 20) - 1), &here, 0); if (got) handles[i] = 0; }
    }
    if (got == CUDA_OUT_OF_MEMORY) refused++;
    else if (got) strange++;
    else granted++;
  }
  for (int i = 0; i < 8; i++) {
    if (plain[i]) MUST(cuMemFree_v2(plain[i]));
    if (ordered[i]) MUST(cuMemFreeAsync(ordered[i], stream));
    if (handles[i]) MUST(cuMemRelease(handles[i]));
  }
  MUST(cuStreamSynchronize(stream));
  MUST(cuStreamDestroy_v2(stream));
  return NULL;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 8;
  if (argc > 2) rounds = atoi(argv[2]);
  context = begin(0);
  size_t before = free_bytes();
  pthread_t threads[64];
  if (count > 64) count = 64;
  pthread_barrier_init(&start, NULL, (unsigned)count);
  for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, (void *)i);
  for (long i = 0; i < count; i++) pthread_join(threads[i], NULL);
  MUST(cuCtxSynchronize());
  CUmemoryPool pool;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolTrimTo(pool, 0));
  CHECK(free_bytes() == before, "%zu of %zu", free_bytes(), before);
  CHECK(strange == 0 && granted > 0, "%d strange answers", strange);
  printf("%d granted, %d refused\n", granted, refused);
  return done();
}
