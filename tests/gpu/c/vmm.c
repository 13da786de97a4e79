// Physical memory is charged once, from its making until the last of its handles and mappings is gone, in whichever order they go.
#include "cuda.h"
#include <pthread.h>
#include <sys/wait.h>

static const size_t piece = 64u << 20;
static size_t at_first;
static size_t charged(void) { return at_first - free_bytes(); }

static uint64_t make(void) {
  CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {1, 0}};
  uint64_t handle = 0;
  MUST(cuMemCreate(&handle, piece, &properties, 0));
  return handle;
}

// Without any context: the device is the one that is named.
static void *without_context(void *result) {
  CUcontext none = (CUcontext)1;
  MUST(cuCtxSetCurrent(NULL));
  cuCtxGetCurrent(&none);
  *(uint64_t *)result = none ? 0 : make();
  return NULL;
}

int main(void) {
  begin(0);
  at_first = free_bytes();
  CUdeviceptr room = 0;
  MUST(cuMemAddressReserve(&room, 4 * piece, 0, 0, 0));
  CHECK(charged() == 0, "addresses cost nothing");

  uint64_t handle = make();
  CHECK(charged() == piece, "%zu", charged());
  MUST(cuMemMap(room, piece, 0, handle, 0));
  CHECK(charged() == piece, "a mapping costs nothing");
  MUST(cuMemRelease(handle));
  CHECK(charged() == piece, "still mapped");
  uint64_t again = 0;
  MUST(cuMemRetainAllocationHandle(&again, (void *)room));
  MUST(cuMemUnmap(room, piece));
  CHECK(charged() == piece, "still a handle");
  MUST(cuMemRelease(again));
  CHECK(charged() == 0, "%zu left", charged());

  handle = make();
  MUST(cuMemMap(room, piece, 0, handle, 0));
  MUST(cuMemMap(room + piece, piece, 0, handle, 0));
  uint64_t other = make();
  MUST(cuMemMap(room + 2 * piece, piece, 0, other, 0));
  CHECK(charged() == 2 * piece, "two pieces, three mappings");
  MUST(cuMemRelease(handle));
  MUST(cuMemRelease(other));
  MUST(cuMemUnmap(room, 3 * piece));
  CHECK(charged() == 0, "%zu left after one unmap of three mappings", charged());

  // One that never was makes the driver of a card crash; one that is gone does not.
  CHECK(cuMemRelease(other) == CUDA_INVALID_VALUE && charged() == 0, "released once too often");
  CHECK(cuMemRelease(0) == CUDA_INVALID_VALUE && charged() == 0, "no handle at all");

  uint64_t elsewhere = 0;
  pthread_t thread;
  pthread_create(&thread, NULL, without_context, &elsewhere);
  pthread_join(thread, NULL);
  CHECK(elsewhere && charged() == piece, "made on a thread without a context: %zu", charged());

  // Exported and imported: the importer pays nothing, in this process or another.
  int file = -1;
  if (cuMemExportToShareableHandle(&file, elsewhere, 1, 0) == CUDA_SUCCESS) {
    uint64_t imported = 0;
    MUST(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file, 1));
    CHECK(charged() == piece, "imported: %zu", charged());
    MUST(cuMemRelease(imported));
    CHECK(charged() == piece, "import released: %zu", charged());
    close(file);
  }
  MUST(cuMemRelease(elsewhere));
  CHECK(charged() == 0, "%zu left", charged());

  CUmemAllocationProp host = {.type = 1, .location = {3, 0}};
  if (cuMemCreate(&handle, piece, &host, 0) == CUDA_SUCCESS) {
    CHECK(charged() == 0, "memory of the host is not the card's");
    MUST(cuMemRelease(handle));
  }
  MUST(cuMemAddressFree(room, 4 * piece));
  return done();
}
