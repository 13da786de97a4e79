//! One test program: run in its package's folder, with the time that each of its tests took.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, WaitId, WaitIdOptions};

/// A program that hangs is ended after this time. Twice as long delays the report of a test that hangs; half as long ends the
/// longest end-to-end suite on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(900);
/// How long a process that outlives its test program may hold the output open.
const LEFTOVERS: Duration = Duration::from_secs(5);

/// A program of tests that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestProgram {
    /// The package's folder, from the repository's root.
    pub(crate) folder: String,
    /// The target in the package: `lib`, or the name of a program or of a file of tests.
    pub(crate) target: String,
    pub(crate) executable: PathBuf,
}

/// What came of running a program.
#[derive(Debug, Default)]
pub(crate) struct ProgramResult {
    pub(crate) ok: bool,
    pub(crate) counts: TestCounts,
    pub(crate) took: Duration,
    /// Processor time of the program and of the processes that it waited for.
    pub(crate) processor: Duration,
    /// Each test that ended, and its time.
    pub(crate) tests: Vec<(String, Duration)>,
    /// All that it wrote.
    pub(crate) text: String,
}

impl ProgramResult {
    /// That of a program that could not be run.
    pub(crate) fn not_run(error: anyhow::Error) -> ProgramResult {
        ProgramResult {
            text: format!("{error:#}\n"),
            counts: TestCounts { failed: 1, ..TestCounts::default() },
            ..ProgramResult::default()
        }
    }
}

/// Numbers of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl TestCounts {
    /// Adds the closing lines of test runners in a text.
    pub(crate) fn add(&mut self, text: &str) {
        for rest in text.lines().filter_map(|line| line.trim().strip_prefix("test result: ")) {
            let words: Vec<&str> = rest.split([' ', ';']).collect();
            let count = |word: &str| -> u64 {
                words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
            self.ignored += count("ignored");
        }
    }
}

impl TestProgram {
    /// The name that is printed, such as `crates/agent gates`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.folder, self.target)
    }

    /// Runs it with so many tests at a time. `built` is the folder with this repository's own programs, which the tests then do not
    /// build. `ended` is called for each test that ends, with the time since the program started.
    pub(crate) fn run(
        &self,
        threads: usize,
        built: &Path,
        mut ended: impl FnMut(&str, Duration),
    ) -> anyhow::Result<ProgramResult> {
        let start = Instant::now();
        let (mut child, lines) = self.start(threads, built)?;
        let mut seen = Transcript { start, text: String::new(), ends: Vec::new() };
        let pid = Pid::from_child(&child);
        let hung = loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => seen.take(line, &mut ended),
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if start.elapsed() > LIMIT {
                child.kill()?;
                break true;
            }
            // Its children may hold the output open for longer than it lives.
            if rustix::process::waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG,
            )?
            .is_some()
            {
                break false;
            }
        };
        let deadline = Instant::now() + LEFTOVERS;
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            seen.take(line, &mut ended);
        }
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let processor = processor_time(&child).unwrap_or_default();
        let status = child.wait()?;
        let Transcript { mut text, ends, .. } = seen;
        if hung {
            text.push_str(&format!("ended by xtask: it did not end within {} s\n", LIMIT.as_secs()));
        } else if !status.success() {
            text.push_str(&format!("{status}\n"));
        }
        let mut counts = TestCounts::default();
        counts.add(&text);
        let ok = status.success() && counts.failed == 0;
        if !ok && counts.failed == 0 {
            // It ended before it could say which tests failed.
            counts.failed = 1;
        }
        Ok(ProgramResult { ok, counts, took: start.elapsed(), processor, tests: times(&ends, threads), text })
    }

    fn start(&self, threads: usize, built: &Path) -> anyhow::Result<(Child, Receiver<String>)> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = Command::new(&self.executable);
        for (name, _) in std::env::vars_os() {
            // What cargo told xtask about xtask's own package.
            let told = name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"));
            if told {
                command.env_remove(&name);
            }
        }
        let folder = crate::run::root().join(&self.folder);
        command
            .arg(format!("--test-threads={threads}"))
            .current_dir(&folder)
            .env("CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .env("CARGO_MANIFEST_DIR", &folder)
            .env(divvy_fakedriver::install::BUILT, built)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let child = command.spawn().with_context(|| format!("could not start {}", self.executable.display()))?;
        Ok((child, lines_of(reader)))
    }
}

/// The lines of a pipe, from a thread that reads until all its writers are gone.
fn lines_of(reader: PipeReader) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
            line.clear();
        }
    });
    lines
}

/// What a program has written so far.
struct Transcript {
    start: Instant,
    text: String,
    /// Each test that ended, and when.
    ends: Vec<(String, Duration)>,
}

impl Transcript {
    fn take(&mut self, line: String, ended: &mut impl FnMut(&str, Duration)) {
        if let Some(name) = test_of(&line) {
            let at = self.start.elapsed();
            ended(line.trim(), at);
            self.ends.push((name.to_owned(), at));
        }
        self.text.push_str(&line);
    }
}

/// The test that a line of a test runner reports as ended.
fn test_of(line: &str) -> Option<&str> {
    let (name, verdict) = line.trim_end().strip_prefix("test ")?.split_once(" ... ")?;
    ["ok", "FAILED", "ignored"].iter().any(|word| verdict.starts_with(word)).then_some(name)
}

/// The time of each test. A runner starts tests in the order of their names, so many at a time, and the next when one ends: so the
/// moments of their ends say when each began.
fn times(ends: &[(String, Duration)], threads: usize) -> Vec<(String, Duration)> {
    let mut names: Vec<&str> = ends.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    let mut waiting = names.into_iter();
    let mut began: BTreeMap<&str, Duration> =
        waiting.by_ref().take(threads).map(|name| (name, Duration::ZERO)).collect();
    let mut times = Vec::new();
    for (name, end) in ends {
        let start = began.get(&**name).copied().unwrap_or(*end);
        times.push((name.clone(), end.saturating_sub(start)));
        if let Some(next) = waiting.next() {
            began.insert(next, *end);
        }
    }
    times
}

/// Processor time of a process that has ended and was not waited for yet, with that of the processes it waited for.
fn processor_time(child: &Child) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The second field is the program's name in brackets and may contain anything; utime, stime, cutime, cstime are 14 to 17.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    // Linux reports to every program in hundredths of a second.
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(list: &[(&str, u64)]) -> Vec<(String, Duration)> {
        list.iter().map(|(name, at)| ((*name).to_owned(), Duration::from_secs(*at))).collect()
    }

    #[test]
    fn a_tests_time_is_counted_from_the_end_of_the_one_before_it() {
        assert_eq!(times(&seconds(&[("a", 2), ("b", 5), ("c", 6)]), 1), seconds(&[("a", 2), ("b", 3), ("c", 1)]));
        // a and b begin at once; c begins when b ends, d when a ends.
        let two = times(&seconds(&[("b", 1), ("a", 4), ("c", 6), ("d", 9)]), 2);
        assert_eq!(two, seconds(&[("b", 1), ("a", 4), ("c", 5), ("d", 5)]));
    }

    #[test]
    fn closing_lines_are_added_up_with_what_was_ignored() {
        let mut counts = TestCounts::default();
        counts.add("test a ... ok\ntest result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 1s\n");
        counts.add("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured\n");
        assert_eq!(counts, TestCounts { passed: 4, failed: 4, ignored: 2 });
    }

    #[test]
    fn a_line_names_the_test_that_ended() {
        assert_eq!(test_of("test a::b ... ok\n"), Some("a::b"));
        assert_eq!(test_of("test a - should panic ... ok\n"), Some("a - should panic"));
        assert_eq!(test_of("test a::b has been running for over 60 seconds\n"), None);
        assert_eq!(test_of("test result: ok. 1 passed\n"), None);
    }
}
