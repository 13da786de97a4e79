// Reaches every function of the driver by every way there is, and checks that the right one is called with the arguments as given.
//
// route cuda.tsv|nvml.tsv list-of-hooked-symbols
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

enum { MOST = 1024 };
static struct row { char symbol[80], lookup[80], arguments[900]; int since, per_thread, hooked; void *real, *answer; } rows[MOST];
static int count, wrong, checked, called;
static unsigned *counts;
static uint64_t (*arguments)[12];
static char buffers[12][4096] __attribute__((aligned(64)));

#define CHECK(condition, ...) do { checked++; if (!(condition)) { wrong++; printf("wrong: " __VA_ARGS__); printf("\n"); } } while (0)

static void read_table(const char *path, int cuda) {
  FILE *file = fopen(path, "r");
  char line[4096];
  while (file && fgets(line, sizeof line, file)) {
    if (line[0] == '#' || line[0] == '\n') continue;
    line[strcspn(line, "\n")] = 0;
    char *field[6] = {0}, *rest = line;
    for (int i = 0; i < 6 && rest; i++) field[i] = strsep(&rest, "\t");
    struct row *row = &rows[count++];
    snprintf(row->symbol, sizeof row->symbol, "%s", field[0]);
    snprintf(row->lookup, sizeof row->lookup, "%s", cuda ? field[1] : field[0]);
    row->since = cuda ? atoi(field[2]) : 0;
    row->per_thread = cuda && strcmp(field[3], "-") != 0;
    char *list = cuda ? field[5] : field[3];
    snprintf(row->arguments, sizeof row->arguments, "%s", list ? list : "");
  }
  if (file) fclose(file);
}

// The arguments of a call by their types: pointers to zeroes, small numbers that differ.
static int make(const struct row *row, uint64_t *out, int *wide) {
  char list[900];
  snprintf(list, sizeof list, "%s", row->arguments);
  int n = 0;
  char *rest = list;
  while (rest && *rest && n < 12) {
    char *one = strsep(&rest, ",");
    int pointer = strchr(one, '*') != NULL;
    int handle = !pointer && (strstr(one, "CUstream ") || strstr(one, "CUcontext ") || strstr(one, "CUgraph") || strstr(one, "CUfunction ") ||
                              strstr(one, "CUevent ") || strstr(one, "CUarray ") || strstr(one, "CUmemoryPool ") || strstr(one, "nvmlDevice_t "));
    wide[n] = pointer || handle || strstr(one, "size_t") || strstr(one, "CUdeviceptr_v2") || strstr(one, "long long") || strstr(one, "cuuint64");
    out[n] = pointer || handle ? (uint64_t)(uintptr_t)buffers[n] : (uint64_t)(n + 3);
    n++;
  }
  return n;
}

// Structs by value do not come as one register each; those functions are not hooked.
static int by_value(const struct row *row) {
  return strstr(row->arguments, "Location_v1 location") || strstr(row->arguments, "CUipcMemHandle_v1 handle") || strstr(row->arguments, "CUipcEventHandle_v1 handle") ||
         strstr(row->arguments, "float ");
}

static void call(const struct row *row, void *function, const char *way) {
  uint64_t given[12] = {0};
  int wide[12] = {0};
  int n = make(row, given, wide), index = (int)(row - rows);
  if (by_value(row)) return;
  memset(buffers, 0, sizeof buffers);
  counts[index] = 0;
  ((any)function)(given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7], given[8], given[9], given[10], given[11]);
  called++;
  CHECK(counts[index] > 0, "%s by %s did not reach the driver's function", row->symbol, way);
  for (int i = 0; i < n && counts[index] > 0; i++) {
    uint64_t seen = arguments[index][i], mask = wide[i] ? ~0ull : 0xffffffffull;
    if (strstr(row->arguments, "unsigned char uc") || strstr(row->arguments, "unsigned short us")) mask &= wide[i] ? ~0ull : 0xff;
    CHECK((seen & mask) == (given[i] & mask), "%s by %s: argument %d is %#lx, was %#lx", row->symbol, way, i, (long)seen, (long)given[i]);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) return 64;
  int cuda = strstr(argv[1], "cuda.tsv") != NULL;
  read_table(argv[1], cuda);
  const char *name = cuda ? "libcuda.so.1" : "libnvidia-ml.so.1";
  void *handle = dlopen(name, RTLD_LAZY | (getenv("ROUTE_GLOBAL") ? RTLD_GLOBAL : 0) | (getenv("ROUTE_DEEPBIND") ? RTLD_DEEPBIND : 0));
  if (!handle) { printf("%s\n", dlerror()); return 1; }
  counts = ((unsigned *(*)(void))dlsym(handle, "divvy_echo_counts"))();
  arguments = ((uint64_t (*(*)(void))[12])dlsym(handle, "divvy_echo_arguments"))();

  char hooked[200];
  FILE *list = fopen(argv[2], "r");
  while (list && fscanf(list, "%199s", hooked) == 1)
    for (int i = 0; i < count; i++)
      if (!strcmp(rows[i].symbol, hooked)) rows[i].hooked = 1;
  if (list) fclose(list);

  Dl_info own;
  dladdr(dlsym(RTLD_DEFAULT, cuda ? "cuMemAlloc_v2" : "nvmlDeviceGetMemoryInfo"), &own);
  CHECK(strstr(own.dli_fname, "libdivvy") != NULL, "the library is not preloaded");
  for (int i = 0; i < count; i++) {
    struct row *row = &rows[i];
    row->answer = dlsym(handle, row->symbol);
    CHECK(row->answer != NULL, "%s is not found by dlsym", row->symbol);
    Dl_info owner;
    if (!row->answer || !dladdr(row->answer, &owner)) continue;
    int ours = strstr(owner.dli_fname, "libdivvy") != NULL;
    CHECK(ours == row->hooked, "%s by dlsym comes from %s", row->symbol, owner.dli_fname);
    void *again = dlsym(RTLD_DEFAULT, row->symbol);
    CHECK(again == row->answer || (!again && !row->hooked), "%s: RTLD_DEFAULT and the handle disagree", row->symbol);
    void *next = dlsym(RTLD_NEXT, row->symbol);
    CHECK(next == row->answer || !next, "%s: RTLD_NEXT and the handle disagree", row->symbol);
    if (!strncmp(row->symbol, "cuGetProcAddress", 16)) continue;
    call(row, row->answer, "dlsym");
  }
  if (cuda) {
    int (*v1)(const char *, void **, int, uint64_t) = (void *)dlsym(handle, "cuGetProcAddress");
    int (*v2)(const char *, void **, int, uint64_t, int *) = (void *)dlsym(handle, "cuGetProcAddress_v2");
    static const int versions[] = {2000, 3020, 4000, 7000, 9020, 10000, 10010, 11000, 11020, 11030, 11040, 11070, 12000, 12020, 12030, 12050, 12080, 12090, 13000, 13040};
    int both = 0;
    for (int i = 0; i < count; i++)
      for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
        for (uint64_t flags = 0; flags < 3; flags++) {
          // What the table says this name means here.
          struct row *meant = NULL;
          int wanted = 0;
          for (int j = 0; flags == 2 && j < count; j++) wanted |= !strcmp(rows[j].lookup, rows[i].lookup) && rows[j].per_thread;
          for (int j = 0; j < count; j++)
            if (!strcmp(rows[j].lookup, rows[i].lookup) && rows[j].since <= versions[v] && rows[j].per_thread == wanted && (!meant || rows[j].since > meant->since)) meant = &rows[j];
          void *a = (void *)1, *b = (void *)1;
          int status = -1, r1 = v1(rows[i].lookup, &a, versions[v], flags), r2 = v2(rows[i].lookup, &b, versions[v], flags, &status);
          CHECK(meant ? a == b && r1 == r2 : a == (void *)1 && r1 == 500, "%s at %d flags %d: the two forms disagree", rows[i].lookup, versions[v], (int)flags);
          CHECK(b == (meant ? meant->answer : NULL), "%s at %d flags %d is not %s", rows[i].lookup, versions[v], (int)flags, meant ? meant->symbol : "missing");
          CHECK(status == (meant ? 0 : 1) && r2 == 0, "%s at %d: status %d, result %d", rows[i].lookup, versions[v], status, r2);
          if (meant && v % 4 == 0 && meant == &rows[i] && strncmp(meant->symbol, "cuGetProcAddress", 16)) call(meant, b, "cuGetProcAddress");
          both++;
        }
    void *out = (void *)1;
    CHECK(v2("", &out, 13000, 0, NULL) == 0 && !out && v2(NULL, &out, 13000, 0, NULL) == 1 && v2("cuInit", NULL, 13000, 0, NULL) == 1, "odd arguments of cuGetProcAddress");
    CHECK(v2("cuMemAlloc", &out, 13000, 0, NULL) == 0 && out, "no place for the status");
    printf("%d lookups by name, version and flag\n", both);
  }
  printf("%d symbols, %d calls, %d checks, %d wrong\n", count, called, checked, wrong);
  return wrong != 0;
}
