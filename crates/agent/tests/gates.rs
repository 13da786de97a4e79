//! The real parts on the fake driver: divvy-agent's arbiter and keeper, libdivvy.so, and programs that launch kernels.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use divvy_fakedriver::spec::Spec;
use divvy_shm::{GateReader, LedgerFile};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const MACHINE: &str = "1xH200";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The fake driver, the library as it ships, and the programs, built once.
struct Built {
    dir: TempDir,
    library: PathBuf,
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        divvy_fakedriver::install::install(dir.path()).expect("the fake driver builds");
        let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_path_buf();
        if divvy_fakedriver::install::built().is_none() {
            build_library(&target);
        }
        for program in ["heap", "load", "moves", "view", "ways"] {
            let status = Command::new("cc")
                .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(dir.path().join(program))
                .arg(root().join("tests/gpu/c").join(format!("{program}.c")))
                .args(["-ldl", "-lpthread"])
                .status()
                .unwrap();
            assert!(status.success(), "{program}.c does not compile");
        }
        Built { library: target.join("hook/libdivvy.so"), dir }
    })
}

/// Builds libdivvy.so as it ships.
fn build_library(target: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--quiet", "-p", "divvy-hook", "--profile", "hook", "--target-dir"])
        .arg(target)
        .status()
        .unwrap();
    assert!(status.success(), "libdivvy.so does not build");
}

/// A machine, an arbiter with tenants on it, and whatever runs there. Everything ends with it.
struct Bench {
    machine: TempDir,
    tenants: TempDir,
    arbiter: Option<Child>,
    said: Arc<Mutex<Vec<String>>>,
    memory: Option<u64>,
}

impl Bench {
    fn new(tenants: &str) -> Bench {
        Bench::with_memory(tenants, None)
    }

    fn with_memory(tenants: &str, memory: Option<u64>) -> Bench {
        built();
        let mut bench = Bench {
            machine: tempfile::tempdir().unwrap(),
            tenants: tempfile::Builder::new().tempdir_in("/dev/shm").unwrap(),
            arbiter: None,
            said: Arc::default(),
            memory,
        };
        std::fs::write(bench.tenants.path().join("shares"), tenants).unwrap();
        bench.start_arbiter();
        bench
    }

    fn start_arbiter(&mut self) {
        let uuid = &Spec::parse(MACHINE).unwrap().cards[0].uuid;
        let mut arbiter = Command::new(env!("CARGO_BIN_EXE_divvy-agent"))
            .args(["arbiter", "--keeper", "--dir"])
            .arg(self.tenants.path())
            .arg("--tenants")
            .arg(format!("@{}", self.tenants.path().join("shares").display()))
            .args(["--device", uuid, "--report", "200", "--audit", "--nvml"])
            .arg(built().dir.path().join("libnvidia-ml.so.1"))
            .args(self.memory.map(|m| format!("--memory={m}")))
            .env("FAKE_GPU_STATE", self.machine.path())
            .env("FAKE_GPU_CONFIG", MACHINE)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(arbiter.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let said = self.said.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| said.lock().unwrap().push(line)));
        self.arbiter = Some(arbiter);
    }

    /// The last line of the arbiter's in which `pick` finds something, and what.
    fn said<T>(&self, pick: impl Fn(&serde_json::Value) -> Option<T>) -> Option<T> {
        let lines = self.said.lock().unwrap();
        lines.iter().rev().find_map(|line| pick(&serde_json::from_str(line).ok()?))
    }

    fn set_shares(&self, tenants: &str) {
        let new = self.tenants.path().join("shares.new");
        std::fs::write(&new, tenants).unwrap();
        std::fs::rename(new, self.tenants.path().join("shares")).unwrap();
    }

    /// The fake driver's tool.
    fn fake_gpu(&self, arguments: &[&str]) {
        let status = Command::new(built().dir.path().join("fake-gpu"))
            .args(arguments)
            .env("FAKE_GPU_STATE", self.machine.path())
            .env("FAKE_GPU_CONFIG", MACHINE)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{arguments:?}");
    }

    fn program(&self, tenant: &str, name: &str, arguments: &str) -> Child {
        Command::new(built().dir.path().join(name))
            .args(arguments.split_whitespace())
            .env("LD_PRELOAD", &built().library)
            .env("LD_LIBRARY_PATH", built().dir.path())
            .env("DIVVY_DIR", self.folder(tenant))
            .env("FAKE_GPU_STATE", self.machine.path())
            .env("FAKE_GPU_CONFIG", MACHINE)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts a program and waits until it has begun.
    fn start(&self, tenant: &str, name: &str, arguments: &str) -> Running {
        let mut child = self.program(tenant, name, arguments);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        assert_eq!(first, "begun", "{name} {arguments}");
        Running { child, lines }
    }

    /// Starts a program that does not say when it has begun.
    fn start_silent(&self, tenant: &str, name: &str, arguments: &str) -> Running {
        let mut child = self.program(tenant, name, arguments);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { child, lines }
    }

    fn folder(&self, tenant: &str) -> PathBuf {
        self.tenants.path().join(tenant)
    }

    fn gate(&self, tenant: &str) -> GateReader {
        GateReader::open(&self.folder(tenant)).unwrap()
    }

    fn arbiter(&self) -> Pid {
        Pid::from_child(self.arbiter.as_ref().unwrap())
    }

    /// The keeper's pid, if one is there.
    fn keeper(&self) -> Option<Pid> {
        let wanted = self.tenants.path().to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
            if words.iter().any(|w| w == "keeper") && words.iter().any(|w| *w == wanted) {
                return entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            }
        }
        None
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(child) = &mut self.arbiter {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(keeper) = self.keeper() {
            let _ = kill_process(keeper, Signal::KILL);
        }
    }
}

struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    /// The number after a word, once it has ended well.
    fn end(mut self, word: &str) -> f64 {
        let all: Vec<String> = self.lines.by_ref().map_while(Result::ok).collect();
        let status = self.child.wait().unwrap();
        let words: Vec<&str> = all.iter().flat_map(|l| l.split_whitespace()).collect();
        let at = words.iter().rposition(|w| *w == word).filter(|_| status.success());
        words[at.unwrap_or_else(|| panic!("{status}, no {word} in {all:?}")) + 1].parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Arbiter, card and programs run on wall time, and a busy machine takes time away from each of them, for a quarter of a minute at a
/// stretch: what is out of range is measured again. Who is wrong stays wrong.
fn comes_to(what: &str, wanted: std::ops::Range<f64>, mut measured: impl FnMut() -> f64) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut all: Vec<f64> = Vec::new();
    while all.last().is_none_or(|last| !wanted.contains(last)) {
        assert!(Instant::now() < deadline, "{what}: wanted {wanted:?}, had {all:.1?}");
        all.push(measured());
    }
}

fn wait_for(what: &str, mut true_now: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !true_now() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

#[test]
fn two_tenants_run_by_request_and_by_the_new_one_after_a_change() {
    let bench = Bench::new("a=300/1000 b=700/1000");
    let share = || {
        let [a, b] = ["a", "b"].map(|t| bench.start(t, "load", "1000 2.5 4"));
        let [a, b] = [a, b].map(|r| r.end("launches"));
        100.0 * a / (a + b)
    };
    comes_to("asked 30", 24.0..36.0, share);
    bench.set_shares("a=800/1000 b=200/1000");
    comes_to("asked 80", 73.0..87.0, share);
}

/// Kernels in three streams, each of which waits for the one before: they are kept back by the CPU, and share as others do.
#[test]
fn programs_whose_streams_wait_for_each_other_run_by_request() {
    let bench = Bench::new("a=300/1000 b=700/1000");
    comes_to("asked 30", 22.0..38.0, || {
        let [a, b] = ["a", "b"].map(|t| bench.start(t, "load", "200 2.5 60 0 3 linked"));
        let ledger = LedgerFile::open_guarded(&bench.folder("a")).unwrap();
        wait_for("the CPU holds it", || ledger.processes().any(|process| process.cpu_gate));
        let [a, b] = [a, b].map(|r| r.end("launches"));
        100.0 * a / (a + b)
    });
}

#[test]
fn a_lone_tenant_keeps_to_its_limit() {
    let bench = Bench::new("a=250/250");
    // A quarter of a thousand kernels of a millisecond each.
    comes_to("limit 250", 200.0..300.0, || bench.start("a", "load", "1000 2 4").end("per_second"));
}

#[test]
fn gm_26_every_way_to_launch_passes_the_gate_and_captures_stay_whole() {
    let bench = Bench::new("a=500/900 b=500/900");
    let neighbour = bench.start("b", "load", "200 60");
    let output = bench.program("a", "ways", "").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    drop(neighbour);
    let ledger = LedgerFile::open_guarded(&bench.folder("a")).unwrap();
    wait_for("nothing is left of a program that ended", || {
        ledger.backlog(0).queued == 0 && ledger.backlog(0).filling == 0
    });
}

#[test]
fn where_streams_cannot_wait_the_cpu_does() {
    let bench = Bench::new("a=300/1000 b=700/1000");
    bench.fake_gpu(&["inject", "cuStreamBatchMemOp_v2", "fail=801"]);
    comes_to("asked 30", 20.0..40.0, || {
        let [a, b] = ["a", "b"].map(|t| bench.start(t, "load", "1000 2.5 4"));
        let [a, b] = [a, b].map(|r| r.end("launches"));
        100.0 * a / (a + b)
    });
    let capped = Bench::new("a=250/250");
    capped.fake_gpu(&["inject", "cuStreamBatchMemOp_v2", "fail=801"]);
    comes_to("limit 250", 180.0..330.0, || capped.start("a", "load", "1000 2 4").end("per_second"));
}

#[test]
fn gm_19_two_processes_of_a_container_share_one_turn() {
    let bench = Bench::new("a=500/1000 b=500/1000");
    comes_to("two processes and one, half each", 42.0..58.0, || {
        let running = ["a", "a", "b"].map(|t| bench.start(t, "load", "1000 3 4"));
        let [first, second, other] = running.map(|r| r.end("launches"));
        100.0 * (first + second) / (first + second + other)
    });
}

#[test]
fn gm_23_a_program_that_starts_before_the_agent_runs_and_is_held_once_it_is_there() {
    let mut bench = Bench::new("a=200/200");
    let mut arbiter = bench.arbiter.take().unwrap();
    arbiter.kill().unwrap();
    arbiter.wait().unwrap();
    std::fs::remove_file(bench.folder("a").join("agent.sock")).unwrap();
    let running = bench.start("a", "load", "1000 4 4");
    bench.start_arbiter();
    let rate = running.end("per_second");
    assert!((20.0..900.0).contains(&rate), "it ran, and was held: {rate:.0}");
}

#[test]
fn a_whole_card_is_metered_and_held_by_nothing() {
    let bench = Bench::new("w=whole");
    // Somebody closes the gate all the same: nothing waits at it.
    let gate = divvy_shm::GateWriter::open(&bench.folder("w")).unwrap();
    let closing = std::thread::spawn({
        let until = Instant::now() + Duration::from_secs(2);
        move || {
            while Instant::now() < until {
                gate.set_gate(0, false);
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    comes_to("all of a thousand kernels of a millisecond each", 850.0..1100.0, || {
        bench.start("w", "load", "1000 2 4").end("per_second")
    });
    closing.join().unwrap();
    wait_for("its time is booked", || {
        let busy = bench.said(|line| line["accounts"].as_object()?.values().next()?["busy_ns"].as_u64());
        busy.is_some_and(|busy| busy > 1_000_000_000)
    });
}

/// Who has the card to itself is looked at every few milliseconds: what it is charged is a guess, and what it is told is not.
#[test]
fn a_lone_program_is_metered_by_what_the_card_says() {
    let bench = Bench::new("a=500/1000");
    // Until when it was metered, and how much by then, in milliseconds.
    let metered = || {
        let of = |line: &serde_json::Value| {
            let account = line["accounts"].as_object()?.values().next()?;
            let ms = |of: &str| Some(account[of].as_f64()? / 1e6);
            Some((line["ms"].as_f64()? - ms("behind_ns")?, ms("busy_ns")?))
        };
        bench.said(of).unwrap_or_default()
    };
    for (kernel_us, think_us) in [(300.0, 900), (1000.0, 0)] {
        comes_to(&format!("kernels of {kernel_us} us, {think_us} us apart: points too many"), -4.0..4.0, || {
            let running = bench.start("a", "load", &format!("{kernel_us} 6 1 {think_us}"));
            let advance = |by: f64| {
                let from = metered().0;
                wait_for("the meter goes on", || metered().0 > from + by);
                metered()
            };
            let (before, after) = (advance(1500.0), advance(2500.0));
            let used = running.end("per_second") * kernel_us / 1e6;
            100.0 * ((after.1 - before.1) / (after.0 - before.0) - used)
        });
    }
}

/// A tenant with a thousand chunks queued and its gate closed most of the time.
fn with_closed_gates(bench: &Bench) -> Running {
    let running = bench.start("a", "moves", "5 4 500");
    let gate = bench.gate("a");
    wait_for("the gate is closed", || !gate.gate(0).unwrap().is_open());
    running
}

/// For how long the slowest stream of a program stood still, in milliseconds, is below a second.
fn streams_move(mut longest: impl FnMut() -> f64) {
    comes_to("a stream stood still", 0.0..1000.0, &mut longest);
}

#[test]
fn streams_move_within_a_second_when_the_arbiter_is_killed_and_it_takes_over_again() {
    streams_move(|| {
        let mut bench = Bench::new("a=300/300");
        let running = with_closed_gates(&bench);
        signal(bench.arbiter(), Signal::KILL);
        bench.arbiter.take().unwrap().wait().unwrap();
        let gate = bench.gate("a");
        wait_for("the keeper is in control", || gate.controller() == divvy_shm::gate::Controller::Keeper);
        bench.start_arbiter();
        wait_for("the arbiter is back", || gate.controller() == divvy_shm::gate::Controller::Arbiter);
        running.end("still_ms")
    });
}

#[test]
fn streams_move_within_a_second_when_the_arbiter_is_stopped_and_it_goes_on_afterwards() {
    streams_move(|| {
        let bench = Bench::new("a=300/300");
        let running = with_closed_gates(&bench);
        signal(bench.arbiter(), Signal::STOP);
        let gate = bench.gate("a");
        wait_for("the keeper is in control", || gate.controller() == divvy_shm::gate::Controller::Keeper);
        signal(bench.arbiter(), Signal::CONT);
        wait_for("the arbiter is back", || gate.controller() == divvy_shm::gate::Controller::Arbiter);
        running.end("still_ms")
    });
}

#[test]
fn a_killed_keeper_is_replaced_and_a_stopped_one_harms_nobody() {
    streams_move(|| {
        let bench = Bench::new("a=300/300");
        let running = with_closed_gates(&bench);
        wait_for("there is a keeper", || bench.keeper().is_some());
        let first = bench.keeper().unwrap();
        signal(first, Signal::KILL);
        wait_for("there is another", || bench.keeper().is_some_and(|k| k != first));
        let gate = bench.gate("a");
        let beat = gate.keeper_beat();
        wait_for("which is alive", || gate.keeper_beat() > beat);
        signal(bench.keeper().unwrap(), Signal::STOP);
        running.end("still_ms")
    });
}

#[test]
fn arbiter_and_keeper_end_with_whoever_started_them_where_that_was_asked_for() {
    let mut bench = Bench::new("a=500/1000");
    wait_for("there is a first keeper", || bench.keeper().is_some());
    let mut first = bench.arbiter.take().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    signal_if_alive(bench.keeper().unwrap(), Signal::KILL);
    wait_for("the first keeper is gone", || bench.keeper().is_none());
    let mut second = Command::new(env!("CARGO_BIN_EXE_divvy-agent"))
        .args(["arbiter", "--keeper", "--until-stdin-ends", "--tenants", "a=500/1000", "--dir"])
        .arg(bench.tenants.path())
        .args(["--device", &Spec::parse(MACHINE).unwrap().cards[0].uuid])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("there is a keeper", || bench.keeper().is_some());
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success());
    wait_for("the keeper is gone", || bench.keeper().is_none());
}

/// One of a tenant's two processes, both with gates closed and hundreds of chunks queued, gets a signal; the other one's streams move.
fn one_of_two(sent: Signal) {
    streams_move(|| {
        let bench = Bench::new("a=300/1000 b=700/1000");
        let _neighbour = bench.start("b", "load", "1000 60 4");
        let [victim, other] = [("60", 4), ("5", 2)].map(|(s, n)| bench.start("a", "moves", &format!("{s} {n} 500")));
        let gate = bench.gate("a");
        wait_for("the gate is closed", || !gate.gate(0).unwrap().is_open());
        signal(Pid::from_child(&victim.child), sent);
        let ledger = LedgerFile::open_guarded(&bench.folder("a")).unwrap();
        let left = if sent == Signal::KILL { 1 } else { 2 };
        wait_for("what a dead process had is given back", || ledger.processes().count() == left);
        let still = other.end("still_ms");
        signal_if_alive(Pid::from_child(&victim.child), Signal::CONT);
        still
    });
}

fn signal_if_alive(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

#[test]
fn one_of_two_processes_is_killed_and_the_others_streams_move() {
    one_of_two(Signal::KILL);
}

#[test]
fn one_of_two_processes_is_stopped_and_the_others_streams_move() {
    one_of_two(Signal::STOP);
}

/// A tenant with its gate closed and a thousand chunks queued gets a signal; its neighbour has the card.
fn only_tenant(sent: Signal) {
    let bench = Bench::new("a=300/1000 b=700/1000");
    comes_to("at least seven tenths of a thousand", 600.0..1100.0, || {
        let victim = bench.start("a", "moves", "60 4 500");
        let neighbour = bench.start("b", "load", "1000 3 4");
        let gate = bench.gate("a");
        wait_for("the gate is closed", || !gate.gate(0).unwrap().is_open());
        signal(Pid::from_child(&victim.child), sent);
        neighbour.end("per_second")
    });
}

#[test]
fn a_tenant_that_is_killed_with_its_gate_closed_leaves_the_card_to_its_neighbour() {
    only_tenant(Signal::KILL);
}

#[test]
fn a_tenant_that_is_stopped_with_its_gate_closed_leaves_the_card_to_its_neighbour() {
    only_tenant(Signal::STOP);
}

#[test]
fn a_program_without_the_library_is_told_within_two_seconds() {
    let bench = Bench::new("a=300/1000");
    let _honest = bench.start("a", "load", "1000 60 4");
    comes_to("seconds until it was told", 0.0..2.0, || {
        let mut command = Command::new(built().dir.path().join("load"));
        let child = command
            .args(["1000", "60", "4"])
            .env("LD_LIBRARY_PATH", built().dir.path())
            .env("FAKE_GPU_STATE", bench.machine.path())
            .env("FAKE_GPU_CONFIG", MACHINE)
            .stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        let (began, bypasser) = (Instant::now(), Running { child, lines });
        let pid = u64::from(bypasser.child.id());
        let told =
            |line: &serde_json::Value| (line["finding"]["what"]["unmanaged"]["pid"].as_u64()? == pid).then_some(());
        wait_for("it is told", || bench.said(told).is_some());
        began.elapsed().as_secs_f64()
    });
    let others = bench.said(|line| line["finding"]["container"].as_str().map(str::to_owned));
    assert_eq!(others, None, "nobody in a container is accused");
}

#[test]
fn memory_that_no_call_allocates_counts_within_two_seconds() {
    let bench = Bench::with_memory("a=300/1000", Some(10 << 30));
    comes_to("seconds until it counts", 0.0..2.0, || bench.start_silent("a", "heap", "4096").end("counted_after"));
}
