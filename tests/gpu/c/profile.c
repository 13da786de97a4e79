// A card's profile, of two processes and the one that moves their gates, on a card that nobody else uses: how long after a gate is
// opened the card begins (gate latency), how long it takes from one program to another (change-over), how long it stays with a program
// while another has work (time slice), and whether it heeds a time slice that a process sets for its own channel groups.
// Built with -rdynamic, so that the driver's calls of ioctl come through here, where channel groups are noted.
#include "stamp.h"
#include <stdarg.h>
#include <sys/syscall.h>

enum { REPEATS = 200, RUN = 400, PLACES = 2048 };

typedef struct {
  volatile uint32_t gate, pad[15];           // alone on its line
  volatile uint32_t order, done, us, count;  // what to do, and the last thing that was done
  volatile uint32_t groups, status, stop;
  volatile int64_t ahead;                    // of its card's clock
  volatile double order_us;
  volatile uint64_t laps;
  uint64_t ping[16] __attribute__((aligned(256)));
  Stamp stamps[PLACES] __attribute__((aligned(4096)));
  double latencies[PLACES];
} Tenant;
enum { NONE, CLOCK, ONE, MANY, SLICE, SMALL, LOOP, QUIT };
static Tenant *tenants[2];
static CUfunction spin, stamp, ping;
static CUstream stream;

// Channel groups of this process, as the driver allocates them.
static struct { int file; uint32_t client, object; } groups[64];
static volatile unsigned group_count;
typedef struct { uint32_t client, object, command, flags; uint64_t parameters; uint32_t size, status; } Control;
typedef struct { uint32_t root, parent, object, class; uint64_t parameters, rights; uint32_t size, flags, status; } Allocation;

int ioctl(int file, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void *argument = va_arg(list, void *);
  va_end(list);
  int result = (int)syscall(SYS_ioctl, file, request, argument);
  if (((request >> 8) & 0xff) == 'F' && (request & 0xff) == 0x2b && argument) {
    Allocation *made = argument;
    if (made->class == 0xa06c && !made->status && group_count < 64) {
      groups[group_count].file = file, groups[group_count].client = made->root, groups[group_count].object = made->object;
      group_count++;
    }
  }
  return result;
}

// The time slice of all this process's channel groups; the worst status.
static uint32_t set_slice(uint64_t us) {
  uint32_t worst = 0;
  for (unsigned i = 0; i < group_count; i++) {
    Control control = {groups[i].client, groups[i].object, 0xa06c0103, 0, (uint64_t)(uintptr_t)&us, 8, 0xffff};
    if (syscall(SYS_ioctl, groups[i].file, 0xc020462aUL, &control) < 0) return 0xdead;
    if (control.status) worst = control.status;
  }
  return worst;
}

static void wait_for_gate(Tenant *me) {
  CUstreamBatchMemOpParams wait = operation(1, &me->gate, 1);
  MUST(cuStreamBatchMemOp_v2(stream, 1, &wait, 0));
}

// `count` kernels behind the gate, with a stamp before the first and after each.
static void many(Tenant *me) {
  wait_for_gate(me);
  MUST(launch_stamp(stamp, me->stamps, 0, NULL, stream));
  for (uint32_t i = 1; i <= me->count; i++) {
    MUST(launch_spin(spin, me->us, stream));
    MUST(launch_stamp(stamp, me->stamps + i, i, NULL, stream));
  }
}

// A kernel now and then, from its launch to its end.
static void small(Tenant *me) {
  for (uint32_t i = 0; i < me->count; i++) {
    usleep(2000 + (i * 7919) % 3000);
    double begun = now_seconds();
    MUST(launch_spin(spin, me->us, stream));
    MUST(cuStreamSynchronize(stream));
    me->latencies[i] = (now_seconds() - begun) * 1e6;
  }
}

static void serve(Tenant *me) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  begin(0);
  for (int i = 0; i < 2; i++) MUST(cuMemHostRegister_v2(tenants[i], (sizeof(Tenant) + 4095) & ~4095ul, 2));
  spin = spin_kernel();
  CUmodule module = load_image("stamps", stamp_image);
  stamp = kernel_of(module, "stamp"), ping = kernel_of(module, "ping");
  MUST(cuStreamCreate(&stream, 1));
  me->groups = group_count;
  uint64_t next = 1;
  for (uint32_t did = 0;; did++) {
    while (me->order == NONE) { }
    uint32_t order = me->order;
    double quickest;
    switch (order) {
    case CLOCK: me->ahead = clock_ahead(ping, me->ping, &next, 200, &quickest, stream); break;
    case ONE: case MANY: many(me); break; // submitted, not waited for
    case SLICE: {
      double before = now_seconds();
      me->status = set_slice(me->us);
      me->order_us = (now_seconds() - before) * 1e6;
      break;
    }
    case SMALL: small(me); break;
    case LOOP:
      me->order = NONE, me->done = did + 1;
      while (!me->stop) {
        for (int i = 0; i < 4; i++) MUST(launch_spin(spin, me->us, stream));
        MUST(cuStreamSynchronize(stream));
        me->laps += 4;
      }
      continue;
    case QUIT: MUST(cuStreamSynchronize(stream)); _exit(0);
    }
    me->order = NONE;
    me->done = did + 1;
  }
}

static void give(Tenant *tenant, uint32_t order, uint32_t us, uint32_t count) {
  tenant->us = us, tenant->count = count;
  __sync_synchronize();
  tenant->order = order;
}
static void await(Tenant *tenant) { while (tenant->order != NONE) { } }
static void tell(Tenant *tenant, uint32_t order, uint32_t us, uint32_t count) { give(tenant, order, us, count); await(tenant); }

// Kernels behind a closed gate, and none of the last ones' stamps.
static void prepare(Tenant *tenant, uint32_t us, uint32_t count) {
  tenant->gate = 0;
  for (uint32_t i = 0; i <= count; i++) tenant->stamps[i].time = 0;
  tell(tenant, MANY, us, count);
  usleep(300);
}
static void await_stamp(Tenant *tenant, uint32_t place) { while (!tenant->stamps[place].time) { } }
static double between_us(uint64_t from, uint64_t to) { return (double)(int64_t)(to - from) / 1e3; }

static void print_times(const char *what, double *values, size_t count) {
  printf("%-72s %8.1f us in the median, %.1f at 10 %%, %.1f at 90 %%, %.1f at 99 %%\n", what, at_part(values, count, 500), at_part(values, count, 100),
         at_part(values, count, 900), at_part(values, count, 990));
}

static void gate_latency(Tenant *tenant, const char *what, unsigned closed_us) {
  static double begins[REPEATS], seen[REPEATS];
  for (int i = 0; i < REPEATS; i++) {
    prepare(tenant, 20, 1);
    usleep(closed_us);
    uint64_t opened = now_ns();
    tenant->gate = 1;
    await_stamp(tenant, 0);
    seen[i] = (double)(now_ns() - opened) / 1e3;
    await_stamp(tenant, 1);
    begins[i] = between_us(opened + (uint64_t)tenant->ahead, tenant->stamps[0].time);
  }
  char text[128];
  snprintf(text, sizeof text, "gate latency, %s: from the store to the begin", what);
  print_times(text, begins, REPEATS);
  print_times("    and until the stamp of the begin is seen", seen, REPEATS);
}

// The second's gate opens while the first's kernel runs, or when its end is seen.
static void change_over(const char *what, int when_seen, uint32_t queued) {
  static double takes[REPEATS], back[REPEATS];
  for (int i = 0; i < REPEATS; i++) {
    Tenant *first = tenants[i & 1], *second = tenants[!(i & 1)];
    prepare(first, 500, 1 + queued);
    prepare(second, 200, 1);
    first->gate = 1;
    await_stamp(first, 0);
    if (when_seen) await_stamp(first, 1 + queued);
    second->gate = 1;
    await_stamp(second, 1);
    await_stamp(first, 1 + queued); // with work queued the card may take the second in between
    takes[i] = between_us(first->stamps[1 + queued].time, second->stamps[0].time);
    back[i] = between_us(second->stamps[0].time, second->stamps[1].time);
  }
  print_times(what, takes, REPEATS);
  print_times("    and the second's kernel of 200 us took", back, REPEATS);
}

// Both gates open, both with short kernels: how long the card stays with one, by the order of the stamps.
static void slices(const char *what, uint32_t us) {
  static double runs[2][PLACES], changes[PLACES];
  size_t counts[2] = {0, 0}, switches = 0;
  for (int i = 0; i < 2; i++) prepare(tenants[i], us, RUN);
  for (int i = 0; i < 2; i++) tenants[i]->gate = 1;
  for (int i = 0; i < 2; i++) await_stamp(tenants[i], RUN);
  uint32_t at[2] = {0, 0};
  int who = tenants[0]->stamps[0].time > tenants[1]->stamps[0].time;
  uint64_t from = tenants[who]->stamps[0].time, last = from;
  while (at[0] <= RUN && at[1] <= RUN) {
    int next = tenants[0]->stamps[at[0]].time > tenants[1]->stamps[at[1]].time;
    uint64_t time = tenants[next]->stamps[at[next]++].time;
    if (next != who) {
      runs[who][counts[who]++] = between_us(from, last);
      changes[switches++] = between_us(last, time);
      who = next, from = time;
    }
    last = time;
  }
  printf("%s, kernels of %u us:\n", what, us);
  print_times("    the card stays with the first for", runs[0], counts[0]);
  print_times("    the card stays with the second for", runs[1], counts[1]);
  print_times("    from the last stamp of one to the first of the other", changes, switches);
}

// A short kernel now and then beside a program of long ones.
static void heeding(const char *what, uint32_t long_us, uint32_t count) {
  tenants[1]->stop = 0, tenants[1]->laps = 0;
  if (long_us) tell(tenants[1], LOOP, long_us, 0);
  usleep(50000);
  uint64_t laps = tenants[1]->laps;
  double begun = now_seconds();
  tell(tenants[0], SMALL, 100, count);
  double rate = (double)(tenants[1]->laps - laps) / (now_seconds() - begun);
  tenants[1]->stop = 1;
  usleep(100000);
  static double copy[PLACES];
  for (uint32_t i = 0; i < count; i++) copy[i] = tenants[0]->latencies[i];
  print_times(what, copy, count);
  if (long_us) printf("    and the program of long kernels did %.1f a second\n", rate);
}

static void slice(Tenant *tenant, uint32_t us) {
  tell(tenant, SLICE, us, 0);
  printf("time slice of %u us for %u channel groups of the %s: status %x, %.0f us\n", us, tenant->groups, tenant == tenants[0] ? "first" : "second",
         tenant->status, tenant->order_us);
}

int main(void) {
  alarm(200);
  setvbuf(stdout, NULL, _IOLBF, 0); // what was measured before the alarm is told
  for (int i = 0; i < 2; i++) tenants[i] = shared_memory((sizeof(Tenant) + 4095) & ~4095ul);
  pid_t children[2];
  for (int i = 0; i < 2; i++) {
    children[i] = fork();
    if (!children[i]) serve(tenants[i]);
    tell(tenants[i], CLOCK, 0, 0);
    printf("process %d: its card's clock is %.3f us ahead of CLOCK_MONOTONIC, %u channel groups\n", i, (double)tenants[i]->ahead / 1e3, tenants[i]->groups);
  }
  gate_latency(tenants[0], "closed for 0.3 ms", 0);
  gate_latency(tenants[0], "closed for 10 ms", 10000);
  change_over("change-over, the gate of the next opened early: from end to begin", 0, 0);
  change_over("change-over, opened when the end is seen: from end to begin", 1, 0);
  change_over("change-over with 1 ms of work behind the gate, opened early", 0, 2);
  slices("time slice as CUDA sets it", 20);
  slices("time slice as CUDA sets it", 200);
  heeding("kernels of 100 us alone", 0, 300);
  heeding("kernels of 100 us beside kernels of 5 ms, as CUDA sets it", 5000, 300);
  slice(tenants[1], 1);
  heeding("kernels of 100 us beside kernels of 5 ms with a time slice of 1 us", 5000, 300);
  slices("the second with a time slice of 1 us", 20);
  slice(tenants[0], 50000);
  heeding("the same, and the kernels of 100 us with a time slice of 50 ms", 5000, 300);
  slices("the first with 50 ms, the second with 1 us", 20);
  slice(tenants[0], 1);
  slices("both with 1 us", 20);
  slice(tenants[1], 500), slice(tenants[0], 500);
  slices("both with 500 us", 20);
  slice(tenants[1], 20000), slice(tenants[0], 2048);
  heeding("kernels of 100 us beside kernels of 5 ms with a time slice of 20 ms", 5000, 200);
  slice(tenants[1], 2048);
  heeding("back as CUDA sets it", 5000, 300);
  for (int i = 0; i < 2; i++) give(tenants[i], QUIT, 0, 0);
  int status = 0, all = 0;
  for (int i = 0; i < 2; i++) waitpid(children[i], &status, 0), all |= status;
  return all != 0;
}
