// What the test programs need of the driver API, found at run time: no toolkit is needed to build them, and they run on the fake
// driver and on a real card alike.
#ifndef DIVVY_TEST_CUDA_H
#define DIVVY_TEST_CUDA_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUgraph, *CUgraphExec, *CUgraphNode, *CUmemoryPool, *CUarray, *CUmipmappedArray;

typedef struct { unsigned type; int id; } CUmemLocation;
typedef struct { unsigned type, requestedHandleTypes; CUmemLocation location; void *win32; unsigned char flags[8]; } CUmemAllocationProp;
typedef struct { unsigned type, handleTypes; CUmemLocation location; void *win32; size_t maxSize; unsigned short usage; unsigned char reserved[54]; } CUmemPoolProps;
typedef struct { CUmemLocation location; unsigned flags; } CUmemAccessDesc;
typedef struct { size_t Width, Height; unsigned Format, NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t Width, Height, Depth; unsigned Format, NumChannels, Flags; } CUDA_ARRAY3D_DESCRIPTOR;
typedef struct { CUmemPoolProps pool; const void *access; size_t accessCount, bytesize; CUdeviceptr dptr; } CUDA_MEM_ALLOC_NODE_PARAMS;
typedef union { struct { unsigned operation; CUdeviceptr address; uint64_t value; unsigned flags; CUdeviceptr alias; } write; uint64_t pad[6]; } CUstreamBatchMemOpParams;
typedef struct { CUcontext ctx; unsigned count; CUstreamBatchMemOpParams *paramArray; unsigned flags; } CUDA_BATCH_MEM_OP_NODE_PARAMS;
enum { CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_INVALID_CONTEXT = 201 };

#define EACH_FUNCTION(F) \
  F(cuInit, unsigned) F(cuDriverGetVersion, int *) F(cuDeviceGetCount, int *) F(cuDeviceGet, CUdevice *, int) F(cuDeviceGetName, char *, int, CUdevice) \
  F(cuDeviceTotalMem_v2, size_t *, CUdevice) F(cuDeviceGetUuid_v2, void *, CUdevice) F(cuDeviceGetAttribute, int *, int, CUdevice) \
  F(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice) F(cuDevicePrimaryCtxRelease_v2, CUdevice) F(cuDevicePrimaryCtxReset_v2, CUdevice) \
  F(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice) F(cuCtxDestroy_v2, CUcontext) F(cuCtxSetCurrent, CUcontext) F(cuCtxGetCurrent, CUcontext *) \
  F(cuCtxGetDevice, CUdevice *) F(cuCtxSynchronize, void) F(cuCtxSetLimit, int, size_t) \
  F(cuMemAlloc_v2, CUdeviceptr *, size_t) F(cuMemFree_v2, CUdeviceptr) F(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned) \
  F(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned) F(cuMemGetInfo_v2, size_t *, size_t *) \
  F(cuMemHostAlloc, void **, size_t, unsigned) F(cuMemFreeHost, void *) F(cuMemHostRegister_v2, void *, size_t, unsigned) F(cuMemHostUnregister, void *) \
  F(cuMemcpyHtoD_v2, CUdeviceptr, const void *, size_t) F(cuMemcpyDtoH_v2, void *, CUdeviceptr, size_t) F(cuMemsetD8_v2, CUdeviceptr, unsigned char, size_t) F(cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream) \
  F(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream) F(cuMemFreeAsync, CUdeviceptr, CUstream) F(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream) \
  F(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *) F(cuMemPoolDestroy, CUmemoryPool) F(cuMemPoolTrimTo, CUmemoryPool, size_t) \
  F(cuMemPoolGetAttribute, CUmemoryPool, unsigned, void *) F(cuMemPoolSetAttribute, CUmemoryPool, unsigned, void *) F(cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice) \
  F(cuDeviceSetMemPool, CUdevice, CUmemoryPool) \
  F(cuMemCreate, uint64_t *, size_t, const CUmemAllocationProp *, unsigned long long) F(cuMemRelease, uint64_t) F(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) \
  F(cuMemAddressFree, CUdeviceptr, size_t) F(cuMemMap, CUdeviceptr, size_t, size_t, uint64_t, unsigned long long) F(cuMemUnmap, CUdeviceptr, size_t) \
  F(cuMemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) F(cuMemRetainAllocationHandle, uint64_t *, void *) \
  F(cuMemExportToShareableHandle, void *, uint64_t, unsigned, unsigned long long) F(cuMemImportFromShareableHandle, uint64_t *, void *, unsigned) \
  F(cuMemGetAllocationGranularity, size_t *, const CUmemAllocationProp *, unsigned) \
  F(cuArrayCreate_v2, CUarray *, const CUDA_ARRAY_DESCRIPTOR *) F(cuArray3DCreate_v2, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *) F(cuArrayDestroy, CUarray) \
  F(cuMipmappedArrayCreate, CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned) F(cuMipmappedArrayDestroy, CUmipmappedArray) \
  F(cuStreamCreate, CUstream *, unsigned) F(cuStreamDestroy_v2, CUstream) F(cuStreamSynchronize, CUstream) F(cuStreamBeginCapture_v2, CUstream, unsigned) \
  F(cuStreamEndCapture, CUstream, CUgraph *) F(cuStreamWriteValue32_v2, CUstream, CUdeviceptr, uint32_t, unsigned) \
  F(cuStreamWriteValue32, CUstream, CUdeviceptr, uint32_t, unsigned) F(cuStreamWriteValue32_v2_ptsz, CUstream, CUdeviceptr, uint32_t, unsigned) \
  F(cuStreamWriteValue64_v2, CUstream, CUdeviceptr, uint64_t, unsigned) F(cuStreamWriteValue64_v2_ptsz, CUstream, CUdeviceptr, uint64_t, unsigned) \
  F(cuStreamBatchMemOp_v2, CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned) F(cuStreamBatchMemOp_v2_ptsz, CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned) \
  F(cuGraphAddBatchMemOpNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_BATCH_MEM_OP_NODE_PARAMS *) \
  F(cuGraphCreate, CUgraph *, unsigned) F(cuGraphDestroy, CUgraph) F(cuGraphAddMemAllocNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *) \
  F(cuGraphAddMemFreeNode, CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr) F(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long) \
  F(cuGraphLaunch, CUgraphExec, CUstream) F(cuGraphExecDestroy, CUgraphExec) F(cuDeviceGraphMemTrim, CUdevice) \
  F(cuModuleLoadData, CUmodule *, const void *) F(cuModuleGetFunction, CUfunction *, CUmodule, const char *) \
  F(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **) \
  F(cuLaunchKernel_ptsz, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **) F(cuStreamSynchronize_ptsz, CUstream) \
  F(cuStreamWaitEvent, CUstream, CUevent, unsigned) F(cuStreamQuery, CUstream) F(cuEventQuery, CUevent) F(cuEventDestroy_v2, CUevent) \
  F(cuLaunchHostFunc, CUstream, void (*)(void *), void *) F(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream) \
  F(cuIpcGetMemHandle, void *, CUdeviceptr) F(cuEventCreate, CUevent *, unsigned) F(cuEventRecord, CUevent, CUstream) F(cuEventSynchronize, CUevent)

#define DECLARE(name, ...) static CUresult (*name)(__VA_ARGS__) __attribute__((unused));
EACH_FUNCTION(DECLARE)
#undef DECLARE

// The place in the program that was reached last, told when a signal ends it.
static volatile int at_line __attribute__((unused));
static int wrong __attribute__((unused)), checked __attribute__((unused));
#define CHECK(condition, ...) do { at_line = __LINE__; checked++; if (!(condition)) { wrong++; printf("wrong, %s:%d: %s", __FILE__, __LINE__, #condition); printf("  " __VA_ARGS__); printf("\n"); } } while (0)
#define MUST(call) do { at_line = __LINE__; CUresult must_ = (call); if (must_) { printf("%s:%d: %s: error %u\n", __FILE__, __LINE__, #call, must_); exit(1); } } while (0)

// Ends a test program: how many checks, and the exit status.
static inline int done(void) {
  printf("%d checks, %d wrong\n", checked, wrong);
  return wrong != 0;
}

static void tell_signal(int number) {
  char text[96];
  int length = snprintf(text, sizeof text, "ended by signal %d at or after line %d\n", number, at_line);
  fflush(stdout);
  if (write(1, text, (size_t)length) < 0) _exit(98);
  signal(number, SIG_DFL);
  raise(number);
}

// Finds the driver.
static inline void find_driver(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGSEGV, tell_signal);
  signal(SIGBUS, tell_signal);
  signal(SIGABRT, tell_signal);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) { printf("%s\n", dlerror()); exit(77); }
#define FIND(name, ...) name = (CUresult (*)(__VA_ARGS__))dlsym(driver, #name);
  EACH_FUNCTION(FIND)
#undef FIND
}

static inline double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double seconds_between(struct timespec before, struct timespec after) {
  return (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
}

static inline int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(double *values, size_t count) {
  qsort(values, count, sizeof *values, by_size);
  return values[count / 2];
}

static inline size_t free_bytes(void) {
  size_t available = 0, total = 0;
  MUST(cuMemGetInfo_v2(&available, &total));
  return available;
}

// Initialises the driver and makes the primary context of a device current. On a card the agent sees what the context takes a
// moment later: DIVVY_TEST_SETTLE seconds without a change are waited for.
static inline CUcontext begin(CUdevice device) {
  find_driver();
  MUST(cuInit(0));
  CUcontext context = NULL;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  const char *settle = getenv("DIVVY_TEST_SETTLE");
  double quiet = settle ? atof(settle) : 0, since = now_seconds(), until = since + 10 * quiet;
  for (size_t last = 0, now; quiet > 0 && now_seconds() - since < quiet && now_seconds() < until; last = now) {
    now = free_bytes();
    if (now != last) since = now_seconds();
    usleep(50000);
  }
  return context;
}

static inline size_t total_bytes(void) {
  size_t available = 0, total = 0;
  MUST(cuMemGetInfo_v2(&available, &total));
  return total;
}

#endif
