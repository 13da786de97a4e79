//! Containers that keep a card busy, and what the card itself says about who used it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use divvy_e2e::{Kubectl, eventually};
use divvy_fakedriver::machine::{Machine, Unit};

use divvy_e2e::site::{SOON, Site};

/// A container to load, and how much memory it takes first, in MiB: by that the card knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) pod: &'a str,
    pub(crate) container: &'a str,
    pub(crate) mark: u64,
}

/// Over how long shares are read.
const WINDOW: Duration = Duration::from_secs(5);
/// How many windows a share may take to be what it should. Whoever runs these tests may lack the processor time to keep a card busy for
/// a while, and then the card is divided otherwise, rightly. What nobody holds is wrong in every window.
const WINDOWS: usize = 18;

/// Runs `act` while every load keeps the first card of its container busy; they end when it is done.
pub(crate) fn under_load<T>(kubectl: &Kubectl, site: &Site, loads: &[Load<'_>], act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&over);
        for load in loads {
            let over = &over;
            scope.spawn(move || keep_busy(kubectl, load, over));
        }
        eventually("everybody runs kernels", SOON, || {
            let seen = busy(site);
            anyhow::ensure!(loads.iter().all(|l| seen.get(&l.mark).is_some_and(|b| !b.is_zero())), "{seen:?}");
            Ok(())
        })
        .unwrap();
        act()
    })
}

/// Ends the loads also when a test fails under them.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn keep_busy(kubectl: &Kubectl, load: &Load<'_>, over: &AtomicBool) {
    let mut command = kubectl.command(&["exec", "-i", load.pod, "-c", load.container, "--", "tenant"]);
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut tell = program.stdin.take().unwrap();
    let mut answers = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut answer = || answers.next().map(Result::unwrap).unwrap_or_default();
    // One second of kernels after another; the next is always told before the last is over.
    let second = "spin spin_us_500 8 1000\n";
    write!(tell, "ctx 0\nalloc {}\n{second}{second}", load.mark << 20).unwrap();
    for what in ["a context", "memory"] {
        let said = answer();
        assert!(said.starts_with("ok"), "{}: {what}: {said:?}", load.pod);
    }
    loop {
        let said = answer();
        assert!(said.starts_with("ok "), "{}: kernels: {said:?}", load.pod);
        if over.load(Ordering::Relaxed) {
            break;
        }
        tell.write_all(second.as_bytes()).unwrap();
    }
    drop(tell);
    program.wait().unwrap();
}

/// Busy time of every tenant of every card, by the MiB it allocated.
pub(crate) fn busy(site: &Site) -> BTreeMap<u64, Duration> {
    let machine = Machine::open(&site.on_node("/run/fake-gpu"), None).unwrap();
    let cards = 0..machine.spec.cards.len();
    let tenants = cards.flat_map(|card| machine.tenants(Unit::card(card)));
    tenants.map(|t| (t.used.saturating_sub(machine.spec.context) >> 20, Duration::from_nanos(t.busy))).collect()
}

/// What the cards say about who used them for a while, in points of a card and in the order of the loads.
fn shares(site: &Site, loads: &[Load<'_>]) -> Vec<f64> {
    let (before, start) = (busy(site), Instant::now());
    thread::sleep(WINDOW);
    let (after, took) = (busy(site), start.elapsed());
    let of = |l: &Load<'_>| 100.0 * (after[&l.mark] - before[&l.mark]).as_secs_f64() / took.as_secs_f64();
    loads.iter().map(of).collect()
}

/// Reads shares until they are as they should be, and fails with what it read when they never are.
pub(crate) fn await_shares(
    what: &str,
    site: &Site,
    loads: &[Load<'_>],
    held: impl Fn(&[f64]) -> Result<(), String>,
) -> Vec<f64> {
    let mut seen = Vec::new();
    for _ in 0..WINDOWS {
        let shares = shares(site, loads);
        println!("{what}: {shares:.1?}");
        match held(&shares) {
            Ok(()) => return shares,
            Err(why) => seen.push(why),
        }
    }
    panic!("{what}: not in {WINDOWS} windows of {WINDOW:?}: {seen:#?}");
}
