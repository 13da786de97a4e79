//! What the tests of the library share: the library as it ships, drivers to put it before, and containers to put it into.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::OnceLock;

use divvy_shm::map::Guarded;
use divvy_shm::{ContainerConfig, DeviceConfig, GateWriter, Ledger, LedgerFile};
use tempfile::TempDir;

pub(crate) mod echo;
pub(crate) mod fake;
pub(crate) mod python;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders up").to_path_buf()
}

/// The folder cargo builds into.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a path");
    own.ancestors().nth(3).expect("target/profile/deps/test").to_path_buf()
}

/// libdivvy.so, built the way it ships.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let shipped = target().join("hook/libdivvy.so");
        if divvy_fakedriver::install::built().is_some() {
            return shipped;
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build
            .current_dir(root())
            .args(["build", "--quiet", "-p", "divvy-hook", "--profile", "hook", "--target-dir"])
            .arg(target());
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "libdivvy.so does not build");
        shipped
    })
}

/// A folder that goes with the test.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

/// Writes lines into a file.
pub(crate) fn write_lines(path: &Path, lines: impl IntoIterator<Item = String>) {
    fs::write(path, lines.into_iter().collect::<Vec<_>>().join("\n")).expect("the folder is writable");
}

/// Compiles C, with every warning a mistake; a shared object if `out` says so.
pub(crate) fn compile(source: &Path, out: &Path, more: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).arg("-o").arg(out).arg(source).args(more);
    if out.to_string_lossy().contains(".so") {
        cc.args(["-shared", "-fPIC"]);
    }
    cc.args(["-ldl", "-lpthread"]);
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
}

/// A C program of this folder, compiled.
pub(crate) fn program(name: &str, dir: &Path, more: &[&str]) -> PathBuf {
    let out = dir.join(name.trim_end_matches(".c"));
    compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name), &out, more);
    out
}

/// What a program wrote, after it ended well.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A program that is killed when the test is over, whichever way it ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Kills it and waits until it is gone.
    pub(crate) fn end(mut self) {
        self.kill();
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a program ended and what it wrote.
pub(crate) fn outcome(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

/// The shared files of one container.
pub(crate) struct Container {
    pub(crate) dir: TempDir,
    pub(crate) gate: GateWriter,
    pub(crate) ledger: Guarded<Ledger>,
}

/// A device with a limit.
pub(crate) fn device(uuid: [u8; 16], limit: u64) -> DeviceConfig {
    DeviceConfig {
        uuid,
        memory_request: limit,
        memory_limit: limit,
        share_request: 1000,
        share_limit: 1000,
        ..DeviceConfig::default()
    }
}

impl Container {
    /// A container with these devices.
    pub(crate) fn new(devices: Vec<DeviceConfig>) -> Container {
        let dir = tempfile::tempdir().expect("a folder for the files");
        let count = devices.len();
        let config = ContainerConfig { name: "test/pod/main".into(), devices, ..ContainerConfig::default() };
        let gate = GateWriter::create(dir.path(), &config).expect("a gate file");
        let ledger = LedgerFile::create(dir.path(), count).expect("a ledger file");
        Container { dir, gate, ledger }
    }

    /// A program in this container, before the driver in `drivers`.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>, drivers: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", library())
            .env("LD_LIBRARY_PATH", drivers)
            .env("DIVVY_DIR", self.dir.path())
            .env_remove("CUDA_VISIBLE_DEVICES");
        command
    }
}

/// Rows of a table, without its comments.
pub(crate) fn table(name: &str) -> Vec<Vec<String>> {
    let path = root().join("tables").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let rows = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    rows.map(|l| l.split('\t').map(str::to_owned).collect()).collect()
}
