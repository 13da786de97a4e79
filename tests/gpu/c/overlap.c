// The default streams of two threads are two streams where a program asks for that: their kernels run side by side, with one block
// each. With the plain functions they are one stream, and run one after the other. overlap
#include "spin.h"
#include <pthread.h>

enum { KERNELS = 40, US = 2000 };
static CUcontext context;
static CUfunction spin;
static pthread_barrier_t start;
static int per_thread;

static void *work(void *unused) {
  (void)unused;
  uint32_t us = US;
  uint64_t nowhere = 0;
  void *arguments[] = {&us, &nowhere};
  MUST(cuCtxSetCurrent(context));
  pthread_barrier_wait(&start);
  for (int i = 0; i < KERNELS; i++)
    MUST((per_thread ? cuLaunchKernel_ptsz : cuLaunchKernel)(spin, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
  MUST((per_thread ? cuStreamSynchronize_ptsz : cuStreamSynchronize)(NULL));
  return NULL;
}

static double both(int own) {
  pthread_t threads[2];
  per_thread = own;
  pthread_barrier_init(&start, NULL, 3);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, NULL);
  double begun = now_seconds();
  pthread_barrier_wait(&start);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return now_seconds() - begun;
}

int main(void) {
  context = begin(0);
  spin = spin_kernel();
  both(1); // warm
  double together = 1e9, in_turn = 1e9;
  for (int i = 0; i < 5; i++) {
    double own = both(1), shared = both(0);
    if (own < together) together = own;
    if (shared < in_turn) in_turn = shared;
  }
  CHECK(together < 0.75 * in_turn, "side by side %.0f ms, one after the other %.0f ms", 1000 * together, 1000 * in_turn);
  printf("side by side %.0f ms, one after the other %.0f ms\n", 1000 * together, 1000 * in_turn);
  return done();
}
