//! `cargo xtask test`: the one command that decides green, with a table of what each part took and the sum of all test runs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::run;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the parts whose name contains this
    #[arg(long)]
    only: Option<String>,
}

/// One part of the test run.
struct Part {
    name: &'static str,
    command: Command,
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut took: Vec<(&str, Duration, &str)> = Vec::new();
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for mut part in parts() {
        if args.only.as_ref().is_some_and(|only| !part.name.contains(only.as_str())) {
            continue;
        }
        println!("==> {}", part.name);
        let start = Instant::now();
        let ok = watch(&mut part.command, &mut tally).with_context(|| format!("{}: could not run", part.name))?;
        took.push((part.name, start.elapsed(), if ok { "ok" } else { "FAILED" }));
        if !ok {
            broken.push(part.name);
        }
    }
    println!("\n{:<28} {:>9}  outcome", "part", "seconds");
    for (name, time, outcome) in &took {
        println!("{name:<28} {:>9.1}  {outcome}", time.as_secs_f64());
    }
    let outcome = if broken.is_empty() { "ok" } else { "FAILED" };
    println!("\ntest result: {outcome}. {} passed; {} failed; 0 ignored", tally.passed, tally.failed);
    if !broken.is_empty() {
        bail!("not green: {}", broken.join(", "));
    }
    Ok(())
}

fn parts() -> Vec<Part> {
    let cargo = |args: &[&str]| run::command("cargo", args);
    vec![
        Part { name: "format", command: cargo(&["fmt", "--all", "--check"]) },
        Part {
            name: "lints",
            command: cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        },
        Part {
            name: "unit tests and laws",
            command: cargo(&["test", "--workspace", "--exclude", "divvy-e2e", "--quiet", "--no-fail-fast"]),
        },
        Part { name: "cluster binaries", command: cargo(&["xtask", "cluster", "build"]) },
        Part { name: "e2e", command: cargo(&["test", "--package", "divvy-e2e", "--quiet", "--no-fail-fast"]) },
    ]
}

/// Runs a part, shows its output as it comes, and adds up the closing lines of the test runners in it.
fn watch(command: &mut Command, tally: &mut Tally) -> anyhow::Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().context("no standard output")?;
    let mut shown = std::io::stdout().lock();
    for line in BufReader::new(out).lines() {
        let line = line?;
        writeln!(shown, "{line}")?;
        if let Some(rest) = line.trim().strip_prefix("test result: ") {
            let count = |word: &str| -> u64 {
                let words: Vec<&str> = rest.split([' ', ';']).collect();
                words.windows(2).find(|w| w[1] == word).and_then(|w| w[0].parse().ok()).unwrap_or(0)
            };
            tally.passed += count("passed");
            tally.failed += count("failed");
        }
    }
    Ok(child.wait()?.success())
}
