// Every way of handing work to the GPU goes through the gate and comes out of it: captures, graphs, thousands of streams, the default
// streams of many threads, events between streams, host functions, large copies, several contexts, children. ways
#include "spin.h"
#include <pthread.h>
#include <sys/wait.h>

static CUfunction spin;
static CUcontext context;

static void captures(void) {
  CUstream stream;
  MUST(cuStreamCreate(&stream, 1));
  for (int mode = 0; mode < 3; mode++) {
    CUgraph graph;
    CUgraphExec exec;
    MUST(launch_spin(spin, 20, stream)); // a chunk is open when the capture begins
    MUST(cuStreamBeginCapture_v2(stream, (unsigned)mode));
    for (int i = 0; i < 50; i++) CHECK(launch_spin(spin, 20, stream) == CUDA_SUCCESS, "a launch in a capture of mode %d", mode);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph, "a capture of mode %d is whole", mode);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 10; i++) CHECK(cuGraphLaunch(exec, stream) == CUDA_SUCCESS, "its graph runs");
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
  }
  MUST(cuStreamDestroy_v2(stream));
}

static void churn(void) {
  for (int i = 0; i < 3000; i++) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, 1));
    MUST(launch_spin(spin, 1, stream));
    if (i % 3 == 0) MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream)); // often with its work still queued
  }
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS, "everything that was queued in destroyed streams is done");
}

static void *thread(void *unused) {
  (void)unused;
  uint64_t nowhere = 0;
  uint32_t us = 5;
  void *arguments[] = {&us, &nowhere};
  if (cuCtxSetCurrent(context)) return (void *)1;
  for (int i = 0; i < 20; i++)
    if (cuLaunchKernel_ptsz(spin, 132, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL)) return (void *)2;
  return cuStreamSynchronize_ptsz(NULL) ? (void *)3 : NULL;
}

static void threads(void) {
  for (int round = 0; round < 8; round++) {
    pthread_t all[32];
    for (int i = 0; i < 32; i++) pthread_create(&all[i], NULL, thread, NULL);
    for (int i = 0; i < 32; i++) {
      void *said = NULL;
      pthread_join(all[i], &said);
      CHECK(said == NULL, "a thread's default stream: step %ld", (long)said);
    }
  }
}

static volatile int called;
static void host(void *unused) {
  (void)unused;
  called++;
}

static void together(void) {
  CUstream first, second;
  CUevent event;
  MUST(cuStreamCreate(&first, 1));
  MUST(cuStreamCreate(&second, 1));
  MUST(cuEventCreate(&event, 2));
  for (int i = 0; i < 200; i++) {
    MUST(launch_spin(spin, 10, first));
    MUST(cuEventRecord(event, first));
    MUST(cuStreamWaitEvent(second, event, 0));
    MUST(launch_spin(spin, 10, second));
  }
  MUST(cuLaunchHostFunc(second, host, NULL));
  double until = now_seconds() + 30;
  while (!called && now_seconds() < until) usleep(100); // waits without a call of the driver's
  CHECK(called == 1, "the host function was called");
  MUST(launch_spin(spin, 100, NULL));
  while (cuStreamQuery(first) == 600 && now_seconds() < until) usleep(10);
  CHECK(cuStreamQuery(first) == CUDA_SUCCESS && cuStreamSynchronize(second) == CUDA_SUCCESS, "both streams are done");
  size_t bytes = 64u << 20;
  void *buffer = NULL;
  CUdeviceptr memory;
  MUST(cuMemHostAlloc(&buffer, bytes, 0));
  MUST(cuMemAlloc_v2(&memory, bytes));
  for (int i = 0; i < 4; i++) MUST(cuMemcpyHtoDAsync_v2(memory, buffer, bytes, first));
  CHECK(cuMemcpyDtoH_v2(buffer, memory, bytes) == CUDA_SUCCESS, "a large copy that is waited for");
  MUST(cuMemFree_v2(memory));
  MUST(cuMemFreeHost(buffer));
  MUST(cuEventDestroy_v2(event));
  MUST(cuStreamDestroy_v2(first));
  MUST(cuStreamDestroy_v2(second));
}

static void contexts(void) {
  for (int i = 0; i < 5; i++) {
    CUcontext other;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    CUfunction here = spin_kernel();
    CUstream stream;
    MUST(cuStreamCreate(&stream, 1));
    for (int k = 0; k < 20; k++) MUST(launch_spin(here, 5, k % 2 ? stream : NULL));
    if (i % 2) MUST(cuCtxSynchronize());
    CHECK(cuCtxDestroy_v2(other) == CUDA_SUCCESS, "a context with work in it is destroyed");
    MUST(cuCtxSetCurrent(context));
    MUST(launch_spin(spin, 5, NULL));
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS, "the first context goes on");
  }
}

int main(void) {
  pid_t child = fork();
  if (child == 0) {
    context = begin(0);
    spin = spin_kernel();
    for (int i = 0; i < 50; i++) MUST(launch_spin(spin, 10, NULL));
    MUST(cuCtxSynchronize());
    _exit(0);
  }
  context = begin(0);
  spin = spin_kernel();
  captures();
  churn();
  threads();
  together();
  contexts();
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child with work of its own: %d", status);
  return done();
}
