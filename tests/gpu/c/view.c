// What a program is told about the cards: by NVML and by the driver, which must agree. view [hold-MiB]
// One line per fact, "what: value", for whoever runs it to compare.
#include "cuda.h"

typedef void *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned pid; unsigned long long used; } nvmlProcessInfo_v1_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } nvmlProcessInfo_v2_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; unsigned long long protected_; } nvmlProcessDetail_t;
typedef struct { unsigned version, mode, count; nvmlProcessDetail_t *list; } nvmlProcessDetailList_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;

#define NVML(name, ...) ((unsigned (*)(__VA_ARGS__))dlsym(nvml, #name))

int main(int argc, char **argv) {
  size_t hold = argc > 1 ? (size_t)atol(argv[1]) << 20 : 0;
  void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!nvml) return printf("%s\n", dlerror()), 77;
  CHECK(NVML(nvmlInit_v2, void)() == 0, "nvmlInit_v2");
  unsigned count = 0, old = 0;
  CHECK(NVML(nvmlDeviceGetCount_v2, unsigned *)(&count) == 0 && NVML(nvmlDeviceGetCount, unsigned *)(&old) == 0, "counts");
  printf("cards: %u\n", count);
  nvmlDevice_t beyond;
  CHECK(NVML(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(count, &beyond) == 2, "a card beyond the last");

  find_driver();
  MUST(cuInit(0));
  int devices = 0;
  MUST(cuDeviceGetCount(&devices));
  printf("devices: %d\n", devices);
  CUdevice none;
  CHECK(cuDeviceGet(&none, devices) == 101, "a device beyond the last");
  for (int i = 0; i < devices; i++) {
    CUdevice device;
    CUcontext context;
    unsigned char uuid[16];
    char name[64] = "", text[96] = "GPU-";
    MUST(cuDeviceGet(&device, i));
    MUST(cuDeviceGetUuid_v2(uuid, device));
    for (int b = 0; b < 16; b++) sprintf(text + strlen(text), "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", uuid[b]);
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    CUdeviceptr address;
    if (hold) MUST(cuMemAlloc_v2(&address, hold));
    size_t total = 0;
    MUST(cuDeviceTotalMem_v2(&total, device));
    CHECK(total == total_bytes(), "cuDeviceTotalMem says %zu, cuMemGetInfo %zu", total, total_bytes());
    MUST(cuDeviceGetName(name, sizeof name, device));
    printf("device %d: %s %s\n", i, text, name);

    nvmlDevice_t card;
    unsigned found = NVML(nvmlDeviceGetHandleByUUID, const char *, nvmlDevice_t *)(text, &card);
    if (found) { text[0] = 'M'; text[1] = 'I'; text[2] = 'G'; found = NVML(nvmlDeviceGetHandleByUUID, const char *, nvmlDevice_t *)(text, &card); }
    CHECK(found == 0, "%s is not found by NVML: %u", text, found);
    if (found) continue;
    // An instance of a partitioned card is numbered within the card, and has no utilisation of its own.
    int instance = text[0] == 'M';
    unsigned index = 99;
    if (!instance && NVML(nvmlDeviceGetIndex, nvmlDevice_t, unsigned *)(card, &index) == 0) {
      nvmlDevice_t same = NULL;
      CHECK(index < count && NVML(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(index, &same) == 0 && same == card, "index %u of %s", index, text);
      printf("index %d: %u\n", i, index);
    }
    nvmlMemory_t memory;
    nvmlMemory_v2_t newer = {.version = sizeof newer | 2u << 24};
    CHECK(NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)(card, &memory) == 0, "memory");
    CHECK(NVML(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t, nvmlMemory_v2_t *)(card, &newer) == 0, "memory, second form");
    printf("memory %d: total %llu used %llu free %llu\n", i, memory.total, memory.used, memory.free);
    // A whole card has more for NVML than for the driver, which keeps some of it; a slice is a slice.
    CHECK((getenv("VIEW_WHOLE") || memory.total == total) && memory.free == free_bytes() && memory.used == memory.total - memory.free, "NVML says %llu of %llu free, the driver %zu of %zu", memory.free, memory.total, free_bytes(), total);
    CHECK(newer.total == memory.total && newer.free == memory.free && newer.used + newer.reserved == memory.used, "the two forms");

    unsigned room = 0, status = NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *, void *)(card, &room, NULL);
    CHECK(room == 0 ? status == 0 : status == 7, "how many processes: %u, %u", status, room);
    nvmlProcessInfo_v2_t list[64];
    nvmlProcessInfo_v1_t oldest[64];
    nvmlProcessDetail_t details[64];
    unsigned wide = 64, narrow = 64;
    CHECK(NVML(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned *, void *)(card, &wide, list) == 0, "processes");
    CHECK(NVML(nvmlDeviceGetComputeRunningProcesses, nvmlDevice_t, unsigned *, void *)(card, &narrow, oldest) == 0 && narrow == wide, "processes, first form");
    nvmlProcessDetailList_t detailed = {.version = sizeof detailed | 1u << 24, .mode = 0, .count = 64, .list = details};
    CHECK(NVML(nvmlDeviceGetRunningProcessDetailList, nvmlDevice_t, nvmlProcessDetailList_t *)(card, &detailed) == 0 && detailed.count == wide, "processes in detail");
    int myself = 0;
    for (unsigned p = 0; p < wide; p++) {
      printf("process %d: %u %llu\n", i, list[p].pid, list[p].used);
      CHECK(list[p].pid == oldest[p].pid && list[p].used == oldest[p].used && list[p].pid == details[p].pid, "the forms agree");
      myself |= list[p].pid == (unsigned)getpid() && list[p].used >= hold;
    }
    CHECK(myself || !hold, "not in the list itself");
    unsigned graphics = 64;
    CHECK(NVML(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDevice_t, unsigned *, void *)(card, &graphics, list) == 0 && graphics == 0, "no graphics");
    nvmlUtilization_t rates = {999, 999};
    CHECK(instance || (NVML(nvmlDeviceGetUtilizationRates, nvmlDevice_t, nvmlUtilization_t *)(card, &rates) == 0 && rates.gpu <= 100), "utilisation");
    printf("utilisation %d: %u\n", i, rates.gpu);
    printf("setters %d: %u %u %u\n", i, NVML(nvmlDeviceSetPowerManagementLimit, nvmlDevice_t, unsigned)(card, 200000), NVML(nvmlDeviceSetComputeMode, nvmlDevice_t, unsigned)(card, 3),
           NVML(nvmlDeviceSetGpuLockedClocks, nvmlDevice_t, unsigned, unsigned)(card, 1000, 1000));
  }
  // The instances that can be seen.
  for (unsigned c = 0, most = 0; c < count; c++) {
    nvmlDevice_t card, part;
    if (NVML(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(c, &card) || NVML(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t, unsigned *)(card, &most)) continue;
    for (unsigned i = 0; i < most; i++) {
      char text[96];
      if (NVML(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t, unsigned, nvmlDevice_t *)(card, i, &part) == 0 && NVML(nvmlDeviceGetUUID, nvmlDevice_t, char *, unsigned)(part, text, sizeof text) == 0)
        printf("instance: %s\n", text);
    }
  }
  printf("done\n");
  fflush(stdout);
  if (argc > 2) pause(); // until killed
  return done();
}
