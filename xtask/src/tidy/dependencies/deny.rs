//! What comes from outside keeps to `deny.toml`: licences, bans, duplicates, sources. cargo-deny reads the same file and knows more
//! (advisories); it takes minutes to build, and this does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use toml_edit::{DocumentMut, Item, Value};

use crate::run;
use crate::tidy::{none, root};

/// A package as it is built for Linux.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Built {
    name: String,
    version: String,
    licence: String,
    /// In brackets behind the version: a path or an address. Nothing: crates.io.
    source: String,
}

/// Everything our packages are built from, tests included. The tree, not `cargo metadata`: that lists what no feature asks for, too.
fn built() -> &'static BTreeSet<Built> {
    static BUILT: LazyLock<BTreeSet<Built>> =
        LazyLock::new(|| texts(&rules()["graph"]["targets"]).iter().flat_map(|target| built_for(target)).collect());
    &BUILT
}

fn built_for(target: &str) -> BTreeSet<Built> {
    let words = ["tree", "--workspace", "--offline", "--prefix=none", "--format={p}|{l}", "--target", target];
    let output = run::command("cargo", &words).output().unwrap();
    if !output.status.success() {
        // A machine that builds for itself alone has fetched no more than that.
        let own = target.starts_with(std::env::consts::ARCH);
        assert!(!own, "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
        return BTreeSet::new();
    }
    String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()).map(one).collect()
}

/// `name v1.2.3 (proc-macro) (/a/path)|MIT (*)`; the star stands where the tree shows a package again.
fn one(line: &str) -> Built {
    let line = line.trim_end_matches(" (*)");
    let (package, licence) = line.rsplit_once('|').unwrap_or((line, ""));
    let mut words = package.split(' ');
    let name = words.next().unwrap_or_default().to_owned();
    let version = words.next().unwrap_or_default().trim_start_matches('v').to_owned();
    let source = words.filter(|word| *word != "(proc-macro)").collect();
    Built { name, version, licence: licence.to_owned(), source }
}

fn rules() -> DocumentMut {
    fs::read_to_string(root().join("deny.toml")).unwrap().parse().expect("deny.toml is TOML")
}

fn texts(item: &Item) -> Vec<String> {
    let all = item.as_array().expect("an array in deny.toml").iter();
    all.map(|text| text.as_str().expect("a string in deny.toml").to_owned()).collect()
}

/// The `crate` of each entry of a list; each entry says why it is there.
fn crates(item: &Item) -> Vec<String> {
    let entries = item.as_array().expect("an array in deny.toml").iter();
    entries
        .map(|entry| {
            let text = |key| entry.as_inline_table().and_then(|table| table.get(key)).and_then(Value::as_str);
            let name = text("crate").unwrap_or_else(|| panic!("deny.toml: {entry:?} names no crate"));
            assert!(text("reason").is_some_and(|why| !why.is_empty()), "deny.toml: {name} has no reason");
            name.to_owned()
        })
        .collect()
}

#[test]
fn licences_are_those_that_are_allowed() {
    let allowed = texts(&rules()["licenses"]["allow"]);
    let (mut used, mut broken) = (BTreeSet::new(), Vec::new());
    for package in built() {
        match granted(&package.licence, &allowed) {
            Some(licences) => used.extend(licences),
            None => broken.push(format!("{} {}: '{}'", package.name, package.version, package.licence)),
        }
    }
    broken.extend(
        allowed
            .iter()
            .filter(|licence| !used.contains(*licence))
            .map(|l| format!("{l} is allowed, and nothing has it")),
    );
    none(&broken, "Use another crate, or allow the licence in deny.toml if our programs may include such code.");
}

#[test]
fn nothing_is_built_that_is_banned_or_comes_from_elsewhere() {
    let banned = crates(&rules()["bans"]["deny"]);
    assert!(!banned.is_empty());
    let mut broken = Vec::new();
    for package in built() {
        if banned.contains(&package.name) {
            broken.push(format!("{} is banned", package.name));
        }
        let ours = package.source.strip_prefix('(').is_some_and(|path| path.starts_with(&*root().to_string_lossy()));
        if !ours && !package.source.is_empty() {
            broken.push(format!("{} comes from {}", package.name, package.source));
        }
    }
    none(&broken, "deny.toml says why. `cargo tree --invert NAME` shows who brings it.");
}

#[test]
fn no_crate_is_built_in_two_versions_but_for_those_with_a_reason() {
    let skipped = crates(&rules()["bans"]["skip"]);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in built() {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let (mut needed, mut broken) = (BTreeSet::new(), Vec::new());
    for (name, versions) in &versions {
        let excepted = |version: &str| skipped.iter().find(|skip| covers(skip, name, version));
        let (old, rest): (Vec<&str>, Vec<&str>) = versions.iter().partition(|version| excepted(version).is_some());
        needed.extend(old.iter().filter_map(|version| excepted(version)));
        if rest.len() > 1 {
            broken.push(format!("{name}: {}", rest.join(", ")));
        }
    }
    broken.extend(
        skipped
            .iter()
            .filter(|skip| !needed.contains(skip))
            .map(|skip| format!("{skip} is skipped, and there is no other")),
    );
    none(
        &broken,
        "Bring them to one version (`cargo tree --duplicates`), or skip the older one in deny.toml with a reason.",
    );
}

/// Whether `syn@2` covers syn 2.0.119.
fn covers(skip: &str, name: &str, version: &str) -> bool {
    skip.split_once('@').is_some_and(|(skipped, wanted)| {
        skipped == name && (version == wanted || version.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.')))
    })
}

/// The allowed licences by which a package may be used, or nothing if it may not: `(A OR B) AND C`.
fn granted(expression: &str, allowed: &[String]) -> Option<Vec<String>> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let granted = any(&mut words, allowed);
    assert!(words.next().is_none(), "no licence expression: '{expression}'");
    granted
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[String]) -> Option<Vec<String>> {
    let mut first = every(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        let other = every(words, allowed);
        first = first.or(other);
    }
    first
}

fn every(words: &mut Words<'_>, allowed: &[String]) -> Option<Vec<String>> {
    let mut all = single(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        let other = single(words, allowed);
        all = all.zip(other).map(|(a, b)| [a, b].concat());
    }
    all
}

fn single(words: &mut Words<'_>, allowed: &[String]) -> Option<Vec<String>> {
    let mut licence = words.next()?.to_owned();
    if licence == "(" {
        let inner = any(words, allowed);
        words.next_if_eq(&")");
        return inner;
    }
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
    }
    allowed.contains(&licence).then(|| vec![licence])
}

#[test]
fn expressions_of_licences_are_read() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    let check = |expression: &str| granted(expression, &allowed).map(|licences| licences.join(" "));
    assert_eq!(check("MIT"), Some("MIT".into()));
    assert_eq!(check("GPL-3.0"), None);
    assert_eq!(check("GPL-3.0/MIT"), Some("MIT".into()));
    assert_eq!(check("Apache-2.0 WITH LLVM-exception OR MIT"), Some("MIT".into()));
    assert_eq!(check("(MIT OR GPL-3.0) AND ISC"), Some("MIT ISC".into()));
    assert_eq!(check("MIT AND GPL-3.0"), None);
    assert_eq!(check(""), None);
}

#[test]
fn packages_are_read_from_the_tree() {
    let read = one("serde_derive v1.0.2 (proc-macro)|MIT OR Apache-2.0 (*)");
    let text = |text: &str| text.to_owned();
    assert_eq!(
        read,
        Built {
            name: text("serde_derive"),
            version: text("1.0.2"),
            licence: text("MIT OR Apache-2.0"),
            source: text("")
        }
    );
    assert_eq!(one("a v0.1.0 (/b/c)|Apache-2.0").source, "(/b/c)");
    assert!(covers("a@0.2", "a", "0.2.7") && !covers("a@0.2", "a", "0.21.0") && !covers("a@0.2", "b", "0.2.7"));
}
