//! The conformance program `tests/gpu/conform.c`, which also runs on a real card.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Host, target_dir};

/// What the program says on the fake driver. It is run once for all tests.
fn said() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| run("1xH200"))
}

fn run(spec: &str) -> String {
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
    let host = Host::new(spec);
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
        // A name with variants per thread has none before they came.
        let before = found[3] == "none" && rest.split_once('/').unwrap().0.parse::<u32>().unwrap() < 7000;
        assert!(found[1..3].iter().all(|f| f.starts_with(name)) && (before || found[3].starts_with(name)), "{line}");
        assert!(stream == "-" || found[3].ends_with(&variant), "flag 2 gives the per-thread variant: {line}");
        rows += 1;
    }
    assert_eq!(rows, 672);
}

/// What others build on: charges, refusals and order.
const PROMISED: &[&str] = &[
    "cuMemAlloc_v2 one-byte = 0 aligned512=1 took=2097152",
    "cuMemAlloc_v2 3MiB = 0 took=4194304 aligned2M=1",
    "cuMemAlloc_v2 too-much = 2",
    "cuMemAllocAsync 1MiB = 0 took=33554432",
    "cuMemPoolGetAttribute reserved-synchronized = 0 0",
    "cuMemPoolGetAttribute reserved-kept = 0 134217728",
    "cuMemAllocFromPoolAsync second-200MiB = 2",
    "cuMemCreate 64MiB = 0 took=67108864",
    "cuMemRelease retain = 0 freed=0",
    "cuMemUnmap one = 0 freed=0",
    "cuMemUnmap other = 0 freed=67108864",
    "cuMemImportFromShareableHandle itself = 0 took=0",
    "cuMemcpyDtoH_v2 alias = 0 7",
    "cuIpcOpenMemHandle_v2 child = 0 took=0",
    "cuMemcpyDtoH_v2 written-by-child = 0 66",
    "cuDeviceGetGraphMemAttribute reserved-after = 0 67108864",
    "cuGraphAddMemAllocNode too-much = 2",
    "cuStreamSynchronize after-bad-write = 719",
    "cuCtxSynchronize broken-context = 719",
    "cuMemAlloc_v2 in-global-capture = 900",
    "cuStreamEndCapture spoiled = 901 0",
    "cuGraphGetNodes fork-join = 0 2",
    "legacy waits for blocking = 1",
    "legacy waits for non-blocking = 0",
    "streams overlap = 1",
    "cuEventElapsedTime 20ms = 0 right=1",
];

#[test]
fn charges_refusals_and_order_are_as_promised() {
    let lines: BTreeSet<&str> = said().lines().collect();
    let broken: Vec<&&str> = PROMISED.iter().filter(|p| !lines.contains(**p)).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

/// Compares what a card said with what we say, line by line: how many lines were compared, and how they differ. Lines that depend
/// on the machine are left out, and so are the differences that are allowed (`symbol case: reason`, one a line; `*` at the end of a case
/// stands for any).
fn compare(card: &str, ours: &str, allowed: &str) -> (usize, Vec<String>) {
    let lines = |text: &str| -> BTreeMap<String, String> {
        let facts = text.lines().filter(|l| !l.starts_with(['#', '~'])).filter_map(|l| l.split_once(" ="));
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        for (what, answer) in facts {
            // A question asked again is told apart by its turn.
            let times = (1..).find(|n| !told.contains_key(&turn(what, *n))).unwrap_or(1);
            told.insert(turn(what, times), answer.trim().to_owned());
        }
        told
    };
    let (card, ours) = (lines(card), lines(ours));
    let excused = |what: &str| {
        allowed.lines().filter_map(|l| l.split_once(": ")).any(|(known, _)| match known.strip_suffix('*') {
            Some(start) => what.starts_with(start),
            None => known == what,
        })
    };
    let mut differences = Vec::new();
    for (what, said) in &card {
        // Where the card's driver crashes there is no answer to be held to.
        if said == "crash" {
            continue;
        }
        match ours.get(what) {
            Some(answer) if answer == said || excused(what) => {}
            Some(answer) => differences.push(format!("{what}: the card {said}, we {answer}")),
            None if excused(what) => {}
            None => differences.push(format!("{what}: the card {said}, we do not ask")),
        }
    }
    (card.len(), differences)
}

fn turn(what: &str, number: u32) -> String {
    if number == 1 { what.to_owned() } else { format!("{what} ({number})") }
}

#[test]
fn comparison_finds_what_differs_and_leaves_out_what_may() {
    let card =
        "# device\n~cuDeviceGetCount plain = 0 8\ncuInit plain = 0\ncuMemAlloc_v2 zero = 1\ncuCtxGetLimit 7 = 0 64\n";
    let ours = "cuInit plain = 0\n~cuDeviceGetCount plain = 0 1\ncuMemAlloc_v2 zero = 2\ncuCtxGetLimit 7 = 215 777\n";
    let (compared, differences) = compare(card, ours, "cuCtxGet*: not simulated\n");
    assert_eq!((compared, differences), (3, vec!["cuMemAlloc_v2 zero: the card 1, we 2".to_owned()]));
}

/// A recording is made on a card by `./conform tables/cuda.tsv > tests/gpu/conform-h200.txt`; its name tells the model.
#[test]
fn answers_are_those_that_were_recorded_on_cards() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gpu");
    let allowed = std::fs::read_to_string(folder.join("conform-differences.txt")).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let model = name.strip_prefix("conform-").and_then(|n| n.strip_suffix(".txt")).filter(|m| *m != "differences");
        if let Some(model) = model {
            let card = std::fs::read_to_string(entry.path()).unwrap();
            let ours = if model == "h200" { said().to_owned() } else { run(&format!("1x{model}")) };
            let (compared, differences) = compare(&card, &ours, &allowed);
            println!("{compared} answers compared with the {model}");
            assert!(differences.is_empty(), "{model}:\n{}", differences.join("\n"));
        }
    }
}
