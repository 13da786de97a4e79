//! Faults: calls that fail or are slow, processes that fork, machines that are full or wrong.

use std::process::Stdio;
use std::time::{Duration, Instant};

use divvy_fakedriver::machine::{Inject, Unit};

use crate::support::{Host, driver_dir, target_dir};

const CARD: Unit = Unit::card(0);

#[test]
fn the_nth_allocation_fails_when_somebody_wants_it_to() {
    let host = Host::new("1xH200");
    let mut tenant = host.ready();
    assert!(host.machine.inject(&Inject::parse("cuMemAlloc_v2 fail=2 from=3 times=1").unwrap()));
    let answers: Vec<bool> = (0..4).map(|_| tenant.ask("alloc 4096").starts_with("ok")).collect();
    assert_eq!(answers, [true, true, false, true]);
    assert!(host.machine.inject(&Inject::parse("cuStreamQuery slow=60ms").unwrap()));
    let start = Instant::now();
    assert_eq!(tenant.ask("query"), "ok");
    assert!(start.elapsed() >= Duration::from_millis(60));
    host.machine.clear_injections();
    // The same by the tool.
    let tool = driver_dir().join("fake-gpu");
    let done = host.command(&tool).args(["inject", "cuMemAlloc_v2", "fail=2", "times=1"]).status().unwrap();
    assert!(done.success());
    assert_eq!(tenant.ask("alloc 4096"), "error 2");
    let said = host.command(&tool).arg("show").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains(&format!("pid {}", tenant.pid())), "{said}");
    let refused = host.command(&tool).args(["lose", "7"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("\"7\" is no card: the machine has 0 to 0"));
}

#[test]
fn a_machine_described_wrongly_says_how() {
    let host = Host::new("1xH200");
    for (config, message) in [("3xH300", "no card is called \"H300\""), ("2xH200", "but the machine in")] {
        let mut command = host.command(target_dir().join("examples/tenant"));
        let mut child = command
            .env("FAKE_GPU_CONFIG", config)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"ctx 0\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(message), "{told}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "error 802\n");
    }
}

#[test]
fn cuda_visible_devices_chooses_by_index_and_by_uuid() {
    let host = Host::new("4xH200");
    let uuid = host.machine.spec.cards[3].uuid.clone();
    let count = |value: &str| {
        let mut tenant = host.tenant_with(&[("CUDA_VISIBLE_DEVICES", value)]);
        let devices = (0..5).take_while(|d| tenant.ask(&format!("ctx {d}")) == "ok").count();
        (devices, (0..4).filter(|&c| !host.machine.tenants(Unit::card(c)).is_empty()).collect::<Vec<_>>())
    };
    assert_eq!(count("2,0"), (2, vec![0, 2]));
    assert_eq!(count(&uuid), (1, vec![3]));
    assert_eq!(count(&uuid[..12]), (1, vec![3]));
    assert_eq!(count("1,9,2"), (1, vec![1]), "the list ends at what does not exist");
    assert_eq!(count("1,1"), (0, vec![]), "a device named twice leaves none");
    assert_eq!(count(""), (0, vec![]));
}

#[test]
fn a_forked_child_cannot_use_what_its_parent_initialized() {
    let host = Host::new("1xH200");
    let script = "
import ctypes, os
cuda = ctypes.CDLL('libcuda.so.1')
context = ctypes.c_uint64()
print(cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context), flush=True)
pid = os.fork()
if pid == 0:
    pointer = ctypes.c_uint64()
    print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)), cuda.cuInit(0), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(cuda.cuCtxSynchronize(), flush=True)
";
    let output = host.command("python3").args(["-c", script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0 0 0\n3 3\n0\n");
    assert_eq!(host.machine.used(CARD), 0, "all gone with the processes");
}

#[test]
fn memory_is_shared_fairly_by_a_crowd_that_dies_and_comes_again() {
    let host = Host::new("1xT4");
    let usable = host.machine.usable(CARD);
    // Four processes of 3 GiB fit on a T4 with their contexts, a fifth does not.
    for round in 0..5 {
        let mut crowd: Vec<_> = (0..6).map(|_| host.tenant()).collect();
        crowd.iter_mut().for_each(|t| t.tell("ctx 0"));
        crowd.iter_mut().for_each(|t| assert_eq!(t.hear(), "ok"));
        crowd.iter_mut().for_each(|t| t.tell("alloc 3221225472"));
        let got = crowd.iter_mut().map(|t| t.hear()).filter(|a| a.starts_with("ok")).count();
        assert_eq!(got, 3, "round {round}: contexts take half a GiB each");
        assert!(host.machine.used(CARD) <= usable);
        crowd.iter_mut().for_each(|t| t.kill());
        assert_eq!(host.machine.used(CARD), 0, "round {round}");
    }
}

#[test]
fn processes_of_other_pid_namespaces_are_told_apart() {
    let host = Host::new("1xH200");
    let probe = host.command("unshare").args(["--fork", "--pid", "--kill-child", "true"]).status();
    // Two tenants that both believe to be pid 2, or thereabouts: where namespaces are to be had.
    let isolated = probe.is_ok_and(|s| s.success());
    let start = |host: &Host| {
        let mut command = if isolated {
            let mut command = host.command("unshare");
            command.args(["--fork", "--pid", "--kill-child"]).arg(target_dir().join("examples/tenant"));
            command
        } else {
            host.command(target_dir().join("examples/tenant"))
        };
        host.drive(&mut command)
    };
    let (mut a, mut b) = (start(&host), start(&host));
    assert_eq!((a.ask("ctx 0"), b.ask("ctx 0")), ("ok".into(), "ok".into()));
    a.ask("alloc 1073741824");
    let seen = host.machine.tenants(CARD);
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].pid, seen[1].pid, "as this namespace counts them");
    for tenant in &seen {
        assert!(std::path::Path::new(&format!("/proc/{}", tenant.pid)).exists(), "{tenant:?}");
    }
    crate::support::comes_to("half of 2000", 850..1250, || {
        a.tell("spin spin_us_200 20 400");
        let kernels = b.numbers("spin spin_us_200 20 400")[0];
        a.hear();
        kernels
    });
    a.kill();
    crate::support::eventually("only one is left", || host.machine.tenants(CARD).len() == 1);
}

#[test]
fn stacks_and_heaps_take_memory_that_no_allocation_shows() {
    let host = Host::new("1xH200");
    let mut tenant = host.ready();
    let before = host.machine.used(CARD);
    // 64 KiB of stack for each of 2048 threads on each of 132 multiprocessors, instead of one.
    assert_eq!(tenant.ask("call cuCtxSetLimit 0 10000"), "ok");
    assert_eq!(host.machine.used(CARD) - before, (65_536 - 1024) * 2048 * 132);
    assert_eq!(tenant.ask("call cuCtxSetLimit 2 200000000"), "ok", "a heap of 8 GiB");
    assert_eq!(tenant.ask("call cuCtxSetLimit 2 4000000000"), "error 2", "one of 256 GiB does not fit");
    assert_eq!(tenant.ask("call cuCtxSetLimit 0 400"), "ok");
    assert_eq!(host.machine.used(CARD) - before, (8 << 30) - (8 << 20));
    tenant.kill();
    assert_eq!(host.machine.used(CARD), 0);
}
