//! From a grant to what a container gets beside its manifest. [`edits`] is pure; two thin adapters carry its result into the
//! container: [`cdi`] (a CDI spec that the device plugin writes) and [`cri`] (bytes that the CRI shim appends).
//!
//! ```text
//! closed  <-  promised by the dialect  <-  the vendors' devices  <-  pages, library, preload
//! ```
//!
//! Each layer overrides the one before it: what a dialect promises never changes which devices are visible, and nothing a
//! vendor adds can remove the library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use divvy_core::device::{DeviceKind, Isolation};
use divvy_core::grant::Slice;
use serde::{Deserialize, Serialize};

pub mod cdi;
pub mod cri;

/// The environment variable by which NVIDIA's container runtime decides which cards a container sees.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// The value that shows none, whatever the image bakes in and whichever runtime is the default.
pub const NO_DEVICES: &str = "void";

/// Where a container finds what we mount. Fixed: libdivvy.so looks here and nowhere else.
pub mod inside {
    /// Everything of ours.
    pub const DIR: &str = "/run/divvy";
    /// Configuration and gate words, read-only to the tenant.
    pub const GATE: &str = "/run/divvy/gate";
    /// Counters and process slots, writable and therefore untrusted.
    pub const LEDGER: &str = "/run/divvy/ledger";
    /// The agent's socket.
    pub const SOCKET: &str = "/run/divvy/agent.sock";
    /// The library.
    pub const LIBRARY: &str = "/usr/local/lib/divvy/libdivvy.so";
    /// What makes the loader load it into every process, environment or not.
    pub const PRELOAD: &str = "/etc/ld.so.preload";
}

/// A file or folder of the host inside the container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// Where on the host.
    pub host: PathBuf,
    /// Where in the container.
    pub container: PathBuf,
    /// May the container not write it?
    #[serde(default)]
    pub read_only: bool,
}

impl Mount {
    /// A mount the container can only read.
    pub fn read_only(host: impl Into<PathBuf>, container: impl Into<PathBuf>) -> Mount {
        Mount { host: host.into(), container: container.into(), read_only: true }
    }

    /// A mount the container can write.
    pub fn writable(host: impl Into<PathBuf>, container: impl Into<PathBuf>) -> Mount {
        Mount { host: host.into(), container: container.into(), read_only: false }
    }
}

/// A device node inside the container, with the right to read, write and make it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Where on the host.
    pub host: PathBuf,
    /// Where in the container.
    pub container: PathBuf,
}

impl DeviceNode {
    /// The host's node under the same name.
    pub fn same(path: impl Into<PathBuf>) -> DeviceNode {
        let path = path.into();
        DeviceNode { host: path.clone(), container: path }
    }
}

/// Everything a container gets beside its manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerEdits {
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Device nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceNode>,
}

impl ContainerEdits {
    /// What a container without any grant gets: no card, whatever its image says.
    pub fn closed() -> ContainerEdits {
        let mut closed = ContainerEdits::default();
        closed.env.insert(VISIBLE_DEVICES.into(), NO_DEVICES.into());
        closed
    }

    /// Lays `over` on top: its variables and its mounts win where both name the same thing.
    #[must_use]
    pub fn under(mut self, over: ContainerEdits) -> ContainerEdits {
        self.env.extend(over.env);
        self.mounts.retain(|mine| over.mounts.iter().all(|theirs| theirs.container != mine.container));
        self.mounts.extend(over.mounts);
        self.devices.retain(|mine| over.devices.iter().all(|theirs| theirs.container != mine.container));
        self.devices.extend(over.devices);
        self
    }

    /// Parents before children: a mount of `/run/divvy` must not hide one of `/run/divvy/gate`.
    fn in_mount_order(mut self) -> ContainerEdits {
        self.mounts.sort_by(|a, b| a.container.cmp(&b.container));
        self.devices.sort();
        self
    }
}

/// Where the host keeps one container's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The folder that holds the agent's socket (and empty files named like the pages, to mount over).
    pub socket_dir: PathBuf,
    /// This container's gate page.
    pub gate: PathBuf,
    /// This container's ledger page.
    pub ledger: PathBuf,
    /// A folder for what its dialect's system promised it.
    pub own: PathBuf,
    /// The library, under its content's name.
    pub library: PathBuf,
    /// A file that says [`inside::LIBRARY`], to be the container's `/etc/ld.so.preload`.
    pub preload: PathBuf,
}

/// What a container with `slices` gets. `vendors` is what each device's own code adds, `promised` what the dialect's system
/// promised its users, `pages` where this container's files are.
pub fn edits(
    slices: &[Slice],
    vendors: impl IntoIterator<Item = ContainerEdits>,
    promised: ContainerEdits,
    pages: &Pages,
) -> ContainerEdits {
    let mut all = without_visibility(promised).under(ContainerEdits::closed());
    for vendor in vendors {
        all = all.under(vendor);
    }
    if slices.iter().any(is_intercepted) {
        all = all.under(library(pages));
    }
    all.in_mount_order()
}

/// Is this slice kept by the library?
pub fn is_intercepted(slice: &Slice) -> bool {
    slice.kind == DeviceKind::Gpu && matches!(slice.isolation, Isolation::Intercept | Isolation::Driver)
}

fn without_visibility(mut promised: ContainerEdits) -> ContainerEdits {
    promised.env.remove(VISIBLE_DEVICES);
    promised
}

fn library(pages: &Pages) -> ContainerEdits {
    let socket_dir: &Path = &pages.socket_dir;
    ContainerEdits {
        mounts: vec![
            Mount::read_only(socket_dir, inside::DIR),
            Mount::read_only(&pages.gate, inside::GATE),
            Mount::writable(&pages.ledger, inside::LEDGER),
            Mount::read_only(&pages.library, inside::LIBRARY),
            Mount::read_only(&pages.preload, inside::PRELOAD),
        ],
        ..ContainerEdits::default()
    }
}

#[cfg(test)]
mod golden;
