// A program that was linked to the driver weakly, on a machine without one.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
extern int cuMemAlloc_v2(uint64_t *, size_t) __attribute__((weak));
extern int nvmlDeviceGetCount_v2(unsigned *) __attribute__((weak));
int main(void) {
  printf("%d %d\n", cuMemAlloc_v2 ? cuMemAlloc_v2(NULL, 1) : -1, nvmlDeviceGetCount_v2 ? nvmlDeviceGetCount_v2(NULL) : -1);
  return 0;
}
