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

/// Where the libraries and programs of this build are.
pub(crate) fn driver_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let built = target_dir();
        let dir = built.join("fake-driver");
        std::fs::create_dir_all(&dir).unwrap();
        for (file, name) in [("libcuda.so", "libcuda.so.1"), ("libnvidia_ml.so", "libnvidia-ml.so.1")] {
            let (from, to) = (built.join(file), dir.join(name));
            if from.exists() {
                // Several test programs may do this at once; a rename is whole or not at all.
                let fresh = dir.join(format!("{name}.{}", std::process::id()));
                std::fs::copy(&from, &fresh).unwrap();
                std::fs::rename(&fresh, &to).unwrap();
            }
        }
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
        command.envs(env.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
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

/// Waits for something to become true, with a deadline.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
