//! Puts the two libraries into a directory under the names programs look for.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Package, what cargo makes of it, and the names it gets.
const LIBRARIES: [(&str, &str, [&str; 2]); 2] = [
    ("divvy-fakedriver-cuda", "libcuda.so", ["libcuda.so.1", "libcuda.so"]),
    ("divvy-fakedriver-nvml", "libnvidia_ml.so", ["libnvidia-ml.so.1", "libnvidia-ml.so"]),
];

/// Names the folder with this repository's programs and libraries where they are built already, such as `target/debug`: tests then
/// call no cargo. libdivvy.so as it ships is in the folder `hook` beside it.
pub const BUILT: &str = "DIVVY_BUILT";

/// The folder that [`BUILT`] names.
pub fn built() -> Option<PathBuf> {
    std::env::var_os(BUILT).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Builds both libraries and the `fake-gpu` tool (if they are not up to date) and puts them into `dir`, which is made if it is not
/// there. A program run with `LD_LIBRARY_PATH=dir` finds the fake driver.
pub fn install(dir: &Path) -> io::Result<()> {
    let find: Find = match built() {
        Some(folder) => Box::new(move |file| Some(folder.join(file)).filter(|path| path.is_file())),
        None => build()?,
    };
    std::fs::create_dir_all(dir)?;
    for (package, file, names) in LIBRARIES {
        let made = find(file).ok_or_else(|| io::Error::other(format!("cargo built no {file} of {package}")))?;
        for name in names {
            replace(&made, &dir.join(name))?;
        }
    }
    let tool = find("fake-gpu").ok_or_else(|| io::Error::other("cargo built no fake-gpu"))?;
    replace(&tool, &dir.join("fake-gpu"))
}

/// Finds what cargo made by the name of its file.
type Find = Box<dyn Fn(&str) -> Option<PathBuf>>;

fn build() -> io::Result<Find> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(&root).args(["build", "--quiet", "--message-format=json", "-p", "divvy-fakedriver"]);
    for (package, ..) in LIBRARIES {
        command.args(["-p", package]);
    }
    let built = command.stderr(std::process::Stdio::inherit()).output()?;
    if !built.status.success() {
        return Err(io::Error::other("the fake driver does not build"));
    }
    let said = String::from_utf8_lossy(&built.stdout).into_owned();
    Ok(Box::new(move |file| artifact(&said, &format!("/{file}\""))))
}

/// The path that ends so among those cargo names.
fn artifact(said: &str, end: &str) -> Option<PathBuf> {
    let at = said.find(end)? + end.len() - 1;
    let start = said[..at].rfind('"')? + 1;
    Some(PathBuf::from(&said[start..at]))
}

/// Programs may have the old file mapped, so it is not written into but replaced.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let fresh = to.with_extension(format!("new-{}", std::process::id()));
    std::fs::copy(from, &fresh)?;
    std::fs::rename(&fresh, to)
}
