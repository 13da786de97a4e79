//! A fake NVIDIA driver: libcuda.so.1 and libnvidia-ml.so.1 for machines without a GPU.
