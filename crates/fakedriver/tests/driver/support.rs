//! Tenants on a machine of their own: processes of the `tenant` example, each driven line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use divvy_fakedriver::machine::Machine;

/// A machine in a directory that goes with it.
pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) machine: Machine,
}

pub(crate) struct Tenant {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Where the libraries are.
pub(crate) fn driver_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = target_dir().join("fake-driver");
        divvy_fakedriver::install::install(&dir).unwrap();
        if divvy_fakedriver::install::built().is_some() {
            return dir;
        }
        // The programs the tests run, which a filtered test run does not build.
        let cargo = std::env::var_os("CARGO").unwrap();
        let built =
            Command::new(cargo).args(["build", "--quiet", "-p", "divvy-fakedriver", "--examples"]).status().unwrap();
        assert!(built.success());
        dir
    })
}

pub(crate) fn target_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().parent().unwrap().to_owned()
}

impl Host {
    pub(crate) fn new(spec: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::open(dir.path(), Some(spec)).unwrap();
        Self { dir, machine }
    }

    /// A program that finds this machine and the fake driver.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", driver_dir()).env("FAKE_GPU_STATE", self.dir.path());
        command.env_remove("FAKE_GPU_CONFIG").env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant_with(&[])
    }

    pub(crate) fn tenant_with(&self, env: &[(&str, &str)]) -> Tenant {
        let mut command = self.command(target_dir().join("examples/tenant"));
        self.drive(command.envs(env.iter().copied()))
    }

    /// Starts a program that takes commands and answers them.
    pub(crate) fn drive(&self, command: &mut Command) -> Tenant {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Tenant { child, input, output }
    }

    /// A tenant with a context on device 0.
    pub(crate) fn ready(&self) -> Tenant {
        let mut tenant = self.tenant();
        assert_eq!(tenant.ask("ctx 0"), "ok");
        tenant
    }

    /// A file with a page of zeros, to be shared with tenants.
    pub(crate) fn page(&self, name: &str) -> Page {
        Page::new(&self.dir.path().join(name))
    }
}

impl Tenant {
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    /// The numbers of an `ok` answer.
    pub(crate) fn numbers(&mut self, command: &str) -> Vec<u64> {
        let answer = self.ask(command);
        let values = answer.strip_prefix("ok").unwrap_or_else(|| panic!("{command}: {answer}"));
        values.split_whitespace().map(|w| w.parse().unwrap()).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Words shared between processes.
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    words: *mut u32,
}

impl Page {
    fn new(path: &Path) -> Self {
        use std::os::fd::AsRawFd;
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: a fresh mapping of the file's page.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self { path: path.to_owned(), words: at.cast() }
    }

    pub(crate) fn set(&self, word: usize, value: u32) {
        // SAFETY: within the page, which is mapped as long as the process lives.
        unsafe { self.words.add(word).write_volatile(value) };
    }

    pub(crate) fn get(&self, word: usize) -> u32 {
        // SAFETY: within the page, which is mapped as long as the process lives.
        unsafe { self.words.add(word).read_volatile() }
    }
}

/// Simulated time is wall time, and a busy machine takes some of it away: what is out of range is measured again, for a while.
pub(crate) fn comes_to(what: &str, wanted: std::ops::Range<u64>, mut measured: impl FnMut() -> u64) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut all: Vec<u64> = Vec::new();
    while all.last().is_none_or(|last| !wanted.contains(last)) {
        assert!(Instant::now() < deadline, "{what}: wanted {wanted:?}, had {all:?}");
        all.push(measured());
    }
}

/// Waits for something to become true, with a deadline.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Where what was fetched is kept: the user's cache.
fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from);
    base.join("divvy-tests/wheels")
}

/// A Python package with what it needs, installed in a folder for `PYTHONPATH`.
pub(crate) fn installed(package: &str) -> PathBuf {
    let folder = cache().join(format!("installed-{}", package.replace("==", "-")));
    if !folder.exists() {
        std::fs::create_dir_all(cache()).unwrap();
        let fresh = tempfile::tempdir_in(cache()).unwrap();
        let done = Command::new("python3")
            .args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary=:all:", "--target"])
            .arg(fresh.path())
            .arg(package)
            .status()
            .unwrap();
        assert!(done.success(), "cannot install {package}");
        // Whole or not at all: another test may be looking for it.
        let _ = std::fs::rename(fresh.path(), &folder);
    }
    folder
}

/// A wheel from PyPI.
pub(crate) fn wheel(package: &str, version: &str) -> PathBuf {
    let cache = cache();
    let stem = format!("{}-{version}-", package.replace('-', "_"));
    let find = || {
        let entries = std::fs::read_dir(&cache).ok()?.filter_map(Result::ok).map(|e| e.path());
        entries.into_iter().find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&stem)))
    };
    if let Some(known) = find() {
        return known;
    }
    // Fetched beside and moved when whole: another test may be looking for it.
    std::fs::create_dir_all(&cache).unwrap();
    let fresh = tempfile::tempdir_in(&cache).unwrap();
    let fetched = Command::new("python3")
        .args(["-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "-d"])
        .arg(fresh.path())
        .arg(format!("{package}=={version}"))
        .status()
        .unwrap();
    assert!(fetched.success(), "cannot fetch {package} {version}");
    for file in std::fs::read_dir(fresh.path()).unwrap().map(Result::unwrap) {
        std::fs::rename(file.path(), cache.join(file.file_name())).unwrap();
    }
    find().unwrap()
}

/// The same, unpacked.
pub(crate) fn extracted(package: &str, version: &str) -> PathBuf {
    let wheel = wheel(package, version);
    let folder = wheel.with_extension("d");
    if !folder.exists() {
        let fresh = wheel.with_extension(format!("d.{}", std::process::id()));
        let done = Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&fresh).status().unwrap();
        assert!(done.success(), "cannot unpack {}", wheel.display());
        let _ = std::fs::rename(&fresh, &folder);
    }
    folder
}

fn home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from)
}
