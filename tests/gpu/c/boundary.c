// What a boundary between two chunks costs: a stream write and a stream wait in one call, as the library puts them there, on a page of
// the host; the gate is on another, which is only read, as a container's is. Told alone, and beside a program that waits at its gate
// with work queued. In microseconds: of the GPU, and of the CPU.
// boundary forms: the same of one operation alone, of both the other way round, in two calls, of words of 64 bits, with both words on one
// page, with the gate in the card's memory, with the write on a stream at the side, which waits for an event, with a memset in the place
// of the write, and between shorter kernels.
#include "spin.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { KERNELS = 200, ROUNDS = 7 };
static uint32_t kernel_us = 50;
typedef struct { volatile uint32_t go, closed, completed, step, open; volatile uint64_t wide_completed; } Page;
typedef struct { volatile uint32_t gate; volatile uint64_t wide_gate; } Gates;
typedef enum { NOTHING, BOTH, WRITE, WAIT, TURNED_ROUND, WIDE, WIDE_WRITE, ONE_PAGE, ON_CARD, TWO_CALLS, AT_THE_SIDE, MEMSET } Form;
static Page *page;
static const Gates *gates;
static CUfunction spin;
static CUstream stream, side;
static CUevent event;
static CUdeviceptr on_card;

static CUstreamBatchMemOpParams operation(unsigned what, const volatile void *word, uint32_t value) {
  CUstreamBatchMemOpParams made;
  memset(&made, 0, sizeof made);
  made.write.operation = what; // 1: wait, 2: write, 4 and 5: the same of 64 bits
  made.write.address = (CUdeviceptr)(uintptr_t)word;
  made.write.value = value;
  made.write.flags = what != 2 && what != 5; // a wait for what is equal. The driver refuses writes that are no memory barrier.
  return made;
}

static void wait_for(volatile uint32_t *word) {
  CUstreamBatchMemOpParams wait = operation(1, word, 1);
  MUST(cuStreamBatchMemOp_v2(stream, 1, &wait, 0));
}

static void set_up(void) {
  begin(0);
  MUST(cuMemHostRegister_v2(page, 4096, 2)); // seen by the device
  MUST(cuMemHostRegister_v2((void *)gates, 4096, 2 | 8)); // and this one only read
  spin = spin_kernel();
  MUST(cuStreamCreate(&stream, 1));
  MUST(cuStreamCreate(&side, 1));
  MUST(cuEventCreate(&event, 2));
  for (int i = 0; i < 20; i++) MUST(launch_spin(spin, kernel_us, stream));
  MUST(cuStreamSynchronize(stream));
}

static void step(uint32_t n) { page->step = n; }
static void await_step(uint32_t n) { while (page->step < n) usleep(1000); }

static void put(CUstream where, unsigned count, CUstreamBatchMemOpParams *operations) {
  MUST(cuStreamBatchMemOp_v2(where, count, operations, 0));
}

static void boundary(Form form, uint32_t completed) {
  CUstreamBatchMemOpParams write = operation(2, &page->completed, completed), wait = operation(1, &gates->gate, 1);
  CUstreamBatchMemOpParams both[] = {write, wait}, turned_round[] = {wait, write}, wide[] = {write, operation(4, &gates->wide_gate, 1)};
  CUstreamBatchMemOpParams wide_write[] = {operation(5, &page->wide_completed, completed), wait}, one_page[] = {write, operation(1, &page->open, 1)};
  CUstreamBatchMemOpParams gate_on_card[] = {write, operation(1, (void *)(uintptr_t)on_card, 1)};
  switch (form) {
  case NOTHING: break;
  case BOTH: put(stream, 2, both); break;
  case WRITE: put(stream, 1, &write); break;
  case WAIT: put(stream, 1, &wait); break;
  case TURNED_ROUND: put(stream, 2, turned_round); break;
  case WIDE: put(stream, 2, wide); break;
  case WIDE_WRITE: put(stream, 2, wide_write); break;
  case ONE_PAGE: put(stream, 2, one_page); break;
  case ON_CARD: put(stream, 2, gate_on_card); break;
  case TWO_CALLS:
    put(stream, 1, &write);
    put(stream, 1, &wait);
    break;
  case AT_THE_SIDE:
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(side, event, 0));
    put(side, 1, &write);
    put(stream, 1, &wait);
    break;
  case MEMSET:
    MUST(cuMemsetD32Async((CUdeviceptr)(uintptr_t)&page->completed, completed, 1, stream));
    put(stream, 1, &wait);
    break;
  }
}

// Kernels that begin together, with a boundary before each: seconds of the GPU, and of the CPU to submit them.
static void series(Form form, double *gpu, double *cpu) {
  page->go = 0;
  wait_for(&page->go);
  double begun = now_seconds();
  for (uint32_t i = 0; i < KERNELS; i++) {
    boundary(form, i);
    MUST(launch_spin(spin, kernel_us, stream));
  }
  double submitted = now_seconds();
  page->go = 1;
  MUST(cuStreamSynchronize(stream));
  *cpu = submitted - begun;
  *gpu = now_seconds() - submitted;
  MUST(cuStreamSynchronize(side));
}

static void tell(const char *what, Form form) {
  double best[2][2] = {{1e9, 1e9}, {1e9, 1e9}};
  for (int round = 0; round < ROUNDS; round++)
    for (int with = 0; with < 2; with++) {
      double gpu, cpu;
      series(with ? form : NOTHING, &gpu, &cpu);
      if (gpu < best[with][0]) best[with][0] = gpu;
      if (cpu < best[with][1]) best[with][1] = cpu;
    }
  printf("%s %.2f %.2f\n", what, (best[1][0] - best[0][0]) / KERNELS * 1e6, (best[1][1] - best[0][1]) / KERNELS * 1e6);
}

int main(int argc, char **argv) {
  page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int file = memfd_create("gates", 0);
  if (file < 0 || ftruncate(file, 4096)) return 1;
  Gates *opened = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  gates = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
  opened->gate = 1;
  opened->wide_gate = 1;
  pid_t other = fork();
  if (!other) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    await_step(1);
    set_up();
    wait_for(&page->closed);
    for (int i = 0; i < 100; i++) MUST(launch_spin(spin, kernel_us, stream));
    step(2);
    await_step(3);
    MUST(cuStreamSynchronize(stream));
    _exit(0);
  }
  set_up();
  tell("alone", BOTH);
  if (argc > 1 && !strcmp(argv[1], "forms")) {
    tell("write", WRITE);
    tell("wait", WAIT);
    tell("turned-round", TURNED_ROUND);
    tell("wide", WIDE);
    page->open = 1;
    MUST(cuMemAlloc_v2(&on_card, 4096));
    MUST(cuMemsetD32Async(on_card, 1, 1, stream));
    tell("wide-write", WIDE_WRITE);
    tell("one-page", ONE_PAGE);
    tell("on-card", ON_CARD);
    tell("two-calls", TWO_CALLS);
    tell("at-the-side", AT_THE_SIDE);
    tell("memset", MEMSET);
    kernel_us = 20;
    tell("between-20-us", BOTH);
    kernel_us = 5;
    tell("between-5-us", BOTH);
    kernel_us = 50;
  }
  step(1);
  await_step(2);
  tell("beside", BOTH);
  page->closed = 1;
  step(3);
  int status;
  waitpid(other, &status, 0);
  return status != 0;
}
