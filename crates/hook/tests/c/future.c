// Functions of a driver that is newer than the tables.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  int (*look_up)(const char *, void **, int, uint64_t, int *) = (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
  int (*by_name)(void) = (int (*)(void))dlsym(driver, "cuMemFromTheFuture");
  int (*unknown)(void) = NULL, (*newer)(void) = NULL;
  int status = -1, newer_status = -1;
  int found = look_up("cuMemFromTheFuture", (void **)&unknown, 14000, 0, &status);
  int newer_found = look_up("cuMemAlloc", (void **)&newer, 14000, 0, &newer_status);
  printf("dlsym %d, lookup %d %d %d, newer form %d %d %d\n", by_name ? by_name() : 0, found, status, unknown ? unknown() : 0, newer_found, newer_status, newer ? newer() : 0);
  return 0;
}
