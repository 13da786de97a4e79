//! The library as it ships: what it needs, what it exports, and that nothing in the tables was forgotten.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{library, run, table};

fn readelf(what: &str) -> String {
    run(Command::new("readelf").args(["--wide", what]).arg(library()))
}

#[test]
fn it_needs_the_c_library_and_nothing_else() {
    let dynamic = readelf("--dynamic");
    let needed: Vec<&str> =
        dynamic.lines().filter(|l| l.contains("(NEEDED)")).filter_map(|l| l.split(['[', ']']).nth(1)).collect();
    assert_eq!(needed, ["libc.so.6"], "a library that an image does not have makes every program in it fail to start");
    // What the compiler's own start files put there, and nothing of ours.
    let constructors = dynamic.lines().find(|l| l.contains("(INIT_ARRAYSZ)")).and_then(|l| l.split_whitespace().nth(2));
    assert_eq!(constructors, Some("8"), "a constructor runs in every process of a container");
}

#[test]
fn it_runs_on_every_glibc_since_2_17() {
    let versions = readelf("--version-info");
    let newer: BTreeSet<&str> = versions
        .split_whitespace()
        .filter_map(|w| w.strip_prefix("GLIBC_").or_else(|| w.strip_prefix("(GLIBC_")).map(|v| v.trim_end_matches(')')))
        .filter(|v| {
            let mut parts = v.split('.').map(|p| p.parse::<u32>().unwrap_or(u32::MAX));
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) > (2, 17)
        })
        .collect();
    assert!(newer.is_empty() && versions.contains("GLIBC_2"), "needs {newer:?}");
}

#[test]
fn it_exports_what_the_tables_have_and_the_two_ways_to_look_things_up() {
    let known: BTreeSet<String> =
        table("cuda.tsv").into_iter().chain(table("nvml.tsv")).map(|r| r[0].clone()).collect();
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let exported: BTreeSet<&str> = names.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    let foreign: Vec<&&str> =
        exported.iter().filter(|n| !known.contains(**n) && !["dlsym", "dlvsym"].contains(*n)).collect();
    assert!(foreign.is_empty(), "exported by accident: {foreign:?}");
    assert!(
        exported.contains("dlsym") && exported.contains("dlvsym") && exported.len() > 300,
        "{} exports",
        exported.len()
    );
}

#[test]
fn every_symbol_that_could_matter_is_hooked_or_passed_on_with_a_reason() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks.tsv")).unwrap();
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(|l| l.split('\t').collect()).collect();
    let without_reason: Vec<_> =
        rows.iter().filter(|r| r[0] == "pass" && r.get(2).is_none_or(|why| why.len() < 5)).collect();
    assert!(without_reason.is_empty(), "passed on without a reason: {without_reason:?}");
    let planned: BTreeSet<&str> = rows.iter().flat_map(|r| r[1].split_whitespace()).collect();

    let guarded = ["cuMem", "cuLaunch", "cuGraph", "cuArray", "cuMipmapped", "cuMulticast"];
    let mut open = Vec::new();
    for row in table("cuda.tsv") {
        let (name, class) = (row[0].as_str(), row[4].as_str());
        let classified = ["L", "M", "H", "O", "C", "X", "S", "V", "-"].contains(&class);
        if !classified && guarded.iter().any(|prefix| name.starts_with(prefix)) {
            open.push(format!("{name} has no class"));
        }
        if !["-", "O"].contains(&class) && !planned.contains(name) {
            open.push(format!("{name} of class {class} is not in hooks.tsv"));
        }
    }
    for row in table("nvml.tsv") {
        let (name, action) = (row[0].as_str(), row[1].as_str());
        if !["pass", "deny"].contains(&action) && !planned.contains(name) {
            open.push(format!("{name} ({action}) is not in hooks.tsv"));
        }
    }
    assert!(open.is_empty(), "{}", open.join("\n"));
}

#[test]
fn a_process_without_cuda_gets_no_descriptor_no_thread_and_no_pages_of_ours() {
    let container = common::Container::new(vec![common::device([0; 16], 1 << 30)]);
    let script = "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l; grep -c libdivvy /proc/self/maps || true; grep -c 'run/divvy\\|/gate\\|/ledger' /proc/self/maps || true";
    let with = run(container
        .command("sh", Path::new("/"))
        .args(["-c", script])
        .stdin(std::process::Stdio::null())
        .env("LC_ALL", "C"));
    let without = run(Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::null()).env("LC_ALL", "C"));
    let numbers = |text: &str| text.lines().map(|l| l.trim().parse::<u32>().unwrap()).collect::<Vec<_>>();
    let (with, without) = (numbers(&with), numbers(&without));
    assert_eq!(with[..2], without[..2], "descriptors and threads");
    assert!(with[2] > 0, "the library is loaded");
    assert_eq!(with[3], 0, "the shared files are not mapped");
}
