// What the library adds to a launch between two boundaries, in nanoseconds: an empty kernel through the library and straight into the
// driver, in turns, in one process and one stream, for a core is faster and slower from one process to the next. Queues are emptied
// before they are full, and launches at a boundary are left out. What is told are medians. Without the library both are the driver's,
// and what it says is how far it can be trusted. launch [pairs]
#include "cuda.h"

#include <elf.h>
#include <link.h>

enum { PAIRS_QUEUED = 256 };
typedef CUresult (*Launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static const char *image = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_ns_1()\n{\nret;\n}\n";

// The driver's own function, from its table of symbols: whoever asks the loader is given the library's.
static Launch drivers_own(const char *wanted) {
  struct link_map *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const ElfW(Sym) *symbols = NULL;
  const char *names = NULL;
  const uint32_t *hash = NULL;
  for (const ElfW(Dyn) *entry = driver->l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) symbols = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) names = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_GNU_HASH) hash = (const void *)entry->d_un.d_ptr;
  }
  if (!symbols || !names || !hash) return NULL;
  // Words of DT_GNU_HASH: buckets, the first symbol, size of the filter, its shift; then filter, buckets and chains.
  const uint32_t *buckets = hash + 4 + hash[2] * sizeof(ElfW(Addr)) / sizeof(uint32_t), *chains = buckets + hash[0];
  for (uint32_t b = 0; b < hash[0]; b++) {
    for (uint32_t i = buckets[b]; i >= hash[1]; i++) {
      if (symbols[i].st_value && !strcmp(names + symbols[i].st_name, wanted)) return (Launch)(driver->l_addr + symbols[i].st_value);
      if (chains[i - hash[1]] & 1) break;
    }
  }
  return NULL;
}

static double each_ns(Launch launch, CUfunction nothing) {
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  CUresult status = launch(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
  clock_gettime(CLOCK_MONOTONIC, &after);
  MUST(status);
  return seconds_between(before, after) * 1e9;
}

// Keeps those below a bound, and says how many.
static size_t below(double *values, size_t count, double bound) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++)
    if (values[i] < bound) values[kept++] = values[i];
  return kept;
}

int main(int argc, char **argv) {
  int pairs = argc > 1 ? atoi(argv[1]) : 40000;
  begin(0);
  CUmodule module;
  CUfunction nothing;
  MUST(cuModuleLoadData(&module, image));
  MUST(cuModuleGetFunction(&nothing, module, "spin_ns_1"));
  Launch own = drivers_own("cuLaunchKernel");
  if (!own) { printf("the driver's cuLaunchKernel was not found\n"); return 1; }
  double *held = malloc(sizeof *held * (size_t)pairs), *native = malloc(sizeof *native * (size_t)pairs);
  for (int i = -PAIRS_QUEUED; i < pairs; i++) {  // the first ones warm up
    double both[2];
    for (int turn = 0; turn < 2; turn++) {
      int whose = (i ^ turn) & 1;
      both[whose] = each_ns(whose ? cuLaunchKernel : own, nothing);
    }
    if (i >= 0) native[i] = both[0], held[i] = both[1];
    if (i % PAIRS_QUEUED == 0) MUST(cuStreamSynchronize(NULL));
  }
  // A boundary takes more than that. The driver has slow launches of its own, which are left out on both sides.
  size_t all = (size_t)pairs;
  double slow = median(native, all) + 600;
  size_t without = below(native, all, slow), with = below(held, all, slow);
  double usual = median(native, without);
  printf("more %.1f native %.1f library %d quick %.3f native-quick %.3f\n", median(held, with) - usual, usual, own != cuLaunchKernel,
         (double)with / (double)all, (double)without / (double)all);
  return 0;
}
