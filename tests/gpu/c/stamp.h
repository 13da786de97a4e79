// Kernels of one thread that store the card's clock, and the images they come in. A stamp is 16 bytes: the time in nanoseconds
// (`globaltimer`), and a number.
#ifndef DIVVY_TEST_STAMP_H
#define DIVVY_TEST_STAMP_H
#include "spin.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

typedef struct { volatile uint64_t time, number; } Stamp;

// stamp: one store of 16 bytes. fenced: two stores with a fence between, as a reader on the CPU needs where 16 bytes are not stored at
// once. gated: looks at a gate until it is open, then stamps. between: stamps the end of what was before, looks at the gate, stamps the
// begin of what comes. ping: answers numbers on a page with the time, until it has answered them all. samples: the clock, as often as
// it can be read.
static const char *stamp_image __attribute__((unused)) =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry stamp(.param .u64 at, .param .u64 number)\n"
    "{\n.reg .u64 %a, %n, %t;\n"
    "ld.param.u64 %a, [at]; ld.param.u64 %n, [number];\n"
    "mov.u64 %t, %globaltimer; st.global.v2.u64 [%a], {%t, %n};\nret;\n}\n"
    ".visible .entry fenced(.param .u64 at, .param .u64 number)\n"
    "{\n.reg .u64 %a, %n, %t;\n"
    "ld.param.u64 %a, [at]; ld.param.u64 %n, [number];\n"
    "mov.u64 %t, %globaltimer; st.volatile.global.u64 [%a], %t; membar.sys; st.volatile.global.u64 [%a+8], %n;\nret;\n}\n"
    ".visible .entry gated(.param .u64 at, .param .u64 number, .param .u64 gate)\n"
    "{\n.reg .u64 %a, %n, %t, %g; .reg .u32 %w; .reg .pred %shut;\n"
    "ld.param.u64 %a, [at]; ld.param.u64 %n, [number]; ld.param.u64 %g, [gate];\n"
    "look:\nld.volatile.global.u32 %w, [%g]; setp.ne.u32 %shut, %w, 1; @%shut bra look;\n"
    "mov.u64 %t, %globaltimer; st.global.v2.u64 [%a], {%t, %n};\nret;\n}\n"
    ".visible .entry between(.param .u64 at, .param .u64 number, .param .u64 gate)\n"
    "{\n.reg .u64 %a, %n, %t, %g; .reg .u32 %w; .reg .pred %shut;\n"
    "ld.param.u64 %a, [at]; ld.param.u64 %n, [number]; ld.param.u64 %g, [gate];\n"
    "mov.u64 %t, %globaltimer; st.global.v2.u64 [%a+16], {%t, %n};\n"
    "look:\nld.volatile.global.u32 %w, [%g]; setp.ne.u32 %shut, %w, 1; @%shut bra look;\n"
    "mov.u64 %t, %globaltimer; st.global.v2.u64 [%a], {%t, %n};\nret;\n}\n"
    ".visible .entry ping(.param .u64 page, .param .u64 first, .param .u64 last)\n"
    "{\n.reg .u64 %p, %n, %l, %w, %t; .reg .pred %again, %more;\n"
    "ld.param.u64 %p, [page]; ld.param.u64 %n, [first]; ld.param.u64 %l, [last];\n"
    "next:\nld.volatile.global.u64 %w, [%p]; setp.lt.u64 %again, %w, %n; @%again bra next;\n"
    "mov.u64 %t, %globaltimer; st.volatile.global.u64 [%p+64], %t; membar.sys; st.volatile.global.u64 [%p+72], %n;\n"
    "add.u64 %n, %n, 1; setp.le.u64 %more, %n, %l; @%more bra next;\nret;\n}\n"
    ".visible .entry samples(.param .u64 at, .param .u64 count)\n"
    "{\n.reg .u64 %a, %n, %t; .reg .pred %more;\n"
    "ld.param.u64 %a, [at]; ld.param.u64 %n, [count];\n"
    "next:\nmov.u64 %t, %globaltimer; st.global.u64 [%a], %t; add.u64 %a, %a, 8;\n"
    "sub.u64 %n, %n, 1; setp.ne.u64 %more, %n, 0; @%more bra next;\nret;\n}\n";

// The same stamp for a launch that may begin while the kernel before it still runs, and waits for its end inside.
static const char *early_image __attribute__((unused)) =
    ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".visible .entry early(.param .u64 at, .param .u64 number)\n"
    "{\n.reg .u64 %a, %n, %t;\n"
    "ld.param.u64 %a, [at]; ld.param.u64 %n, [number];\n"
    "griddepcontrol.wait;\n"
    "mov.u64 %t, %globaltimer; st.global.v2.u64 [%a], {%t, %n};\nret;\n}\n";

// Null, and said so, where the driver will not take the image.
static inline CUmodule load_image(const char *what, const char *image) {
  static char said[4096];
  int options[] = {5, 6}; // a buffer for errors, and its size
  void *values[] = {said, (void *)(uintptr_t)sizeof said};
  CUresult (*load)(CUmodule *, const void *, unsigned, int *, void **);
  *(void **)&load = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuModuleLoadDataEx");
  CUmodule module = NULL;
  CUresult result = load ? load(&module, image, 2, options, values) : 1;
  if (result) printf("%s: not loaded, error %u %s\n", what, result, said);
  return result ? NULL : module;
}

static inline CUfunction kernel_of(CUmodule module, const char *name) {
  CUfunction function = NULL;
  if (module) MUST(cuModuleGetFunction(&function, module, name));
  return function;
}

static inline CUresult launch_stamp(CUfunction kernel, Stamp *at, uint64_t number, const volatile uint32_t *gate, CUstream stream) {
  void *arguments[] = {&at, &number, &gate};
  return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

// Memory that every process forked from here shares, and the card sees once it is registered.
static inline void *shared_memory(size_t bytes) {
  void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) { perror("mmap"); exit(1); }
  return made;
}

static inline CUstreamBatchMemOpParams operation(unsigned what, const volatile void *word, uint32_t value) {
  CUstreamBatchMemOpParams made;
  memset(&made, 0, sizeof made);
  made.write.operation = what; // 1: wait until it is equal, 2: write
  made.write.address = (CUdeviceptr)(uintptr_t)word;
  made.write.value = value;
  made.write.flags = what == 1;
  return made;
}

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// The value below which so many thousandths of the sorted ones are.
static inline double at_part(double *values, size_t count, unsigned thousandths) {
  if (!count) return -1;
  qsort(values, count, sizeof *values, by_size);
  size_t place = count * thousandths / 1000;
  return values[place < count ? place : count - 1];
}

// By how much the card's clock is ahead of ours: the middle of a question and its answer, of the quickest answer. `first` numbers go on.
static inline int64_t clock_ahead(CUfunction ping, uint64_t *page, uint64_t *first, unsigned count, double *quickest_us, CUstream stream) {
  volatile uint64_t *asked = page, *time = page + 8, *answered = page + 9;
  uint64_t from = *first, last = from + count - 1;
  void *arguments[] = {&page, &from, &last};
  MUST(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
  uint64_t best = UINT64_MAX;
  int64_t ahead = 0;
  for (uint64_t n = from; n <= last; n++) {
    uint64_t before = now_ns();
    *asked = n;
    while (*answered != n) { }
    uint64_t after = now_ns();
    if (n > from && after - before < best) {
      best = after - before;
      ahead = (int64_t)(*time - (before + (after - before) / 2));
    }
  }
  MUST(cuStreamSynchronize(stream));
  *first = last + 1;
  *quickest_us = (double)best / 1e3;
  return ahead;
}
#endif
