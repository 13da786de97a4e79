use std::path::Path;
use std::time::{Duration, Instant};

use divvy_shm::clock::monotonic_ns;
use divvy_shm::gate::Controller;
use divvy_shm::ledger::{Newcomer, ProcessId, StreamId};
use divvy_shm::map::Guarded;
use divvy_shm::{ContainerConfig, DeviceConfig, GateWriter, Ledger, LedgerFile};

use super::*;
use crate::nonsense::{Nonsense, Socket};

/// A container whose program is played by the test, and whose card completes what its gate lets through.
pub(super) struct Played {
    gate: GateWriter,
    ledger: Guarded<Ledger>,
    streams: Vec<StreamId>,
    process: ProcessId,
    busy_us: u64,
}

pub(super) fn played(dir: &Path, cards: &[&str], request: u32, limit: u32) -> Played {
    std::fs::create_dir_all(dir).unwrap();
    let device = |id: &&str| DeviceConfig {
        id: (*id).into(),
        share_request: request,
        share_limit: limit,
        gated: true,
        ..DeviceConfig::default()
    };
    let config =
        ContainerConfig { name: "t".into(), devices: cards.iter().map(device).collect(), ..Default::default() };
    let gate = GateWriter::create(dir, &config).unwrap();
    let ledger = LedgerFile::create(dir, cards.len()).unwrap();
    let process = ledger
        .claim_process(&Newcomer { pid: std::process::id(), token: 1, name: "played", ..Default::default() })
        .unwrap();
    let streams = (0..cards.len()).map(|card| ledger.claim_stream(process, card).unwrap()).collect();
    Played { gate, ledger, streams, process, busy_us: 0 }
}

impl Played {
    /// Has two chunks of work on a card at all times.
    fn submit(&self, card: usize) {
        let marks = self.ledger.marks(self.streams[card]).unwrap();
        while marks.queued() < 2 {
            let before = marks.submit(1);
            marks.end(before.wrapping_add(1));
        }
    }

    /// The GPU finishes one unit.
    fn complete(&self, card: usize) {
        let marks = self.ledger.marks(self.streams[card]).unwrap();
        marks.complete(marks.completed().wrapping_add(1));
    }

    fn is_open(&self, card: usize) -> bool {
        self.gate.gate(card).unwrap().is_open()
    }
}

fn wait_for(what: &str, mut true_now: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !true_now() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Everything here runs on wall time. A busy machine takes time away from the arbiter and from the card that is played, so what a
/// window shows is measured again until it is as it should be, or patience ends.
fn comes_to(what: &str, wanted: std::ops::Range<u64>, mut measured: impl FnMut() -> u64) {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.last().is_none_or(|last| !wanted.contains(last)) {
        assert!(Instant::now() < deadline, "{what}: wanted {wanted:?}, had {all:?}");
        all.push(measured());
    }
}

const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn container(root: &Path, name: &str) -> Container {
    Container { name: name.into(), dir: root.join(name), is_init: false }
}

/// A card that runs whoever is open, a millisecond per unit; ends after `time`.
fn play(tenants: &mut [Played], time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        for t in tenants.iter() {
            t.submit(0);
        }
        if let Some(t) = tenants.iter_mut().find(|t| t.is_open(0)) {
            let began = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            t.complete(0);
            t.busy_us += began.elapsed().as_micros() as u64;
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[test]
fn turns_are_given_by_request_and_a_changed_grant_holds_at_once() {
    let root = tempfile::tempdir().unwrap();
    let mut tenants =
        [played(&root.path().join("a"), &["one"], 300, 1000), played(&root.path().join("b"), &["one"], 700, 1000)];
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    arbiter.set_containers(&[container(root.path(), "a"), container(root.path(), "b")]);
    let shares = |tenants: &mut [Played; 2]| {
        tenants.iter_mut().for_each(|t| t.busy_us = 0);
        play(tenants, Duration::from_millis(1000));
        tenants[0].busy_us * 1000 / (tenants[0].busy_us + tenants[1].busy_us).max(1)
    };
    comes_to("asked 300", 230..370, || shares(&mut tenants));
    for (tenant, request) in tenants.iter().zip([800, 200]) {
        let (_, mut config) = tenant.gate.config();
        config.devices[0].share_request = request;
        tenant.gate.set_config(&config).unwrap();
    }
    comes_to("asked 800", 720..880, || shares(&mut tenants));
    let accounts = arbiter.accounts().all();
    let busy = |name: &str| accounts[&(name.to_owned(), "one".to_owned())].busy_ns;
    assert!(busy("a") > 500_000_000 && busy("b") > 300_000_000, "{accounts:?}");
    let in_the_file = tenants[0].gate.gate(0).unwrap().booked().busy_ns;
    assert!(in_the_file >= busy("a"), "{in_the_file} and {accounts:?}");
    let before = tenants[0].gate.gate(0).unwrap().booked().busy_ns;
    drop(arbiter);
    assert!(tenants.iter().all(|t| t.is_open(0)), "gates are left open");

    // A restarted arbiter goes on with the same books.
    let again = Arbiter::new(Settings::default());
    again.set_containers(&[container(root.path(), "a")]);
    wait_for("the books go on", || {
        again.accounts().all().get(&("a".into(), "one".into())).is_some_and(|a| a.busy_ns >= before)
    });
}

#[test]
fn a_lone_tenant_keeps_to_its_limit_and_an_idle_arbiter_beats() {
    let root = tempfile::tempdir().unwrap();
    let mut tenants = [played(&root.path().join("a"), &["one"], 250, 250)];
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    arbiter.set_containers(&[container(root.path(), "a")]);
    wait_for("the arbiter is in control", || tenants[0].gate.controller() == Controller::Arbiter);
    comes_to("limit 250", 200..300, || {
        tenants[0].busy_us = 0;
        let began = Instant::now();
        play(&mut tenants, Duration::from_millis(1500));
        tenants[0].busy_us * 1000 / began.elapsed().as_micros() as u64
    });
    tenants[0].ledger.marks(tenants[0].streams[0]).unwrap().write_off();
    let beat = tenants[0].gate.arbiter_beat();
    wait_for("a heartbeat while idle", || tenants[0].gate.arbiter_beat() > beat);
    wait_for("an idle tenant's gate is open", || tenants[0].is_open(0));
}

fn truncate_ledger(dir: &Path) {
    let ledger = std::fs::OpenOptions::new().write(true).open(dir.join(divvy_shm::place::LEDGER));
    ledger.unwrap().set_len(0).unwrap();
}

/// Two tenants, the first of which damages its ledger once the arbiter watches it, or before.
fn with_a_truncated_ledger(watched_before: bool) {
    let root = tempfile::tempdir().unwrap();
    let tenants =
        [played(&root.path().join("a"), &["one"], 300, 1000), played(&root.path().join("b"), &["one"], 700, 1000)];
    if !watched_before {
        truncate_ledger(&root.path().join("a"));
    }
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    arbiter.set_containers(&[container(root.path(), "a"), container(root.path(), "b")]);
    let account = || arbiter.accounts().all().remove(&("a".into(), "one".into()));
    if watched_before {
        wait_for("it is watched", || account().is_some_and(|a| !a.broken));
        truncate_ledger(&root.path().join("a"));
    }
    wait_for("it is told", || account().is_some_and(|a| a.broken));
    comes_to("open by request", 200..400, || {
        let (mut open, mut looks) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1000) {
            tenants[1].submit(0);
            tenants[1].complete(0);
            open += u64::from(tenants[0].is_open(0));
            looks += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        open * 1000 / looks
    });
    wait_for("the neighbour has the card", || tenants[1].is_open(0));

    // Its next start gets a new one, and it is watched again.
    let ledger = LedgerFile::create(&root.path().join("a"), 1).unwrap();
    wait_for("it is mended", || account().is_some_and(|a| !a.broken));
    drop(ledger);
}

#[test]
fn a_tenant_that_truncates_its_ledger_keeps_its_request_and_its_neighbour_the_rest() {
    with_a_truncated_ledger(true);
}

#[test]
fn a_ledger_that_was_truncated_before_the_arbiter_came_is_as_broken() {
    with_a_truncated_ledger(false);
}

#[test]
fn a_tenant_whose_gate_is_truncated_takes_neither_the_arbiter_nor_its_neighbour_with_it() {
    let root = tempfile::tempdir().unwrap();
    let tenants =
        [played(&root.path().join("a"), &["one"], 300, 1000), played(&root.path().join("b"), &["one"], 700, 1000)];
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    arbiter.set_containers(&[container(root.path(), "a"), container(root.path(), "b")]);
    let account = || arbiter.accounts().all().remove(&("a".into(), "one".into()));
    wait_for("it is watched", || account().is_some_and(|a| !a.broken));
    let gate = std::fs::OpenOptions::new().write(true).open(root.path().join("a").join(divvy_shm::place::GATE));
    gate.unwrap().set_len(0).unwrap();
    wait_for("it is told", || account().is_some_and(|a| a.broken));
    wait_for("the neighbour has the card", || {
        tenants[1].submit(0);
        tenants[1].is_open(0)
    });
    // Its next start gets a new page, and it is arbitrated again.
    let again = played(&root.path().join("a"), &["one"], 300, 1000);
    wait_for("it is mended", || account().is_some_and(|a| !a.broken));
    wait_for("its new page is in use", || again.gate.controller() == Controller::Arbiter && again.is_open(0));
}

#[test]
fn gm_24_a_container_that_is_gone_leaves_no_record_and_its_gate_open() {
    let root = tempfile::tempdir().unwrap();
    let tenants =
        [played(&root.path().join("a"), &["one"], 300, 1000), played(&root.path().join("b"), &["one"], 700, 1000)];
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    let all = [container(root.path(), "a"), container(root.path(), "b")];
    arbiter.set_containers(&all);
    for tenant in &tenants {
        tenant.submit(0);
    }
    wait_for("both have accounts", || arbiter.accounts().all().len() == 2);
    wait_for("one of them waits", || tenants.iter().any(|t| !t.is_open(0)));
    arbiter.set_containers(&all[1..]);
    wait_for("only one is left", || arbiter.accounts().all().keys().all(|(name, _)| name == "b"));
    wait_for("nobody is held for a neighbour that is gone", || tenants.iter().all(|t| t.is_open(0)));
    let accounts = arbiter.accounts();
    drop(arbiter);
    assert!(accounts.all().keys().all(|(name, _)| name == "b"), "nor does its record come back: {accounts:?}");
}

#[test]
fn a_gang_moves_all_its_gates_together() {
    let root = tempfile::tempdir().unwrap();
    let gang = played(&root.path().join("g"), &["one", "two"], 500, 1000);
    let other = played(&root.path().join("o"), &["two"], 500, 1000);
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    arbiter.set_containers(&[container(root.path(), "g"), container(root.path(), "o")]);
    let (mut gang_had, mut other_had, mut looks, mut split) = (0, 0, 0, 0);
    let deadline = Instant::now() + PATIENCE;
    while gang_had < 200 || other_had < 200 {
        assert!(Instant::now() < deadline, "both run: {gang_had} and {other_had}");
        gang.submit(0);
        gang.submit(1);
        other.submit(0);
        looks += 1;
        split += u32::from(gang.is_open(0) != gang.is_open(1));
        std::thread::sleep(Duration::from_millis(1));
        if gang.is_open(0) {
            gang.complete(0);
            gang.complete(1);
            gang_had += 1;
        } else if other.is_open(0) {
            other.complete(0);
            other_had += 1;
        }
    }
    // A look may fall between two stores of the arbiter. Gates that moved by themselves would differ half of the time, for the
    // gang is alone on its other card.
    assert!(split * 10 < looks, "{split} of {looks} looks");
}

#[test]
fn what_a_dead_process_left_is_given_back_and_a_living_one_is_known() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a");
    let tenant = played(&dir, &["one"], 300, 1000);
    let registry = registry::Registry::start(vec![(dir.clone(), dir.clone())], Nonsense::default()).unwrap();
    // The child dies without a word.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let namespace = registry::namespace("/proc/self/ns/pid");
    let who = Newcomer { pid: child.id(), namespace, token: 7, name: "sleep", ..Default::default() };
    let id = tenant.ledger.claim_process(&who).unwrap();
    let stream = tenant.ledger.claim_stream(id, 0).unwrap();
    tenant.ledger.marks(stream).unwrap().submit(3);
    wait_for("the child is identified", || tenant.ledger.process(id).is_some_and(|p| p.host_pid == child.id()));
    assert_eq!(tenant.ledger.backlog(0).filling, 3);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the child is reaped", || tenant.ledger.process(id).is_none());
    assert_eq!(tenant.ledger.backlog(0).filling, 0);
    assert!(tenant.ledger.process(tenant.process).is_some(), "we are alive");
    drop(registry);
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn a_tenant_that_scribbles_over_its_ledger_takes_nothing_from_its_neighbour_and_nobody_down() {
    use std::os::unix::fs::FileExt;
    let root = tempfile::tempdir().unwrap();
    let mut tenants =
        [played(&root.path().join("a"), &["one"], 300, 1000), played(&root.path().join("b"), &["one"], 700, 1000)];
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    let all = [container(root.path(), "a"), container(root.path(), "b")];
    arbiter.set_containers(&all);
    let dirs = all.iter().map(|c| (c.dir.clone(), c.dir.clone())).collect();
    let registry = registry::Registry::start(dirs, Nonsense::default()).unwrap();
    let mut audit = audit::Audit::default();
    let ledger = std::fs::OpenOptions::new().write(true).open(all[0].dir.join(divvy_shm::place::LEDGER)).unwrap();
    let length = ledger.metadata().unwrap().len();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    comes_to("the neighbour's part of the time", 550..1001, || {
        let (start, mut had, mut time) = (Instant::now(), 0, 0);
        while start.elapsed() < Duration::from_millis(700) {
            for _ in 0..200 {
                let reach = if numbers.next().is_multiple_of(2) { length } else { 600 << 10 };
                let word = if numbers.next().is_multiple_of(4) { u64::MAX } else { numbers.next() };
                ledger.write_all_at(&word.to_le_bytes(), numbers.next() % (reach - 8)).unwrap();
            }
            let dirs: Vec<_> = all.iter().map(|c| c.dir.clone()).collect();
            audit.look(&dirs, Vec::new, |_| audit::Whose::Stranger);
            tenants[1].submit(0);
            let began = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            let passed = began.elapsed().as_micros() as u64;
            time += passed;
            if tenants[1].is_open(0) {
                tenants[1].complete(0);
                had += passed;
            }
        }
        had * 1000 / time.max(1)
    });
    let beat = tenants[1].gate.arbiter_beat();
    wait_for("the arbiter lives", || tenants[1].gate.arbiter_beat() > beat);
    // Nobody reads nonsense out of the neighbour's books.
    tenants[1].busy_us = 0;
    assert!(arbiter.accounts().all()[&("b".to_owned(), "one".to_owned())].memory == 0);
    drop(registry);
}

#[test]
fn random_bytes_at_the_socket_are_counted_and_harm_nobody() {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with};
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a");
    let tenant = played(&dir, &["one"], 300, 1000);
    let nonsense = Nonsense::default();
    let registry = registry::Registry::start(vec![(dir.clone(), dir.clone())], nonsense.clone()).unwrap();
    let address = rustix::net::SocketAddrUnix::new(dir.join(divvy_shm::place::SOCKET)).unwrap();
    let call = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &address).map(|()| socket)
    };
    let mut numbers = Numbers(1);
    let mut kept = Vec::new();
    for round in 0..2000u32 {
        // Its queue may be full for a moment.
        let Ok(socket) = call() else { continue };
        let length = (numbers.next() % 6000) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
        if round % 2 == 0 && length >= 12 {
            // The beginning of a message, and nonsense behind it.
            let mut frame = [0u8; divvy_shm::frame::MAX_FRAME];
            divvy_shm::frame::Message::Query { device: numbers.next() as u32, from: 0 }.encode(&mut frame);
            bytes[..8].copy_from_slice(&frame[..8]);
            bytes[4] = (numbers.next() % 7) as u8;
        }
        let _ = send(&socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        if numbers.next().is_multiple_of(8) {
            kept.push(socket); // and says nothing more
        }
    }
    // The process that introduces itself as it should is heard, once those that say nothing have been sent away, and its container may
    // say something again. It tries again as the library does.
    let hello = divvy_shm::frame::Message::Hello(divvy_shm::frame::Hello {
        slot: tenant.process.slot() as u32,
        pid: std::process::id(),
        generation: tenant.process.generation(),
        token: 1,
        layout: 1,
    });
    wait_for("it is heard", || {
        let mut frame = [0u8; divvy_shm::frame::MAX_FRAME];
        let length = hello.encode(&mut frame);
        let Ok(socket) = call() else { return false };
        let said = send(&socket, &frame[..length], SendFlags::NOSIGNAL);
        let heard = said.and_then(|_| recv(&socket, &mut frame, rustix::net::RecvFlags::empty()));
        let Ok((_, heard @ 1..)) = heard else { return false };
        match divvy_shm::frame::Message::decode(&frame[..heard]).unwrap() {
            divvy_shm::frame::Message::Welcome(welcome) => {
                assert_eq!((welcome.refused, welcome.host_pid), (0, std::process::id()));
                true
            }
            other => panic!("{other:?}"),
        }
    });
    assert!(nonsense.count(Socket::Agent) > 100, "{nonsense:?}");
    drop((kept, registry));
}

#[test]
fn a_lone_tenant_has_used_what_its_card_says_and_is_told_so_late() {
    let root = tempfile::tempdir().unwrap();
    let tenant = played(&root.path().join("a"), &["one"], 500, 1000);
    let arbiter = Arbiter::new(Settings { spin: false, ..Settings::default() });
    arbiter.set_containers(&[container(root.path(), "a")]);
    let account = || arbiter.accounts().all().remove(&("a".into(), "one".into())).unwrap_or_default();
    // The card has worked for a tenth of its time, whatever anybody thinks.
    let mut told = monotonic_ns();
    let mut say = || {
        let now = monotonic_ns();
        let period = Period { begin: told, end: now, worked: (now - told) / 10 };
        arbiter.hear(&BTreeMap::from([("one".to_owned(), vec![period])]));
        told = now;
    };
    comes_to("thousandths of the time that it is told", 50..143, || {
        let (before, begun) = (account().busy_ns, monotonic_ns());
        while monotonic_ns() - begun <= 2_000_000_000 {
            for _ in 0..50 {
                tenant.submit(0);
                std::thread::sleep(Duration::from_millis(1));
                tenant.complete(0);
            }
            say();
        }
        (account().busy_ns - before) * 1000 / (monotonic_ns() - begun)
    });
    let busy = account().busy_ns;
    wait_for("nobody is waited for", || account().behind_ns < 50_000_000);
    // A container that goes takes what is not told yet into its books, as charged.
    tenant.submit(0);
    tenant.complete(0);
    arbiter.set_containers(&[]);
    let booked = tenant.gate.gate(0).unwrap().booked().busy_ns;
    assert!(booked >= busy, "{booked} and {busy}");
}
