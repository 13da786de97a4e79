//! Many processes of one container: started at once, killed at any moment, and never with more memory than they may have.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::fake::{Machine, kit};
use common::{Container, Running, run};
use divvy_shm::LedgerFile;
use divvy_shm::ledger::{Kind, Newcomer};

const GIB: u64 = 1 << 30;

/// Starts a program that says "begun" when it has.
fn begun(machine: &Machine, container: &Container) -> Running {
    let mut child = machine.inside(container, kit("storm")).arg("120").stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("says something");
    assert_eq!(line.trim(), "begun");
    Running(child)
}

#[test]
fn processes_killed_in_the_middle_of_an_allocation_storm_leave_nothing_behind() {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, GIB)]);
    let mut storm: Vec<Running> = (0..4).map(|_| begun(&machine, &container)).collect();
    let mut most = 0;
    for round in 0..100 {
        let victim = round % storm.len();
        storm.remove(victim).end();
        storm.push(begun(&machine, &container));
        let used = container.ledger.used(0);
        // A charge that is taken back again may be seen for a moment, never one that stays.
        assert!(used <= GIB + 4 * (13 << 20), "{used} of {GIB} in round {round}");
        most = most.max(used);
    }
    assert!(most > GIB / 2, "the storm was a breeze: {most}");
    drop(storm);
    // Nobody but the processes themselves keeps the books here: the next one puts them right, and gets everything.
    let said = run(machine.inside(&container, kit("limit")).arg("plain"));
    assert!(said.contains("plain: 1024 MiB") && said.contains(", 0 wrong"), "{said}");
    let left: Vec<_> = container.ledger.processes().collect();
    assert!(left.len() <= 1, "only the last one has not been seen dead yet: {left:?}");
}

#[test]
fn what_a_process_left_that_was_killed_while_it_gave_back_the_memory_of_another_is_given_back() {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, GIB)]);
    let id = container.ledger.claim_process(&Newcomer { pid: 4_000_000, ..Newcomer::default() }).expect("a slot");
    container.ledger.charge(id, 0, Kind::Linear, GIB / 2, GIB).expect("room");
    let reaper = LedgerFile::reaper(container.dir.path()).expect("nobody else is at it");
    assert!(container.ledger.begin_reaping(&reaper, id));
    // Killed here; the kernel takes the right from it.
    drop(reaper);
    let said = run(machine.inside(&container, kit("limit")).arg("plain"));
    assert!(said.contains("plain: 1024 MiB") && said.contains(", 0 wrong"), "{said}");
}

#[test]
fn three_hundred_processes_start_at_once_and_all_are_accounted_for() {
    // Three hundred contexts of 518 MiB do not fit on the card as it is sold.
    let machine = Machine::new("H200 memory=200GiB");
    let container = Container::new(vec![machine.slice(0, 10 * GIB)]);
    let crowd = kit("crowd");
    let start = |_| machine.inside(&container, &crowd).arg("2").stdout(Stdio::piped()).spawn().expect("starts");
    let mut children: Vec<Running> = (0..300).map(|i| Running(start(i))).collect();
    let mut peak = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut ended = vec![false; children.len()];
    while ended.iter().any(|e| !e) {
        assert!(Instant::now() < deadline, "{} still run", ended.iter().filter(|e| !**e).count());
        peak = peak.max(container.ledger.processes().count());
        for (child, ended) in children.iter_mut().zip(&mut ended) {
            if !*ended && let Some(status) = child.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                *ended = true;
            }
        }
        std::thread::yield_now();
    }
    let mut slowest: f64 = 0.0;
    for child in &mut children {
        let mut said = String::new();
        child.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let (status, took) = said.trim().split_once(' ').unwrap();
        assert_eq!(status, "0", "an allocation was refused");
        slowest = slowest.max(took.parse().unwrap());
    }
    println!("{peak} slots at once, slowest first allocation {slowest:.3} s");
    assert!(container.ledger.peak(0) <= 10 * GIB);
    assert_eq!(container.ledger.refused(0), 0);
}
