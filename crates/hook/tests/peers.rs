//! What users of other systems know of a memory limit from inside a container, by the ids of their cases (docs/reference/compat-cases.md).

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use common::fake::Machine;
use common::{Container, Running};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Does one call a line and says what came of it.
const PROGRAM: &str = "
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
blocks = []
for line in sys.stdin:
    what, *argument = line.split()
    first, second = ctypes.c_uint64(), ctypes.c_uint64()
    if what == 'alloc':
        status = cuda.cuMemAlloc_v2(ctypes.byref(first), ctypes.c_size_t(int(argument[0])))
        if status == 0: blocks.append(first)
        print(status, flush=True)
    elif what == 'free':
        print(cuda.cuMemFree_v2(blocks.pop()), flush=True)
    elif what == 'info':
        print(cuda.cuMemGetInfo_v2(ctypes.byref(first), ctypes.byref(second)), first.value, second.value, flush=True)
    elif what == 'total':
        print(cuda.cuDeviceTotalMem_v2(ctypes.byref(first), 0), first.value, flush=True)
";

struct Program {
    _child: Running,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Program {
    fn start(machine: &Machine, container: &Container) -> Program {
        Program::with(machine, container, &[])
    }

    fn with(machine: &Machine, container: &Container, environment: &[(&str, &str)]) -> Program {
        let mut command = machine.inside(container, "python3");
        command.args(["-c", PROGRAM]).envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Program { _child: Running(child), to, from: BufReader::new(from) }
    }

    fn say(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").expect("it listens");
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("it answers");
        answer.trim().to_owned()
    }

    fn alloc(&mut self, bytes: u64) -> String {
        self.say(&format!("alloc {bytes}"))
    }
}

const GRANTED: &str = "0";
const OUT_OF_MEMORY: &str = "2";

fn limited(limit: u64) -> (Machine, Container) {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, limit)]);
    (machine, container)
}

#[test]
fn gm_16_what_fits_exactly_is_granted_and_a_byte_more_is_not() {
    let (machine, container) = limited(GIB);
    let mut program = Program::start(&machine, &container);
    assert_eq!(program.alloc(512 * MIB), GRANTED);
    assert_eq!(program.alloc(512 * MIB), GRANTED);
    assert_eq!(program.alloc(1), OUT_OF_MEMORY);
}

#[test]
fn gm_17_the_driver_tells_of_the_limit_and_of_what_is_left() {
    let (machine, container) = limited(2 * GIB);
    let mut program = Program::start(&machine, &container);
    assert_eq!(program.alloc(GIB / 2), GRANTED);
    assert_eq!(program.say("info"), "0 1610612736 2147483648");
    assert_eq!(program.say("total"), "0 2147483648");
}

#[test]
fn gm_18_processes_of_a_container_share_its_limit_and_what_one_held_is_free_when_it_ends() {
    let (machine, container) = limited(GIB);
    let mut first = Program::start(&machine, &container);
    let mut second = Program::start(&machine, &container);
    assert_eq!(first.alloc(700 * MIB), GRANTED);
    assert_eq!(second.alloc(400 * MIB), OUT_OF_MEMORY);
    drop(first);
    // A process that is short of memory looks for dead neighbours every few milliseconds, not at every call.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while second.alloc(400 * MIB) != GRANTED {
        assert!(std::time::Instant::now() < deadline, "what the first held is still taken");
    }
}

#[test]
fn gm_27_a_running_program_sees_its_new_limit() {
    let (machine, container) = limited(GIB);
    let mut program = Program::start(&machine, &container);
    let set = |limit| {
        let config = divvy_shm::ContainerConfig { devices: vec![machine.slice(0, limit)], ..Default::default() };
        container.gate.set_config(&config).expect("a sound grant");
    };
    assert_eq!(program.alloc(GIB), GRANTED);
    assert_eq!(program.alloc(MIB), OUT_OF_MEMORY);
    set(2 * GIB);
    assert_eq!(program.say("total"), format!("0 {}", 2 * GIB));
    assert_eq!(program.alloc(GIB), GRANTED);
    // A smaller one takes nothing away, and gives nothing more until there is room.
    set(GIB);
    assert_eq!(program.say("info"), format!("0 0 {GIB}"));
    assert_eq!(program.alloc(MIB), OUT_OF_MEMORY);
    assert_eq!(program.say("free"), GRANTED);
    assert_eq!(program.alloc(MIB), OUT_OF_MEMORY);
    assert_eq!(program.say("free"), GRANTED);
    assert_eq!(program.alloc(GIB), GRANTED);
}

#[test]
fn tk_19_above_eight_blocks_of_256_mib_memory_is_refused_with_the_drivers_code() {
    let (machine, container) = limited(8 * 256 * MIB);
    let mut program = Program::start(&machine, &container);
    assert_eq!(program.alloc(1945 * MIB), GRANTED);
    assert_eq!(program.alloc(256 * MIB), OUT_OF_MEMORY);
    assert!(program.say("info").ends_with(" 2147483648"));
}

#[test]
fn fp_23_no_variable_in_a_container_turns_limits_off() {
    let (machine, container) = limited(GIB);
    let switches = [
        ("CUDA_DISABLE_CONTROL", "true"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "0"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "100g"),
        ("GPU_CORE_UTILIZATION_POLICY", "disable"),
        ("CUDA_OVERSUBSCRIBE", "true"),
    ];
    let mut program = Program::with(&machine, &container, &switches);
    assert_eq!(program.say("total"), format!("0 {GIB}"));
    assert_eq!(program.alloc(GIB + 1), OUT_OF_MEMORY);
}
