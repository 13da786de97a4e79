// Somebody else's library, with functions that look like the driver's.
int cuMemAlloc_v2(void);
int nvmlInit_v2(void);
int cuMemAlloc_v2(void) { return 7; }
int nvmlInit_v2(void) { return 8; }
