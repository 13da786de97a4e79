// Several streams with hundreds of kernels queued in each, refilled as they run: says for how long the slowest of them stood still.
// moves seconds [streams [kernel-us]]
#include "spin.h"

enum { MOST = 16, DEPTH = 250 };

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 5;
  int streams = argc > 2 ? atoi(argv[2]) : 4;
  uint32_t us = argc > 3 ? (uint32_t)atoi(argv[3]) : 500;
  if (streams > MOST) streams = MOST;
  begin(0);
  CUfunction spin = spin_kernel();
  CUstream stream[MOST];
  volatile uint32_t *word = NULL;
  MUST(cuMemHostAlloc((void **)&word, 4096, 2));
  uint32_t queued[MOST] = {0}, seen[MOST] = {0};
  double moved[MOST], still[MOST] = {0}, start = now_seconds();
  for (int i = 0; i < streams; i++) {
    MUST(cuStreamCreate(&stream[i], 1));
    moved[i] = start;
    ((uint32_t *)word)[i] = 0;
  }
  int said = 0;
  while (now_seconds() - start < seconds) {
    for (int i = 0; i < streams; i++) {
      // Each stream says itself how far it is, by a word of ours: no call that waits or asks.
      while (queued[i] - word[i] < DEPTH) {
        MUST(launch_spin(spin, us, stream[i]));
        queued[i]++;
        MUST(cuStreamWriteValue32_v2(stream[i], (CUdeviceptr)(uintptr_t)&word[i], queued[i], 0));
      }
      double now = now_seconds();
      if (word[i] != seen[i]) {
        seen[i] = word[i];
        moved[i] = now;
      }
      if (said && now - moved[i] > still[i]) still[i] = now - moved[i];
    }
    int all = 1;
    for (int i = 0; i < streams; i++) all &= seen[i] > 0;
    if (all && !said) {
      said = 1;
      printf("begun\n");
      fflush(stdout);
    }
    usleep(500);
  }
  double worst = 0;
  long done = 0;
  for (int i = 0; i < streams; i++) {
    if (still[i] > worst) worst = still[i];
    done += seen[i];
  }
  printf("still_ms %.0f done %ld\n", worst * 1000, done);
  fflush(stdout);
  _exit(0); // with everything still queued
}
