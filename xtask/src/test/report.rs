//! What a run of tests took, beside what it may take.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::ensure;

use super::program::{ProgramResult, TestCounts, TestProgram};

/// A test that takes longer has a line in `xtask/times/slow-tests.txt` that says why it may.
pub(crate) const SLOW: Duration = Duration::from_secs(30);
/// How many of the slowest tests and programs are printed.
const SHOWN: usize = 25;

/// What the parts of a run and its end-to-end suites may take, and which tests may take long: `xtask/times`.
pub(crate) struct AllowedTimes {
    /// Part or suite -> on a machine that has built everything before, and on a fresh one.
    allowed: BTreeMap<String, (Duration, Duration)>,
    /// Tests, as `FOLDER PROGRAM TEST`.
    slow: BTreeSet<String>,
}

impl AllowedTimes {
    /// Those of this repository.
    pub(crate) fn read() -> anyhow::Result<AllowedTimes> {
        AllowedTimes::parse(include_str!("../../times/allowed.txt"), include_str!("../../times/slow-tests.txt"))
    }

    fn parse(allowed: &str, slow: &str) -> anyhow::Result<AllowedTimes> {
        let lines = |text: &str| -> Vec<(String, String)> {
            let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
            lines.map(|line| line.split_once(": ").unwrap_or((line, ""))).map(|(a, b)| (a.into(), b.into())).collect()
        };
        let mut limits = AllowedTimes { allowed: BTreeMap::new(), slow: BTreeSet::new() };
        for (name, text) in lines(allowed) {
            let seconds: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [warm, cold] = *seconds.as_slice() else {
                anyhow::bail!("xtask/times/allowed.txt: '{name}: {text}' is not 'part: SECONDS SECONDS'")
            };
            limits.allowed.insert(name, (Duration::from_secs(warm), Duration::from_secs(cold)));
        }
        for (name, reason) in lines(slow) {
            ensure!(!reason.is_empty(), "xtask/times/slow-tests.txt: {name} is listed without a reason");
            limits.slow.insert(name);
        }
        Ok(limits)
    }

    /// What a part or program may take.
    fn of(&self, name: &str, is_cold: bool) -> Option<Duration> {
        self.allowed.get(name).map(|(warm, cold)| if is_cold { *cold } else { *warm })
    }

    /// The tests that may take long.
    #[cfg(test)]
    pub(crate) fn slow(&self) -> impl Iterator<Item = &str> {
        self.slow.iter().map(String::as_str)
    }
}

/// One line of the tables.
struct TimedRow {
    name: String,
    took: Duration,
    /// Processor time, where it is known.
    processor: Option<Duration>,
    ok: bool,
}

/// All that was run.
#[derive(Default)]
pub(crate) struct TestReport {
    parts: Vec<TimedRow>,
    programs: Vec<TimedRow>,
    tests: Vec<(String, Duration)>,
    counts: TestCounts,
    /// Something from outside had to be compiled.
    pub(crate) is_cold: bool,
}

impl TestReport {
    /// Notes a part that has ended.
    pub(crate) fn part(&mut self, name: &str, took: Duration, ok: bool) {
        self.parts.push(TimedRow { name: name.to_owned(), took, processor: None, ok });
    }

    /// Notes a program of tests that has ended.
    pub(crate) fn program(&mut self, program: &TestProgram, outcome: &ProgramResult) {
        self.add(outcome.counts);
        let (took, processor) = (outcome.took, Some(outcome.processor));
        self.programs.push(TimedRow { name: program.name(), took, processor, ok: outcome.ok });
        let name = |test: &String| format!("{} {test}", program.name());
        self.tests.extend(outcome.tests.iter().map(|(test, took)| (name(test), *took)));
    }

    /// TestCounts tests that ran otherwise.
    pub(crate) fn add(&mut self, counts: TestCounts) {
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
        self.counts.ignored += counts.ignored;
    }

    /// Prints the tables and the closing line. An error names the parts that failed.
    pub(crate) fn print(&mut self, limits: &AllowedTimes) -> anyhow::Result<()> {
        self.programs.sort_by_key(|row| Reverse(row.took));
        self.tests.sort_by_key(|(_, took)| Reverse(*took));
        let took = self.parts.iter().map(|row| row.took).sum();
        let all =
            TimedRow { name: "everything".to_owned(), took, processor: None, ok: self.parts.iter().all(|row| row.ok) };
        println!("\n{:>8}  slowest tests", "seconds");
        for (name, took) in self.tests.iter().filter(|(_, took)| took.as_secs() > 0).take(SHOWN) {
            println!("{:>8}  {name}", seconds(*took));
        }
        println!("\n{:>8} {:>9} {:>7}  programs and parts", "seconds", "processor", "allowed");
        let programs = self.programs.iter().filter(|row| row.took.as_secs() > 0 || !row.ok);
        for row in programs.chain(&self.parts).chain([&all]) {
            let allowed = limits.of(&row.name, self.is_cold).map(seconds).unwrap_or_default();
            let outcome = if row.ok { "" } else { "  FAILED" };
            let (took, processor) = (seconds(row.took), row.processor.map(seconds).unwrap_or_default());
            println!("{took:>8} {processor:>9} {allowed:>7}  {}{outcome}", row.name);
        }
        for line in self.too_long(&all, limits) {
            println!("TOO LONG: {line}");
        }
        let broken: Vec<&str> = self.parts.iter().filter(|row| !row.ok).map(|row| &*row.name).collect();
        let outcome = if broken.is_empty() { "ok" } else { "FAILED" };
        let TestCounts { passed, failed, ignored } = self.counts;
        println!("\ntest result: {outcome}. {passed} passed; {failed} failed; {ignored} ignored");
        ensure!(broken.is_empty(), "not green: {}", broken.join(", "));
        Ok(())
    }

    /// What took longer than it may. It fails no run: the machine may be busy with other things.
    fn too_long(&self, all: &TimedRow, limits: &AllowedTimes) -> Vec<String> {
        let rows = self.programs.iter().chain(&self.parts).chain([all]);
        let parts = rows.filter_map(|row| {
            let allowed = limits.of(&row.name, self.is_cold).filter(|allowed| row.took > *allowed)?;
            let (took, allowed) = (seconds(row.took), seconds(allowed));
            Some(format!("{} took {took} s; xtask/times/allowed.txt allows {allowed}", row.name))
        });
        let slow = self.tests.iter().filter(|(name, took)| *took > SLOW && !limits.slow.contains(name));
        let tests = slow.map(|(name, took)| {
            format!("{name} took {} s; xtask/times/slow-tests.txt has no reason for it", seconds(*took))
        });
        parts.chain(tests).collect()
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(took: u64, is_cold: bool) -> Vec<String> {
        let limits =
            AllowedTimes::parse("# comment\ne2e: 10 20\neverything: 100 100\n", "a b known: its reason\n").unwrap();
        let program = |target: &str| TestProgram { folder: "a".into(), target: target.into(), executable: "/a".into() };
        let mut report = TestReport { is_cold, ..TestReport::default() };
        let tests = ["known", "new"].map(|test| (test.to_owned(), Duration::from_secs(took + 25))).into();
        report.program(&program("b"), &ProgramResult { ok: true, tests, ..ProgramResult::default() });
        report.part("e2e", Duration::from_secs(took), true);
        let all = TimedRow { name: "everything".into(), took: Duration::from_secs(99), processor: None, ok: true };
        report.too_long(&all, &limits)
    }

    #[test]
    fn what_takes_longer_than_it_may_is_named() {
        let new = |seconds: u64| format!("a b new took {seconds}.0 s; xtask/times/slow-tests.txt has no reason for it");
        let part = "e2e took 15.0 s; xtask/times/allowed.txt allows 10.0".to_owned();
        assert_eq!(report(5, false), Vec::<String>::new());
        assert_eq!(report(15, false), [part, new(40)]);
        assert_eq!(report(15, true), [new(40)], "more is allowed on a fresh machine");
    }

    #[test]
    fn a_slip_in_the_lists_is_named() {
        let mistake =
            |allowed, slow| AllowedTimes::parse(allowed, slow).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(mistake("e2e: 10\n", ""), "xtask/times/allowed.txt: 'e2e: 10' is not 'part: SECONDS SECONDS'");
        assert_eq!(mistake("", "a b c\n"), "xtask/times/slow-tests.txt: a b c is listed without a reason");
    }
}
