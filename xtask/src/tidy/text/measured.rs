//! The tables of what a card said are what the recorded results say.

use std::process::Command;

use crate::tidy::{files, none, root};

/// The page that shows them, and what stands before and after them.
const PAGE: &str = "docs/reference/benchmarks.md";
const BEGIN: &str = "<!-- begin: tests/gpu/run tables -->\n";
const END: &str = "<!-- end: tests/gpu/run tables -->\n";

#[test]
fn tables_of_recorded_results_are_what_the_command_prints() {
    let printed =
        Command::new("tests/gpu/run").arg("tables").env_remove("RESULTS").current_dir(root()).output().unwrap();
    assert!(printed.status.success(), "tests/gpu/run tables: {}", String::from_utf8_lossy(&printed.stderr));
    let printed = String::from_utf8(printed.stdout).unwrap();
    let page = &files().iter().find(|file| file.path == PAGE).unwrap().text;
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(PAGE), format!("{before}{BEGIN}{printed}{END}{after}")).unwrap();
        return;
    }
    let shown: Vec<&str> = shown.lines().collect();
    let mut broken: Vec<String> = printed
        .lines()
        .filter(|line| !shown.contains(line))
        .map(|line| format!("the command prints: {line}"))
        .collect();
    let printed: Vec<&str> = printed.lines().collect();
    broken.extend(shown.iter().filter(|line| !printed.contains(line)).map(|line| format!("the page shows: {line}")));
    if broken.is_empty() && shown != printed {
        broken.push("the lines are in another order".to_owned());
    }
    none(&broken, &format!("UPDATE=1 cargo test -p xtask recorded_results writes them into {PAGE}."));
}
