//! `cargo bench -p divvy-hook`: what the library adds to single calls, on a driver that takes next to no time, and to programs that
//! never see a GPU. With and without run in turns; what is shown is the least of each.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use divvy_shm::DeviceConfig;

use common::{Container, compile, device, library, root, run, scratch};

const TURNS: usize = 7;

/// What the library may add, in nanoseconds.
const PROMISES: [(&str, f64); 11] = [
    ("launch", 10.0),
    ("launch, with a compute limit", 25.0),
    ("launch, with cold caches", 25.0),
    ("alloc and free, nothing live", 200.0),
    ("alloc and free, 50000 live", 200.0),
    ("stream-ordered alloc and free", 200.0),
    ("memory info", 50.0),
    ("stream synchronize", 25.0),
    ("cuGetProcAddress", 100.0),
    ("dlsym of the driver", 2000.0),
    ("dlsym of anybody else", 3.0),
];

fn main() {
    let dir = scratch();
    let flags = ["-O2", "-Wno-missing-prototypes"];
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/null-driver.c");
    compile(
        &driver,
        &dir.path().join("libcuda.so.1"),
        &[&flags[..], &["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]].concat(),
    );
    let cost = dir.path().join("cost");
    compile(&root().join("tests/gpu/c/cost.c"), &cost, &flags);
    let memory_only = device([0x5a; 16], 10 << 30);
    let gated = DeviceConfig { gated: true, share_request: 300, share_limit: 300, ..memory_only.clone() };
    let (container, held) = (Container::new(vec![memory_only]), Container::new(vec![gated]));

    let (mut without, mut with, mut behind_gate) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for _ in 0..TURNS {
        least(&mut without, &run(Command::new(&cost).env("LD_LIBRARY_PATH", dir.path())));
        least(&mut with, &run(&mut container.command(&cost, dir.path())));
        least(&mut behind_gate, &run(&mut held.command(&cost, dir.path())));
    }
    // The same call, so the same native cost; chunk boundaries are in the mean.
    for (kept, source) in [(&mut with, behind_gate.get("launch")), (&mut without, None)] {
        let row = source.or(kept.get("launch")).copied().unwrap_or(f64::NAN);
        kept.insert("launch, with a compute limit".into(), row);
    }
    println!("{:<32} {:>10} {:>10} {:>10} {:>10}", "call, ns", "without", "with", "added", "promised");
    for (what, promise) in PROMISES {
        let (a, b) = (without.get(what).copied().unwrap_or(f64::NAN), with.get(what).copied().unwrap_or(f64::NAN));
        println!("{what:<32} {a:>10.1} {b:>10.1} {:>10.1} {promise:>10.0}", b - a);
    }

    let (mut plain, mut preloaded) = (f64::MAX, f64::MAX);
    for _ in 0..TURNS {
        plain = plain.min(starts(&mut Command::new("true")));
        preloaded = preloaded.min(starts(Command::new("true").env("LD_PRELOAD", library())));
    }
    println!("\n{:<32} {:>10} {:>10} {:>10} {:>10}", "start of a program, us", "without", "with", "added", "promised");
    println!("{:<32} {plain:>10.1} {preloaded:>10.1} {:>10.1} {:>10}", "true", preloaded - plain, 200);
}

/// Keeps the least of what each line says.
fn least(kept: &mut BTreeMap<String, f64>, said: &str) {
    for (what, value) in said.lines().filter_map(|l| l.split_once('\t')) {
        let value = value.parse().expect("a number");
        let slot = kept.entry(what.to_owned()).or_insert(f64::MAX);
        *slot = slot.min(value);
    }
}

/// Microseconds from start to end of a program, the mean of fifty.
fn starts(command: &mut Command) -> f64 {
    const TIMES: u32 = 50;
    let start = Instant::now();
    for _ in 0..TIMES {
        assert!(command.status().expect("it starts").success());
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
}
