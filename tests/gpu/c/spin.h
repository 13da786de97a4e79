// A kernel that runs for about as many microseconds as its argument says: a chain of dependent operations, so that it is work and not
// a clock that is waited for, and takes as much of the card's time whoever else is there. The fake driver goes by the name.
#ifndef DIVVY_TEST_SPIN_H
#define DIVVY_TEST_SPIN_H
#include "cuda.h"

static const char *spin_image =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_arg_us(.param .u32 us, .param .u64 out)\n"
    "{\n.reg .u32 %n, %i; .reg .f32 %x; .reg .u64 %o; .reg .pred %more, %never;\n"
    "ld.param.u32 %n, [us]; ld.param.u64 %o, [out];\n"
    "mul.lo.u32 %n, %n, 480; mov.u32 %i, 0; mov.f32 %x, 0f3F800000;\n"
    "again:\nfma.rn.f32 %x, %x, 0f3F800001, 0f33D6BF95; add.u32 %i, %i, 1; setp.lt.u32 %more, %i, %n; @%more bra again;\n"
    "setp.eq.f32 %never, %x, 0f7F800000; @%never st.global.f32 [%o], %x;\nret;\n}\n";

static inline CUfunction spin_kernel(void) {
  CUmodule module;
  CUfunction spin;
  MUST(cuModuleLoadData(&module, spin_image));
  MUST(cuModuleGetFunction(&spin, module, "spin_arg_us"));
  return spin;
}

// As many blocks as a large card has multiprocessors, so that it is full.
static inline CUresult launch_spin(CUfunction spin, uint32_t us, CUstream stream) {
  uint64_t nowhere = 0;
  void *arguments[] = {&us, &nowhere};
  return cuLaunchKernel(spin, 132, 1, 1, 32, 1, 1, 0, stream, arguments, NULL);
}
#endif
