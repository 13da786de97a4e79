// A program linked to the driver.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
extern int cuMemAlloc_v2(uint64_t *, size_t);
int main(void) {
  uint64_t address = 0;
  printf("allocated: %d\n", cuMemAlloc_v2(&address, 64));
  return 0;
}
