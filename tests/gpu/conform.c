/*
 * What the driver answers: calls the CUDA driver API and NVML in many ways and prints one line for each call, with its result
 * code and what of its answer does not depend on the machine. The same program runs on the fake driver and on a real card; the
 * card's lines are kept in conform-h200.txt and the fake driver is held to them.
 *
 *     gcc -O1 -o conform tests/gpu/conform.c -ldl
 *     ./conform tables/cuda.tsv          all sections, each in a process of its own
 *     ./conform tables/cuda.tsv pool     one of them
 *
 * A line is "symbol case = code values". A line that begins with "~" depends on the machine and is not compared. A call during
 * which the driver crashes or hangs counts as an answer too.
 *
 * Functions are called without headers: all arguments are integers or pointers, which the C ABI passes alike.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint32_t u32;

static void *cuda, *nvml;
static const char *table_path;
static int line_open, calls;
static sigjmp_buf recover;
static volatile int in_call;

static void flush_line(void) {
    if (line_open) putchar('\n');
    line_open = 0;
    fflush(stdout);
}

/* Appends to the line of the last call. */
static void v(const char *format, ...) {
    va_list list;
    va_start(list, format);
    putchar(' ');
    vprintf(format, list);
    va_end(list);
}

static void on_fault(int number) {
    if (in_call) siglongjmp(recover, number);
    _exit(99);
}

typedef int (*Call)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);

static int call_in(void *library, const char *symbol, const char *label, int varies, const u64 *given, size_t count) {
    u64 a[16] = {0};
    memcpy(a, given, count * sizeof *a);
    void *at = dlsym(library, symbol);
    flush_line();
    calls++;
    printf("%s%s %s =", varies ? "~" : "", symbol, label);
    line_open = 1;
    if (!at) {
        printf(" missing");
        return -1;
    }
    int code, fault;
    in_call = 1;
    alarm(10);
    if ((fault = sigsetjmp(recover, 1)) == 0) {
        code = ((Call)at)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
    } else {
        in_call = 0;
        printf(fault == SIGALRM ? " hang" : " crash");
        return -2;
    }
    in_call = 0;
    alarm(60);
    printf(" %d", code);
    return code;
}

#define ARGS(...) ((const u64[]){0, ##__VA_ARGS__} + 1), sizeof((const u64[]){0, ##__VA_ARGS__}) / sizeof(u64) - 1
/* Calls and prints. C for the driver, X for answers that vary, N for NVML. */
#define C(symbol, label, ...) call_in(cuda, symbol, label, 0, ARGS(__VA_ARGS__))
#define X(symbol, label, ...) call_in(cuda, symbol, label, 1, ARGS(__VA_ARGS__))
#define N(symbol, label, ...) call_in(nvml, symbol, label, 0, ARGS(__VA_ARGS__))
#define NX(symbol, label, ...) call_in(nvml, symbol, label, 1, ARGS(__VA_ARGS__))
#define P(x) ((u64)(uintptr_t)(x))

/* Calls without printing, for what only prepares. */
static int quiet(const char *symbol, const u64 *given, size_t count) {
    u64 a[16] = {0};
    memcpy(a, given, count * sizeof *a);
    void *at = dlsym(cuda, symbol);
    return at ? ((Call)at)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]) : -1;
}
#define Q(symbol, ...) quiet(symbol, ARGS(__VA_ARGS__))

static const char PTX[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 answer = 42;\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry two(.param .u64 a, .param .u32 b) { ret; }\n"
    ".visible .entry spin_arg_us(.param .u32 us) {\n"
    "  .reg .u64 %t<4>; .reg .u32 %n; .reg .pred %p;\n"
    "  ld.param.u32 %n, [us]; mul.wide.u32 %t1, %n, 1000; mov.u64 %t2, %globaltimer; add.u64 %t1, %t1, %t2;\n"
    "again: mov.u64 %t3, %globaltimer; setp.lt.u64 %p, %t3, %t1; @%p bra again; ret;\n}\n";

static u64 context, module, empty, spin;

static void start(void) {
    Q("cuInit", 0);
    Q("cuDevicePrimaryCtxRetain", P(&context), 0);
    Q("cuCtxSetCurrent", context);
}

static void start_with_code(void) {
    start();
    Q("cuModuleLoadData", P(&module), P(PTX));
    Q("cuModuleGetFunction", P(&empty), module, P("empty"));
    Q("cuModuleGetFunction", P(&spin), module, P("spin_arg_us"));
}

static u64 free_bytes(void) {
    u64 free = 0, total = 0;
    Q("cuMemGetInfo_v2", P(&free), P(&total));
    return free;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

#define MIB(n) ((u64)(n) << 20)
#define GIB(n) ((u64)(n) << 30)

/* ---- lookups: every row of the table, by name, version and flag ---- */

struct row {
    char symbol[96], lookup[96], stream[8], class;
    int since;
    void *at;
};
static struct row rows[1024];
static int row_count;

static void read_table(void) {
    FILE *file = fopen(table_path, "r");
    char text[4096];
    if (!file) {
        perror(table_path);
        exit(2);
    }
    while (fgets(text, sizeof text, file)) {
        struct row *r = &rows[row_count];
        char class[8];
        if (text[0] != '#' && sscanf(text, "%95s %95s %d %7s %7s", r->symbol, r->lookup, &r->since, r->stream, class) == 5) {
            r->class = class[0];
            r->at = dlsym(cuda, r->symbol);
            row_count++;
        }
    }
    fclose(file);
}

static const char *name_of(void *at) {
    if (!at) return "none";
    for (int i = 0; i < row_count; i++)
        if (rows[i].at == at) return rows[i].symbol;
    return "unknown";
}

static void section_lookup(void) {
    read_table();
    void *at = NULL;
    u32 status = 9;
    C("cuGetProcAddress_v2", "empty-name", P(""), P(&at), 12000, 0, P(&status)), v("%s %u", name_of(at), status);
    C("cuGetProcAddress_v2", "before-init", P("cuMemAlloc"), P(&at), 12000, 0, P(&status)), v("%s %u", name_of(at), status);
    Q("cuInit", 0);
    C("cuGetProcAddress_v2", "no-status", P("cuMemAlloc"), P(&at), 12000, 0, 0), v("%s", name_of(at));
    C("cuGetProcAddress_v2", "unknown", P("cuNoSuchThing"), P(&at), 13000, 0, P(&status)), v("%s %u", name_of(at), status);
    C("cuGetProcAddress_v2", "too-old", P("cuMemCreate"), P(&at), 9000, 0, P(&status)), v("%s %u", name_of(at), status);
    C("cuGetProcAddress_v2", "future", P("cuMemAlloc"), P(&at), 99000, 0, P(&status)), v("%s %u", name_of(at), status);
    C("cuGetProcAddress_v2", "bad-flags", P("cuMemAlloc"), P(&at), 12000, 4, P(&status)), v("%u", status);
    C("cuGetProcAddress_v2", "both-flags", P("cuMemcpyAsync"), P(&at), 12000, 3, P(&status)), v("%s %u", name_of(at), status);
    C("cuGetProcAddress_v2", "null-name", 0, P(&at), 12000, 0, P(&status));
    C("cuGetProcAddress_v2", "null-place", P("cuMemAlloc"), 0, 12000, 0, P(&status));
    C("cuGetProcAddress", "plain", P("cuMemAlloc"), P(&at), 11030, 0), v("%s", name_of(at));
    C("cuGetProcAddress", "unknown", P("cuNoSuchThing"), P(&at), 11030, 0), v("%s", name_of(at));
    C("cuGetProcAddress", "empty-name", P(""), P(&at), 11030, 0), v("%s", name_of(at));
    for (int i = 0; i < row_count; i++) {
        struct row *r = &rows[i];
        char label[160];
        void *found[3] = {0};
        for (int flag = 0; flag < 3; flag++) Q("cuGetProcAddress_v2", P(r->lookup), P(&found[flag]), r->since, flag, 0);
        snprintf(label, sizeof label, "%s@%d/%s", r->lookup, r->since, r->stream);
        flush_line();
        calls += 3;
        printf("lookup %s = %s %s %s %s\n", label, r->at ? "exported" : "missing", name_of(found[0]), name_of(found[1]), name_of(found[2]));
    }
}

/* ---- errors ---- */

static void section_error(void) {
    const char *text = NULL;
    for (int code = 0; code < 1000; code++) {
        text = NULL;
        if (Q("cuGetErrorName", code, P(&text)) == 0 && text) {
            char label[16];
            snprintf(label, sizeof label, "%d", code);
            C("cuGetErrorName", label, code, P(&text)), v("%s", text);
            C("cuGetErrorString", label, code, P(&text)), v("%s", text);
        }
    }
    text = "";
    C("cuGetErrorName", "unknown", 12345, P(&text)), v("%s", text ? text : "null");
    C("cuGetErrorString", "null-place", 1, 0);
}

/* ---- devices ---- */

static int varies_by_machine(int attribute) {
    static const int list[] = {20, 33, 34, 50, 85, 133, 134, 139, 140, 117, 118, 132, 128};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == attribute) return 1;
    return 0;
}

static void section_device(void) {
    int number = -7, count = -7, flags = -7, active = -7;
    char name[128] = "";
    u64 size = 0, other = 0;
    C("cuDeviceGetCount", "before-init", P(&count));
    C("cuDeviceGet", "before-init", P(&number), 0);
    C("cuCtxGetCurrent", "before-init", P(&other));
    C("cuMemAlloc_v2", "before-init", P(&other), 4096);
    C("cuDriverGetVersion", "before-init", P(&number)), v("%d", number);
    C("cuDriverGetVersion", "null", 0);
    C("cuInit", "flags-1", 1);
    C("cuInit", "plain", 0);
    C("cuInit", "again", 0);
    X("cuDeviceGetCount", "plain", P(&count)), v("%d", count);
    C("cuDeviceGetCount", "null", 0);
    C("cuDeviceGet", "0", P(&number), 0), v("%d", number);
    C("cuDeviceGet", "beyond", P(&number), 99);
    C("cuDeviceGet", "negative", P(&number), (u64)-1);
    C("cuDeviceGetName", "plain", P(name), 128, 0), v("%s", name);
    C("cuDeviceGetName", "short", P(name), 4, 0), v("%s", name);
    C("cuDeviceGetName", "null", 0, 10, 0);
    C("cuDeviceGetName", "bad-device", P(name), 128, 99);
    unsigned char uuid[16] = {0}, uuid2[16] = {0};
    C("cuDeviceGetUuid", "plain", P(uuid), 0);
    C("cuDeviceGetUuid_v2", "plain", P(uuid2), 0), v("same=%d", !memcmp(uuid, uuid2, 16));
    C("cuDeviceGetUuid_v2", "null", 0, 0);
    C("cuDeviceTotalMem_v2", "plain", P(&size), 0), v("%llu", (unsigned long long)size);
    C("cuDeviceTotalMem_v2", "null", 0, 0);
    C("cuDeviceTotalMem_v2", "bad-device", P(&size), 5);
    u32 small = 0;
    C("cuDeviceTotalMem", "32-bit", P(&small), 0), v("%u", small);
    int major = 0, minor = 0;
    C("cuDeviceComputeCapability", "plain", P(&major), P(&minor), 0), v("%d.%d", major, minor);
    for (int a = 1; a <= 147; a++) {
        char label[16];
        int value = -77;
        snprintf(label, sizeof label, "%d", a);
        if (varies_by_machine(a)) X("cuDeviceGetAttribute", label, P(&value), a, 0);
        else C("cuDeviceGetAttribute", label, P(&value), a, 0);
        v("%d", value);
    }
    int value = 0;
    C("cuDeviceGetAttribute", "0", P(&value), 0, 0);
    C("cuDeviceGetAttribute", "beyond", P(&value), 5000, 0);
    C("cuDeviceGetAttribute", "null", 0, 1, 0);
    C("cuDeviceGetAttribute", "bad-device", P(&value), 1, 99);
    int properties[14] = {0};
    C("cuDeviceGetProperties", "plain", P(properties), 0);
    v("threads=%d shared=%d warp=%d registers=%d", properties[0], properties[7], properties[9], properties[11]);
    C("cuDeviceGetPCIBusId", "plain", P(name), 32, 0), v("length=%zu", strlen(name));
    C("cuDeviceGetByPCIBusId", "found", P(&number), P(name)), v("%d", number);
    C("cuDeviceGetByPCIBusId", "missing", P(&number), P("0000:FE:1F.0"));
    C("cuDeviceGetPCIBusId", "null", 0, 32, 0);
    C("cuDeviceCanAccessPeer", "itself", P(&value), 0, 0), v("%d", value);
    C("cuDeviceCanAccessPeer", "bad-device", P(&value), 0, 99);
    C("cuDeviceGetP2PAttribute", "itself", P(&value), 1, 0, 0);
    C("cuDeviceGetExecAffinitySupport", "sm", P(&value), 0, 0), v("%d", value);
    C("cuDeviceGetLuid", "linux", P(name), P(&number), 0);
    C("cuDeviceGetTexture1DLinearMaxWidth", "float", P(&size), 0x20, 1, 0), v("%llu", (unsigned long long)size);
    C("cuDevicePrimaryCtxGetState", "unused", 0, P(&flags), P(&active)), v("%d %d", flags, active);
    C("cuDeviceGetDefaultMemPool", "plain", P(&other), 0), v("%d", other != 0);
    u64 pool = 0;
    C("cuDeviceGetMemPool", "plain", P(&pool), 0), v("default=%d", pool == other);
    C("cuModuleGetLoadingMode", "plain", P(&value)), v("%d", value);
    u64 table = 0;
    unsigned char unknown[16] = {1, 2, 3};
    C("cuGetExportTable", "unknown", P(&table), P(unknown));
    C("cuGetExportTable", "null", P(&table), 0);
}

/* ---- contexts ---- */

static void section_context(void) {
    u64 a = 0, b = 0, c = 0, id = 0, size = 0;
    u32 flags = 77, version = 0;
    int device = -1, active = -1, least = 9, greatest = 9;
    Q("cuInit", 0);
    C("cuCtxGetCurrent", "none", P(&a)), v("%d", a != 0);
    C("cuCtxGetDevice", "none", P(&device));
    C("cuCtxSynchronize", "none");
    C("cuCtxSynchronize_v2", "none", 0);
    C("cuCtxGetFlags", "none", P(&flags));
    C("cuCtxPopCurrent_v2", "none", P(&a));
    C("cuMemAlloc_v2", "no-context", P(&a), 4096);
    C("cuStreamCreate", "no-context", P(&a), 0);
    C("cuMemGetInfo_v2", "no-context", P(&a), P(&b));
    C("cuDevicePrimaryCtxRelease_v2", "not-retained", 0);
    C("cuDevicePrimaryCtxRelease", "not-retained", 0);
    C("cuDevicePrimaryCtxSetFlags_v2", "blocking", 0, 4);
    C("cuDevicePrimaryCtxSetFlags", "spin", 0, 1);
    C("cuDevicePrimaryCtxSetFlags_v2", "bad", 0, 0x10000);
    C("cuDevicePrimaryCtxRetain", "null", 0, 0);
    C("cuDevicePrimaryCtxRetain", "bad-device", P(&a), 42);
    C("cuDevicePrimaryCtxRetain", "plain", P(&a), 0), v("%d", a != 0);
    C("cuDevicePrimaryCtxRetain", "again", P(&b), 0), v("same=%d", a == b);
    C("cuDevicePrimaryCtxGetState", "active", 0, P(&flags), P(&active)), v("%u %d", flags, active);
    C("cuCtxGetCurrent", "not-set-by-retain", P(&c)), v("%d", c != 0);
    C("cuCtxSetCurrent", "primary", a);
    C("cuCtxGetCurrent", "primary", P(&c)), v("same=%d", a == c);
    C("cuCtxGetDevice", "plain", P(&device)), v("%d", device);
    C("cuCtxGetDevice_v2", "explicit", P(&device), a), v("%d", device);
    C("cuCtxGetDevice_v2", "current", P(&device), 0), v("%d", device);
    C("cuCtxGetFlags", "plain", P(&flags)), v("%u", flags);
    C("cuCtxGetApiVersion", "primary", a, P(&version)), v("%u", version);
    C("cuCtxGetId", "plain", a, P(&id)), v("%d", id != 0);
    C("cuCtxGetStreamPriorityRange", "plain", P(&least), P(&greatest)), v("%d %d", least, greatest);
    C("cuCtxSynchronize", "idle");
    C("cuCtxSynchronize_v2", "explicit", a);
    C("cuCtxSynchronize_v2", "current", 0);
    for (int limit = 0; limit < 11; limit++) {
        char label[16];
        size = 777;
        snprintf(label, sizeof label, "%d", limit);
        C("cuCtxGetLimit", label, P(&size), limit), v("%llu", (unsigned long long)size);
    }
    u64 roomy = free_bytes();
    C("cuCtxSetLimit", "stack", 0, 4096);
    X("cuMemGetInfo_v2", "stack-took", P(&size), 0), v("MiB=%lld", (long long)(roomy - size) >> 20);
    C("cuCtxSetLimit", "heap", 2, GIB(1));
    X("cuMemGetInfo_v2", "heap-took", P(&size), 0), v("MiB=%lld", (long long)(roomy - size) >> 20);
    C("cuCtxSetLimit", "too-much-heap", 2, GIB(1000));
    C("cuCtxGetLimit", "stack", P(&size), 0), v("%llu", (unsigned long long)size);
    C("cuCtxSetLimit", "bad", 99, 1);
    C("cuCtxGetCacheConfig", "plain", P(&flags)), v("%u", flags);
    C("cuCtxSetCacheConfig", "l1", 2);
    C("cuCtxGetSharedMemConfig", "plain", P(&flags)), v("%u", flags);
    C("cuCtxResetPersistingL2Cache", "plain");
    u64 before = free_bytes();
    C("cuCtxCreate_v2", "plain", P(&b), 0, 0), v("%d", b != 0 && b != a);
    C("cuCtxGetCurrent", "created", P(&c)), v("same=%d", b == c);
    C("cuCtxGetApiVersion", "created", b, P(&version)), v("%u", version);
    X("cuMemGetInfo_v2", "context-took", P(&size), P(&id)), v("MiB=%lld", (long long)(before - size) >> 20);
    C("cuCtxPushCurrent_v2", "primary", a);
    C("cuCtxPopCurrent_v2", "primary", P(&c)), v("same=%d", c == a);
    C("cuCtxPopCurrent_v2", "created", P(&c)), v("same=%d", c == b);
    C("cuCtxGetCurrent", "after-pops", P(&c)), v("primary=%d", c == a);
    C("cuCtxPushCurrent_v2", "null", 0);
    C("cuCtxDestroy_v2", "created", b);
    C("cuCtxDestroy_v2", "null", 0);
    C("cuCtxDestroy", "null", 0);
    C("cuCtxDestroy_v2", "primary", a);
    b = 0;
    C("cuCtxCreate_v3", "no-affinity", P(&b), 0, 0, 0, 0), v("%d", b != 0);
    C("cuCtxDestroy", "v3", b);
    b = 0;
    C("cuCtxCreate_v4", "no-params", P(&b), 0, 0, 0), v("%d", b != 0);
    C("cuCtxDestroy_v2", "v4", b);
    b = 0;
    C("cuCtxCreate", "v1", P(&b), 0, 0), v("%d", b != 0);
    C("cuCtxDestroy", "v1", b);
    C("cuCtxCreate_v2", "bad-flags", P(&b), 0x1000, 0);
    C("cuCtxCreate_v2", "bad-device", P(&b), 0, 77);
    C("cuCtxCreate_v2", "null", 0, 0, 0);
    C("cuCtxSetCurrent", "primary-again", a);
    C("cuCtxAttach", "plain", P(&c), 0), v("same=%d", c == a);
    C("cuCtxDetach", "plain", a);
    C("cuCtxEnablePeerAccess", "itself", a, 0);
    C("cuCtxDisablePeerAccess", "itself", a);
    C("cuCtxSetFlags", "yield", 2);
    C("cuCtxGetFlags", "yield", P(&flags)), v("%u", flags);
    C("cuDevicePrimaryCtxRelease_v2", "one", 0);
    C("cuDevicePrimaryCtxReset_v2", "plain", 0);
    C("cuDevicePrimaryCtxReset", "plain", 0);
    C("cuDevicePrimaryCtxGetState", "reset", 0, P(&flags), P(&active)), v("%d", active);
    C("cuCtxSetCurrent", "none", 0);
    C("cuCtxGetCurrent", "none-again", P(&c)), v("%d", c != 0);
}

static void section_green(void) {
    start();
    unsigned char whole[144] = {0}, part[4][144] = {{0}}, rest[144] = {0};
    u32 groups = 2, sms = 0;
    u64 description = 0, green = 0, from = 0, stream = 0, id = 0;
    C("cuDeviceGetDevResource", "sm", 0, P(whole), 1);
    memcpy(&sms, whole + 96, 4);
    v("%u", sms);
    C("cuDeviceGetDevResource", "bad-type", 0, P(whole + 0), 7);
    Q("cuDeviceGetDevResource", 0, P(whole), 1);
    C("cuDevSmResourceSplitByCount", "two-of-16", P(part), P(&groups), P(whole), P(rest), 0, 16);
    memcpy(&sms, part[0] + 96, 4);
    v("groups=%u sms=%u", groups, sms);
    C("cuDevResourceGenerateDesc", "one", P(&description), P(part), 1), v("%d", description != 0);
    C("cuGreenCtxCreate", "plain", P(&green), description, 0, 1), v("%d", green != 0);
    C("cuGreenCtxCreate", "no-flag", P(&id), description, 0, 0);
    C("cuCtxFromGreenCtx", "plain", P(&from), green), v("%d", from != 0);
    C("cuGreenCtxGetDevResource", "sm", green, P(rest), 1);
    memcpy(&sms, rest + 96, 4);
    v("%u", sms);
    C("cuGreenCtxStreamCreate", "non-blocking", P(&stream), green, 1, 0), v("%d", stream != 0);
    C("cuGreenCtxStreamCreate", "blocking", P(&id), green, 0, 0);
    C("cuStreamGetGreenCtx", "of-green", stream, P(&id)), v("same=%d", id == green);
    C("cuStreamSynchronize", "green", stream);
    C("cuStreamDestroy_v2", "green", stream);
    C("cuGreenCtxDestroy", "plain", green);
}

/* ---- memory ---- */

static void section_memory(void) {
    start();
    u64 p = 0, q = 0, size = 0, base = 0, free = 0, total = 0, before;
    X("cuMemGetInfo_v2", "plain", P(&free), P(&total)), v("%llu %llu", (unsigned long long)free, (unsigned long long)total);
    C("cuMemGetInfo_v2", "null-free", 0, P(&total));
    C("cuMemGetInfo_v2", "null-total", P(&free), 0);
    C("cuMemGetInfo_v2", "null-both", 0, 0);
    C("cuMemAlloc_v2", "zero", P(&p), 0);
    C("cuMemAlloc_v2", "null", 0, 4096);
    before = free_bytes();
    C("cuMemAlloc_v2", "one-byte", P(&p), 1), v("aligned512=%d took=%lld", p % 512 == 0, (long long)(before - free_bytes()));
    C("cuMemGetAddressRange_v2", "one-byte", P(&base), P(&size), p), v("same=%d size=%llu", base == p, (unsigned long long)size);
    before = free_bytes();
    C("cuMemAlloc_v2", "second", P(&q), 1000), v("took=%lld apart=%lld", (long long)(before - free_bytes()), (long long)(q - p));
    C("cuMemGetAddressRange_v2", "inside", P(&base), P(&size), q + 10), v("same=%d size=%llu", base == q, (unsigned long long)size);
    C("cuMemGetAddressRange_v2", "unknown", P(&base), P(&size), 0x1000);
    C("cuMemFree_v2", "inside", q + 16);
    C("cuMemFree_v2", "second", q);
    C("cuMemFree_v2", "twice", q);
    C("cuMemFree_v2", "null", 0);
    C("cuMemFree_v2", "foreign", 0x12345000);
    Q("cuMemFree_v2", p);
    before = free_bytes();
    C("cuMemAlloc_v2", "3MiB", P(&p), MIB(3)), v("took=%lld aligned2M=%d", (long long)(before - free_bytes()), p % MIB(2) == 0);
    Q("cuMemFree_v2", p);
    C("cuMemGetInfo_v2", "back", P(&free), P(&total)), v("back=%d", free == before);
    C("cuMemAlloc_v2", "too-much", P(&p), total + MIB(64));
    C("cuMemAlloc_v2", "absurd", P(&p), (u64)1 << 60);
    C("cuMemAlloc_v2", "almost-all", P(&p), free - MIB(256));
    C("cuMemAlloc_v2", "no-more", P(&q), MIB(512));
    C("cuMemFree_v2", "almost-all", p);
    u64 pitch = 0;
    C("cuMemAllocPitch_v2", "100x10", P(&p), P(&pitch), 100, 10, 4), v("pitch=%llu", (unsigned long long)pitch);
    Q("cuMemFree_v2", p);
    C("cuMemAllocPitch_v2", "bad-element", P(&p), P(&pitch), 100, 10, 3);
    C("cuMemAllocPitch_v2", "zero-width", P(&p), P(&pitch), 0, 10, 4);
    C("cuMemAllocPitch_v2", "null-pitch", P(&p), 0, 100, 10, 4);
    C("cuMemAllocPitch_v2", "too-much", P(&p), P(&pitch), GIB(1), 4096, 4);
    before = free_bytes();
    C("cuMemAllocManaged", "global", P(&p), MIB(64), 1), v("took=%lld", (long long)(before - free_bytes()));
    *(volatile char *)(uintptr_t)p = 7;
    C("cuMemPrefetchAsync", "to-device", p, MIB(64), 0, 0);
    Q("cuCtxSynchronize");
    C("cuMemGetInfo_v2", "managed-on-device", P(&free), P(&total)), v("took=%lld", (long long)(before - free));
    C("cuMemPrefetchAsync", "to-host", p, MIB(64), (u64)-1, 0);
    Q("cuCtxSynchronize");
    C("cuMemPrefetchAsync", "bad-device", p, MIB(64), 55, 0);
    C("cuMemPrefetchAsync_v2", "to-device", p, 4096, (u64)0 << 32 | 1, 0, 0);
    C("cuMemAdvise", "read-mostly", p, MIB(64), 1, 0);
    C("cuMemAdvise_v2", "preferred-device", p, MIB(64), 3, (u64)0 << 32 | 1);
    int answer = -77;
    C("cuMemRangeGetAttribute", "read-mostly", P(&answer), 4, 1, p, MIB(64)), v("%d", answer);
    C("cuMemRangeGetAttribute", "preferred", P(&answer), 4, 2, p, MIB(64)), v("%d", answer);
    C("cuMemAdvise", "bad", p, MIB(64), 99, 0);
    C("cuMemFree_v2", "managed", p);
    C("cuMemAllocManaged", "host", P(&p), 4096, 2);
    C("cuMemFreeAsync", "managed", p, 0);
    Q("cuMemFree_v2", p);
    C("cuMemAllocManaged", "bad-flag", P(&p), 4096, 8);
    C("cuMemAllocManaged", "zero", P(&p), 0, 1);
    C("cuMemPrefetchAsync", "not-managed", 0x1000, 4096, 0, 0);
    /* pointers */
    Q("cuMemAlloc_v2", P(&p), MIB(1));
    u64 context_of = 0;
    u32 word = 77;
    C("cuPointerGetAttribute", "context", P(&context_of), 1, p), v("same=%d", context_of == context);
    for (int a = 2; a <= 21; a++) {
        char label[24];
        u64 value = 0;
        snprintf(label, sizeof label, "linear-%d", a);
        if (a == 5 || a == 7 || a == 3 || a == 11 || a == 19 || a == 20 || a == 17) continue;
        C("cuPointerGetAttribute", label, P(&value), a, p + 64), v("%llu", (unsigned long long)(a == 12 || a == 18 ? value : (u32)value));
    }
    C("cuPointerGetAttribute", "host-type", P(&word), 2, P(&word));
    C("cuPointerGetAttribute", "bad", P(&word), 99, p);
    C("cuPointerGetAttribute", "null", 0, 2, p);
    u32 wanted[2] = {2, 9};
    u32 type = 77, device = 77;
    void *places[2] = {&type, &device};
    C("cuPointerGetAttributes", "two", 2, P(wanted), P(places), p), v("%u %u", type, device);
    C("cuPointerGetAttributes", "host", 2, P(wanted), P(places), P(&word)), v("%u %d", type, (int)device);
    u32 one = 1;
    C("cuPointerSetAttribute", "sync", P(&one), 6, p);
    Q("cuMemFree_v2", p);
    C("cuPointerGetAttribute", "freed", P(&word), 2, p);
}

static void section_old_memory(void) {
    start();
    u32 p = 0, free = 0, total = 0, pitch = 0;
    C("cuMemGetInfo", "32-bit", P(&free), P(&total));
    C("cuMemAlloc", "32-bit", P(&p), 4096);
    C("cuMemFree", "32-bit", p);
    C("cuMemFree", "null", 0);
    C("cuMemAllocPitch", "32-bit", P(&p), P(&pitch), 100, 10, 4);
    struct { u32 width, height, format, channels; } flat = {64, 64, 0x20, 1};
    struct { u32 width, height, depth, format, channels, flags; } deep = {16, 16, 16, 0x20, 1, 0};
    u64 array = 0;
    if (C("cuArrayCreate", "32-bit", P(&array), P(&flat)) == 0) Q("cuArrayDestroy", array);
    array = 0;
    if (C("cuArray3DCreate", "32-bit", P(&array), P(&deep)) == 0) Q("cuArrayDestroy", array);
    void *host = NULL;
    if (C("cuMemAllocHost", "v1", P(&host), 4096) == 0) Q("cuMemFreeHost", P(host));
    C("cuMemsetD8", "32-bit", 0x1000, 1, 16);
    C("cuMemcpyDtoH", "32-bit", P(&free), 0x1000, 4);
}

static void section_host(void) {
    start();
    void *p = NULL;
    u64 device = 0, stream = 0;
    u32 flags = 77;
    Q("cuStreamCreate", P(&stream), 1);
    C("cuMemHostAlloc", "mapped", P(&p), 8192, 2);
    C("cuMemHostGetFlags", "mapped", P(&flags), P(p)), v("%u", flags);
    C("cuMemHostGetDevicePointer_v2", "mapped", P(&device), P(p), 0), v("same=%d", device == P(p));
    C("cuMemHostGetDevicePointer_v2", "flags", P(&device), P(p), 1);
    C("cuMemFreeHost", "mapped", P(p));
    C("cuMemFreeHost", "twice", P(p));
    C("cuMemFreeHost", "null", 0);
    C("cuMemHostAlloc", "zero", P(&p), 0, 0);
    C("cuMemHostAlloc", "bad-flags", P(&p), 4096, 0x100);
    C("cuMemHostAlloc", "null", 0, 4096, 0);
    C("cuMemAllocHost_v2", "plain", P(&p), 4096);
    C("cuMemHostGetFlags", "plain", P(&flags), P(p)), v("%u", flags);
    C("cuMemFreeHost", "plain", P(p));
    char *own = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    C("cuMemHostGetDevicePointer_v2", "not-registered", P(&device), P(own), 0);
    C("cuMemHostRegister_v2", "plain", P(own), 8192, 2);
    C("cuMemHostRegister_v2", "again", P(own), 8192, 2);
    C("cuMemHostRegister_v2", "overlap", P(own + 4096), 8192, 2);
    C("cuMemHostGetDevicePointer_v2", "registered", P(&device), P(own), 0), v("same=%d", device == P(own));
    C("cuStreamWriteValue32_v2", "registered", stream, device, 5, 0);
    Q("cuStreamSynchronize", stream);
    flush_line();
    printf("registered word = %d\n", own[0]);
    C("cuMemHostUnregister", "inside", P(own + 4096));
    C("cuMemHostUnregister", "plain", P(own));
    C("cuMemHostUnregister", "twice", P(own));
    C("cuMemHostRegister", "v1", P(own), 4096, 2);
    C("cuMemHostUnregister", "v1", P(own));
    C("cuMemHostRegister_v2", "zero", P(own), 0, 0);
    C("cuMemHostRegister_v2", "null", 0, 4096, 0);
    C("cuMemHostRegister_v2", "bad-flags", P(own), 4096, 0x100);
    C("cuMemHostRegister_v2", "unaligned", P(own + 100), 100, 2);
    Q("cuMemHostUnregister", P(own + 100));
    /* a page that this process may only read */
    int file = memfd_create("conform", 0);
    if (ftruncate(file, 4096)) exit(3);
    u32 *writable = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    u32 *readable = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    C("cuMemHostRegister_v2", "read-only-page-writable", P(readable), 4096, 2);
    Q("cuMemHostUnregister", P(readable));
    C("cuMemHostRegister_v2", "read-only-page", P(readable), 4096, 2 | 8);
    C("cuMemHostGetDevicePointer_v2", "read-only", P(&device), P(readable), 0), v("%d", device != 0);
    C("cuStreamWaitValue32_v2", "read-only", stream, device, 1, 1);
    C("cuStreamQuery", "closed", stream);
    __atomic_store_n(writable, 1, __ATOMIC_SEQ_CST);
    C("cuStreamSynchronize", "opened", stream);
    C("cuStreamWriteValue32_v2", "read-only", stream, device, 9, 0);
    C("cuStreamSynchronize", "after-bad-write", stream);
    C("cuMemAlloc_v2", "broken-context", P(&device), 4096);
    C("cuCtxSynchronize", "broken-context");
    flush_line();
    printf("read-only word = %u\n", writable[0]);
}

static void section_pool(void) {
    start();
    u64 pool = 0, own = 0, p = 0, q = 0, value = 0, stream = 0, before;
    Q("cuStreamCreate", P(&stream), 1);
    Q("cuDeviceGetDefaultMemPool", P(&pool), 0);
    for (int a = 1; a <= 9; a++) {
        char label[24];
        value = 0;
        snprintf(label, sizeof label, "fresh-%d", a);
        C("cuMemPoolGetAttribute", label, pool, a, P(&value)), v("%llu", (unsigned long long)value);
    }
    C("cuMemAllocAsync", "zero", P(&p), 0, stream);
    C("cuMemAllocAsync", "null", 0, 1024, stream);
    before = free_bytes();
    C("cuMemAllocAsync", "1MiB", P(&p), MIB(1), stream), v("took=%lld", (long long)(before - free_bytes()));
    C("cuMemPoolGetAttribute", "reserved-1MiB", pool, 5, P(&value)), v("%llu", (unsigned long long)value);
    C("cuMemPoolGetAttribute", "used-1MiB", pool, 7, P(&value)), v("%llu", (unsigned long long)value);
    C("cuMemAllocAsync", "100-bytes", P(&q), 100, stream);
    C("cuMemPoolGetAttribute", "used-plus-100", pool, 7, P(&value)), v("%llu", (unsigned long long)value);
    C("cuMemFreeAsync", "100-bytes", q, stream);
    C("cuMemFreeAsync", "1MiB", p, stream);
    C("cuMemFreeAsync", "twice", p, stream);
    C("cuMemPoolGetAttribute", "reserved-freed", pool, 5, P(&value)), v("%llu", (unsigned long long)value);
    C("cuStreamSynchronize", "pool", stream);
    C("cuMemPoolGetAttribute", "reserved-synchronized", pool, 5, P(&value)), v("%llu", (unsigned long long)value);
    value = (u64)-1;
    C("cuMemPoolSetAttribute", "keep-all", pool, 4, P(&value));
    C("cuMemAllocAsync", "100MiB", P(&p), MIB(100), stream);
    C("cuMemPoolGetAttribute", "reserved-100MiB", pool, 5, P(&value)), v("%llu", (unsigned long long)value);
    C("cuMemFreeAsync", "100MiB", p, stream);
    Q("cuStreamSynchronize", stream);
    C("cuMemPoolGetAttribute", "reserved-kept", pool, 5, P(&value)), v("%llu", (unsigned long long)value);
    C("cuMemPoolTrimTo", "zero", pool, 0);
    C("cuMemPoolGetAttribute", "reserved-trimmed", pool, 5, P(&value)), v("%llu", (unsigned long long)value);
    C("cuMemPoolGetAttribute", "reserved-high", pool, 6, P(&value)), v("%llu", (unsigned long long)value);
    value = 0;
    C("cuMemPoolSetAttribute", "reset-high", pool, 6, P(&value));
    value = 5;
    C("cuMemPoolSetAttribute", "set-high", pool, 6, P(&value));
    C("cuMemPoolSetAttribute", "read-only", pool, 5, P(&value));
    C("cuMemAllocAsync", "too-much", P(&p), GIB(400), stream);
    C("cuMemAllocAsync_ptsz", "own-stream", P(&p), MIB(1), 0);
    C("cuMemFreeAsync_ptsz", "own-stream", p, 0);
    C("cuMemAllocAsync", "legacy-stream", P(&p), MIB(1), 0);
    C("cuMemFree_v2", "pool-memory", p);
    Q("cuMemAlloc_v2", P(&p), MIB(1));
    C("cuMemFreeAsync", "linear", p, stream);
    Q("cuStreamSynchronize", stream);
    C("cuMemFreeAsync", "null", 0, stream);
    /* a pool of one's own, with a limit */
    struct { u32 type, handles; u32 location, id; u64 security, max; u32 usage; char rest[52]; } props = {1, 0, 1, 0, 0, MIB(256), 0, {0}};
    C("cuMemPoolCreate", "256MiB", P(&own), P(&props)), v("%d", own != 0);
    C("cuMemAllocFromPoolAsync", "first-200MiB", P(&p), MIB(200), own, stream);
    C("cuMemAllocFromPoolAsync", "second-200MiB", P(&q), MIB(200), own, stream);
    C("cuMemFreeAsync", "first-200MiB", p, stream);
    C("cuMemAllocFromPoolAsync", "again-200MiB", P(&p), MIB(200), own, stream);
    C("cuMemFreeAsync", "again-200MiB", p, stream);
    C("cuMemAllocFromPoolAsync_ptsz", "own-stream", P(&p), MIB(1), own, 0);
    C("cuMemFreeAsync_ptsz", "own-pool", p, 0);
    u32 rights = 77;
    struct { u32 type, id, flags; } access = {1, 0, 3};
    C("cuMemPoolGetAccess", "own-device", P(&rights), own, P(&access)), v("%u", rights);
    C("cuMemPoolSetAccess", "own-device", own, P(&access), 1);
    access.flags = 0;
    C("cuMemPoolSetAccess", "revoke-own", own, P(&access), 1);
    int descriptor = -1;
    C("cuMemPoolExportToShareableHandle", "not-exportable", P(&descriptor), own, 1, 0);
    C("cuDeviceSetMemPool", "own", 0, own);
    C("cuDeviceGetMemPool", "own", P(&q), 0), v("same=%d", q == own);
    C("cuDeviceSetMemPool", "bad", 0, 0);
    struct { u32 type, id; } where = {1, 0};
    C("cuMemGetDefaultMemPool", "device", P(&q), P(&where), 1), v("same=%d", q == pool);
    C("cuMemGetMemPool", "device", P(&q), P(&where), 1), v("same=%d", q == own);
    C("cuMemSetMemPool", "device", P(&where), 1, pool);
    Q("cuCtxSynchronize");
    C("cuMemPoolDestroy", "own", own);
    C("cuMemPoolDestroy", "default", pool);
    C("cuMemPoolDestroy", "null", 0);
    C("cuMemPoolTrimTo", "null", 0, 0);
    props.max = 0;
    props.type = 9;
    C("cuMemPoolCreate", "bad-type", P(&own), P(&props));
    C("cuMemPoolCreate", "null", P(&own), 0);
    props.type = 1;
    props.handles = 1;
    C("cuMemPoolCreate", "exportable", P(&own), P(&props));
    C("cuMemPoolExportToShareableHandle", "plain", P(&descriptor), own, 1, 0), v("%d", descriptor >= 0);
    u64 imported = 0;
    C("cuMemPoolImportFromShareableHandle", "itself", P(&imported), (u64)descriptor, 1, 0);
    Q("cuMemAllocFromPoolAsync", P(&p), MIB(1), own, stream);
    Q("cuStreamSynchronize", stream);
    char data[64];
    C("cuMemPoolExportPointer", "plain", P(data), p);
    C("cuMemPoolExportPointer", "unknown", P(data), 0x1000);
    C("cuMemPoolImportPointer", "bad-pool", P(&q), 0, P(data));
    Q("cuMemFreeAsync", p, stream);
    Q("cuStreamSynchronize", stream);
    C("cuMemPoolDestroy", "exportable", own);
    C("cuPointerGetAttribute", "freed-pool-pointer", P(&rights), 2, p);
}

static void section_virtual(void) {
    start();
    struct { u32 type, handles, location, id; u64 meta; unsigned char compression, rdma; uint16_t usage; char rest[4]; } prop = {1, 0, 1, 0, 0, 0, 0, 0, {0}}, other;
    u64 grain = 0, a = 0, b = 0, at = 0, low = 0, before, flags = 77;
    C("cuMemGetAllocationGranularity", "minimum", P(&grain), P(&prop), 0), v("%llu", (unsigned long long)grain);
    C("cuMemGetAllocationGranularity", "recommended", P(&grain), P(&prop), 1), v("%llu", (unsigned long long)grain);
    C("cuMemGetAllocationGranularity", "null", P(&grain), 0, 0);
    before = free_bytes();
    C("cuMemCreate", "64MiB", P(&a), MIB(64), P(&prop), 0), v("took=%lld", (long long)(before - free_bytes()));
    C("cuMemCreate", "odd-size", P(&b), MIB(1) + 3, P(&prop), 0);
    C("cuMemCreate", "zero", P(&b), 0, P(&prop), 0);
    C("cuMemCreate", "too-much", P(&b), GIB(400), P(&prop), 0);
    C("cuMemCreate", "flags", P(&b), MIB(2), P(&prop), 1);
    other = prop;
    other.id = 9;
    C("cuMemCreate", "bad-device", P(&b), MIB(2), P(&other), 0);
    other = prop;
    other.type = 0;
    C("cuMemCreate", "bad-type", P(&b), MIB(2), P(&other), 0);
    memset(&other, 0, sizeof other);
    C("cuMemGetAllocationPropertiesFromHandle", "plain", P(&other), a), v("%u %u %u", other.type, other.location, other.id);
    C("cuMemAddressReserve", "128MiB", P(&at), MIB(128), 0, 0, 0), v("aligned=%d", at % MIB(2) == 0);
    C("cuMemAddressReserve", "odd-size", P(&low), 12345, 0, 0, 0);
    C("cuMemAddressReserve", "zero", P(&low), 0, 0, 0, 0);
    C("cuMemAddressReserve", "1GiB-aligned", P(&low), MIB(64), GIB(1), 0, 0), v("aligned=%d", low % GIB(1) == 0);
    C("cuMemAddressFree", "1GiB-aligned", low, MIB(64));
    C("cuMemsetD8_v2", "not-mapped", at, 1, 16);
    C("cuMemMap", "plain", at, MIB(64), 0, a, 0);
    C("cuMemMap", "taken", at, MIB(64), 0, a, 0);
    C("cuMemMap", "twice", at + MIB(64), MIB(64), 0, a, 0);
    C("cuMemMap", "outside", 0x1000000, MIB(64), 0, a, 0);
    C("cuMemsetD8_v2", "no-access", at, 1, 16);
    struct { u32 type, id, flags; } access = {1, 0, 3};
    C("cuMemSetAccess", "plain", at, MIB(128), P(&access), 1);
    C("cuMemGetAccess", "plain", P(&flags), P(&access), at), v("%llu", (unsigned long long)flags);
    C("cuMemSetAccess", "none", at, MIB(128), P(&access), 0);
    C("cuMemSetAccess", "outside", 0x1000000, MIB(64), P(&access), 1);
    C("cuMemsetD8_v2", "mapped", at, 7, MIB(1));
    unsigned char byte = 0;
    C("cuMemcpyDtoH_v2", "alias", P(&byte), at + MIB(64), 1), v("%u", byte);
    C("cuMemRetainAllocationHandle", "plain", P(&b), at + 4096), v("same=%d", a == b);
    C("cuMemRetainAllocationHandle", "unknown", P(&low), 0x1000);
    before = free_bytes();
    C("cuMemRelease", "create", a);
    C("cuMemRelease", "retain", b), v("freed=%lld", (long long)(free_bytes() - before));
    C("cuMemRelease", "too-often", b);
    C("cuMemUnmap", "part", at, MIB(32));
    C("cuMemUnmap", "one", at, MIB(64)), v("freed=%lld", (long long)(free_bytes() - before));
    C("cuMemAddressFree", "still-mapped", at, MIB(128));
    C("cuMemUnmap", "other", at + MIB(64), MIB(64)), v("freed=%lld", (long long)(free_bytes() - before));
    C("cuMemUnmap", "not-mapped", at, MIB(64));
    C("cuMemAddressFree", "part", at, MIB(64));
    C("cuMemAddressFree", "plain", at, MIB(128));
    C("cuMemAddressFree", "twice", at, MIB(128));
    int descriptor = -1;
    Q("cuMemCreate", P(&a), MIB(2), P(&prop), 0);
    C("cuMemExportToShareableHandle", "not-exportable", P(&descriptor), a, 1, 0);
    Q("cuMemRelease", a);
    prop.handles = 1;
    C("cuMemCreate", "exportable", P(&a), MIB(2), P(&prop), 0);
    C("cuMemExportToShareableHandle", "plain", P(&descriptor), a, 1, 0), v("%d", descriptor >= 0);
    before = free_bytes();
    C("cuMemImportFromShareableHandle", "itself", P(&b), (u64)descriptor, 1), v("took=%lld", (long long)(before - free_bytes()));
    C("cuMemImportFromShareableHandle", "bad", P(&low), 0, 1);
    C("cuMemRelease", "imported", b);
    C("cuMemRelease", "exportable", a);
    struct { u32 type, handles, location, id; u64 rest[2]; } host = {1, 0, 3, 0, {0}};
    before = free_bytes();
    C("cuMemCreate", "host-numa", P(&a), MIB(2), P(&host), 0), v("took=%lld", (long long)(before - free_bytes()));
    Q("cuMemRelease", a);
    struct { u32 devices, pad; u64 size, handles, flags; } cast = {2, 0, MIB(64), 0, 0};
    X("cuMulticastGetGranularity", "two-devices", P(&grain), P(&cast), 0);
    X("cuMulticastCreate", "two-devices", P(&a), P(&cast));
    C("cuMulticastBindMem", "bad", 0, 0, 0, 0, 0, 0);
    C("cuMulticastBindAddr", "bad", 0, 0, 0, 0, 0);
    C("cuMulticastUnbind", "bad", 0, 0, 0, 0);
    C("cuMulticastAddDevice", "bad", 0, 0);
    struct { u32 a[24]; } map = {{0}};
    C("cuMemMapArrayAsync", "bad", P(&map), 1, 0);
    C("cuMemMapArrayAsync_ptsz", "bad", P(&map), 1, 0);
}

static void section_array(void) {
    start();
    struct { u64 width, height; u32 format, channels; } flat = {256, 128, 0x20, 4}, got = {0};
    struct { u64 width, height, depth; u32 format, channels, flags; } deep = {64, 32, 16, 0x20, 1, 0}, got3 = {0};
    u64 array = 0, level = 0, before = free_bytes();
    struct { u64 size, alignment; u32 reserved[4]; } need;
    C("cuArrayCreate_v2", "256x128x4", P(&array), P(&flat));
    X("cuMemGetInfo_v2", "array-took", P(&level), 0), v("%lld", (long long)(before - level));
    C("cuArrayGetDescriptor_v2", "plain", P(&got), array), v("%llu %llu %u %u", (unsigned long long)got.width, (unsigned long long)got.height, got.format, got.channels);
    C("cuArrayGetMemoryRequirements", "plain", P(&need), array, 0);
    float data[4] = {1, 2, 3, 4}, back[4] = {0};
    C("cuMemcpyHtoA_v2", "row", array, 0, P(data), 16);
    C("cuMemcpyAtoH_v2", "row", P(back), array, 0, 16), v("%g %g", back[0], back[3]);
    C("cuArrayDestroy", "plain", array);
    C("cuArrayDestroy", "null", 0);
    flat.channels = 3;
    C("cuArrayCreate_v2", "3-channels", P(&array), P(&flat));
    flat.channels = 4;
    flat.width = 0;
    C("cuArrayCreate_v2", "zero-width", P(&array), P(&flat));
    flat.width = 1 << 20;
    C("cuArrayCreate_v2", "too-wide", P(&array), P(&flat));
    C("cuArrayCreate_v2", "null", P(&array), 0);
    C("cuArray3DCreate_v2", "64x32x16", P(&array), P(&deep));
    C("cuArray3DGetDescriptor_v2", "plain", P(&got3), array), v("%llu %llu %llu %u", (unsigned long long)got3.width, (unsigned long long)got3.height, (unsigned long long)got3.depth, got3.flags);
    Q("cuArrayDestroy", array);
    deep.flags = 1;
    C("cuArray3DCreate_v2", "layered", P(&array), P(&deep));
    Q("cuArrayDestroy", array);
    deep.flags = 0;
    C("cuMipmappedArrayCreate", "4-levels", P(&array), P(&deep), 4);
    C("cuMipmappedArrayGetLevel", "2", P(&level), array, 2), v("%d", level != 0);
    C("cuArray3DGetDescriptor_v2", "level-2", P(&got3), level), v("%llu %llu %llu", (unsigned long long)got3.width, (unsigned long long)got3.height, (unsigned long long)got3.depth);
    C("cuMipmappedArrayGetLevel", "beyond", P(&level), array, 9);
    C("cuMipmappedArrayDestroy", "plain", array);
    C("cuMipmappedArrayCreate", "no-levels", P(&array), P(&deep), 0);
    if (C("cuMipmappedArrayCreate", "many-levels", P(&array), P(&deep), 99) == 0) Q("cuMipmappedArrayDestroy", array);
    C("cuMipmappedArrayDestroy", "null", 0);
    struct { u32 type, pad; u64 handle[2], size; u32 flags, reserved[16]; } external = {1, 0, {(u64)-1, 0}, 4096, 0, {0}};
    C("cuImportExternalMemory", "bad-fd", P(&array), P(&external));
    C("cuImportExternalMemory", "null", P(&array), 0);
    struct { u64 offset, size; u32 flags, reserved[17]; } buffer = {0, 4096, 0, {0}};
    C("cuExternalMemoryGetMappedBuffer", "null", P(&level), 0, P(&buffer));
    char mipmap[120] = {0};
    C("cuExternalMemoryGetMappedMipmappedArray", "null", P(&level), 0, P(mipmap));
    C("cuDestroyExternalMemory", "null", 0);
}

static void section_copy(void) {
    start();
    u64 a = 0, b = 0, stream = 0;
    char *pinned = NULL, page[4096], back[4096];
    Q("cuMemAlloc_v2", P(&a), MIB(1));
    Q("cuMemAlloc_v2", P(&b), MIB(1));
    Q("cuStreamCreate", P(&stream), 1);
    Q("cuMemHostAlloc", P(&pinned), MIB(1), 0);
    for (int i = 0; i < 4096; i++) page[i] = (char)(i * 7);
    C("cuMemcpyHtoD_v2", "page", a, P(page), 4096);
    C("cuMemcpyDtoD_v2", "page", b, a, 4096);
    C("cuMemcpyDtoH_v2", "page", P(back), b, 4096), v("same=%d", !memcmp(page, back, 4096));
    C("cuMemcpyHtoD_v2", "null-host", a, 0, 16);
    C("cuMemcpyHtoD_v2", "zero", a, P(page), 0);
    C("cuMemcpyHtoD_v2", "beyond", a, P(page), MIB(64));
    C("cuMemcpyHtoD_v2", "bad-device", 0x1000, P(page), 16);
    C("cuMemcpyDtoH_v2", "bad-device", P(back), 0x1000, 16);
    C("cuMemcpy", "unified", a, P(page), 64);
    C("cuMemcpy_ptds", "unified", a, P(page), 64);
    C("cuMemcpyHtoD_v2_ptds", "page", a, P(page), 4096);
    C("cuMemcpyDtoH_v2_ptds", "page", P(back), a, 4096);
    C("cuMemcpyAsync", "pinned", a, P(pinned), MIB(1), stream);
    C("cuMemcpyAsync_ptsz", "pinned", a, P(pinned), MIB(1), 0);
    C("cuMemcpyHtoDAsync_v2", "pinned", a, P(pinned), MIB(1), stream);
    C("cuMemcpyDtoHAsync_v2", "pinned", P(pinned), a, MIB(1), stream);
    C("cuMemcpyDtoDAsync_v2", "plain", b, a, MIB(1), stream);
    C("cuMemcpyDtoDAsync_v2", "bad-stream", b, a, 16, 0x77777);
    C("cuMemcpyPeer", "itself", b, context, a, context, 4096);
    C("cuMemcpyPeerAsync", "itself", b, context, a, context, 4096, stream);
    struct { u64 src_x, src_y; u32 src_kind, p0; u64 src_host, src_device, src_array, src_pitch, dst_x, dst_y; u32 dst_kind, p1; u64 dst_host, dst_device, dst_array, dst_pitch, width, height; } flat = {0};
    flat.src_kind = 1, flat.src_host = P(page), flat.src_pitch = 64, flat.dst_kind = 2, flat.dst_device = a, flat.dst_pitch = 512, flat.width = 32, flat.height = 8;
    C("cuMemcpy2D_v2", "32x8", P(&flat));
    C("cuMemcpy2DUnaligned_v2", "32x8", P(&flat));
    C("cuMemcpy2DAsync_v2", "32x8", P(&flat), stream);
    Q("cuCtxSynchronize");
    C("cuMemcpyDtoH_v2", "row-2", P(back), a + 1024, 32), v("same=%d", !memcmp(back, page + 128, 32));
    flat.dst_pitch = 16;
    C("cuMemcpy2D_v2", "short-pitch", P(&flat));
    C("cuMemcpy2D_v2", "null", 0);
    u64 deep[25] = {0};
    deep[4] = 1, deep[5] = P(page), deep[9] = 64, deep[10] = 4, deep[15] = 2, deep[17] = a, deep[20] = 512, deep[21] = 8, deep[22] = 16, deep[23] = 4, deep[24] = 3;
    C("cuMemcpy3D_v2", "16x4x3", P(deep));
    C("cuMemcpy3DAsync_v2", "16x4x3", P(deep), stream);
    C("cuMemsetD8_v2", "page", a, 0xab, 4096);
    C("cuMemsetD16_v2", "page", a, 0xabcd, 2048);
    C("cuMemsetD32_v2", "page", a, 0x12345678, 1024);
    Q("cuCtxSynchronize");
    u32 word = 0;
    C("cuMemcpyDtoH_v2", "set-word", P(&word), a + 400, 4), v("%x", word);
    C("cuMemsetD16_v2", "unaligned", a + 1, 1, 4);
    C("cuMemsetD8_v2", "zero", a, 1, 0);
    C("cuMemsetD8_v2", "beyond", a, 1, MIB(64));
    C("cuMemsetD2D8_v2", "16x4", a, 512, 3, 16, 4);
    C("cuMemsetD2D32_v2", "short-pitch", a, 8, 3, 16, 4);
    C("cuMemsetD8Async", "page", a, 1, 4096, stream);
    C("cuMemsetD32Async_ptsz", "page", a, 1, 1024, 0);
    C("cuMemsetD2D16Async", "16x4", a, 512, 3, 16, 4, stream);
    u64 to[2] = {b, b + 4096}, from[2] = {a, a + 4096}, sizes[2] = {64, 64}, index[1] = {0}, failed = 77;
    struct { u32 order, s[2], d[2], flags; } attributes[1] = {{1, {0}, {0}, 0}};
    C("cuMemcpyBatchAsync", "two", P(to), P(from), P(sizes), 2, P(attributes), P(index), 1, P(&failed), stream);
    C("cuMemcpyBatchAsync_v2", "two", P(to), P(from), P(sizes), 2, P(attributes), P(index), 1, stream);
    C("cuMemcpyBatchAsync_v2", "legacy-stream", P(to), P(from), P(sizes), 2, P(attributes), P(index), 1, 0);
    C("cuMemcpyBatchAsync_v2", "none", P(to), P(from), P(sizes), 0, P(attributes), P(index), 1, stream);
    C("cuStreamSynchronize", "copies", stream);
}

static int called;
static void on_host(void *data) { __atomic_add_fetch(&called, *(int *)data, __ATOMIC_SEQ_CST); }
static void on_callback(u64 stream, int status, void *data) { (void)stream, (void)status; on_host(data); }

static void section_stream(void) {
    start_with_code();
    u64 s = 0, t = 0, e = 0, f = 0, id = 0, of = 0;
    u32 flags = 77;
    int priority = 77, one = 1;
    u32 *word = NULL;
    float ms = -1;
    C("cuStreamCreate", "blocking", P(&s), 0);
    C("cuStreamCreate", "non-blocking", P(&t), 1);
    C("cuStreamCreate", "bad-flags", P(&id), 2);
    C("cuStreamCreate", "null", 0, 0);
    C("cuStreamGetFlags", "non-blocking", t, P(&flags)), v("%u", flags);
    C("cuStreamGetPriority", "plain", t, P(&priority)), v("%d", priority);
    C("cuStreamGetCtx", "plain", t, P(&of)), v("same=%d", of == context);
    C("cuStreamGetId", "plain", t, P(&id)), v("%d", id != 0);
    C("cuStreamGetDevice", "plain", t, P(&priority)), v("%d", priority);
    u64 high = 0;
    C("cuStreamCreateWithPriority", "high", P(&high), 1, (u64)-5);
    C("cuStreamGetPriority", "high", high, P(&priority)), v("%d", priority);
    C("cuStreamDestroy_v2", "high", high);
    C("cuStreamCreateWithPriority", "beyond", P(&high), 1, (u64)-99);
    C("cuStreamGetPriority", "beyond", high, P(&priority)), v("%d", priority);
    C("cuStreamDestroy", "v1", high);
    C("cuStreamQuery", "idle", t);
    C("cuStreamQuery", "legacy", 0);
    C("cuStreamQuery_ptsz", "own", 0);
    C("cuStreamSynchronize", "idle", t);
    C("cuStreamSynchronize", "bad", 0x99999);
    C("cuStreamDestroy_v2", "null", 0);
    C("cuEventCreate", "timed", P(&e), 0);
    C("cuEventCreate", "untimed", P(&f), 2);
    C("cuEventCreate", "bad-flags", P(&id), 64);
    C("cuEventCreate", "ipc-timed", P(&id), 4);
    C("cuEventQuery", "not-recorded", e);
    C("cuEventSynchronize", "not-recorded", e);
    C("cuEventElapsedTime", "not-recorded", P(&ms), e, e);
    C("cuEventRecord", "plain", e, t);
    C("cuEventSynchronize", "plain", e);
    C("cuEventElapsedTime", "untimed", P(&ms), e, f);
    u32 us = 20000;
    void *params[] = {&us};
    u64 end = 0;
    Q("cuEventCreate", P(&end), 0);
    Q("cuEventRecord", e, t);
    C("cuLaunchKernel", "spin", spin, 1, 1, 1, 1, 1, 1, 0, t, P(params), 0);
    C("cuStreamQuery", "busy", t);
    C("cuEventRecord", "behind-kernel", end, t);
    C("cuEventQuery", "busy", end);
    C("cuEventElapsedTime", "busy", P(&ms), e, end);
    C("cuEventSynchronize", "behind-kernel", end);
    C("cuEventElapsedTime", "20ms", P(&ms), e, end), v("right=%d", ms > 19.9 && ms < 24);
    C("cuEventElapsedTime_v2", "20ms", P(&ms), e, end), v("right=%d", ms > 19.9 && ms < 24);
    C("cuStreamWaitEvent", "plain", s, end, 0);
    C("cuStreamWaitEvent", "bad-flags", s, end, 7);
    C("cuStreamWaitEvent", "null", s, 0, 0);
    C("cuLaunchHostFunc", "plain", t, P(on_host), P(&one));
    C("cuStreamAddCallback", "plain", t, P(on_callback), P(&one), 0);
    C("cuLaunchHostFunc", "null", t, 0, 0);
    C("cuStreamSynchronize", "callbacks", t), v("called=%d", called);
    C("cuLaunchHostFunc_ptsz", "plain", 0, P(on_host), P(&one));
    Q("cuCtxSynchronize");
    /* the legacy stream waits for blocking streams and they for it, not for the others */
    Q("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, s, P(params), 0);
    double from = now();
    Q("cuEventRecord", e, 0);
    Q("cuEventSynchronize", e);
    flush_line();
    printf("legacy waits for blocking = %d\n", now() - from > 0.015);
    Q("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, t, P(params), 0);
    from = now();
    Q("cuEventRecord", e, 0);
    Q("cuEventSynchronize", e);
    printf("legacy waits for non-blocking = %d\n", now() - from > 0.015);
    Q("cuCtxSynchronize");
    from = now();
    Q("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, s, P(params), 0);
    Q("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, t, P(params), 0);
    Q("cuCtxSynchronize");
    printf("streams overlap = %d\n", now() - from < 0.035);
    /* words */
    Q("cuMemHostAlloc", P(&word), 4096, 2);
    memset(word, 0, 4096);
    C("cuStreamWaitValue32_v2", "geq", t, P(word), 1, 0);
    C("cuStreamWriteValue32_v2", "behind", t, P(word + 1), 11, 0);
    C("cuStreamQuery", "waiting", t);
    __atomic_store_n(word, 5, __ATOMIC_SEQ_CST);
    C("cuStreamSynchronize", "geq", t), v("%u", word[1]);
    C("cuStreamWaitValue32_v2", "eq", t, P(word), 5, 1);
    C("cuStreamWaitValue32_v2", "and", t, P(word), 4, 2);
    C("cuStreamWaitValue32_v2", "nor", t, P(word), 1, 3);
    C("cuStreamWaitValue32_v2", "bad-flags", t, P(word), 1, 9);
    C("cuStreamWaitValue32_v2", "bad-address", t, 0x1000, 1, 0);
    C("cuStreamWaitValue32_v2", "unaligned", t, P(word) + 2, 0, 0);
    C("cuStreamWaitValue64_v2", "geq", t, P(word + 2), 0, 0);
    C("cuStreamWriteValue64_v2", "plain", t, P(word + 2), 0x123456789aull, 0);
    C("cuStreamWriteValue32_v2", "bad-address", t, 0x1000, 1, 0);
    C("cuStreamSynchronize", "words", t), v("%x", word[3]);
    struct { u32 operation, pad; u64 address, value; u32 flags, pad2; u64 rest[2]; } batch[3] = {{1, 0, P(word), 5, 1, 0, {0}}, {2, 0, P(word + 4), 44, 0, 0, {0}}, {6, 0, 0, 0, 0, 0, {0}}};
    C("cuStreamBatchMemOp_v2", "wait-write", t, 2, P(batch), 0);
    C("cuStreamBatchMemOp", "v1", t, 2, P(batch), 0);
    C("cuStreamBatchMemOp_v2", "none", t, 0, P(batch), 0);
    C("cuStreamBatchMemOp_v2", "null", t, 2, 0, 0);
    batch[0].operation = 99;
    C("cuStreamBatchMemOp_v2", "bad", t, 2, P(batch), 0);
    C("cuStreamSynchronize", "batch", t), v("%u", word[4]);
    C("cuStreamWaitValue32", "v1", t, P(word), 5, 1);
    C("cuStreamWriteValue32", "v1", t, P(word + 5), 6, 0);
    C("cuStreamWriteValue32_v2_ptsz", "own", 0, P(word + 6), 7, 0);
    Q("cuCtxSynchronize");
    C("cuEventDestroy_v2", "plain", e);
    C("cuEventDestroy", "v1", f);
    C("cuEventDestroy_v2", "null", 0);
    C("cuStreamDestroy_v2", "plain", s);
}

static void section_launch(void) {
    start_with_code();
    u64 s = 0, f = 0, library = 0, kernel = 0, address = 0, size = 0, offset = 0;
    int value = -7, grid = 0, block = 0;
    u32 count = 77, us = 100;
    void *params[] = {&us};
    Q("cuStreamCreate", P(&s), 1);
    C("cuModuleGetFunction", "missing", P(&f), module, P("nothing"));
    C("cuModuleGetFunction", "null-name", P(&f), module, 0);
    C("cuModuleGetFunctionCount", "plain", P(&count), module), v("%u", count);
    C("cuModuleGetGlobal_v2", "plain", P(&address), P(&size), module, P("answer")), v("%llu", (unsigned long long)size);
    C("cuModuleGetGlobal_v2", "missing", P(&address), P(&size), module, P("question"));
    C("cuFuncGetAttribute", "threads", P(&value), 0, empty), v("%d", value);
    C("cuFuncGetAttribute", "bad", P(&value), 99, empty);
    C("cuFuncSetAttribute", "shared", empty, 8, 100000);
    C("cuFuncSetAttribute", "read-only", empty, 4, 1);
    u64 two = 0;
    Q("cuModuleGetFunction", P(&two), module, P("two"));
    C("cuFuncGetParamInfo", "first", two, 0, P(&offset), P(&size)), v("%llu %llu", (unsigned long long)offset, (unsigned long long)size);
    C("cuFuncGetParamInfo", "second", two, 1, P(&offset), P(&size)), v("%llu %llu", (unsigned long long)offset, (unsigned long long)size);
    C("cuFuncGetParamInfo", "third", two, 2, P(&offset), P(&size));
    const char *name = NULL;
    C("cuFuncGetName", "plain", P(&name), empty), v("%s", name ? name : "null");
    C("cuLaunchKernel", "plain", empty, 1, 1, 1, 32, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "large", empty, 100000, 1, 1, 1024, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "argument", spin, 1, 1, 1, 1, 1, 1, 0, s, P(params), 0);
    C("cuLaunchKernel", "legacy", empty, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    C("cuLaunchKernel", "zero-grid", empty, 0, 1, 1, 1, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "zero-block", empty, 1, 1, 1, 0, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "too-many-threads", empty, 1, 1, 1, 2048, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "tall-grid", empty, 1, 70000, 1, 1, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "shared-allowed", empty, 1, 1, 1, 1, 1, 1, 90000, s, 0, 0);
    C("cuLaunchKernel", "too-much-shared", empty, 1, 1, 1, 1, 1, 1, 300000, s, 0, 0);
    C("cuLaunchKernel", "bad-stream", empty, 1, 1, 1, 1, 1, 1, 0, 0x77770, 0, 0);
    C("cuLaunchKernel", "null", 0, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel_ptsz", "plain", empty, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    C("cuLaunchCooperativeKernel", "plain", empty, 4, 1, 1, 32, 1, 1, 0, s, 0);
    C("cuLaunchCooperativeKernel", "too-large", empty, 100000, 1, 1, 1024, 1, 1, 0, s, 0);
    C("cuLaunchCooperativeKernel_ptsz", "plain", empty, 4, 1, 1, 32, 1, 1, 0, 0, 0);
    struct { u32 grid[3], block[3], shared, pad; u64 stream, attributes; u32 count, pad2; } config = {{2, 1, 1}, {32, 1, 1}, 0, 0, s, 0, 0, 0};
    C("cuLaunchKernelEx", "plain", P(&config), empty, 0, 0);
    struct { u32 id, pad; u64 value[8]; } attribute = {2, 0, {1}};
    config.attributes = P(&attribute), config.count = 1;
    C("cuLaunchKernelEx", "cooperative", P(&config), empty, 0, 0);
    C("cuLaunchKernelEx", "null", 0, empty, 0, 0);
    config.stream = 0;
    C("cuLaunchKernelEx_ptsz", "plain", P(&config), empty, 0, 0);
    struct { u64 function; u32 grid[3], block[3], shared, pad; u64 stream, params; } multi[1] = {{empty, {1, 1, 1}, {1, 1, 1}, 0, 0, s, 0}};
    C("cuLaunchCooperativeKernelMultiDevice", "one", P(multi), 1, 0);
    C("cuFuncSetBlockShape", "plain", empty, 32, 1, 1);
    C("cuLaunch", "plain", empty);
    C("cuLaunchGrid", "plain", empty, 2, 2);
    C("cuLaunchGridAsync", "plain", empty, 2, 2, s);
    C("cuStreamSynchronize", "launches", s);
    C("cuCtxSynchronize", "launches");
    C("cuOccupancyMaxActiveBlocksPerMultiprocessor", "256", P(&value), empty, 256, 0), v("%d", value);
    C("cuOccupancyMaxActiveBlocksPerMultiprocessor", "1024", P(&value), empty, 1024, 0), v("%d", value);
    C("cuOccupancyMaxPotentialBlockSize", "plain", P(&grid), P(&block), empty, 0, 0, 0), v("%d %d", grid, block);
    C("cuLibraryLoadData", "plain", P(&library), P(PTX), 0, 0, 0, 0, 0, 0);
    C("cuLibraryGetKernel", "plain", P(&kernel), library, P("empty"));
    C("cuLibraryGetKernel", "missing", P(&address), library, P("nothing"));
    C("cuLibraryGetKernelCount", "plain", P(&count), library), v("%u", count);
    C("cuKernelGetFunction", "plain", P(&f), kernel);
    C("cuLaunchKernel", "library-function", f, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    C("cuLaunchKernel", "library-kernel", kernel, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    Q("cuStreamSynchronize", s);
    C("cuLibraryUnload", "plain", library);
    C("cuLibraryUnload", "null", 0);
    C("cuLibraryLoadFromFile", "missing", P(&library), P("/nonexistent/code"), 0, 0, 0, 0, 0, 0);
    C("cuLibraryLoadData", "null", P(&library), 0, 0, 0, 0, 0, 0, 0);
    C("cuModuleLoad", "missing", P(&f), P("/nonexistent/code"));
    C("cuModuleLoadData", "null", P(&f), 0);
    C("cuModuleLoadDataEx", "plain", P(&f), P(PTX), 0, 0, 0);
    C("cuModuleUnload", "plain", f);
    C("cuModuleUnload", "null", 0);
    C("cuModuleLoadFatBinary", "ptx", P(&f), P(PTX));
    u64 link = 0, image = 0;
    C("cuLinkCreate_v2", "plain", 0, 0, 0, P(&link));
    C("cuLinkAddData_v2", "ptx", link, 1, P(PTX), sizeof PTX, P("a"), 0, 0, 0);
    C("cuLinkComplete", "plain", link, P(&image), P(&size)), v("%d", image != 0 && size > 0);
    C("cuModuleLoadData", "linked", P(&f), image);
    C("cuLinkDestroy", "plain", link);
}

static void section_graph(void) {
    start_with_code();
    u64 g = 0, k = 0, m = 0, h = 0, e = 0, x = 0, c = 0, cx = 0, s = 0, device = 0, n = 0, count = 0;
    u32 type = 77;
    int one = 1;
    Q("cuStreamCreate", P(&s), 1);
    Q("cuMemAlloc_v2", P(&device), 4096);
    C("cuGraphCreate", "plain", P(&g), 0);
    C("cuGraphCreate", "flags", P(&c), 5);
    C("cuGraphCreate", "null", 0, 0);
    struct { u64 function; u32 grid[3], block[3], shared, pad; u64 params, extra; } old = {empty, {1, 1, 1}, {32, 1, 1}, 0, 0, 0, 0};
    struct { u64 function; u32 grid[3], block[3], shared, pad; u64 params, extra, kernel, context; } kernel = {empty, {1, 1, 1}, {32, 1, 1}, 0, 0, 0, 0, 0, 0}, got = {0};
    C("cuGraphAddKernelNode_v2", "plain", P(&k), g, 0, 0, P(&kernel));
    C("cuGraphAddKernelNode", "v1", P(&n), g, P(&k), 1, P(&old));
    C("cuGraphAddKernelNode_v2", "null", P(&x), g, 0, 0, 0);
    C("cuGraphAddKernelNode_v2", "bad-dependency", P(&x), g, P(&context), 1, P(&kernel));
    struct { u64 target, pitch; u32 value, element; u64 width, height; } set = {device, 0, 7, 4, 16, 1};
    C("cuGraphAddMemsetNode", "plain", P(&m), g, P(&n), 1, P(&set), context);
    struct { u64 function, data; } host = {P(on_host), P(&one)};
    C("cuGraphAddHostNode", "plain", P(&h), g, P(&m), 1, P(&host));
    C("cuGraphAddEmptyNode", "plain", P(&e), g, P(&h), 1);
    C("cuGraphNodeGetType", "kernel", k, P(&type)), v("%u", type);
    C("cuGraphNodeGetType", "host", h, P(&type)), v("%u", type);
    C("cuGraphKernelNodeGetParams_v2", "plain", k, P(&got)), v("same=%d %u", got.function == empty, got.block[0]);
    C("cuGraphGetNodes", "count", g, 0, P(&count)), v("%llu", (unsigned long long)count);
    C("cuGraphGetEdges", "count", g, 0, 0, P(&count)), v("%llu", (unsigned long long)count);
    C("cuGraphGetRootNodes", "count", g, 0, P(&count)), v("%llu", (unsigned long long)count);
    C("cuGraphAddDependencies", "circle", g, P(&e), P(&k), 1);
    C("cuGraphInstantiateWithFlags", "circle", P(&x), g, 0);
    C("cuGraphRemoveDependencies", "circle", g, P(&e), P(&k), 1);
    called = 0;
    x = 0;
    C("cuGraphInstantiateWithFlags", "plain", P(&x), g, 0), v("%d", x != 0);
    C("cuGraphUpload", "plain", x, s);
    C("cuGraphLaunch", "plain", x, s);
    C("cuGraphLaunch", "again", x, s);
    C("cuGraphLaunch", "null", 0, s);
    C("cuStreamSynchronize", "graph", s), v("called=%d", called);
    C("cuGraphLaunch_ptsz", "own", x, 0);
    C("cuGraphUpload_ptsz", "own", x, 0);
    Q("cuCtxSynchronize");
    C("cuGraphExecKernelNodeSetParams_v2", "plain", x, k, P(&kernel));
    C("cuGraphExecKernelNodeSetParams", "v1", x, n, P(&old));
    C("cuGraphExecKernelNodeSetParams_v2", "wrong-node", x, h, P(&kernel));
    u32 on = 77;
    C("cuGraphNodeSetEnabled", "off", x, k, 0);
    C("cuGraphNodeGetEnabled", "off", x, k, P(&on)), v("%u", on);
    C("cuGraphExecUpdate_v2", "same", x, g, P((u64[4]){0}));
    u32 verdict = 77;
    u64 where = 0;
    C("cuGraphExecUpdate", "v1", x, g, P(&where), P(&verdict)), v("%u", verdict);
    C("cuGraphExecDestroy", "plain", x);
    C("cuGraphInstantiate_v2", "v2", P(&x), g, 0, 0, 0);
    Q("cuGraphExecDestroy", x);
    C("cuGraphInstantiate", "v1", P(&x), g, 0, 0, 0);
    Q("cuGraphExecDestroy", x);
    struct { u64 flags, stream, node; u32 result, pad; } params = {0, 0, 0, 9, 0};
    C("cuGraphInstantiateWithParams", "plain", P(&x), g, P(&params)), v("%u", params.result);
    Q("cuGraphExecDestroy", x);
    C("cuGraphInstantiateWithParams_ptsz", "plain", P(&x), g, P(&params));
    Q("cuGraphExecDestroy", x);
    C("cuGraphInstantiateWithFlags", "bad-flags", P(&x), g, 0x1000);
    C("cuGraphClone", "plain", P(&c), g);
    C("cuGraphNodeFindInClone", "kernel", P(&n), k, c), v("%d", n != 0 && n != k);
    u64 outer = 0, child = 0;
    Q("cuGraphCreate", P(&outer), 0);
    C("cuGraphAddChildGraphNode", "plain", P(&child), outer, 0, 0, c);
    C("cuGraphInstantiateWithFlags", "child", P(&cx), outer, 0);
    C("cuGraphExecChildGraphNodeSetParams", "same", cx, child, c);
    C("cuGraphLaunch", "child", cx, s);
    C("cuStreamSynchronize", "child", s);
    C("cuGraphExecDestroy", "child", cx);
    C("cuGraphDestroy", "outer", outer);
    C("cuGraphDestroy", "clone", c);
    C("cuGraphDestroy", "plain", g);
    C("cuGraphDestroy", "null", 0);
    /* nodes of any type */
    Q("cuGraphCreate", P(&g), 0);
    struct { u32 type, reserved[3]; u64 words[29], last; } any = {0};
    memcpy(any.words, &kernel, sizeof kernel);
    C("cuGraphAddNode", "kernel", P(&k), g, 0, 0, P(&any));
    memset(&any, 0, sizeof any);
    any.type = 5;
    C("cuGraphAddNode_v2", "empty", P(&n), g, P(&k), 0, 1, P(&any));
    any.type = 99;
    C("cuGraphAddNode_v2", "bad-type", P(&n), g, 0, 0, 0, P(&any));
    Q("cuGraphInstantiateWithFlags", P(&x), g, 0);
    memset(&any, 0, sizeof any);
    memcpy(any.words, &kernel, sizeof kernel);
    C("cuGraphExecNodeSetParams", "kernel", x, k, P(&any));
    Q("cuGraphExecDestroy", x);
    Q("cuGraphDestroy", g);
    /* memory of graphs */
    u64 used = 0, high = 0, a = 0, f = 0, address = 0;
    Q("cuGraphCreate", P(&g), 0);
    struct { u32 type, handles, location, id; u64 security, max; u32 usage; char rest[52]; u64 access, access_count, bytes, address; } alloc = {1, 0, 1, 0, 0, 0, 0, {0}, 0, 0, MIB(64), 0};
    C("cuGraphAddMemAllocNode", "64MiB", P(&a), g, 0, 0, P(&alloc)), v("%d", alloc.address != 0);
    address = alloc.address;
    C("cuGraphAddMemFreeNode", "plain", P(&f), g, P(&a), 1, address);
    C("cuGraphAddMemFreeNode", "null", P(&n), g, P(&a), 1, 0);
    C("cuDeviceGetGraphMemAttribute", "reserved-before", 0, 2, P(&used)), v("%llu", (unsigned long long)used);
    C("cuGraphInstantiateWithFlags", "memory", P(&x), g, 0);
    C("cuDeviceGetGraphMemAttribute", "reserved-instantiated", 0, 2, P(&used)), v("%llu", (unsigned long long)used);
    C("cuGraphLaunch", "memory", x, s);
    C("cuStreamSynchronize", "memory", s);
    C("cuDeviceGetGraphMemAttribute", "used-after", 0, 0, P(&used)), v("%llu", (unsigned long long)used);
    C("cuDeviceGetGraphMemAttribute", "reserved-after", 0, 2, P(&used)), v("%llu", (unsigned long long)used);
    C("cuDeviceGetGraphMemAttribute", "high", 0, 1, P(&high)), v("%llu", (unsigned long long)high);
    high = 0;
    C("cuDeviceSetGraphMemAttribute", "reset-high", 0, 1, P(&high));
    C("cuGraphExecDestroy", "memory", x);
    C("cuDeviceGraphMemTrim", "plain", 0);
    C("cuDeviceGetGraphMemAttribute", "reserved-trimmed", 0, 2, P(&used)), v("%llu", (unsigned long long)used);
    C("cuDeviceGetGraphMemAttribute", "bad", 0, 99, P(&used));
    C("cuGraphDestroy", "memory", g);
    alloc.bytes = 0;
    Q("cuGraphCreate", P(&g), 0);
    C("cuGraphAddMemAllocNode", "zero", P(&a), g, 0, 0, P(&alloc));
    alloc.bytes = GIB(400);
    if (C("cuGraphAddMemAllocNode", "too-much", P(&a), g, 0, 0, P(&alloc)) == 0 && Q("cuGraphInstantiateWithFlags", P(&x), g, 0) == 0) {
        C("cuGraphLaunch", "too-much-memory", x, s);
        Q("cuGraphExecDestroy", x);
    }
    Q("cuGraphDestroy", g);
}

static void section_capture(void) {
    start_with_code();
    u64 s = 0, t = 0, b = 0, e = 0, g = 0, x = 0, p = 0, id = 0, count = 0, nodes = 0;
    u32 status = 77, mode = 2;
    Q("cuStreamCreate", P(&s), 1);
    Q("cuStreamCreate", P(&t), 1);
    Q("cuStreamCreate", P(&b), 0);
    Q("cuEventCreate", P(&e), 2);
    C("cuStreamIsCapturing", "no", s, P(&status)), v("%u", status);
    C("cuStreamIsCapturing_ptsz", "no", 0, P(&status)), v("%u", status);
    C("cuStreamBeginCapture_v2", "legacy", 0, 0);
    C("cuStreamEndCapture", "not-begun", s, P(&g));
    C("cuStreamBeginCapture_v2", "bad-mode", s, 9);
    C("cuStreamBeginCapture_v2", "global", s, 0);
    C("cuStreamBeginCapture_v2", "again", s, 0);
    C("cuStreamIsCapturing", "yes", s, P(&status)), v("%u", status);
    C("cuLaunchKernel", "captured", empty, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    C("cuStreamGetCaptureInfo_v2", "one", s, P(&status), P(&id), P(&g), P(&nodes), P(&count)), v("%u %d %llu", status, g != 0, (unsigned long long)count);
    C("cuEventRecord", "captured", e, s);
    C("cuStreamWaitEvent", "joins", t, e, 0);
    C("cuStreamIsCapturing", "joined", t, P(&status)), v("%u", status);
    C("cuLaunchKernel", "joined", empty, 1, 1, 1, 1, 1, 1, 0, t, 0, 0);
    C("cuStreamEndCapture", "wrong-stream", t, P(&g));
    C("cuStreamIsCapturing", "after-wrong", s, P(&status)), v("%u", status);
    C("cuStreamEndCapture", "after-wrong", s, P(&g));
    C("cuStreamBeginCapture_v2", "relaxed", s, 2);
    Q("cuLaunchKernel", empty, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    Q("cuEventRecord", e, s);
    Q("cuStreamWaitEvent", t, e, 0);
    Q("cuLaunchKernel", empty, 1, 1, 1, 1, 1, 1, 0, t, 0, 0);
    C("cuStreamEndCapture", "unjoined", s, P(&g));
    C("cuStreamBeginCapture_v2", "fork-join", s, 0);
    Q("cuLaunchKernel", empty, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    Q("cuEventRecord", e, s);
    Q("cuStreamWaitEvent", t, e, 0);
    Q("cuLaunchKernel", empty, 1, 1, 1, 1, 1, 1, 0, t, 0, 0);
    Q("cuEventRecord", e, t);
    Q("cuStreamWaitEvent", s, e, 0);
    C("cuStreamEndCapture", "fork-join", s, P(&g)), v("%d", g != 0);
    C("cuGraphGetNodes", "fork-join", g, 0, P(&count)), v("%llu", (unsigned long long)count);
    C("cuGraphInstantiateWithFlags", "captured", P(&x), g, 0);
    C("cuGraphLaunch", "captured", x, s);
    C("cuStreamSynchronize", "captured", s);
    C("cuEventQuery", "captured-event", e);
    Q("cuGraphExecDestroy", x);
    Q("cuGraphDestroy", g);
    /* what spoils a capture */
    Q("cuStreamBeginCapture_v2", s, 0);
    C("cuMemAlloc_v2", "in-global-capture", P(&p), 4096);
    C("cuStreamIsCapturing", "spoiled", s, P(&status)), v("%u", status);
    C("cuLaunchKernel", "spoiled", empty, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    C("cuStreamEndCapture", "spoiled", s, P(&g)), v("%d", g != 0);
    Q("cuStreamBeginCapture_v2", s, 0);
    C("cuStreamSynchronize", "in-capture", s);
    C("cuStreamEndCapture", "synchronized", s, P(&g));
    Q("cuStreamBeginCapture_v2", s, 0);
    C("cuCtxSynchronize", "in-capture");
    C("cuStreamEndCapture", "context-synchronized", s, P(&g));
    Q("cuStreamBeginCapture_v2", s, 2);
    C("cuMemAlloc_v2", "in-relaxed-capture", P(&p), 4096);
    Q("cuMemFree_v2", p);
    C("cuStreamEndCapture", "relaxed", s, P(&g)), v("%d", g != 0);
    Q("cuGraphDestroy", g);
    C("cuThreadExchangeStreamCaptureMode", "relaxed", P(&mode)), v("%u", mode);
    Q("cuStreamBeginCapture_v2", s, 0);
    C("cuMemAlloc_v2", "with-relaxed-thread", P(&p), 4096);
    C("cuStreamEndCapture", "relaxed-thread", s, P(&g));
    Q("cuGraphDestroy", g);
    Q("cuMemFree_v2", p);
    C("cuThreadExchangeStreamCaptureMode", "back", P(&mode)), v("%u", mode);
    Q("cuStreamBeginCapture_v2", b, 0);
    C("cuLaunchKernel", "legacy-beside-blocking", empty, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    C("cuStreamEndCapture", "legacy-beside-blocking", b, P(&g));
    Q("cuStreamBeginCapture_v2", s, 0);
    C("cuMemAllocAsync", "captured", P(&p), MIB(1), s), v("%d", p != 0);
    C("cuMemFreeAsync", "captured", p, s);
    C("cuStreamEndCapture", "memory", s, P(&g));
    C("cuGraphGetNodes", "memory", g, 0, P(&count)), v("%llu", (unsigned long long)count);
    Q("cuGraphInstantiateWithFlags", P(&x), g, 0);
    C("cuGraphLaunch", "memory", x, s);
    C("cuStreamSynchronize", "memory", s);
    Q("cuGraphExecDestroy", x);
    Q("cuGraphDestroy", g);
    C("cuStreamBeginCapture", "v1", s);
    C("cuStreamEndCapture", "v1", s, P(&g));
    C("cuStreamBeginCapture_v2_ptsz", "own", 0, 2);
    C("cuStreamEndCapture_ptsz", "own", 0, P(&g));
    Q("cuGraphCreate", P(&g), 0);
    C("cuStreamBeginCaptureToGraph", "plain", s, g, 0, 0, 0, 0);
    Q("cuLaunchKernel", empty, 1, 1, 1, 1, 1, 1, 0, s, 0, 0);
    u64 same = 0;
    C("cuStreamEndCapture", "to-graph", s, P(&same)), v("same=%d", same == g);
}

/* ---- two processes ---- */

struct ipc_handle { char bytes[64]; };
typedef int (*OpenIpc)(u64 *, struct ipc_handle, unsigned);

static void section_ipc(void) {
    start();
    u64 p = 0, q = 0;
    struct ipc_handle handle;
    Q("cuMemAlloc_v2", P(&p), MIB(4));
    Q("cuMemsetD8_v2", p, 0x5a, 4096);
    Q("cuCtxSynchronize");
    C("cuIpcGetMemHandle", "plain", P(&handle), p);
    C("cuIpcGetMemHandle", "unknown", P(&handle), 0x1000);
    Q("cuIpcGetMemHandle", P(&handle), p);
    flush_line();
    OpenIpc open_itself = (OpenIpc)dlsym(cuda, "cuIpcOpenMemHandle_v2");
    printf("cuIpcOpenMemHandle_v2 itself = %d\n", open_itself ? open_itself(&q, handle, 1) : -1);
    int to[2], from[2];
    if (pipe(to) || pipe(from)) exit(3);
    char in[16], out[16];
    snprintf(in, sizeof in, "%d", to[0]);
    snprintf(out, sizeof out, "%d", from[1]);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "conform", table_path, "ipc-child", in, out, (char *)NULL);
        _exit(9);
    }
    if (write(to[1], &handle, sizeof handle) != sizeof handle) exit(3);
    char done;
    close(from[1]);
    while (read(from[0], &done, 1) == 1)
        ;
    waitpid(child, NULL, 0);
    unsigned char byte = 0;
    C("cuMemcpyDtoH_v2", "written-by-child", P(&byte), p, 1), v("%x", byte);
    C("cuIpcCloseMemHandle", "not-opened", p);
    C("cuMemFree_v2", "exported", p);
}

static void ipc_child(int in, int out) {
    struct ipc_handle handle;
    if (read(in, &handle, sizeof handle) != sizeof handle) _exit(3);
    start();
    u64 q = 0, before = free_bytes();
    for (int version = 2; version > 0; version--) {
        const char *symbol = version == 2 ? "cuIpcOpenMemHandle_v2" : "cuIpcOpenMemHandle";
        OpenIpc open_handle = (OpenIpc)dlsym(cuda, symbol);
        int code = open_handle ? open_handle(&q, handle, 1) : -1;
        flush_line();
        calls++;
        printf("%s child = %d took=%lld\n", symbol, code, (long long)(before - free_bytes()));
        unsigned char byte = 0;
        C("cuMemcpyDtoH_v2", "child", P(&byte), q, 1), v("%x", byte);
        if (version == 2) Q("cuMemsetD8_v2", q, 0x66, 16), Q("cuCtxSynchronize");
        C("cuMemFree_v2", "child", q);
        C("cuIpcCloseMemHandle", "child", q);
    }
    flush_line();
    if (write(out, "x", 1) != 1) _exit(3);
    _exit(0);
}

/* ---- null everywhere, in every function that memory, launches and lookups go through ---- */

static void section_null(void) {
    read_table();
    start();
    for (int i = 0; i < row_count; i++) {
        struct row *r = &rows[i];
        /* device 0 is not null: these would take the context away */
        if (strchr("MCL", r->class) && strncmp(r->symbol, "cuDevicePrimaryCtx", 18)) C(r->symbol, "all-null");
    }
}

/* ---- NVML ---- */

static void section_nvml(void) {
    if (!nvml) return;
    u64 h = 0, other = 0;
    u32 count = 0, value = 0, second = 0;
    char text[128] = "";
    N("nvmlDeviceGetCount_v2", "before-init", P(&count));
    N("nvmlInit_v2", "plain");
    N("nvmlInitWithFlags", "plain", 0);
    NX("nvmlDeviceGetCount_v2", "plain", P(&count)), v("%u", count);
    N("nvmlDeviceGetCount_v2", "null", 0);
    NX("nvmlSystemGetDriverVersion", "plain", P(text), 80), v("%s", text);
    N("nvmlSystemGetDriverVersion", "short", P(text), 3);
    NX("nvmlSystemGetNVMLVersion", "plain", P(text), 80), v("%s", text);
    N("nvmlSystemGetCudaDriverVersion_v2", "plain", P(&value)), v("%u", value);
    N("nvmlDeviceGetHandleByIndex_v2", "0", 0, P(&h));
    N("nvmlDeviceGetHandleByIndex_v2", "beyond", 99, P(&other));
    N("nvmlDeviceGetHandleByIndex_v2", "null", 0, 0);
    N("nvmlDeviceGetName", "plain", h, P(text), 96), v("%s", text);
    N("nvmlDeviceGetName", "short", h, P(text), 3);
    N("nvmlDeviceGetName", "null-device", 0, P(text), 96);
    N("nvmlDeviceGetUUID", "plain", h, P(text), 96), v("length=%zu prefix=%.4s", strlen(text), text);
    N("nvmlDeviceGetHandleByUUID", "found", P(text), P(&other)), v("same=%d", other == h);
    N("nvmlDeviceGetHandleByUUID", "missing", P("GPU-00000000-0000-0000-0000-000000000000"), P(&other));
    N("nvmlDeviceGetIndex", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetMinorNumber", "plain", h, P(&value));
    struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci = {{0}, 0, 0, 0, 0, 0, {0}};
    N("nvmlDeviceGetPciInfo_v3", "plain", h, P(&pci)), v("%x length=%zu", pci.id, strlen(pci.bus_id));
    N("nvmlDeviceGetHandleByPciBusId_v2", "found", P(pci.bus_id), P(&other)), v("same=%d", other == h);
    N("nvmlDeviceGetHandleByPciBusId_v2", "missing", P("00000000:FE:00.0"), P(&other));
    struct { u64 total, free, used; } memory = {0};
    N("nvmlDeviceGetMemoryInfo", "plain", h, P(&memory)), v("%llu consistent=%d", (unsigned long long)memory.total, memory.total == memory.free + memory.used);
    struct { u32 version, pad; u64 total, reserved, free, used; } memory2 = {40 | 2 << 24, 0, 0, 0, 0, 0};
    N("nvmlDeviceGetMemoryInfo_v2", "plain", h, P(&memory2)), v("%llu consistent=%d", (unsigned long long)memory2.total, memory2.total == memory2.reserved + memory2.free + memory2.used);
    NX("nvmlDeviceGetMemoryInfo_v2", "reserved", h, P(&memory2)), v("%llu", (unsigned long long)memory2.reserved);
    memory2.version = 7;
    N("nvmlDeviceGetMemoryInfo_v2", "bad-version", h, P(&memory2));
    N("nvmlDeviceGetBAR1MemoryInfo", "plain", h, P(&memory)), v("%llu", (unsigned long long)memory.total);
    int major = 0, minor = 0;
    N("nvmlDeviceGetCudaComputeCapability", "plain", h, P(&major), P(&minor)), v("%d.%d", major, minor);
    N("nvmlDeviceGetArchitecture", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetBrand", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetNumGpuCores", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetMemoryBusWidth", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetMaxPcieLinkGeneration", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetMaxPcieLinkWidth", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetMaxClockInfo", "sm", h, 1, P(&value)), v("%u", value);
    N("nvmlDeviceGetMaxClockInfo", "memory", h, 2, P(&value)), v("%u", value);
    N("nvmlDeviceGetMaxClockInfo", "bad", h, 9, P(&value));
    NX("nvmlDeviceGetClockInfo", "sm", h, 1, P(&value)), v("%u", value);
    NX("nvmlDeviceGetTemperature", "plain", h, 0, P(&value)), v("%u", value);
    N("nvmlDeviceGetTemperature", "bad-sensor", h, 9, P(&value));
    NX("nvmlDeviceGetPowerUsage", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetPowerManagementDefaultLimit", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetPowerManagementLimitConstraints", "plain", h, P(&value), P(&second)), v("%u %u", value, second);
    N("nvmlDeviceGetFanSpeed", "plain", h, P(&value));
    N("nvmlDeviceGetComputeMode", "plain", h, P(&value)), v("%u", value);
    NX("nvmlDeviceGetPersistenceMode", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetEccMode", "plain", h, P(&value), P(&second)), v("%u %u", value, second);
    u64 errors = 77;
    N("nvmlDeviceGetTotalEccErrors", "uncorrected", h, 1, 0, P(&errors));
    N("nvmlDeviceGetMigMode", "plain", h, P(&value), P(&second)), v("%u %u", value, second);
    N("nvmlDeviceGetMaxMigDeviceCount", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetMigDeviceHandleByIndex", "mig-off", h, 0, P(&other));
    N("nvmlDeviceIsMigDeviceHandle", "plain", h, P(&value)), v("%u", value);
    N("nvmlDeviceGetGpuInstanceId", "mig-off", h, P(&value));
    N("nvmlDeviceGetAttributes_v2", "mig-off", h, P((u64[8]){0}));
    NX("nvmlDeviceGetNvLinkState", "0", h, 0, P(&value)), v("%u", value);
    N("nvmlDeviceGetNvLinkState", "beyond", h, 99, P(&value));
    N("nvmlDeviceGetTopologyCommonAncestor", "itself", h, h, P(&value)), v("%u", value);
    N("nvmlDeviceGetSupportedEventTypes", "plain", h, P(&errors)), v("%llx", (unsigned long long)errors);
    u64 set = 0;
    N("nvmlEventSetCreate", "plain", P(&set));
    N("nvmlDeviceRegisterEvents", "xid", h, 8, set);
    u64 data[4] = {0};
    N("nvmlEventSetWait_v2", "nothing", set, P(data), 10);
    N("nvmlEventSetFree", "plain", set);
    N("nvmlDeviceGetComputeRunningProcesses_v3", "none-no-room", h, P(&(u32){0}), 0);
    NX("nvmlDeviceGetUtilizationRates", "plain", h, P(&(u64){0}));
    /* with a context of our own and some work */
    start_with_code();
    u64 p = 0;
    Q("cuMemAlloc_v2", P(&p), GIB(1));
    u32 us = 400000;
    void *params[] = {&us};
    for (int i = 0; i < 2; i++) Q("cuLaunchKernel", spin, 1, 1, 1, 1, 1, 1, 0, 0, P(params), 0);
    Q("cuCtxSynchronize");
    struct { u32 pid, pad; u64 used; u32 gi, ci; } list[64];
    u32 room = 0;
    N("nvmlDeviceGetComputeRunningProcesses_v3", "one-no-room", h, P(&room), 0), v("%d", room >= 1);
    room = 64;
    N("nvmlDeviceGetComputeRunningProcesses_v3", "one", h, P(&room), P(list)), v("%u", room);
    X("cuInit", "own-usage", 0), v("MiB=%llu gi=%d", (unsigned long long)(list[0].used >> 20), (int)list[0].gi);
    struct { u32 pid, pad; u64 used; } list1[64];
    room = 64;
    N("nvmlDeviceGetComputeRunningProcesses", "one", h, P(&room), P(list1)), v("%u", room);
    room = 64;
    N("nvmlDeviceGetGraphicsRunningProcesses_v3", "none", h, P(&room), P(list)), v("%u", room);
    struct { u32 pid, pad; u64 time; u32 sm, mem, enc, dec; } samples[512];
    room = 0;
    N("nvmlDeviceGetProcessUtilization", "no-room", h, 0, P(&room), 0);
    room = 512;
    NX("nvmlDeviceGetProcessUtilization", "own", h, P(samples), P(&room), 0), v("%u", room);
    N("nvmlDeviceSetComputeMode", "bad", h, 77);
    N("nvmlDeviceGetSamples", "bad-type", h, 99, 0, P(&value), P(&room), 0);
    struct { u32 field, scope; u64 time, latency; u32 type, outcome; u64 value; } fields[2] = {{83, 0, 0, 0, 0, 77, 0}, {9999, 0, 0, 0, 0, 77, 0}};
    N("nvmlDeviceGetFieldValues", "energy-and-unknown", h, 2, P(fields)), v("%u %u", fields[0].outcome, fields[1].outcome);
    N("nvmlShutdown", "one");
    N("nvmlShutdown", "two");
    N("nvmlShutdown", "too-often");
    N("nvmlDeviceGetName", "after-shutdown", h, P(text), 96);
}

/* ---- what makes a driver crash, last and in places where that spoils nothing ---- */

static void section_perils(void) {
    static char name[4096];
    u64 graph = 0, node = 0;
    start();
    C("cuMemRelease", "never-made", 0x1234567);
    C("cuDeviceGetName", "no-room", P(name + 2048), 0, 0);
    Q("cuGraphCreate", P(&graph), 0);
    C("cuGraphAddChildGraphNode", "itself", P(&node), graph, 0, 0, graph);
    flush_line();
    printf("# %d calls\n", calls);
    fflush(stdout);
    _exit(0); /* no clearing up after that */
}

static const struct { const char *name; void (*run)(void); } sections[] = {
    {"lookup", section_lookup}, {"error", section_error}, {"device", section_device}, {"context", section_context},
    {"green", section_green}, {"memory", section_memory}, {"old-memory", section_old_memory}, {"host", section_host},
    {"pool", section_pool}, {"virtual", section_virtual}, {"array", section_array}, {"copy", section_copy},
    {"stream", section_stream}, {"launch", section_launch}, {"graph", section_graph}, {"capture", section_capture},
    {"ipc", section_ipc}, {"null", section_null}, {"nvml", section_nvml}, {"perils", section_perils},
};

int main(int count, char **words) {
    if (count < 2) {
        fprintf(stderr, "usage: conform tables/cuda.tsv [section]\n");
        return 64;
    }
    table_path = words[1];
    if (count == 2) {
        /* each section in a process of its own: what one breaks, the others do not see */
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                execl("/proc/self/exe", "conform", table_path, sections[i].name, (char *)NULL);
                _exit(9);
            }
            int status = 0;
            waitpid(child, &status, 0);
            if (status) printf("section %s = ended %s %d\n", sections[i].name, WIFSIGNALED(status) ? "by signal" : "with", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
        return 0;
    }
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    alarm(60);
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!cuda) {
        fprintf(stderr, "no libcuda.so.1: %s\n", dlerror());
        return 2;
    }
    if (count == 5 && !strcmp(words[2], "ipc-child")) ipc_child(atoi(words[3]), atoi(words[4]));
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!strcmp(words[2], sections[i].name)) {
            printf("# %s\n", sections[i].name);
            sections[i].run();
            flush_line();
            printf("# %d calls\n", calls);
            fflush(stdout);
            return 0;
        }
    fprintf(stderr, "no section %s\n", words[2]);
    return 64;
}
