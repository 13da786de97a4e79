// A driver that does next to nothing, next to no time: what a call costs beyond it is the library's.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned R;
static int contexts, pool_object, stream_object, kernel_object;
static __thread void *current;
static uint64_t next = 0x7f0000000000, last;
static volatile uint64_t launches;

R cuInit(unsigned flags) { return flags; }
R cuDeviceGetCount(int *count) { return *count = 1, 0; }
R cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
R cuDeviceGetUuid_v2(void *uuid, int device) { return memset(uuid, 0x5a, 16), device ? 101 : 0; }
R cuDevicePrimaryCtxRetain(void **context, int device) { return contexts++, *context = &contexts, device ? 101 : 0; }
R cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = contexts > 0, device ? 101 : 0; }
R cuCtxGetCurrent(void **context) { return *context = current, 0; }
R cuCtxSetCurrent(void *context) { return current = context, 0; }
R cuCtxGetDevice(int *device) { return *device = 0, current ? 0 : 201; }
R cuCtxSynchronize(void) { return 0; }
R cuModuleLoadData(void **module, const void *image) { return *module = (void *)image, 0; }
R cuModuleGetFunction(void **function, void *module, const char *name) { return (void)module, (void)name, *function = &kernel_object, 0; }
R cuStreamCreate(void **stream, unsigned flags) { return (void)flags, *stream = &stream_object, 0; }
R cuStreamSynchronize(void *stream) { return (void)stream, 0; }
R cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, void *stream, void **p, void **x) {
  (void)f, (void)a, (void)b, (void)c, (void)d, (void)e, (void)g, (void)s, (void)stream, (void)p, (void)x;
  return launches++, 0;
}
// Gives the last freed address again, as allocators do.
R cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  uint64_t given = last ? last : next;
  if (!last) next += (bytes + 511) & ~511ull;
  return last = 0, *address = given, 0;
}
R cuMemFree_v2(uint64_t address) { return last = address, 0; }
R cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) { return (void)stream, cuMemAlloc_v2(address, bytes); }
R cuMemFreeAsync(uint64_t address, void *stream) { return (void)stream, cuMemFree_v2(address); }
R cuDeviceGetMemPool(void **pool, int device) { return *pool = &pool_object, device ? 101 : 0; }
R cuMemPoolGetAttribute(void *pool, int attribute, void *value) { return (void)pool, (void)attribute, *(uint64_t *)value = 2 << 20, 0; }
R cuMemGetInfo_v2(size_t *available, size_t *total) { return *available = 100ull << 30, *total = 140ull << 30, 0; }
R cuDeviceTotalMem_v2(size_t *total, int device) { return *total = 140ull << 30, device ? 101 : 0; }

// What the gate uses.
R cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, *value = 1, device ? 101 : 0; }
R cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) { return (void)address, (void)bytes, (void)flags, 0; }
R cuMemHostUnregister(void *address) { return (void)address, 0; }
R cuMemHostGetDevicePointer_v2(uint64_t *out, void *address, unsigned flags) { return (void)flags, *out = (uint64_t)(uintptr_t)address, 0; }
R cuStreamGetCtx(void *stream, void **context) { return (void)stream, *context = current, 0; }
R cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, 0; }
R cuStreamBatchMemOp_v2(void *stream, unsigned count, void *operations, unsigned flags) { return (void)stream, (void)count, (void)operations, (void)flags, 0; }

R cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  (void)version, (void)flags;
  *function = !strcmp(name, "cuLaunchKernel") ? (void *)cuLaunchKernel : NULL;
  if (status) *status = !*function;
  return *function ? 0 : 500;
}
