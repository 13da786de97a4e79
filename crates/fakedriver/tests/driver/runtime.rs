//! Unmodified programs of others: the CUDA runtimes of the PyPI wheels, and the vendor's Python bindings of the driver API.

use crate::support::{Host, extracted, installed};

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

/// The vendor's own bindings find every function by `cuGetProcAddress`, as the runtime does, and then use it.
#[test]
fn the_vendors_python_bindings_allocate_launch_and_synchronize() {
    let host = Host::new("2xH200");
    let script = "
from cuda.bindings import driver as d
def ok(answer):
    assert answer[0] == d.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]
ok(d.cuInit(0))
print(ok(d.cuDeviceGetCount()))
context = ok(d.cuDevicePrimaryCtxRetain(ok(d.cuDeviceGet(1))))
ok(d.cuCtxSetCurrent(context))
print(int(ok(d.cuCtxGetDevice())))
pointer = ok(d.cuMemAlloc(1 << 30))
free, total = ok(d.cuMemGetInfo())
print((total - free) >> 20)
out, data = bytearray(8), b'divvy\\0\\0\\0'
ok(d.cuMemcpyHtoD(pointer, data, 8))
ok(d.cuMemcpyDtoH(out, pointer, 8))
print(bytes(out[:5]).decode())
module = ok(d.cuModuleLoadData(b'.version 7.0\\n.target sm_50\\n.address_size 64\\n.visible .entry spin_ms_20() { ret; }\\0'))
kernel = ok(d.cuModuleGetFunction(module, b'spin_ms_20'))
stream = ok(d.cuStreamCreate(1))
ok(d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
print(d.cuStreamQuery(stream)[0].name)
ok(d.cuStreamSynchronize(stream))
print(d.cuStreamQuery(stream)[0].name)
";
    let mut command = host.command("python3");
    command.env("PYTHONPATH", installed("cuda-bindings==13.0.3"));
    let output = command.args(["-c", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wanted = "2\n1\n1542\ndivvy\nCUDA_ERROR_NOT_READY\nCUDA_SUCCESS\n";
    assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
}
