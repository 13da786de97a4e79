//! `cargo xtask check`: formats, lints and tests what a change can reach, and says what it leaves out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::run;
use crate::test::{self, AllowedTimes, TestReport};

/// The end-to-end tests need a Kubernetes of their own: they are compiled and linted here, and run by name or by `cargo xtask test`.
const NOT_RUN: &str = "divvy-e2e";
/// A change of one of these can reach every package.
const REACHES_ALL: &[&str] = &["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "clippy.toml", ".cargo/config.toml"];
/// The rules that look at every file of the repository are tests of this package.
const TIDY: &str = "xtask";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The commit that the change is compared with [default: where this branch left the one it follows]
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Print what would be checked, and check nothing
    #[arg(long)]
    plan: bool,
}

/// A package of the workspace.
struct Package {
    name: String,
    /// From the repository's root, without a slash at the end.
    folder: String,
    /// Other packages of the workspace: what it ships with, and what only its tests use.
    uses: BTreeSet<String>,
    tests_use: BTreeSet<String>,
    /// Folders at the root whose files its sources name.
    reads: BTreeSet<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let base = match &args.since {
        Some(commit) => commit.clone(),
        None => base()?,
    };
    let files = changed(&base)?;
    let packages = packages()?;
    let reached = reached(&packages, &files);
    let chosen: Vec<&str> = packages.iter().map(|p| &*p.name).filter(|name| reached.contains(*name)).collect();
    let left: Vec<&str> = packages.iter().map(|p| &*p.name).filter(|name| !reached.contains(*name)).collect();
    println!(
        "{} files differ from {base}; they can reach {} of {} packages",
        files.len(),
        chosen.len(),
        packages.len()
    );
    println!("checked:  {}", chosen.join(" "));
    println!("left out: {}", if left.is_empty() { "no package".to_owned() } else { left.join(" ") });
    println!(
        "          the end-to-end tests (`cargo test -p {NOT_RUN} --test FILE NAME`, or `cargo xtask test` for everything)"
    );
    if args.plan {
        return Ok(());
    }
    let folders: Vec<&str> =
        packages.iter().filter(|p| chosen.contains(&&*p.name) && p.name != NOT_RUN).map(|p| &*p.folder).collect();
    check(&folders)
}

/// Formats and lints, and runs the tests of the packages in these folders.
///
/// Lints and tests are built for all packages: cargo knows what has not changed, and calls for some packages only would compile
/// their dependencies anew, with other features.
fn check(folders: &[&str]) -> anyhow::Result<()> {
    let mut report = TestReport::default();
    let cargo = |words: &[&str]| run::run(&mut run::command("cargo", words));
    test::part(&mut report, "format", |_| cargo(&["fmt", "--all"]));
    test::part(&mut report, "lints", |_| cargo(test::LINTS));
    let mut built = None;
    test::part(&mut report, "build", |_| {
        built = Some(test::build(&[NOT_RUN])?);
        Ok(())
    });
    if let Some(built) = built {
        test::part(&mut report, "tests", |report| {
            let reached = built.programs.into_iter().filter(|program| folders.contains(&&*program.folder)).collect();
            test::run_programs(report, reached, &built.folder, false)
        });
    }
    report.print(&AllowedTimes::read()?)?;
    println!("everything that this change can reach holds");
    Ok(())
}

/// Where this branch left the one it follows; the last commit where it follows none.
fn base() -> anyhow::Result<String> {
    for upstream in ["@{upstream}", "origin/HEAD", "origin/main"] {
        if let Ok(commit) = git(&["merge-base", "HEAD", upstream]) {
            return Ok(commit.trim().to_owned());
        }
    }
    Ok("HEAD".to_owned())
}

/// The files that differ from `base`, those that git does not know yet among them.
fn changed(base: &str) -> anyhow::Result<BTreeSet<String>> {
    let known = git(&["diff", "--name-only", "--no-renames", base, "--"])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(known.lines().chain(new.lines()).map(str::to_owned).collect())
}

fn git(words: &[&str]) -> anyhow::Result<String> {
    let output = run::command("git", words).output().context("git could not be started")?;
    ensure!(output.status.success(), "git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn packages() -> anyhow::Result<Vec<Package>> {
    let output = run::command("cargo", &["metadata", "--format-version=1", "--no-deps"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout).context("what cargo metadata printed")?;
    metadata["packages"].as_array().context("cargo metadata names no packages")?.iter().map(package).collect()
}

fn package(found: &Value) -> anyhow::Result<Package> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("cargo metadata: a word is missing");
    let manifest = text(&found["manifest_path"])?;
    let folder = manifest.strip_prefix(&*run::root().to_string_lossy()).unwrap_or(&manifest);
    let folder = folder.trim_start_matches('/').trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned();
    let (mut uses, mut tests_use) = (BTreeSet::new(), BTreeSet::new());
    for need in found["dependencies"].as_array().into_iter().flatten().filter(|need| !need["path"].is_null()) {
        let kept = if need["kind"] == "dev" { &mut tests_use } else { &mut uses };
        kept.insert(text(&need["name"])?);
    }
    let reads = read_by(&folder)?;
    Ok(Package { name: text(&found["name"])?, folder, uses, tests_use, reads })
}

/// The folders at the root whose files the sources in `folder` name, such as `docs` and `charts`.
fn read_by(folder: &str) -> anyhow::Result<BTreeSet<String>> {
    let tracked = git(&["ls-files", "--", &format!("{folder}/*.rs")])?;
    let texts: Vec<String> =
        tracked.lines().filter_map(|file| std::fs::read_to_string(run::root().join(file)).ok()).collect();
    let top = git(&["ls-tree", "-d", "--name-only", "HEAD"])?;
    let named = |top: &&str| {
        let spelled = [format!("../{top}/"), format!("\"{top}/"), format!("\"{top}\"")];
        texts.iter().any(|text| spelled.iter().any(|s| text.contains(s)))
    };
    Ok(top.lines().filter(named).map(str::to_owned).collect())
}

/// The packages that a change of `files` can reach: those the files lie in or that read them, and those that use one of these.
fn reached(packages: &[Package], files: &BTreeSet<String>) -> BTreeSet<String> {
    let all = || packages.iter().map(|p| p.name.clone()).collect();
    if files.iter().any(|file| REACHES_ALL.contains(&&**file)) {
        return all();
    }
    let mut changed: BTreeSet<&str> = BTreeSet::new();
    let mut read: BTreeSet<&str> = BTreeSet::from([TIDY]);
    for file in files {
        let owner = packages.iter().find(|p| file.strip_prefix(&*p.folder).is_some_and(|rest| rest.starts_with('/')));
        match (owner, file.split_once('/')) {
            (Some(owner), _) => _ = changed.insert(&owner.name),
            (None, Some((top, _))) => {
                read.extend(packages.iter().filter(|p| p.reads.contains(top)).map(|p| &*p.name));
            }
            (None, None) => {}
        }
    }
    let users = users(packages);
    let mut queue: Vec<&str> = changed.iter().copied().collect();
    while let Some(next) = queue.pop() {
        queue.extend(users.get(next).into_iter().flatten().copied().filter(|user| changed.insert(user)));
    }
    let by_tests = packages.iter().filter(|p| p.tests_use.iter().any(|used| changed.contains(&**used)));
    by_tests.map(|p| &*p.name).chain(changed.iter().copied()).chain(read).map(str::to_owned).collect()
}

/// For each package those that are built with it.
fn users(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        for used in &package.uses {
            users.entry(used).or_default().push(&package.name);
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, uses: &[&str], tests_use: &[&str], reads: &[&str]) -> Package {
        let set = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        let folder = format!("crates/{name}");
        Package { name: name.to_owned(), folder, uses: set(uses), tests_use: set(tests_use), reads: set(reads) }
    }

    fn reached_by(files: &[&str]) -> String {
        let packages = [
            named("core", &[], &[], &["docs"]),
            named("agent", &["core"], &[], &[]),
            named("sim", &[], &["agent"], &["tables"]),
            named("tool", &["sim"], &[], &[]),
            named("xtask", &[], &[], &[]),
        ];
        let files = files.iter().map(|f| (*f).to_owned()).collect();
        reached(&packages, &files).into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_reaches_its_package_and_those_that_use_it_or_read_it() {
        assert_eq!(reached_by(&["crates/tool/src/lib.rs"]), "tool xtask");
        assert_eq!(
            reached_by(&["crates/agent/src/lib.rs"]),
            "agent sim xtask",
            "sim's tests use the agent; tool does not"
        );
        assert_eq!(reached_by(&["crates/core/src/lib.rs"]), "agent core sim xtask");
        assert_eq!(reached_by(&["tables/cuda.tsv"]), "sim xtask", "nothing that sim gives to others is in a table");
        assert_eq!(reached_by(&["docs/design/agent.md"]), "core xtask");
        assert_eq!(reached_by(&["README.md"]), "xtask");
        assert_eq!(reached_by(&[]), "xtask");
        assert_eq!(reached_by(&["Cargo.lock"]), "agent core sim tool xtask");
    }
}
