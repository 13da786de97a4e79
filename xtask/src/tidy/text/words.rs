//! Words that may stand in few places, or in none.

use crate::tidy::source::{Kind, pieces, shipped};
use crate::tidy::{File, files, none, rust_files};

/// Where `unsafe` may be written.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/shm/", "the pages between agent and library are memory that other processes write"),
    ("crates/hook/", "it is a C library inside other people's processes"),
    ("crates/fakedriver", "it is a C library that programs load in place of the driver"),
];

/// The one file that spells names of labels, annotations and resources.
const KEYS: &str = "crates/core/src/keys.rs";

/// Domains of those names, ours and foreign.
const DOMAINS: &[&str] = &[
    "divvy.dev/",
    "sharedgpu/",
    "tencent.com/",
    "aliyun.com/",
    "nvidia.com/",
    "KubeDevice/",
    "4pd.io/",
    "hami.io/",
    "cambricon.com/",
];

/// Files that must spell a name although they are not the one.
const SPELLED_ELSEWHERE: &[(&str, &str)] =
    &[("crates/api/src/policy/spec.rs", "the attribute of a derive takes literals, not constants")];

#[test]
fn unsafe_is_written_only_where_it_is_listed() {
    let mut broken = Vec::new();
    let mut stale: Vec<&str> = UNSAFE.iter().map(|(place, _)| *place).collect();
    for file in rust_files() {
        if let Some((place, _)) = UNSAFE.iter().find(|(place, _)| file.path.starts_with(place)) {
            stale.retain(|listed| listed != place || !file.text.contains("unsafe"));
            continue;
        }
        for piece in pieces(&file.text).iter().filter(|piece| piece.kind == Kind::Code) {
            let words = piece.text.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.into_iter().any(|word| word == "unsafe") {
                broken.push(format!("{}:{}", file.path, piece.line));
            }
        }
    }
    broken.extend(stale.iter().map(|place| format!("{place} is listed in UNSAFE, and nothing there is")));
    none(
        &broken,
        "Find a safe way (rustix, std), move it into one of the crates in UNSAFE, or list the file there with a reason.",
    );
}

#[test]
fn names_of_labels_annotations_and_resources_are_spelled_in_one_file() {
    let mut broken = Vec::new();
    for file in rust_files() {
        let excepted = SPELLED_ELSEWHERE.iter().any(|(path, _)| *path == file.path);
        // This file names the domains to look for.
        if file.path == KEYS || file.is_test() || excepted || file.ends_with("tidy/text/words.rs") {
            continue;
        }
        for piece in pieces(shipped(&file.text)).iter().filter(|piece| piece.kind == Kind::String) {
            broken.extend(
                DOMAINS
                    .iter()
                    .filter(|domain| piece.text.contains(**domain))
                    .map(|domain| format!("{}:{}: {domain}...", file.path, piece.line)),
            );
        }
    }
    none(&broken, &format!("Add a constant to {KEYS} and use it."));
}

#[test]
fn no_test_is_skipped_and_nothing_is_left_to_do() {
    // Put together here, so that this file does not find itself.
    let banned = [["#[", "ignore"].concat(), ["todo", "!("].concat(), ["unimplemented", "!("].concat()];
    let mut broken = Vec::new();
    for file in rust_files() {
        for piece in pieces(&file.text).iter().filter(|piece| piece.kind == Kind::Code) {
            broken.extend(
                banned
                    .iter()
                    .filter(|banned| piece.text.contains(banned.as_str()))
                    .map(|banned| format!("{}:{}: {banned}", file.path, piece.line)),
            );
        }
    }
    none(&broken, "A test runs or is deleted; a feature is there or is not promised.");
}

#[test]
fn no_file_speaks_of_the_machine_it_was_written_on() {
    let places = ["/work/", "/root/", "/tmp/k8s", "/home/"];
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| speaks(file)) {
        for (number, line) in file.text.lines().enumerate() {
            for place in places {
                // `/proc/1/root/run` is a path too, but not of somebody's home.
                let alone = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "}/_-.*$".contains(c));
                if line.match_indices(place).any(|(at, _)| alone(at)) {
                    broken.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                }
            }
        }
    }
    none(&broken, "Paths are given by arguments, or found from CARGO_MANIFEST_DIR, HOME or a temporary folder.");
}

/// Not lists of hashes, in which anything may stand, not this file, and not the manifest that KubeShare's README has so.
fn speaks(file: &File) -> bool {
    !["go.sum", "Cargo.lock", "tidy/text/words.rs", "examples/kubeshare/job.yaml"].iter().any(|end| file.ends_with(end))
}
