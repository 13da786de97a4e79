// Children: by fork and by clone, before the parent used the GPU and after, with GPU work of their own and without.
#include "cuda.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// A child's own use of the GPU, from the beginning.
static int uses_gpu(void) {
  CUdeviceptr address = 0;
  begin(0);
  size_t before = free_bytes();
  MUST(cuMemAlloc_v2(&address, 32u << 20));
  CHECK(free_bytes() == before - (32u << 20), "%zu of %zu", free_bytes(), before);
  MUST(cuMemFree_v2(address));
  return wrong != 0;
}

int main(void) {
  for (int i = 0; i < 4; i++) {
    pid_t child = fork();
    if (child == 0) _exit(uses_gpu());
    CHECK(wait_for(child) == 0, "a child of a parent that has not used the GPU");
  }
  // A clone that is no fork for the C library.
  pid_t cloned = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (cloned == 0) _exit(uses_gpu());
  CHECK(wait_for(cloned) == 0, "a cloned child");

  begin(0);
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, 64u << 20));
  size_t held = free_bytes();
  for (int i = 0; i < 16; i++) {
    pid_t child = fork();
    if (child == 0) _exit(0); // a worker that never touches the GPU
    CHECK(wait_for(child) == 0, "a worker");
  }
  CHECK(free_bytes() == held, "workers took %zu of %zu", free_bytes(), held);
  for (int i = 0; i < 4; i++) {
    pid_t child = i % 2 ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
    if (child == 0) {
      // The driver does not survive a fork; whatever it says, the parent's books are none of the child's business.
      CUdeviceptr mine = 0;
      cuMemAlloc_v2(&mine, 16u << 20);
      cuMemFree_v2(address);
      _exit(0);
    }
    int ended = wait_for(child);
    CHECK(ended == 0, "a child that uses what it inherited: %d", ended);
  }
  CHECK(free_bytes() == held, "children took %zu of %zu", free_bytes(), held);
  MUST(cuMemFree_v2(address));
  CHECK(free_bytes() == held + (64u << 20), "%zu", free_bytes());
  // A program that is replaced by another is gone.
  if (getenv("DIVVY_TEST_REPLACED") == NULL) {
    MUST(cuMemAlloc_v2(&address, 128u << 20));
    setenv("DIVVY_TEST_REPLACED", "1", 1);
    if (wrong) return done();
    execl("/proc/self/exe", "children", (char *)NULL);
    return 1;
  }
  return done();
}
