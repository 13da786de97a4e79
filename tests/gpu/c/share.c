// Memory that processes share is charged to the one that allocated it. share: starts itself a second time as "share import".
#include "cuda.h"
#include <sys/wait.h>

typedef struct { char bytes[64]; } handle_t;
static const size_t bytes = 64u << 20;

static int import_it(void) {
  begin(0);
  CUresult (*open_handle)(CUdeviceptr *, handle_t, unsigned) = (CUresult (*)(CUdeviceptr *, handle_t, unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuIpcOpenMemHandle_v2");
  CUresult (*close_handle)(CUdeviceptr) = (CUresult (*)(CUdeviceptr))dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuIpcCloseMemHandle");
  handle_t handle;
  if (read(0, &handle, sizeof handle) != sizeof handle) return 1;
  size_t before = free_bytes();
  CUdeviceptr address = 0;
  MUST(open_handle(&address, handle, 1));
  CHECK(free_bytes() == before, "importing cost %zu", before - free_bytes());
  unsigned char word = 0;
  MUST(cuMemcpyDtoH_v2(&word, address, 1));
  CHECK(word == 0x5a, "it is the same memory: %#x", word);
  CHECK(close_handle(address) == CUDA_SUCCESS, "closing");
  CHECK(free_bytes() == before, "closing cost %zu", before - free_bytes());
  return done();
}

int main(int argc, char **argv) {
  if (argc > 1) return import_it();
  begin(0);
  size_t before = free_bytes();
  CUdeviceptr address;
  MUST(cuMemAlloc_v2(&address, bytes));
  MUST(cuMemsetD8_v2(address, 0x5a, 4096));
  MUST(cuCtxSynchronize());
  handle_t handle;
  MUST(cuIpcGetMemHandle(&handle, address));
  int pipes[2];
  if (pipe(pipes)) return 1;
  pid_t child = fork();
  if (child == 0) {
    dup2(pipes[0], 0);
    close(pipes[1]);
    execl("/proc/self/exe", argv[0], "import", (char *)NULL);
    _exit(1);
  }
  close(pipes[0]);
  CHECK(write(pipes[1], &handle, sizeof handle) == sizeof handle, "handing over");
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0, "the importer: %d", status);
  CHECK(before - free_bytes() == bytes, "%zu charged", before - free_bytes());
  MUST(cuMemFree_v2(address));
  CHECK(free_bytes() == before, "%zu left", before - free_bytes());
  return done();
}
