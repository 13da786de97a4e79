//! The fake driver: real enough to allocate, launch and wait on, on a machine that only the test sees.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use divvy_fakedriver::spec::Spec;
use divvy_shm::DeviceConfig;
use tempfile::TempDir;

use super::{Container, compile, device, root, scratch};

/// The folder with the fake libcuda.so.1 and libnvidia-ml.so.1.
pub(crate) fn drivers() -> &'static Path {
    static INSTALLED: OnceLock<TempDir> = OnceLock::new();
    INSTALLED
        .get_or_init(|| {
            let dir = scratch();
            divvy_fakedriver::install::install(dir.path()).expect("the fake driver builds");
            dir
        })
        .path()
}

/// A simulated machine.
pub(crate) struct Machine {
    state: TempDir,
    text: String,
    /// What is in it.
    pub(crate) spec: Spec,
}

impl Machine {
    /// A machine as the fake driver's manual spells it: `2xH200`.
    pub(crate) fn new(text: &str) -> Machine {
        let spec = Spec::parse(text).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
        Machine { state: scratch(), text: text.to_owned(), spec }
    }

    /// A container that holds card `index` up to `limit` bytes.
    pub(crate) fn slice(&self, index: usize, limit: u64) -> DeviceConfig {
        let card = &self.spec.cards[index];
        DeviceConfig { id: card.uuid.clone(), node_index: index as u32, ..device(uuid(&card.uuid), limit) }
    }

    /// A program on this machine, outside any container.
    pub(crate) fn native(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", drivers())
            .env("FAKE_GPU_STATE", self.state.path())
            .env("FAKE_GPU_CONFIG", &self.text)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("DIVVY_DIR");
        command
    }

    /// A program on this machine in a container.
    pub(crate) fn inside(&self, container: &Container, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = container.command(program, drivers());
        command.env("FAKE_GPU_STATE", self.state.path()).env("FAKE_GPU_CONFIG", &self.text);
        command
    }
}

/// The sixteen bytes of an identity as NVML spells it.
pub(crate) fn uuid(text: &str) -> [u8; 16] {
    let digits: Vec<u8> = text[4..]
        .bytes()
        .filter(|b| *b != b'-')
        .map(|b| (b as char).to_digit(16).expect("hexadecimal") as u8)
        .collect();
    core::array::from_fn(|i| digits[2 * i] * 16 + digits[2 * i + 1])
}

/// A program of the kit that also runs on a real card, compiled once.
pub(crate) fn kit(name: &str) -> PathBuf {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    static COMPILING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let out = DIR.get_or_init(scratch).path().join(name);
    let _one_at_a_time = COMPILING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !out.exists() {
        compile(&root().join("tests/gpu/c").join(format!("{name}.c")), &out, &[]);
    }
    out
}
