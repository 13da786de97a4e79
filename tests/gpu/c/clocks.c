// The card's clock beside ours: how finely it counts, how far it is ahead, how far it drifts, and how sure that is.
// clocks SECONDS
#include "stamp.h"

enum { SAMPLES = 8192, PINGS = 200 };

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 20;
  alarm((unsigned)seconds + 60);
  uint64_t *page = shared_memory(4096), *samples = shared_memory(SAMPLES * 8);
  begin(0);
  MUST(cuMemHostRegister_v2(page, 4096, 2));
  MUST(cuMemHostRegister_v2(samples, SAMPLES * 8, 2));
  CUmodule module = load_image("stamps", stamp_image);
  CUfunction ping = kernel_of(module, "ping"), sample = kernel_of(module, "samples");
  CUstream stream;
  MUST(cuStreamCreate(&stream, 1));

  uint64_t count = SAMPLES;
  void *arguments[] = {&samples, &count};
  for (int round = 0; round < 3; round++) {
    MUST(cuLaunchKernel(sample, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    MUST(cuStreamSynchronize(stream));
  }
  double steps[SAMPLES];
  size_t changes = 0, back = 0;
  for (int i = 1; i < SAMPLES; i++) {
    if (samples[i] < samples[i - 1]) back++;
    else if (samples[i] > samples[i - 1]) steps[changes++] = (double)(samples[i] - samples[i - 1]);
  }
  printf("globaltimer: %d readings in %.0f us, %zu steps, %zu backwards; a step is %.0f ns in the median, %.0f at the least, %.0f at the most\n", SAMPLES,
         (double)(samples[SAMPLES - 1] - samples[0]) / 1e3, changes, back, at_part(steps, changes, 500), at_part(steps, changes, 0), at_part(steps, changes, 999));
  struct timespec monotonic, real;
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  clock_gettime(CLOCK_REALTIME, &real);

  static double at[4096], ahead[4096], quick[4096];
  uint64_t next = 1;
  size_t n = 0;
  int64_t first = 0;
  double begun = now_seconds();
  while (now_seconds() - begun < seconds && n < 4096) {
    double quickest;
    int64_t offset = clock_ahead(ping, page, &next, PINGS, &quickest, stream);
    if (!n) first = offset;
    at[n] = now_seconds() - begun;
    ahead[n] = (double)(offset - first) / 1e3;
    quick[n++] = quickest;
    usleep(20000);
  }
  double since_epoch = (double)(real.tv_sec - monotonic.tv_sec);
  printf("the card's clock is %.6f s ahead of CLOCK_MONOTONIC (CLOCK_REALTIME is %.0f s ahead)\n", (double)first / 1e9, since_epoch);
  // The line through all of it, and how far single offsets are from it.
  double mean_at = 0, mean_ahead = 0, above = 0, below = 0;
  for (size_t i = 0; i < n; i++) mean_at += at[i] / (double)n, mean_ahead += ahead[i] / (double)n;
  for (size_t i = 0; i < n; i++) above += (at[i] - mean_at) * (ahead[i] - mean_ahead), below += (at[i] - mean_at) * (at[i] - mean_at);
  double drift = below > 0 ? above / below : 0;
  for (size_t i = 0; i < n; i++) ahead[i] -= mean_ahead + drift * (at[i] - mean_at);
  double best = at_part(quick, n, 0), middle = at_part(quick, n, 500);
  for (size_t i = 0; i < n; i++) at[i] = ahead[i] < 0 ? -ahead[i] : ahead[i];
  printf("%zu offsets in %.0f s, each of the quickest of %d answers (%.2f us at best, %.2f in the median): it drifts %.3f us a second; an offset is %.2f us off"
         " that line in the median, %.2f at 95 %%, %.2f at the most\n", n, seconds, PINGS, best, middle, drift, at_part(at, n, 500), at_part(at, n, 950), at_part(at, n, 1000));
  return 0;
}
