//! Dependencies point inwards.

use std::collections::{BTreeMap, BTreeSet};

use super::packages::{Package, packages};
use crate::tidy::none;

/// What each of our packages may use of the others (tests of it may use more). Inner ones first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("divvy-core", &[]),
    ("divvy-limiter", &[]),
    ("divvy-dialects", &["divvy-core"]),
    ("divvy-shm", &[]),
    ("divvy-proto", &[]),
    ("divvy-api", &["divvy-core", "divvy-dialects"]),
    ("divvy-cluster", &["divvy-core", "divvy-api"]),
    ("divvy-service", &[]),
    ("divvy-scheduler", &["divvy-core", "divvy-dialects", "divvy-api", "divvy-cluster", "divvy-service"]),
    ("divvy-webhook", &["divvy-core", "divvy-dialects", "divvy-api", "divvy-cluster", "divvy-service"]),
    ("divvy-budget", &["divvy-core", "divvy-api", "divvy-cluster", "divvy-service"]),
    ("divvy-dashboard", &["divvy-core", "divvy-api", "divvy-cluster"]),
    ("divvy-sim", &["divvy-core"]),
    (
        "divvy-agent",
        &["divvy-core", "divvy-dialects", "divvy-limiter", "divvy-shm", "divvy-proto", "divvy-api", "divvy-service"],
    ),
    ("divvy-hook", &["divvy-shm"]),
    (
        "divvy-embedded",
        &["divvy-core", "divvy-limiter", "divvy-api", "divvy-cluster", "divvy-scheduler", "divvy-webhook"],
    ),
    ("divvy-fakedriver", &[]),
    ("divvy-fakedriver-cuda", &["divvy-fakedriver"]),
    ("divvy-fakedriver-nvml", &["divvy-fakedriver"]),
    ("kubectl-divvy", &["divvy-core", "divvy-dialects", "divvy-api", "divvy-cluster"]),
    (
        "divvy",
        &[
            "divvy-core",
            "divvy-api",
            "divvy-cluster",
            "divvy-service",
            "divvy-scheduler",
            "divvy-webhook",
            "divvy-budget",
            "divvy-dashboard",
            "divvy-sim",
            "divvy-embedded",
            "divvy-fakedriver",
        ],
    ),
    ("divvy-e2e", &["divvy-core", "divvy-shm", "divvy-fakedriver"]),
    ("divvy-bench", &["divvy-core", "divvy-api", "divvy-cluster", "divvy-e2e"]),
    ("xtask", &["divvy-e2e", "divvy-fakedriver"]),
];

/// What the packages with a ceiling may use of the world: pure ones, and those that live in other people's processes.
const CEILINGS: &[(&str, &[&str])] = &[
    ("divvy-core", &["serde", "serde_json"]),
    ("divvy-limiter", &[]),
    ("divvy-dialects", &["serde", "serde_json"]),
    ("divvy-shm", &["libc"]),
    ("divvy-hook", &["libc"]),
    ("divvy-fakedriver", &["libc"]),
];

/// Package -> (ours, foreign) that it needs to be built, without what only its tests need.
fn dependencies() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let packages = packages();
    let names: BTreeSet<&str> = packages.iter().map(|package| &*package.name).collect();
    let of = |package: &Package| {
        let needed = package.needs.iter().filter(|need| !need.for_tests).map(|need| need.name.clone());
        needed.partition(|name| names.contains(name.as_str()))
    };
    packages.iter().map(|package| (package.name.clone(), of(package))).collect()
}

/// What `package` uses and may not, and what it may use and does not: an edge that is allowed for nothing would be used one day unseen.
fn faults(package: &str, used: &BTreeSet<String>, allowed: &[&str]) -> Vec<String> {
    let outward = used.iter().filter(|name| !allowed.contains(&name.as_str()));
    let unused = allowed.iter().filter(|name| !used.contains(**name));
    let outward = outward.map(|name| format!("{package} depends on {name}"));
    outward.chain(unused.map(|name| format!("{package} may depend on {name}, and does not"))).collect()
}

#[test]
fn dependencies_point_inwards() {
    let mut broken = Vec::new();
    for (package, (ours, _)) in dependencies() {
        match ALLOWED.iter().find(|(name, _)| *name == package) {
            None => broken.push(format!("{package} has no place in the layers yet")),
            Some((_, allowed)) => broken.extend(faults(&package, &ours, allowed)),
        }
    }
    none(
        &broken,
        "ARCHITECTURE.md, 'Code map', says which crate may use which. Move the code inwards, or change the map and ALLOWED with a reason.",
    );
}

#[test]
fn nothing_depends_on_an_entry_point() {
    for (_, allowed) in ALLOWED {
        for entry in ["divvy", "kubectl-divvy", "divvy-agent", "divvy-hook", "xtask"] {
            assert!(!allowed.contains(&entry), "{entry} is an entry point");
        }
    }
}

#[test]
fn crates_with_a_ceiling_use_nothing_above_it() {
    let all = dependencies();
    let broken = CEILINGS.iter().flat_map(|(package, allowed)| faults(package, &all[*package].1, allowed));
    none(
        &broken.collect::<Vec<_>>(),
        "These crates are pure, or are loaded into other people's processes: do without, or raise CEILINGS with a reason.",
    );
}

#[test]
fn edges_that_point_outwards_and_those_that_nothing_uses_are_found() {
    let used = ["a".to_owned(), "b".to_owned()].into();
    assert_eq!(faults("p", &used, &["a", "b"]), [""; 0]);
    assert_eq!(faults("p", &used, &["b", "c"]), ["p depends on a", "p may depend on c, and does not"]);
}
