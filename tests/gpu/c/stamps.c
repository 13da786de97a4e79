// What a boundary between two chunks costs when it also says when chunks began and ended, in microseconds: of the GPU, and of the caller;
// and whether the stamps are right. Forms are measured alone, and beside a program that waits at its gate with work queued; between
// chunks of one kernel, of ten short ones, and of a graph.
#include "stamp.h"

enum { ROUNDS = 9, MOST_CHUNKS = 120 };
typedef struct { volatile uint32_t go, closed, step, completed, begun, release; } Page;
typedef enum {
  NOTHING, WRITE, WRITE_WAIT, WRITE_WAIT_WRITE, WRITE_WAIT_STAMP, WRITE_WAIT_FENCED, WRITE_WAIT_EARLY, STAMP_WAIT, STAMP_WAIT_STAMP, FENCED_WAIT_FENCED,
  EVENT_WAIT_EVENT, WRITE_WAIT_EVENT, WRITE_GATED, BETWEEN, FORMS
} Form;
static const char *names[] = {
  "nothing", "write", "write, wait (today)", "write, wait, write (the arbiter dates the second)", "write, wait, stamp", "write, wait, fenced stamp",
  "write, wait, early stamp", "stamp, wait", "stamp, wait, stamp", "fenced stamp, wait, fenced stamp", "timing event, wait, timing event",
  "write, wait, timing event", "write, kernel that looks at the gate and stamps", "one kernel: stamp, look at the gate, stamp",
};
// What a chunk is made of.
typedef struct { const char *name; unsigned chunks, kernels, us; int graph; } Load;
static const Load loads[] = {
  {"one kernel of 50 us", MOST_CHUNKS, 1, 50, 0}, {"one kernel of 5 us", MOST_CHUNKS, 1, 5, 0}, {"ten kernels of 5 us", 60, 10, 5, 0},
  {"a graph of ten kernels of 5 us", MOST_CHUNKS, 10, 5, 1},
};
static Page *page;
static Stamp *stamps;
static const volatile uint32_t *gate;
static CUfunction spin, stamp, fenced, gated, between, early;
static CUstream stream;
static CUevent events[2 * MOST_CHUNKS];
static CUresult (*elapsed)(float *, CUevent, CUevent);
static CUresult (*launch_ex)(const void *, CUfunction, void **, void **);
static CUgraphExec graph;

static void put(unsigned count, CUstreamBatchMemOpParams *operations) { MUST(cuStreamBatchMemOp_v2(stream, count, operations, 0)); }

static void launch_early(Stamp *at, uint64_t number) {
  struct { uint32_t id; char pad[4]; union { char all[64]; int allowed; } value; } attribute;
  struct { unsigned grid[3], block[3], shared; CUstream stream; void *attributes; unsigned count; } config = {{1, 1, 1}, {1, 1, 1}, 0, stream, &attribute, 1};
  memset(&attribute, 0, sizeof attribute);
  attribute.id = 6; // may begin before the kernel in front of it has ended
  attribute.value.allowed = 1;
  void *arguments[] = {&at, &number};
  MUST(launch_ex(&config, early, arguments, NULL));
}

// The end of the chunk before `i`, and the begin of `i`. Chunk i's begin is stamps[2 * i], and the end of the one before it follows that.
static void boundary(Form form, unsigned i) {
  CUstreamBatchMemOpParams write = operation(2, &page->completed, i), wait = operation(1, gate, 1), begun = operation(2, &page->begun, i + 1);
  CUstreamBatchMemOpParams today[] = {write, wait}, dated[] = {write, wait, begun};
  Stamp *begin = stamps + 2 * i, *end = begin + 1;
  switch (form) {
  case NOTHING: case FORMS: break;
  case WRITE: put(1, &write); break;
  case WRITE_WAIT: put(2, today); break;
  case WRITE_WAIT_WRITE: put(3, dated); break;
  case WRITE_WAIT_STAMP: put(2, today); MUST(launch_stamp(stamp, begin, i, gate, stream)); break;
  case WRITE_WAIT_FENCED: put(2, today); MUST(launch_stamp(fenced, begin, i, gate, stream)); break;
  case WRITE_WAIT_EARLY: put(2, today); launch_early(begin, i); break;
  case STAMP_WAIT: MUST(launch_stamp(stamp, end, i, gate, stream)); put(1, &wait); break;
  case STAMP_WAIT_STAMP: MUST(launch_stamp(stamp, end, i, gate, stream)); put(1, &wait); MUST(launch_stamp(stamp, begin, i, gate, stream)); break;
  case FENCED_WAIT_FENCED: MUST(launch_stamp(fenced, end, i, gate, stream)); put(1, &wait); MUST(launch_stamp(fenced, begin, i, gate, stream)); break;
  case EVENT_WAIT_EVENT: MUST(cuEventRecord(events[2 * i + 1], stream)); put(1, &wait); MUST(cuEventRecord(events[2 * i], stream)); break;
  case WRITE_WAIT_EVENT: put(2, today); MUST(cuEventRecord(events[2 * i], stream)); break;
  case WRITE_GATED: put(1, &write); MUST(launch_stamp(gated, begin, i, gate, stream)); break;
  case BETWEEN: MUST(launch_stamp(between, begin, i, gate, stream)); break;
  }
}

static void chunk(const Load *load) {
  if (load->graph) { MUST(cuGraphLaunch(graph, stream)); return; }
  for (unsigned k = 0; k < load->kernels; k++) MUST(launch_spin(spin, load->us, stream));
}

// Chunks that begin together, with a boundary before each: microseconds of the GPU, and of the CPU for the boundaries alone.
static void series(const Load *load, Form form, double *gpu, double *cpu) {
  page->go = 0;
  CUstreamBatchMemOpParams hold = operation(1, &page->go, 1);
  put(1, &hold);
  double spent = 0;
  for (unsigned i = 0; i < load->chunks; i++) {
    double before = now_seconds();
    boundary(form, i);
    spent += now_seconds() - before;
    chunk(load);
  }
  double begun = now_seconds();
  page->go = 1;
  MUST(cuStreamSynchronize(stream));
  *gpu = (now_seconds() - begun) * 1e6;
  *cpu = spent * 1e6;
}

// From the begin of a chunk to its end, and from there to the begin of the next, by the stamps of the last series.
static void tell_stamps(const Load *load, Form form) {
  double lengths[MOST_CHUNKS], gaps[MOST_CHUNKS];
  size_t count = 0;
  for (unsigned i = 0; i + 1 < load->chunks; i++) {
    double begin, end, next;
    if (form == EVENT_WAIT_EVENT) {
      float length = 0, both = 0;
      MUST(elapsed(&length, events[2 * i], events[2 * i + 3]));
      MUST(elapsed(&both, events[2 * i], events[2 * i + 2]));
      begin = 0, end = length * 1e3, next = both * 1e3;
    } else {
      begin = 0;
      end = (double)(int64_t)(stamps[2 * i + 3].time - stamps[2 * i].time) / 1e3;
      next = (double)(int64_t)(stamps[2 * i + 2].time - stamps[2 * i].time) / 1e3;
    }
    lengths[count] = end - begin;
    gaps[count++] = next - end;
  }
  printf("    stamps of %s: a chunk took %.2f us (%.2f to %.2f), and %.2f us to the next (%.2f to %.2f)\n", names[form], at_part(lengths, count, 500),
         at_part(lengths, count, 50), at_part(lengths, count, 950), at_part(gaps, count, 500), at_part(gaps, count, 50), at_part(gaps, count, 950));
}

static void tell_load(const char *where, const Load *load) {
  double best[FORMS][2];
  for (int form = 0; form < FORMS; form++) best[form][0] = best[form][1] = 1e18;
  // Forms in turns, for what a machine does to a process it does for a while.
  for (int round = 0; round < ROUNDS; round++)
    for (int form = 0; form < FORMS; form++) {
      if (form == WRITE_WAIT_EARLY && (!early || !launch_ex)) continue;
      double gpu, cpu;
      series(load, (Form)form, &gpu, &cpu);
      if (gpu < best[form][0]) best[form][0] = gpu;
      if (cpu < best[form][1]) best[form][1] = cpu;
      int both = form == STAMP_WAIT_STAMP || form == FENCED_WAIT_FENCED || form == EVENT_WAIT_EVENT || form == BETWEEN;
      if (both && round == ROUNDS - 1) tell_stamps(load, (Form)form);
    }
  printf("%s, chunks of %s: microseconds a boundary adds to the GPU, and takes of the caller\n", where, load->name);
  for (int form = 1; form < FORMS; form++)
    if (best[form][0] < 1e18) printf("    %-52s %6.2f %6.2f\n", names[form], (best[form][0] - best[0][0]) / load->chunks, (best[form][1] - best[0][1]) / load->chunks);
}

static void capture(unsigned kernels, unsigned us, int with_stamps) {
  CUgraph made;
  MUST(cuStreamBeginCapture_v2(stream, 0));
  if (with_stamps) MUST(launch_stamp(stamp, stamps, 0, gate, stream));
  for (unsigned k = 0; k < kernels; k++) MUST(launch_spin(spin, us, stream));
  if (with_stamps) MUST(launch_stamp(stamp, stamps + 1, 0, gate, stream));
  MUST(cuStreamEndCapture(stream, &made));
  MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
}

// Stamps as the first and the last node of the graph itself.
static void tell_nodes(void) {
  Load load = loads[3];
  double best[2] = {1e18, 1e18};
  for (int round = 0; round < ROUNDS; round++)
    for (int with = 0; with < 2; with++) {
      CUgraphExec kept = graph;
      capture(load.kernels, load.us, with);
      double gpu, cpu;
      series(&load, NOTHING, &gpu, &cpu);
      if (gpu < best[with]) best[with] = gpu;
      MUST(cuGraphExecDestroy(graph));
      graph = kept;
    }
  printf("stamps as first and last node of a graph of ten kernels of 5 us: %.2f us of the GPU for both\n", (best[1] - best[0]) / load.chunks);
}

static void set_up(void) {
  begin(0);
  MUST(cuMemHostRegister_v2(page, 4096, 2));
  MUST(cuMemHostRegister_v2((void *)stamps, 65536, 2));
  MUST(cuMemHostRegister_v2((void *)gate, 4096, 2 | 8)); // only read, as a container's is
  spin = spin_kernel();
  CUmodule module = load_image("stamps", stamp_image);
  stamp = kernel_of(module, "stamp");
  fenced = kernel_of(module, "fenced");
  gated = kernel_of(module, "gated");
  between = kernel_of(module, "between");
  early = kernel_of(load_image("early stamps", early_image), "early");
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  *(void **)&launch_ex = dlsym(driver, "cuLaunchKernelEx");
  *(void **)&elapsed = dlsym(driver, "cuEventElapsedTime");
  MUST(cuStreamCreate(&stream, 1));
  for (int i = 0; i < 2 * MOST_CHUNKS; i++) MUST(cuEventCreate(&events[i], 0));
  for (int i = 0; i < 20; i++) MUST(launch_spin(spin, 50, stream));
  MUST(cuStreamSynchronize(stream));
}

// How fast `count` kernels go while a neighbour waits at its gate.
static double kernels_a_second(unsigned count) {
  double begun = now_seconds();
  for (unsigned i = 0; i < count; i++) {
    MUST(launch_spin(spin, 50, stream));
    if (i % 50 == 49) MUST(cuStreamSynchronize(stream));
  }
  MUST(cuStreamSynchronize(stream));
  return count / (now_seconds() - begun);
}

int main(void) {
  alarm(150);
  page = shared_memory(4096);
  stamps = shared_memory(65536);
  int file = memfd_create("gates", 0);
  if (file < 0 || ftruncate(file, 4096)) return 1;
  volatile uint32_t *opened = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  gate = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
  opened[0] = 1;
  // The neighbour first waits at a closed gate with a stream operation, then with a kernel that looks at the gate.
  pid_t other = fork();
  if (!other) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (page->step < 1) usleep(1000);
    set_up();
    CUstreamBatchMemOpParams hold = operation(1, &page->closed, 1);
    put(1, &hold);
    for (int i = 0; i < 100; i++) MUST(launch_spin(spin, 50, stream));
    page->step = 2;
    while (page->step < 3) usleep(1000);
    MUST(cuStreamSynchronize(stream));
    MUST(launch_stamp(gated, stamps + 2 * MOST_CHUNKS, 0, &page->release, stream));
    page->step = 4;
    MUST(cuStreamSynchronize(stream));
    _exit(0);
  }
  set_up();
  capture(10, 5, 0);
  for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) tell_load("alone", &loads[i]);
  tell_nodes();
  double alone = kernels_a_second(5000);
  page->step = 1;
  while (page->step < 2) usleep(1000);
  tell_load("beside a program that waits", &loads[0]);
  double beside_wait = kernels_a_second(5000);
  page->closed = 1;
  page->step = 3;
  while (page->step < 4) usleep(1000);
  usleep(20000);
  double beside_kernel = kernels_a_second(5000);
  printf("kernels of 50 us a second: %.0f alone, %.0f beside a program that waits at its gate, %.0f beside one whose kernel looks at its gate\n", alone,
         beside_wait, beside_kernel);
  page->release = 1;
  int status;
  waitpid(other, &status, 0);
  return status != 0;
}
