// A tenant that wants everything: keeps the card busy for as long as it lives, takes memory piece by piece until it is refused, gives
// half of it back and begins again. Says every quarter of a second how many kernels it ran and how often it was refused.
// tenant [kernel-us [piece-mib]]
#include "spin.h"

enum { PIECES = 4096, BURST = 20 };

int main(int argc, char **argv) {
  uint32_t us = argc > 1 ? (uint32_t)atoi(argv[1]) : 500;
  size_t piece = (size_t)(argc > 2 ? atoi(argv[2]) : 64) << 20;
  begin(0);
  CUfunction spin = spin_kernel();
  static CUdeviceptr pieces[PIECES];
  size_t held = 0;
  long kernels = 0, refused = 0;
  double said = 0, grew = 0;
  for (;;) {
    for (int i = 0; i < BURST; i++) MUST(launch_spin(spin, us, NULL));
    MUST(cuStreamSynchronize(NULL));
    kernels += BURST;
    double now = now_seconds();
    if (now - grew > 0.1) {
      grew = now;
      CUresult took = held < PIECES ? cuMemAlloc_v2(&pieces[held], piece) : CUDA_OUT_OF_MEMORY;
      if (took == CUDA_SUCCESS) {
        held++;
      } else if (took == CUDA_OUT_OF_MEMORY) {
        refused++;
        // Every now and then it starts over, so that one sees it grow again.
        if (refused % 20 == 0)
          for (size_t keep = held / 2; held > keep; held--) MUST(cuMemFree_v2(pieces[held - 1]));
      } else {
        MUST(took);
      }
    }
    if (now - said > 0.25) {
      said = now;
      printf("kernels %ld refused %ld\n", kernels, refused);
      if (fflush(stdout) != 0) return 0;  // whoever listened is gone
    }
  }
}
