//! The conformance program `tests/gpu/conform.c`, which also runs on a real card.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Host, target_dir};

/// What the program says on the fake driver. It is run once for all tests.
fn said() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(run)
}

fn run() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = target_dir().join("fake-driver-conform");
    let built = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(root.join("tests/gpu/conform.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(built.success(), "conform.c does not compile");
    let host = Host::new("1xH200");
    let output = host.command(&program).arg(root.join("tables/cuda.tsv")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_symbol_of_memory_compute_and_lookup_is_called_and_none_crashes() {
    let said = said();
    let bad: Vec<&str> =
        said.lines().filter(|l| l.ends_with("crash") || l.ends_with("hang") || l.starts_with("section")).collect();
    assert!(bad.is_empty(), "{bad:?}");
    let table = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tables/cuda.tsv")).unwrap();
    let guarded = table
        .lines()
        .map(|l| l.split('\t').collect::<Vec<_>>())
        .filter(|c| c.len() > 4 && ["M", "C", "L"].contains(&c[4]));
    let called: BTreeSet<&str> = said
        .lines()
        .filter(|l| !l.ends_with("all-null"))
        .filter_map(|l| l.trim_start_matches('~').split(' ').next())
        .collect();
    let missing: Vec<String> = guarded.map(|c| c[0].to_owned()).filter(|s| !called.contains(s.as_str())).collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
    let calls: u32 =
        said.lines().filter_map(|l| l.strip_prefix("# ")?.strip_suffix(" calls")?.parse::<u32>().ok()).sum();
    println!("{calls} calls");
    assert!(calls > 2500);
}

#[test]
fn every_name_version_and_flag_reaches_the_symbol_of_the_table() {
    let said = said();
    let mut rows = 0;
    for line in said.lines().filter_map(|l| l.strip_prefix("lookup ")) {
        let (what, answer) = line.split_once(" = ").unwrap();
        let (name, rest) = what.split_once('@').unwrap();
        let stream = rest.split_once('/').unwrap().1;
        let found: Vec<&str> = answer.split(' ').collect();
        assert_eq!(found[0], "exported", "{line}");
        assert_eq!(found[1], found[2], "flags 0 and 1 mean the same: {line}");
        let variant = format!("_{stream}");
        assert!(found[1..].iter().all(|f| f.starts_with(name)), "{line}");
        assert!(stream == "-" || found[3].ends_with(&variant), "flag 2 gives the per-thread variant: {line}");
        rows += 1;
    }
    assert_eq!(rows, 672);
}
