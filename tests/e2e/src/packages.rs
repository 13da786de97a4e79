//! What the tests need from the distribution, installed where it is missing.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{bail, ensure};

/// What pods run.
pub(crate) const BUSYBOX: (&str, &str) = ("/bin/busybox", "busybox-static");

/// A file that a node needs and the Debian package that brings it.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    BUSYBOX,
    ("/sbin/ip", "iproute2"),
    ("/usr/bin/nsenter", "util-linux"),
];

/// One at a time: tests run side by side, and the package manager does not.
static TURN: Mutex<()> = Mutex::new(());

/// Makes sure that a node can run here: root, and the packages (installed when they are missing).
pub(crate) fn ready() -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a real node needs root (namespaces, mounts, cgroups); without it only the control plane can be started"
    );
    install_missing(NEEDED)
}

/// Makes sure that these files are there, and installs the Debian packages of those that are not.
pub(crate) fn install_missing(needed: &[(&str, &str)]) -> anyhow::Result<()> {
    let _turn = TURN.lock();
    let missing: Vec<&str> =
        needed.iter().filter(|(file, _)| !Path::new(file).exists()).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("the tests need these Debian packages or their like: {}", missing.join(" "));
    }
    eprintln!("installing {}", missing.join(" "));
    if !install(&missing)? {
        // A fresh machine may have no package lists, or old ones.
        ensure!(apt(&["update", "--quiet"])?, "apt-get update failed");
        ensure!(install(&missing)?, "apt-get could not install {}", missing.join(" "));
    }
    Ok(())
}

fn install(packages: &[&str]) -> anyhow::Result<bool> {
    let mut words = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    words.extend(packages);
    apt(&words)
}

fn apt(words: &[&str]) -> anyhow::Result<bool> {
    // Another test program may be installing something, too.
    let wait = ["-o", "DPkg::Lock::Timeout=300"];
    let done = Command::new("apt-get").args(wait).args(words).env("DEBIAN_FRONTEND", "noninteractive").output()?;
    if !done.status.success() {
        eprintln!("apt-get {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(done.status.success())
}
