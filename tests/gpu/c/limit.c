// Every way to allocate is refused above the limit, with the driver's own code, and granted at the limit; and what was freed is
// free again. limit [way...]
#include "cuda.h"

// A way to allocate: `step` is what sizes are rounded to.
struct way {
  const char *name;
  size_t step;
  CUresult (*take)(size_t bytes);
  void (*give)(void);
  // The memory is held and not in use: an allocation that needs it gets it.
  int spare;
};

static const size_t KiB = 1024, MiB = 1024 * 1024;
static CUdeviceptr address;
static uint64_t handle;
static CUarray array;
static CUmipmappedArray mipmap;
static CUmemoryPool pool;
static CUstream stream;
static CUgraphExec exec;

static CUresult take_plain(size_t n) { return cuMemAlloc_v2(&address, n); }
static void give_plain(void) { MUST(cuMemFree_v2(address)); }
// Rows of 1 MiB, which is a multiple of any pitch.
static CUresult take_pitch(size_t n) { size_t pitch = 0; return cuMemAllocPitch_v2(&address, &pitch, MiB, n / MiB, 16); }
static CUresult take_managed(size_t n) { return cuMemAllocManaged(&address, n, 1); }
static CUresult take_async(size_t n) { return cuMemAllocAsync(&address, n, stream); }
static void give_async(void) { MUST(cuMemFreeAsync(address, stream)); MUST(cuStreamSynchronize(stream)); }
static CUresult take_default(size_t n) { return cuMemAllocAsync(&address, n, NULL); }
static void give_default(void) { MUST(cuMemFreeAsync(address, NULL)); MUST(cuCtxSynchronize()); }

static CUresult take_pool(size_t n) {
  CUmemPoolProps properties = {.type = 1, .location = {1, 0}};
  CUresult made = cuMemPoolCreate(&pool, &properties);
  if (made) return made;
  CUresult taken = cuMemAllocFromPoolAsync(&address, n, pool, stream);
  if (taken) { cuMemPoolDestroy(pool); pool = NULL; }
  return taken;
}
static void give_pool(void) { give_async(); MUST(cuMemPoolDestroy(pool)); }

static CUresult take_handle(size_t n) {
  CUmemAllocationProp properties = {.type = 1, .location = {1, 0}};
  return cuMemCreate(&handle, n, &properties, 0);
}
static void give_handle(void) { MUST(cuMemRelease(handle)); }

// Four floats each, in rows of 512 KiB: cards have a most for either side.
static CUresult take_array(size_t n) {
  CUDA_ARRAY_DESCRIPTOR shape = {.Width = 32 * KiB, .Height = n / (512 * KiB), .Format = 0x20, .NumChannels = 4};
  return cuArrayCreate_v2(&array, &shape);
}
static void give_array(void) { MUST(cuArrayDestroy(array)); }
static CUresult take_array3d(size_t n) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 4 * KiB, .Height = 4 * KiB, .Depth = n / (16 * MiB), .Format = 1, .NumChannels = 1};
  return cuArray3DCreate_v2(&array, &shape);
}
// One level, so that the size is plain.
static CUresult take_mipmap(size_t n) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 4 * KiB, .Height = 4 * KiB, .Depth = n / (16 * MiB), .Format = 1, .NumChannels = 1};
  return cuMipmappedArrayCreate(&mipmap, &shape, 1);
}
static void give_mipmap(void) { MUST(cuMipmappedArrayDestroy(mipmap)); }

// An allocation that is a node of a graph: recorded for nothing, paid at the launch.
static CUresult take_graph(size_t n) {
  CUgraph graph;
  CUgraphNode first, second;
  CUDA_MEM_ALLOC_NODE_PARAMS node = {.pool = {.type = 1, .location = {1, 0}}, .bytesize = n};
  MUST(cuGraphCreate(&graph, 0));
  CUresult made = cuGraphAddMemAllocNode(&first, graph, NULL, 0, &node);
  if (made) { cuGraphDestroy(graph); return made; } // the driver itself refuses a size it could never have
  MUST(cuGraphAddMemFreeNode(&second, graph, &first, 1, node.dptr));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  cuGraphDestroy(graph);
  CUresult launched = cuGraphLaunch(exec, stream);
  MUST(cuStreamSynchronize(stream));
  if (launched) { cuGraphExecDestroy(exec); exec = NULL; }
  return launched;
}
static void give_graph(void) { MUST(cuGraphExecDestroy(exec)); MUST(cuDeviceGraphMemTrim(0)); }

static CUresult take_captured(size_t n) {
  CUgraph graph;
  MUST(cuStreamBeginCapture_v2(stream, 0));
  CUresult recorded = cuMemAllocAsync(&address, n, stream);
  if (!recorded) recorded = cuMemFreeAsync(address, stream);
  CUresult ended = cuStreamEndCapture(stream, &graph);
  if (recorded || ended) { if (!ended) cuGraphDestroy(graph); return recorded ? recorded : ended; }
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  cuGraphDestroy(graph);
  CUresult launched = cuGraphLaunch(exec, stream);
  MUST(cuStreamSynchronize(stream));
  if (launched) { cuGraphExecDestroy(exec); exec = NULL; }
  return launched;
}

static const struct way ways[] = {
  {"plain", 512, take_plain, give_plain, 0},
  {"pitch", 1024 * 1024, take_pitch, give_plain, 0},
  {"managed", 2 * 1024 * 1024, take_managed, give_plain, 0},
  {"async", 32 * 1024 * 1024, take_async, give_async, 0},
  {"async-default-stream", 32 * 1024 * 1024, take_default, give_default, 0},
  {"pool", 32 * 1024 * 1024, take_pool, give_pool, 0},
  {"create", 2 * 1024 * 1024, take_handle, give_handle, 0},
  {"array", 2 * 1024 * 1024, take_array, give_array, 0},
  {"array3d", 16 * 1024 * 1024, take_array3d, give_array, 0},
  {"mipmap", 16 * 1024 * 1024, take_mipmap, give_mipmap, 0},
  {"graph", 32 * 1024 * 1024, take_graph, give_graph, 1},
  {"capture", 32 * 1024 * 1024, take_captured, give_graph, 1},
};

int main(int argc, char **argv) {
  begin(0);
  MUST(cuStreamCreate(&stream, 1));
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    const struct way *way = &ways[i];
    int wanted = argc == 1;
    for (int a = 1; a < argc; a++) wanted |= !strcmp(argv[a], way->name);
    if (!wanted) continue;
    size_t before = free_bytes(), most = before - before % way->step;
    CUresult above = way->take(most + way->step);
    CHECK(above == CUDA_OUT_OF_MEMORY, "%s of %zu with %zu free: %u", way->name, most + way->step, before, above);
    if (!above) way->give();
    CHECK(free_bytes() == before, "%s: %zu free after a refusal, %zu before", way->name, free_bytes(), before);
    CUresult exact = way->take(most);
    CHECK(exact == CUDA_SUCCESS, "%s of %zu with %zu free: %u", way->name, most, before, exact);
    if (exact) continue;
    CHECK(free_bytes() <= before - most, "%s: %zu free after taking %zu of %zu", way->name, free_bytes(), most, before);
    CUdeviceptr more = 0;
    CUresult full = cuMemAlloc_v2(&more, way->step);
    CHECK(full == (way->spare ? CUDA_SUCCESS : CUDA_OUT_OF_MEMORY), "%s, and then some: %u", way->name, full);
    if (!full) MUST(cuMemFree_v2(more));
    way->give();
    CHECK(free_bytes() == before, "%s: %zu free after giving back, %zu before", way->name, free_bytes(), before);
    printf("%s: %zu MiB\n", way->name, most / MiB);
  }
  return done();
}
