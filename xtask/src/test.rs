//! `cargo xtask test`: the one command that decides green, with tables of what each part, program and test took beside what they
//! may take, and the sum of all test runs.
//!
//! ```text
//! format, lints                     cargo
//! build                             one call of cargo for everything that tests run  test/build.rs
//! cluster binaries                  Kubernetes, etcd, containerd and helm, from source, once
//! unit tests and laws, e2e          each program by itself                           test/program.rs
//! tables                            xtask/times has what they are compared with      test/report.rs
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use divvy_e2e::Release;
use divvy_e2e::programs::{self, Programs};

use crate::run;

mod build;
mod program;
mod report;

pub(crate) use build::{Built, build};
use program::{ProgramResult, TestCounts, TestProgram};
pub(crate) use report::{AllowedTimes, TestReport};

/// The folder of the package with the end-to-end tests.
const E2E: &str = "tests/e2e";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the parts whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Only the programs of tests whose name contains this, such as `crates/agent` or `e2e node`
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
}

impl Args {
    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| part.contains(only.as_str()))
    }
}

/// The call of cargo that lints everything.
pub(crate) const LINTS: &[&str] = &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
const UNIT: &str = "unit tests and laws";
const SUITES: &str = "e2e";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let limits = AllowedTimes::read()?;
    let mut report = TestReport::default();
    let cargo = |words: &[&str]| run::run(&mut run::command("cargo", words));
    if args.wants("format") {
        part(&mut report, "format", |_| cargo(&["fmt", "--all", "--check"]));
    }
    if args.wants("lints") {
        part(&mut report, "lints", |_| cargo(LINTS));
    }
    if args.wants("cluster binaries") {
        part(&mut report, "cluster binaries", |_| {
            Programs::all(Release::default())?;
            programs::helm().map(drop)
        });
    }
    if args.wants(UNIT) || args.wants(SUITES) {
        let mut built = None;
        part(&mut report, "build", |report| {
            let made = build(&[])?;
            report.is_cold = made.compiled > 0;
            built = Some(made);
            Ok(())
        });
        if let Some(built) = &built {
            tests(&mut report, args, built);
        }
    }
    report.print(&limits)
}

/// Runs the tests of what was built.
fn tests(report: &mut TestReport, args: &Args, built: &Built) {
    let is_wanted = |p: &&TestProgram| args.program.as_ref().is_none_or(|name| p.name().contains(name.as_str()));
    let (suites, units): (Vec<TestProgram>, Vec<TestProgram>) =
        built.programs.iter().filter(is_wanted).cloned().partition(|program| program.folder == E2E);
    if args.wants(UNIT) {
        part(report, UNIT, |report| {
            run_programs(report, units, &built.folder, false)?;
            if args.program.is_none() { examples(report) } else { Ok(()) }
        });
    }
    if args.wants(SUITES) {
        part(report, SUITES, |report| run_programs(report, suites, &built.folder, true));
    }
}

/// Runs one part and notes what it took.
pub(crate) fn part(report: &mut TestReport, name: &str, act: impl FnOnce(&mut TestReport) -> anyhow::Result<()>) {
    println!("==> {name}");
    let start = Instant::now();
    let outcome = act(report);
    if let Err(error) = &outcome {
        println!("{name}: {error:#}");
    }
    report.part(name, start.elapsed(), outcome.is_ok());
}

/// The examples in comments, which rustdoc runs.
fn examples(report: &mut TestReport) -> anyhow::Result<()> {
    let output = run::command("cargo", &["test", "--workspace", "--doc", "--quiet"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut counts = TestCounts::default();
    counts.add(&text);
    report.add(counts);
    if !output.status.success() {
        bail!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Runs programs one after another, each with as many tests at a time as there are processors, and says of each what came of it.
/// `is_slow`: also of each of their tests.
pub(crate) fn run_programs(
    report: &mut TestReport,
    programs: Vec<TestProgram>,
    built: &Path,
    is_slow: bool,
) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut broken = Vec::new();
    for program in programs {
        let name = program.name();
        let ended = |line: &str, at: Duration| {
            if is_slow {
                println!("{:>7.1} s  {name}  {line}", at.as_secs_f64());
            }
        };
        let outcome = program.run(threads, built, ended).unwrap_or_else(ProgramResult::not_run);
        report.program(&program, &outcome);
        let ProgramResult { counts: TestCounts { passed, failed, .. }, took, .. } = outcome;
        if !outcome.ok {
            println!("{}", outcome.text);
            broken.push(name.clone());
        }
        let verdict = if outcome.ok { "ok" } else { "FAILED" };
        println!("{verdict:<6} {name:<44} {passed:>4} passed {failed:>3} failed {:>7.1} s", took.as_secs_f64());
    }
    ensure!(broken.is_empty(), "tests failed in {}", broken.join(", "));
    Ok(())
}
