//! Shared files that are missing, broken, foreign, or being scribbled on: a program gets an error with a reason, never a crash, and
//! never memory beyond its limit for free.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::fake::{Machine, kit};
use common::{Container, Running, outcome, run};
use divvy_shm::place;

const GIB: u64 = 1 << 30;

fn container(machine: &Machine) -> Container {
    Container::new(vec![machine.slice(0, GIB)])
}

/// What a program that wants memory says.
fn said(command: &mut Command) -> String {
    let output = outcome(command);
    assert!(output.status.code().is_some(), "killed: {}", output.status);
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn files_that_cannot_be_believed_give_no_memory_and_say_why() {
    let machine = Machine::new("H200");
    type Break = fn(&std::path::Path);
    let cases: [(&str, Break, &str); 5] = [
        (place::GATE, |p| fs::write(p, b"").unwrap(), "has 0 bytes where"),
        (place::GATE, |p| fs::write(p, vec![7; 1 << 20]).unwrap(), "does not begin like a page of Divvy's"),
        (place::LEDGER, |p| fs::write(p, b"short").unwrap(), "has 5 bytes where"),
        (place::LEDGER, |p| fs::remove_file(p).unwrap(), "cannot be mapped (error 2)"),
        (place::GATE, |p| newer(p), "newer than this version's"),
    ];
    for (file, break_it, why) in cases {
        let container = container(&machine);
        break_it(&container.dir.path().join(file));
        let said = said(&mut machine.inside(&container, kit("crowd")));
        assert!(said.contains(why) && said.contains(file), "{why}: {said}");
        // CUDA_ERROR_SYSTEM_NOT_READY
        assert!(said.contains("cuDevicePrimaryCtxRetain(&context, 0): error 802"), "{why}: {said}");
    }
}

/// A layout from the future.
fn newer(path: &std::path::Path) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("the gate is there");
    file.write_all_at(&99u32.to_le_bytes(), 8).expect("writable");
}

#[test]
fn a_folder_without_a_gate_is_no_container() {
    let machine = Machine::new("H200");
    let container = container(&machine);
    fs::remove_file(container.dir.path().join(place::GATE)).unwrap();
    let said = run(machine.inside(&container, kit("view")).arg("0").env("VIEW_WHOLE", "1"));
    assert!(said.contains("memory 0: total 15"), "the whole card: {said}");
}

#[test]
fn scribbling_over_the_ledger_crashes_nobody_and_hangs_nobody() {
    let machine = Machine::new("H200");
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let mut through = 0;
    for round in 0..10 {
        let container = container(&machine);
        let ledger = fs::OpenOptions::new().write(true).open(container.dir.path().join(place::LEDGER)).unwrap();
        let length = ledger.metadata().unwrap().len();
        let mut running: Vec<Running> = (0..3).map(|_| storm(&machine, &container, "1")).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut statuses = Vec::new();
        while statuses.len() < 3 {
            assert!(Instant::now() < deadline, "a program hangs in round {round}");
            for _ in 0..50 {
                // Anywhere, or where it hurts most: slots and cells at the beginning.
                let reach = if random() % 2 == 0 { length } else { 600 << 10 };
                let word = if random() % 4 == 0 { u64::MAX } else { random() };
                ledger.write_all_at(&word.to_le_bytes(), random() % (reach - 8)).unwrap();
            }
            statuses = running.iter_mut().filter_map(|c| c.0.try_wait().unwrap()).collect();
            std::thread::sleep(Duration::from_millis(5));
        }
        for status in statuses {
            assert!(status.code().is_some(), "killed in round {round}: {status}");
            through += u32::from(status.success());
        }
    }
    assert!(through > 0, "nobody ran for long enough to be disturbed");
}

/// A program in the middle of allocating.
fn storm(machine: &Machine, container: &Container, seconds: &str) -> Running {
    let mut command = machine.inside(container, kit("storm"));
    let mut child = command.arg(seconds).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("says something");
    assert_eq!(line.trim(), "begun");
    Running(child)
}

#[test]
fn a_gate_whose_numbers_are_nonsense_crashes_nobody() {
    let machine = Machine::new("H200");
    for seed in 1..20u64 {
        let container = container(&machine);
        let path = container.dir.path().join(place::GATE);
        let mut bytes = fs::read(&path).unwrap();
        let mut x = seed;
        for word in bytes[64..].chunks_exact_mut(8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            word.copy_from_slice(&x.to_le_bytes());
        }
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&bytes[64..], 64).unwrap();
        said(&mut machine.inside(&container, kit("crowd")));
    }
}
