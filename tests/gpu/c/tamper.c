// The shared pages are not the program's to give to the driver, nor to be written by its streams.
#include "cuda.h"
#include <sys/mman.h>

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
    CHECK(cuStreamWriteValue32_v2(stream, start, 1, 0) == CUDA_INVALID_VALUE, "%s", line);
    CHECK(strstr(line, "/ledger") || line[strcspn(line, " ") + 2] == '-', "the gate is not writable: %s", line);
  }
  if (maps) fclose(maps);
  CHECK(seen >= 2, "%d mappings of ours", seen);
  // Pages of the program's own are its own.
  void *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(cuMemHostRegister_v2(own, 8192, 2) == CUDA_SUCCESS, "its own pages");
  CHECK(cuMemHostUnregister(own) == CUDA_SUCCESS, "its own pages");
  return done();
}
