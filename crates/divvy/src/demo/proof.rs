//! Enforcement before your eyes: two real processes that each want all of one simulated card, held to 30 % and 70 % of its time and
//! 2 GiB each by libdivvy.so and divvy-agent's arbiter. What they had is read from the card's own counters.

mod parts;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use divvy_dashboard::view::{self, Tenant};
use divvy_fakedriver::machine::Machine;
use divvy_fakedriver::spec::Spec;
use divvy_service::Stop;
use tokio::sync::watch;

use parts::Parts;

/// The simulated card.
const MACHINE: &str = "1xH200";
/// Who asks for which part of its time, in thousandths.
const TENANTS: [(&str, u32); 2] = [("small", 300), ("large", 700)];
const MEMORY_MIB: u64 = 2_048;
/// Before the first look: programs load, the arbiter learns what their kernels cost.
const SETTLING: Duration = Duration::from_secs(2);
/// Seconds watched before anybody may say that enough was seen.
const ENOUGH: usize = 5;
/// Seconds shown.
const SHOWN: usize = 120;

/// What is seen of the two processes. Clones share it.
#[derive(Clone)]
pub(crate) struct Proof {
    view: Arc<Mutex<view::Proof>>,
    /// Enough was seen, or there will be nothing to see.
    watched: Arc<watch::Sender<bool>>,
}

impl Default for Proof {
    fn default() -> Proof {
        let view = view::Proof { state: "beginning".into(), ..view::Proof::default() };
        Proof { view: Arc::new(Mutex::new(view)), watched: Arc::new(watch::Sender::new(false)) }
    }
}

impl Proof {
    /// What is seen now.
    pub(crate) fn view(&self) -> view::Proof {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it does while not enough was seen.
    pub(crate) fn unseen(&self) -> Option<String> {
        (!*self.watched.borrow()).then(|| self.view().state)
    }

    /// Resolves when enough was seen.
    pub(crate) async fn watched(&self) {
        // The sender is ours: this cannot fail while we wait.
        let _ = self.watched.subscribe().wait_for(|watched| *watched).await;
    }

    fn change(&self, change: impl FnOnce(&mut view::Proof)) {
        change(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn say(&self, state: &str) {
        self.change(|view| state.clone_into(&mut view.state));
    }

    /// Builds what is needed and shows it until asked to stop. Whatever is in the way is said, and ends nothing else.
    pub(crate) fn run(&self, stop: &Stop, told: bool) {
        if let Err(error) = self.show(stop) {
            // What is stopped with us, a compiler for one, did not fail.
            let stopped = stop.is_requested();
            let why =
                if stopped { "stopped before it began".into() } else { format!("cannot be shown here: {error:#}") };
            if told && !stopped {
                println!("  enforcement {why}");
            }
            self.change(|view| {
                view.running = false;
                view.state = why;
            });
        }
        self.watched.send_replace(true);
        while !stop.is_requested() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn show(&self, stop: &Stop) -> anyhow::Result<()> {
        let folder = tempfile::tempdir().context("no folder for the parts")?;
        let parts = parts::build(folder.path(), stop, |what| self.say(&format!("building {what}")))?;
        if stop.is_requested() {
            return Ok(());
        }
        // Gates are pages that processes share: they belong on a tmpfs.
        let shm = Path::new("/dev/shm");
        let gates = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let gates = gates.context("no folder for the gates")?;
        let state = tempfile::tempdir().context("no folder for the card")?;
        let machine = Machine::open(state.path(), Some(MACHINE)).map_err(|e| anyhow::anyhow!("no card: {e}"))?;
        let _arbiter = start_arbiter(&parts, gates.path())?;
        let mut tenants = Vec::new();
        for (name, _) in TENANTS {
            tenants.push(Running::start(&parts, name, gates.path(), state.path())?);
        }
        self.watch(&machine, &mut tenants, stop)
    }

    fn watch(&self, machine: &Machine, tenants: &mut [Running], stop: &Stop) -> anyhow::Result<()> {
        let unit = machine.units().first().copied().context("the machine has no card")?;
        let card = format!("one simulated {}", machine.card(unit).model.name);
        let began = Instant::now();
        let mut last: Option<(Instant, BTreeMap<u32, u64>)> = None;
        let mut courses: Vec<Vec<u32>> = vec![Vec::new(); tenants.len()];
        while !stop.is_requested() {
            std::thread::sleep(Duration::from_millis(100));
            for tenant in tenants.iter_mut() {
                if let Some(status) = tenant.child.0.try_wait()? {
                    bail!("the process {} ended: {status}", tenant.name);
                }
            }
            if began.elapsed() < SETTLING {
                continue;
            }
            let seen = machine.tenants(unit);
            let busy: BTreeMap<u32, u64> = seen.iter().map(|tenant| (tenant.pid, tenant.busy)).collect();
            let Some((at, before)) = &last else {
                last = Some((Instant::now(), busy));
                continue;
            };
            let passed = at.elapsed();
            if passed < Duration::from_secs(1) {
                continue;
            }
            let mut views = Vec::new();
            for ((tenant, (name, share)), course) in tenants.iter().zip(TENANTS).zip(&mut courses) {
                let pid = tenant.child.0.id();
                let ran = busy.get(&pid).copied().unwrap_or(0).saturating_sub(before.get(&pid).copied().unwrap_or(0));
                let had = (u128::from(ran) * 1000 / passed.as_nanos().max(1)).min(1000) as u32;
                if course.len() == SHOWN {
                    course.remove(0);
                }
                course.push(had);
                let (kernels, refused) = *tenant.said.lock().unwrap_or_else(PoisonError::into_inner);
                let held = seen.iter().find(|seen| seen.pid == pid).map_or(0, |seen| seen.used >> 20);
                let memory = MEMORY_MIB;
                let (name, course) = (name.to_owned(), course.clone());
                views.push(Tenant { name, pid, share, had, course, memory, held, refused, kernels });
            }
            last = Some((Instant::now(), busy));
            self.change(|view| {
                *view = view::Proof { state: "running".into(), running: true, card: card.clone(), tenants: views };
            });
            if courses[0].len() >= ENOUGH {
                self.watched.send_replace(true);
            }
        }
        Ok(())
    }
}

/// A child that does not outlive us.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the arbiter; it is ready when it says so.
fn start_arbiter(parts: &Parts, gates: &Path) -> anyhow::Result<Held> {
    let spec = Spec::parse(MACHINE).map_err(|e| anyhow::anyhow!("{e}"))?;
    let device = spec.cards.first().context("the machine has no card")?.uuid.clone();
    let shares: Vec<String> = TENANTS.iter().map(|(name, share)| format!("{name}={share}/1000")).collect();
    let mut arbiter = Command::new(&parts.agent);
    // However this process ends, standard input of that one ends with it.
    arbiter
        .arg("arbiter")
        .args(["--keeper", "--until-stdin-ends", "--dir"])
        .arg(gates)
        .args(["--tenants", &shares.join(" ")]);
    arbiter.args(["--device", &device, "--memory", &(MEMORY_MIB << 20).to_string()]);
    // So that what is shown of the card, contexts and all, stays within what was granted.
    arbiter.args(["--context", &spec.context.to_string()]);
    arbiter.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::piped());
    let mut child = Held(arbiter.spawn().context("the arbiter does not start")?);
    let out = child.0.stdout.take().context("the arbiter has no output")?;
    let mut lines = BufReader::new(out).lines();
    match lines.next() {
        Some(Ok(ready)) if ready == "ready" => {}
        other => bail!("the arbiter does not begin: {other:?}"),
    }
    std::thread::spawn(move || lines.for_each(drop));
    Ok(child)
}

/// A tenant's process.
struct Running {
    name: &'static str,
    child: Held,
    /// Kernels it ran, allocations it was refused, by its own count.
    said: Arc<Mutex<(u64, u64)>>,
}

impl Running {
    fn start(parts: &Parts, name: &'static str, gates: &Path, state: &Path) -> anyhow::Result<Running> {
        let mut program = Command::new(&parts.tenant);
        program
            .env("LD_PRELOAD", &parts.library)
            .env("LD_LIBRARY_PATH", &parts.driver)
            .env("DIVVY_DIR", gates.join(name))
            .env("FAKE_GPU_STATE", state)
            .env("FAKE_GPU_CONFIG", MACHINE)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = Held(program.spawn().with_context(|| format!("the process {name} does not start"))?);
        let out = child.0.stdout.take().context("a tenant has no output")?;
        let said = Arc::new(Mutex::new((0, 0)));
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(counts) = counts(&line) {
                    *heard.lock().unwrap_or_else(PoisonError::into_inner) = counts;
                }
            }
        });
        Ok(Running { name, child, said })
    }
}

/// `kernels 20 refused 3`.
fn counts(line: &str) -> Option<(u64, u64)> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["kernels", kernels, "refused", refused] => Some((kernels.parse().ok()?, refused.parse().ok()?)),
        _ => None,
    }
}
