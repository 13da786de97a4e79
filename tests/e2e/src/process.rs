//! Programs that end when we end, however we end.
//!
//! The kernel does the killing: each program asks for SIGKILL when the thread that started it goes away, and that thread lives
//! exactly as long as this process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};

/// One program of a cluster: how it is started, and the running process if there is one. Tests that share a cluster may use it
/// from several threads.
#[derive(Debug)]
pub struct Program {
    name: String,
    wrapper: Vec<String>,
    folder: PathBuf,
    log: PathBuf,
    argv: Mutex<Vec<String>>,
    child: Mutex<Option<Child>>,
}

impl Program {
    /// A program called `name`, run in `folder`, with its output in `log/NAME.log` there.
    pub fn new(name: &str, folder: &Path, argv: Vec<String>) -> Self {
        let log = folder.join("log").join(format!("{name}.log"));
        let (argv, child) = (Mutex::new(argv), Mutex::default());
        Self { name: name.into(), wrapper: Vec::new(), folder: folder.into(), log, argv, child }
    }

    /// Puts words before the command line: another program that becomes this one, elsewhere.
    pub(crate) fn inside(mut self, wrapper: Vec<String>) -> Self {
        self.wrapper = wrapper;
        self
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Replaces the command line used by the next start.
    pub fn set_argv(&self, argv: Vec<String>) {
        *lock(&self.argv) = argv;
    }

    /// Starts it; output is appended to its log.
    pub fn start(&self) -> anyhow::Result<()> {
        if self.running() {
            bail!("{} is already running", self.name);
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let argv = lock(&self.argv).clone();
        let mut words = self.wrapper.iter().chain(&argv);
        let mut command = until_we_end(words.next().context("an empty command line")?);
        command.args(words).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *lock(&self.child) = Some(spawn(command).with_context(|| format!("could not start {}", self.name))?);
        Ok(())
    }

    /// Whether it runs now.
    pub fn running(&self) -> bool {
        lock(&self.child).as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// An error with the end of its log, if it has ended by itself.
    pub fn must_run(&self) -> anyhow::Result<()> {
        if self.running() { Ok(()) } else { bail!("{} has ended; its last words:\n{}", self.name, tail(&self.log, 15)) }
    }

    /// The process itself. With a wrapper that forks (as entering a process namespace must), that is the wrapper's child.
    pub fn pid(&self) -> Option<Pid> {
        let outer = lock(&self.child).as_ref()?.id();
        if self.wrapper.is_empty() {
            return Pid::from_raw(outer.cast_signed());
        }
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name))?;
        rustix::process::kill_process(pid, signal).with_context(|| format!("could not signal {}", self.name))
    }

    /// Ends it at once, as a crash would, and collects it.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.end(Signal::KILL, Duration::from_secs(10))
    }

    /// Asks it to end and waits for that.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.end(Signal::TERM, Duration::from_secs(20)).or_else(|_| self.kill())
    }

    /// Stops and starts it.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.stop()?;
        self.start()
    }

    fn end(&self, signal: Signal, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        if self.running() {
            // Between start and now a wrapper may not have come to its program yet.
            crate::eventually(&self.name, patience, || self.signal(signal))?;
        }
        while self.running() {
            if Instant::now() > deadline {
                bail!("{} does not end", self.name);
            }
            thread::sleep(Duration::from_millis(10));
        }
        *lock(&self.child) = None;
        Ok(())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = lock(&self.child).as_mut() {
            // It may have ended by itself. What it started elsewhere goes with the node it was started on.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The last `lines` lines of a file, or why there are none.
pub(crate) fn tail(file: &Path, lines: usize) -> String {
    match std::fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("({}: {error})", file.display()),
    }
}

/// A command that the kernel kills when the thread that spawns it goes.
pub(crate) fn until_we_end(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Spawns from the thread that lives as long as the process does: a test's own thread ends with the test.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // An asker that has given up loses its child here, which is what it wants.
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, result) = channel();
    SPAWNER.send((command, answer)).map_err(|_| io::Error::other("the spawning thread is gone"))?;
    result.recv().map_err(|_| io::Error::other("the spawning thread is gone"))?
}
