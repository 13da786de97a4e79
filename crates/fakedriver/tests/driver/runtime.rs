//! The unmodified CUDA runtimes of the PyPI wheels.

use crate::support::{Host, extracted};

/// Starts a runtime and tells what it did with the driver.
const SCRIPT: &str = "
import ctypes, sys
runtime, count = ctypes.CDLL(sys.argv[1]), ctypes.c_int(-1)
print(runtime.cudaGetDeviceCount(ctypes.byref(count)))
cuda = ctypes.CDLL('libcuda.so.1')
cuda.fakeGpuCalls.restype = ctypes.c_int64
for name in (b'cuGetProcAddress', b'cuGetProcAddress_v2', b'cuInit', b'cuGetExportTable', b'cuDeviceGetCount', b'cuDeviceGetAttribute'):
    print(name.decode(), cuda.fakeGpuCalls(name))
";

/// Each runtime finds the driver, asks `cuGetProcAddress` for hundreds of functions, initializes it, gets the internal tables it
/// needs and enumerates the devices. Then it asks the driver for a proof of being genuine, which ours refuses on purpose
/// (`export_table.rs`), and gives up cleanly. Programs on the fake driver use the driver API.
#[test]
fn the_runtimes_of_cuda_11_12_and_13_start_up_to_their_check_of_the_driver() {
    let host = Host::new("2xH200");
    for (package, version, library, lookups) in [
        ("nvidia-cuda-runtime-cu11", "11.8.89", "nvidia/cuda_runtime/lib/libcudart.so.11.0", 300),
        ("nvidia-cuda-runtime-cu12", "12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12", 400),
        ("nvidia-cuda-runtime", "13.0.96", "nvidia/cu13/lib/libcudart.so.13", 400),
    ] {
        let path = extracted(package, version).join(library);
        let output = host.command("python3").args(["-c", SCRIPT]).arg(&path).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let value =
            |name: &str| said.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<i64>().ok()).unwrap_or(-1);
        assert_eq!(said.lines().count(), 7, "{package}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(value("cuGetProcAddress ") + value("cuGetProcAddress_v2 ") >= lookups, "{package}: {said}");
        assert_eq!((value("cuInit "), value("cuDeviceGetCount ")), (1, 1), "{package}: {said}");
        assert!(value("cuGetExportTable ") >= 5 && value("cuDeviceGetAttribute ") >= 2 * 90, "{package}: {said}");
        assert_ne!(said.lines().next(), Some("0"), "{package} took us for a genuine driver");
    }
}
