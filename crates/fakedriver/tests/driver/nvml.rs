//! NVML, through the nvml-wrapper crate and through pynvml.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use divvy_fakedriver::machine::Unit;

use crate::support::{Host, comes_to, eventually, installed, target_dir, wheel};

/// What the `look` example prints.
fn look(host: &Host, words: &[&str]) -> Vec<String> {
    let output = host.command(target_dir().join("examples/look")).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn devices_processes_and_samples_are_seen_through_nvml_wrapper() {
    let host = Host::new("2xH200 driver=580.1.2");
    let mut tenant = host.ready();
    tenant.ask("alloc 1073741824");
    tenant.ask("spin spin_us_500 20 700");
    let devices = look(&host, &["devices"]);
    assert_eq!(devices[0], "driver 580.1.2 cuda 13000");
    assert!(devices[1].starts_with("0 NVIDIA H200 GPU-") && devices[1].contains(" 00000000:18:00.0 "), "{devices:?}");
    let used = (518 + 1024) << 20;
    assert!(devices[1].contains(&format!(" {used} of {}", 143_771u64 << 20)), "{devices:?}");
    assert!(devices[2].ends_with("busy Ok(0)") && devices[2].contains("power 77777 heat 30"), "{devices:?}");
    let processes = look(&host, &["processes", "0"]);
    assert_eq!(processes[0], format!("process {} {} None", tenant.pid(), (518u64 + 1024) << 20));
    let samples: Vec<&String> =
        processes.iter().filter(|l| l.starts_with(&format!("sample {} ", tenant.pid()))).collect();
    assert!(samples.len() >= 3, "{processes:?}");
    assert!(samples.iter().any(|s| s.ends_with(" 100")), "{samples:?}");
}

#[test]
fn mig_instances_are_devices_of_their_own() {
    let host = Host::new("A100 mig=3g.40gb+2g.20gb; A100");
    let seen = look(&host, &["mig", "0"]);
    assert_eq!(seen[0], "mode 1 1");
    assert!(seen[1].starts_with("0 NVIDIA A100-SXM4-80GB MIG 3g.40gb MIG-"), "{seen:?}");
    assert!(seen[1].contains(&format!(" {} parent GPU-", 40_192u64 << 20)), "{seen:?}");
    assert_eq!(seen.len(), 3);
    // CUDA shows the card without MIG by default, and an instance by its name.
    let uuid = seen[1].split(' ').find(|w| w.starts_with("MIG-")).unwrap().to_owned();
    let mut on_instance = host.tenant_with(&[("CUDA_VISIBLE_DEVICES", &uuid)]);
    assert_eq!(on_instance.ask("ctx 0"), "ok");
    let total = on_instance.numbers("info")[1];
    assert_eq!(total, (40_192 - 16) << 20);
    assert_eq!(host.machine.tenants(Unit::instance(0, 0)).len(), 1);
    let mut on_card = host.ready();
    assert_eq!(on_card.numbers("info")[1], (81_920 - 629) << 20);
    // Instances run side by side: neither waits for the other.
    let other = host.machine.spec.cards[0].mig.as_ref().unwrap()[1].uuid.clone();
    let mut beside = host.tenant_with(&[("CUDA_VISIBLE_DEVICES", &other)]);
    beside.ask("ctx 0");
    comes_to("kernels of 2500", 2300..2600, || {
        on_instance.tell("spin spin_us_200 50 500");
        let kernels = beside.numbers("spin spin_us_200 50 500")[0];
        on_instance.hear();
        kernels
    });
    assert_eq!(host.machine.switches(Unit::instance(0, 0)), 0);
}

#[test]
fn topology_tells_what_joins_the_cards() {
    let host = Host::new("4xH200 nvlink=pairs");
    let seen = look(&host, &["links", "0"]);
    assert_eq!(seen, ["1 Node", "2 System", "3 System", "link 0 true"]);
    let host = Host::new("2xT4");
    assert_eq!(
        look(&host, &["links", "0"]).last().unwrap(),
        "error the requested operation is not available on the target device"
    );
}

#[test]
fn xids_reach_those_who_wait_and_lost_cards_say_so() {
    let host = Host::new("2xH200");
    let mut waiter = host
        .command(target_dir().join("examples/look"))
        .args(["wait", "20000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(waiter.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().unwrap(), "ready");
    host.machine.report_xid(1, 31);
    host.machine.report_xid(0, 79);
    assert_eq!(lines.next().unwrap(), "event Some(Value(79))");
    assert!(waiter.wait().unwrap().success());
    let mut tenant = host.ready();
    host.machine.lose(0, true);
    assert_eq!(tenant.ask("alloc 512"), "error 999");
    assert_eq!(look(&host, &["processes", "0"]), ["error device fell off the bus or has otherwise become inacessible"]);
    assert_eq!(host.tenant().ask("ctx 0"), "error 999");
    host.machine.lose(0, false);
    assert_eq!(host.ready().ask("alloc 512").get(..2), Some("ok"));
    assert_eq!(tenant.ask("alloc 512"), "error 999", "a context does not come back");
}

#[test]
fn settings_are_remembered_by_the_machine() {
    let host = Host::new("1xH200");
    assert_eq!(look(&host, &["set", "0"]), ["limit 400000"]);
    assert!(look(&host, &["devices"])[1].contains(" power "));
    host.machine.set(0, divvy_fakedriver::machine::Setting::ComputeMode, Some(3));
    let _first = host.ready();
    assert_eq!(host.tenant().ask("ctx 0"), "error 46", "exclusive to one process");
    host.machine.set(0, divvy_fakedriver::machine::Setting::ComputeMode, Some(2));
    assert_eq!(host.tenant().ask("ctx 0"), "error 46", "prohibited");
}

#[test]
fn a_killed_process_leaves_the_list() {
    let host = Host::new("1xH200");
    let (mut first, _second) = (host.ready(), host.ready());
    assert_eq!(look(&host, &["processes", "0"]).len(), 3, "two processes, and no samples yet");
    first.kill();
    eventually("the list is shorter", || {
        look(&host, &["processes", "0"]).iter().filter(|l| l.starts_with("process")).count() == 1
    });
}

#[test]
fn pynvml_works_on_it() {
    let host = Host::new("2xH200");
    let mut tenant = host.ready();
    let script = "
import pynvml as n
n.nvmlInit()
print(n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetCount())
h = n.nvmlDeviceGetHandleByIndex(0)
m, m2 = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
print(n.nvmlDeviceGetName(h), m.total == m2.total, m.used == m2.used + m2.reserved)
print([(p.pid, p.usedGpuMemory >> 20) for p in n.nvmlDeviceGetComputeRunningProcesses(h)])
print(max(s.smUtil for s in n.nvmlDeviceGetProcessUtilization(h, 0)))
print(n.nvmlDeviceGetNvLinkState(h, 0), n.nvmlDeviceGetComputeMode(h), n.nvmlDeviceGetEccMode(h))
try:
    n.nvmlDeviceGetFanSpeed(h)
except n.NVMLError_NotSupported as e:
    print(e)
n.nvmlShutdown()
";
    let mut command = host.command("python3");
    command.env("PYTHONPATH", wheel("nvidia-ml-py", "13.580.65"));
    command.args(["-c", script]);
    // Samples are of the last moments, and a busy machine may be late, or leave the card alone for a moment.
    let mut output = None;
    eventually("there are samples of a busy card", || {
        tenant.ask("spin spin_us_500 20 500");
        let output = output.insert(command.output().unwrap());
        output.status.success() && String::from_utf8_lossy(&output.stdout).lines().nth(3) == Some("100")
    });
    let output = output.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines[..3], ["580.159.04 2", "NVIDIA H200 True True", &format!("[({}, 518)]", tenant.pid())]);
    assert_eq!(lines[3..], ["100", "1 0 [1, 1]", "Not Supported"]);
}

#[test]
fn nvitop_shows_the_card_and_its_process() {
    let host = Host::new("1xH200");
    let mut tenant = host.ready();
    tenant.ask("alloc 5368709120");
    let mut command = host.command("python3");
    command.env("PYTHONPATH", installed("nvitop==1.7.2")).env("TERM", "dumb");
    let output = command.args(["-m", "nvitop", "-1", "--ascii"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Driver Version: 580.159.04") && said.contains("5638MiB / 140.4GiB"), "{said}");
    assert!(said.lines().any(|l| l.contains(&format!(" {} C ", tenant.pid())) && l.contains("5638MiB")), "{said}");
}
