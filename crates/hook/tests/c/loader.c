// How the dynamic loader answers with the library in front: nothing may change for anybody but callers of the driver.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wrong, checked;
#define CHECK(condition) do { checked++; if (!(condition)) { wrong++; printf("wrong, line %d: %s\n", __LINE__, #condition); } } while (0)

static const char *owner(void *address) {
  Dl_info info;
  if (!address || !dladdr(address, &info)) return "";
  const char *slash = strrchr(info.dli_fname, '/');
  return slash ? slash + 1 : info.dli_fname;
}

// The program's own function of a name that looks like the driver's.
int cuOfTheProgramItself(void);
int cuOfTheProgramItself(void) { return 42; }
int cuMemcpyDtoH_v2(void);
int cuMemcpyDtoH_v2(void) { return 43; }
// May or may not be there.
extern int cuMemAlloc_v2(uint64_t *, size_t) __attribute__((weak));
extern int nvmlDeviceGetCount_v2(unsigned *) __attribute__((weak));

int main(int argc, char **argv) {
  const char *tools = argc > 1 ? argv[1] : ".";
  char path[4096];

  // Before the driver is loaded it is not there, for those who look, and says so to those who call.
  CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
  const char *why = dlerror();
  CHECK(why && strstr(why, "cuMemAlloc_v2"));
  CHECK(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == NULL && dlerror());
  CHECK(dlsym(RTLD_DEFAULT, "cuNoSuchFunction") == NULL && dlerror());
  void *self = dlopen(NULL, RTLD_LAZY);
  CHECK(dlsym(self, "cuMemAlloc_v2") == NULL && dlerror());
  CHECK(dlsym(RTLD_DEFAULT, "malloc") == dlsym(RTLD_NEXT, "malloc") && !strncmp(owner(dlsym(RTLD_NEXT, "malloc")), "libc", 4));

  // Names of the program's own stay its own.
  CHECK(dlsym(RTLD_DEFAULT, "cuOfTheProgramItself") == (void *)cuOfTheProgramItself);
  CHECK(dlsym(RTLD_DEFAULT, "cuMemcpyDtoH_v2") == (void *)cuMemcpyDtoH_v2 && cuMemcpyDtoH_v2() == 43);
  CHECK(dlsym(self, "cuMemcpyDtoH_v2") == (void *)cuMemcpyDtoH_v2);

  // Versions are looked at.
  CHECK(dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5") == dlsym(RTLD_DEFAULT, "malloc") || dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.17") == dlsym(RTLD_DEFAULT, "malloc"));
  CHECK(dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_99") == NULL && dlerror());
  CHECK(dlsym(RTLD_DEFAULT, "") == NULL);
  dlerror();

  // Two libraries that wrap one function, each calling the next: all are called, in order. The first is preloaded before us or behind us.
  int (*chain)(char *) = (int (*)(char *))dlsym(RTLD_DEFAULT, "divvy_test_chain");
  if (chain) {
    char said[64] = "";
    CHECK(chain(said) == 2 && !strcmp(said, "first second "));
  }
  CHECK(getenv("DIVVY_TEST_CHAIN") == NULL || chain != NULL);

  // A library of somebody else's with a function that looks like the driver's.
  snprintf(path, sizeof path, "%s/libother.so", tools);
  void *other = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(other != NULL);
  if (other) {
    CHECK(!strcmp(owner(dlsym(other, "cuMemAlloc_v2")), "libother.so"));
    CHECK(!strcmp(owner(dlsym(other, "nvmlInit_v2")), "libother.so"));
  }

  // Now with the driver.
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  CHECK(driver != NULL);
  CHECK(!strcmp(owner(dlsym(driver, "cuMemAlloc_v2")), "libdivvy.so"));
  CHECK(!strcmp(owner(dlsym(driver, "cuLaunchKernel_ptsz")), "libdivvy.so"));
  CHECK(!strcmp(owner(dlsym(driver, "cuInit")), "libcuda.so.1"));
  CHECK(!strcmp(owner(dlsym(driver, "cuGetExportTable")), "libcuda.so.1"));
  CHECK(dlsym(driver, "cuNoSuchFunction") == NULL && dlerror());
  CHECK(!strcmp(owner(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), "libdivvy.so"));
  CHECK(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == NULL); // loaded for itself alone
  CHECK(!strcmp(owner(dlsym(self, "cuMemAlloc_v2")), "libdivvy.so"));
  CHECK(dlvsym(driver, "cuMemAlloc_v2", "NO_SUCH_VERSION") == NULL || !strcmp(owner(dlvsym(driver, "cuMemAlloc_v2", "NO_SUCH_VERSION")), "libdivvy.so"));
  CHECK(dlsym(RTLD_DEFAULT, "cuMemcpyDtoH_v2") == (void *)cuMemcpyDtoH_v2);
  if (other) CHECK(!strcmp(owner(dlsym(other, "cuMemAlloc_v2")), "libother.so"));
  // And for all to see.
  CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL) == driver);
  CHECK(!strcmp(owner(dlsym(RTLD_NEXT, "cuMemAlloc_v2")), "libdivvy.so"));
  CHECK(!strcmp(owner(dlsym(RTLD_DEFAULT, "cuInit")), "libcuda.so.1"));
  // Closing it does not unload it: addresses of its functions are kept.
  dlclose(driver);
  CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != NULL);
  if (cuMemAlloc_v2) CHECK(cuMemAlloc_v2(NULL, 0) == 0);

  printf("%d checks, %d wrong\n", checked, wrong);
  return wrong != 0;
}
