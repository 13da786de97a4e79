//! Programs of others, unmodified: Python by ctypes, pynvml and nvitop, and the CUDA runtimes.

mod common;

use common::fake::{Machine, kit};
use common::python::packages;
use common::{Container, Running, run};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const GIB: u64 = 1 << 30;

#[test]
fn python_that_loads_the_driver_by_ctypes_is_held_too() {
    const SCRIPT: &str = "
import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
context, address = ctypes.c_void_p(), ctypes.c_uint64()
def must(status):
    assert status == 0, status
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 30)), cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t((1 << 30) + 1)))
print(cuda.cuMemAllocAsync_ptsz(ctypes.byref(address), ctypes.c_size_t((1 << 30) + 1), None))
total, free = ctypes.c_size_t(), ctypes.c_size_t()
must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
print(free.value, total.value)
";
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, 3 * GIB)]);
    let said = run(machine.inside(&container, "python3").args(["-c", SCRIPT]));
    assert_eq!(said.lines().collect::<Vec<_>>(), ["0 2", "2", &format!("{GIB} {}", 3 * GIB)]);
}

#[test]
fn pynvml_and_nvitop_show_the_slice_and_the_containers_own_processes() {
    const SCRIPT: &str = "
import pynvml, nvitop
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
print('pynvml', pynvml.nvmlDeviceGetCount(), memory.total, memory.used, sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)))
device, = nvitop.Device.all()
print('nvitop', device.memory_total(), device.memory_used(), sorted(device.processes()))
try:
    pynvml.nvmlDeviceSetPersistenceMode(handle, 1)
except pynvml.NVMLError_NoPermission:
    print('denied')
";
    let path = packages(&["nvidia-ml-py==13.615.71", "nvitop==1.7.2", "psutil==7.2.2"]);
    let machine = Machine::new("2xH200");
    let (ours, theirs) =
        (Container::new(vec![machine.slice(1, 3 * GIB)]), Container::new(vec![machine.slice(1, 9 * GIB)]));
    let hold = |container: &Container, mebibytes: &str| {
        let mut child = machine
            .inside(container, kit("view"))
            .args([mebibytes, "stay"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.map_while(Result::ok).any(|l| l == "done"), "it did not get through");
        Running(child)
    };
    let (own, _neighbour) = (hold(&ours, "700"), hold(&theirs, "900"));
    let said = run(machine.inside(&ours, "python3").args(["-c", SCRIPT]).env("PYTHONPATH", &path));
    let (total, used, pid) = (3 * GIB, 700u64 << 20, own.0.id());
    let expected =
        [format!("pynvml 1 {total} {used} [{pid}]"), format!("nvitop {total} {used} [{pid}]"), "denied".to_owned()];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

/// They refuse to work on a driver that is not NVIDIA's; up to there they do the same with us and without, and every function that
/// they ask for by name, version and flag is found.
#[test]
fn the_runtimes_of_cuda_11_12_and_13_start_as_they_do_without_us() {
    const SCRIPT: &str = "
import ctypes, sys
runtime, count = ctypes.CDLL(sys.argv[1]), ctypes.c_int(-1)
print(runtime.cudaGetDeviceCount(ctypes.byref(count)), count.value)
cuda = ctypes.CDLL('libcuda.so.1')
cuda.fakeGpuCalls.restype = ctypes.c_int64
for name in (b'cuGetProcAddress', b'cuGetProcAddress_v2', b'cuInit', b'cuGetExportTable', b'cuDeviceGetAttribute'):
    print(name.decode(), cuda.fakeGpuCalls(name))
";
    let machine = Machine::new("2xH200");
    let container = Container::new(vec![machine.slice(0, GIB), machine.slice(1, GIB)]);
    for (package, library_name, hooked) in [
        ("nvidia-cuda-runtime-cu11==11.8.89", "nvidia/cuda_runtime/lib/libcudart.so.11.0", 100),
        ("nvidia-cuda-runtime-cu12==12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12", 120),
        ("nvidia-cuda-runtime==13.0.96", "nvidia/cu13/lib/libcudart.so.13", 120),
    ] {
        let runtime = packages(&[package]).join(library_name);
        let native = run(machine.native("python3").args(["-c", SCRIPT]).arg(&runtime));
        let trace = container.dir.path().join("trace");
        let with = run(machine.inside(&container, "python3").args(["-c", SCRIPT]).arg(&runtime));
        assert_eq!(native, with, "{package}");
        run(machine.inside(&container, "python3").args(["-c", SCRIPT]).arg(&runtime).env("DIVVY_TRACE", &trace));
        let lines = std::fs::read_to_string(&trace).unwrap();
        let found = lines.lines().filter(|l| l.contains(" lookup ") && l.ends_with(": hooked")).count();
        assert!(found >= hooked, "{package}: {found} of its lookups end with us");
        std::fs::remove_file(&trace).unwrap();
    }
}
