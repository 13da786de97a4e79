// What single calls cost the calling thread, in nanoseconds: the least of several rounds. Run it with the library and without.
// On a card or driver that takes microseconds the library is lost in the noise; `cargo xtask bench hook` uses one that takes none.
#include "cuda.h"

static double cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// The least of several rounds of `times` calls each.
#define COST(what, rounds, times, call) do { \
    long each_round = (times) > 0 ? (long)(times) : 1; \
    double least = 1e18; \
    for (int r = 0; r < (rounds); r++) { \
      double start = cpu_ns(); \
      for (long i = 0; i < each_round; i++) { call; } \
      double each = (cpu_ns() - start) / (double)each_round; \
      if (each < least) least = each; \
    } \
    printf("%s\t%.2f\n", what, least); fflush(stdout); \
  } while (0)

// A driver touches a lot on its way, and what a launch finds then is no longer near: the median of launches with a cache full of
// something else before each.
static void cold_launches(CUfunction kernel, CUstream stream, long times) {
  static volatile char else_where[256 << 10];
  double *took = malloc(sizeof *took * (size_t)times);
  for (long i = 0; i < times; i++) {
    struct timespec before, after;
    for (size_t at = 0; at < sizeof else_where; at += 64) else_where[at]++;
    clock_gettime(CLOCK_MONOTONIC, &before);
    CUresult status = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    MUST(status);
    took[i] = seconds_between(before, after) * 1e9;
  }
  printf("launch, with cold caches\t%.2f\n", median(took, (size_t)times));
  free(took);
}

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";

int main(int argc, char **argv) {
  long scale = argc > 1 ? atol(argv[1]) : 1; // fewer calls where each takes long
  begin(0);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CUresult (*look_up)(const char *, void **, int, uint64_t, int *) = (CUresult (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
  CUmodule module;
  CUfunction kernel;
  CUstream stream;
  MUST(cuModuleLoadData(&module, ptx));
  MUST(cuModuleGetFunction(&kernel, module, "empty"));
  MUST(cuStreamCreate(&stream, 1));
  COST("launch", 9, 1000000 / scale, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  MUST(cuStreamSynchronize(stream));
  cold_launches(kernel, stream, 100000 / scale + 1);
  MUST(cuStreamSynchronize(stream));

  enum { LIVE = 50000 };
  static CUdeviceptr live[LIVE], one;
  size_t many = free_bytes() / 4 / 512 < LIVE ? 1000 : LIVE;
  COST("alloc and free, nothing live", 9, 200000 / scale, cuMemAlloc_v2(&one, 512); cuMemFree_v2(one));
  for (size_t i = 0; i < many; i++) MUST(cuMemAlloc_v2(&live[i], 512));
  COST("alloc and free, 50000 live", 9, 200000 / scale, cuMemAlloc_v2(&one, 512); cuMemFree_v2(one));
  for (size_t i = 0; i < many; i++) MUST(cuMemFree_v2(live[i]));
  COST("stream-ordered alloc and free", 9, 200000 / scale, cuMemAllocAsync(&one, 512, stream); cuMemFreeAsync(one, stream));
  size_t available, total;
  COST("memory info", 9, 200000 / scale, cuMemGetInfo_v2(&available, &total));
  COST("stream synchronize", 9, 200000 / scale, cuStreamSynchronize(stream));
  void *found;
  int status;
  COST("cuGetProcAddress", 9, 200000 / scale, look_up("cuLaunchKernel", &found, 12000, 0, &status));
  COST("dlsym of the driver", 5, 50000 / scale, found = dlsym(driver, "cuLaunchKernel"));
  COST("dlsym of anybody else", 9, 200000 / scale, found = dlsym(RTLD_DEFAULT, "malloc"));
  return 0;
}
