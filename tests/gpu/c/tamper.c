// The shared pages are not the program's to give to the driver, nor to be written by its streams.
#include "cuda.h"
#include <sys/mman.h>

// A word that is ours, by every way in which a stream writes one; one that begins before our pages and ends in them, too.
static void written(CUstream stream, unsigned long at, const char *line) {
  if (at % 4096 != 4092) {
    CHECK(cuStreamWriteValue32(stream, at, 1, 0) == CUDA_INVALID_VALUE, "%s", line);
    CHECK(cuStreamWriteValue32_v2(stream, at, 1, 0) == CUDA_INVALID_VALUE, "%s", line);
    CHECK(cuStreamWriteValue32_v2_ptsz(stream, at, 1, 0) == CUDA_INVALID_VALUE, "%s", line);
  }
  CHECK(cuStreamWriteValue64_v2(stream, at, 1, 0) == CUDA_INVALID_VALUE, "%s", line);
  CHECK(cuStreamWriteValue64_v2_ptsz(stream, at, 1, 0) == CUDA_INVALID_VALUE, "%s", line);
  CUstreamBatchMemOpParams several[2] = {{.write = {.operation = 5, .address = at, .value = 1}}, {.write = {.operation = 5, .address = at, .value = 1}}};
  several[0].write.operation = 6; // waits for remote writes: nothing to hide behind
  CHECK(cuStreamBatchMemOp_v2(stream, 2, several, 0) == CUDA_INVALID_VALUE, "%s", line);
  CHECK(cuStreamBatchMemOp_v2_ptsz(stream, 2, several, 0) == CUDA_INVALID_VALUE, "%s", line);
  CUgraph graph;
  CUgraphNode node;
  CUcontext context;
  MUST(cuGraphCreate(&graph, 0));
  MUST(cuCtxGetCurrent(&context));
  CUDA_BATCH_MEM_OP_NODE_PARAMS described = {.ctx = context, .count = 2, .paramArray = several};
  CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &described) == CUDA_INVALID_VALUE, "%s", line);
  MUST(cuGraphDestroy(graph));
}

int main(void) {
  begin(0);
  CUstream stream;
  MUST(cuStreamCreate(&stream, 1));
  char line[512];
  int seen = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    unsigned long start, end;
    if (!strstr(line, "/gate") && !strstr(line, "/ledger")) continue;
    if (sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
    seen++;
    CHECK(cuMemHostRegister_v2((void *)start, end - start, 2) == CUDA_INVALID_VALUE, "%s", line);
    CHECK(cuMemHostRegister_v2((void *)(start + 4096), 4096, 2) == CUDA_INVALID_VALUE, "%s", line);
    CHECK(cuMemHostUnregister((void *)start) == CUDA_INVALID_VALUE, "%s", line);
    written(stream, start, line);
    written(stream, start + 4096, line);
    written(stream, end - 8, line);
    written(stream, start - 4, line);
    CHECK(strstr(line, "/ledger") || line[strcspn(line, " ") + 2] == '-', "the gate is not writable: %s", line);
  }
  if (maps) fclose(maps);
  CHECK(seen >= 2, "%d mappings of ours", seen);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS, "nothing of that reached the GPU");
  // Pages of the program's own are its own.
  void *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(cuMemHostRegister_v2(own, 8192, 2) == CUDA_SUCCESS, "its own pages");
  CHECK(cuMemHostUnregister(own) == CUDA_SUCCESS, "its own pages");
  return done();
}
