//! libdivvy.so: holds a container to its grant by intercepting the CUDA driver API and NVML.
