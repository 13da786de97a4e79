// One of several libraries that wrap a function; -DNAME says which.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int divvy_test_chain(char *said);
int divvy_test_chain(char *said) {
  strcat(said, NAME " ");
  int (*next)(char *) = (int (*)(char *))dlsym(RTLD_NEXT, "divvy_test_chain");
  return 1 + (next ? next(said) : 0);
}
