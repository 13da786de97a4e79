// Fill, free, fill again, many times over and in all ways at once: the books end where they began. cycles [rounds]
#include "cuda.h"

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1000;
  begin(0);
  CUstream stream;
  MUST(cuStreamCreate(&stream, 1));
  size_t before = free_bytes(), limit = before - before % (64u << 20);
  uint64_t seed = 88172645463325252u;
  enum { MOST = 64 };
  CUdeviceptr plain[MOST] = {0}, ordered[MOST] = {0};
  int refused = 0, granted = 0;
  for (int round = 0; round < rounds; round++) {
    seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
    int i = (int)(seed % MOST);
    size_t bytes = (size_t)((seed >> 8) % (limit / 16)) + 1;
    CUdeviceptr *slot = seed >> 63 ? &plain[i] : &ordered[i];
    if (*slot) {
      MUST(slot == &plain[i] ? cuMemFree_v2(*slot) : cuMemFreeAsync(*slot, stream));
      *slot = 0;
      if (round % 16 == 0) MUST(cuStreamSynchronize(stream));
    } else {
      CUresult got = slot == &plain[i] ? cuMemAlloc_v2(slot, bytes) : cuMemAllocAsync(slot, bytes, stream);
      CHECK(got == CUDA_SUCCESS || got == CUDA_OUT_OF_MEMORY, "%u", got);
      if (got) *slot = 0;
      refused += got != 0;
      granted += got == 0;
    }
  }
  for (int i = 0; i < MOST; i++) {
    if (plain[i]) MUST(cuMemFree_v2(plain[i]));
    if (ordered[i]) MUST(cuMemFreeAsync(ordered[i], stream));
  }
  MUST(cuStreamSynchronize(stream));
  CUmemoryPool pool;
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolTrimTo(pool, 0));
  CHECK(free_bytes() == before, "%zu of %zu", free_bytes(), before);
  printf("%d granted, %d refused\n", granted, refused);
  return done();
}
