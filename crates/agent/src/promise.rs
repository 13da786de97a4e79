//! What the emulated systems promised a container, as edits: the dialects say what its users are to find, here it becomes mounts of
//! files that exist. Pure: [`plan`] says what has to be written, [`write`] writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use divvy_core::device::Inventory;
use divvy_core::grant::Grant;
use divvy_core::id::ContainerName;
use divvy_core::keys;
use divvy_core::time::Time;
use divvy_dialects::emulate::{Emulation, Place, Promised, Source};
use divvy_dialects::{PodManifest, emulate};

use crate::edits::{ContainerEdits, Mount};
use crate::pods::PodView;

/// Something that must be on the host before the container starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub path: PathBuf,
    /// A file's content; `None` makes a folder.
    pub content: Option<Vec<u8>>,
    /// May the container write it?
    pub writable: bool,
}

/// Where things are on the host.
pub struct Ground<'a> {
    /// A folder of this container's own.
    pub own: &'a Path,
    /// The library.
    pub library: &'a Path,
    /// The driver's files as the vendors mount them.
    pub driver: &'a [Mount],
}

/// What users of the pod's dialect are to find, on it and in its containers. Nothing for a pod whose ask cannot be read.
pub fn of(pod: &PodView, grant: &Grant, node: &str, inventory: &Inventory, ports_taken: &BTreeSet<u16>) -> Emulation {
    match &pod.ask {
        Some(ask) => emulate(&PodManifest::new(&pod.manifest), ask, grant, &Place { node, inventory, ports_taken }),
        None => Emulation::default(),
    }
}

/// The ports that KubeShare's pods of a node carry.
pub fn ports<'a>(pods: impl Iterator<Item = &'a PodView>) -> BTreeSet<u16> {
    let port = |pod: &PodView| pod.annotation(keys::KUBESHARE_PORT)?.parse().ok();
    pods.filter_map(port).collect()
}

/// Turns promises into edits, and says what has to be written first. `exists` asks the host.
pub fn plan(promised: &Promised, ground: &Ground<'_>, exists: impl Fn(&Path) -> bool) -> (ContainerEdits, Vec<Write>) {
    let mut edits = ContainerEdits { env: promised.env.clone(), ..ContainerEdits::default() };
    let mut writes = Vec::new();
    let mut own_folders: Vec<(PathBuf, PathBuf)> = Vec::new();
    for mount in &promised.mounts {
        let inside = PathBuf::from(&mount.path);
        let host = match mount.source {
            Source::Library => ground.library.to_owned(),
            Source::Own => {
                let host = ground.own.join(inside.strip_prefix("/").unwrap_or(&inside));
                writes.push(Write { path: host.clone(), content: None, writable: !mount.read_only });
                own_folders.push((inside.clone(), host.clone()));
                host
            }
            Source::Host if exists(&inside) => inside.clone(),
            Source::Host => continue,
            Source::Driver => {
                edits.mounts.extend(driver_under(&inside, ground.driver));
                continue;
            }
        };
        edits.mounts.push(Mount { host, container: inside, read_only: mount.read_only });
    }
    for file in &promised.files {
        let inside = PathBuf::from(&file.path);
        let in_own = own_folders.iter().find_map(|(at, host)| Some(host.join(inside.strip_prefix(at).ok()?)));
        let host = in_own.unwrap_or_else(|| {
            let host = ground.own.join(inside.strip_prefix("/").unwrap_or(&inside));
            edits.mounts.push(Mount::read_only(&host, &inside));
            host
        });
        writes.push(Write { path: host, content: Some(file.content.clone()), writable: false });
    }
    (edits, writes)
}

/// The driver's libraries once more, below `folder`, in both places where gpu-manager's images look.
fn driver_under(folder: &Path, driver: &[Mount]) -> Vec<Mount> {
    let mut seen = BTreeSet::new();
    let mut mounts = Vec::new();
    for mount in driver {
        let Some(name) = mount.container.file_name().and_then(|n| n.to_str()) else { continue };
        if name.starts_with("lib") && name.contains(".so") && seen.insert(name.to_owned()) {
            mounts.extend(["lib64", "lib"].map(|dir| Mount::read_only(&mount.host, folder.join(dir).join(name))));
        }
    }
    mounts
}

/// Writes what [`plan`] asked for.
pub fn write(writes: &[Write]) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for write in writes {
        match &write.content {
            None => {
                std::fs::create_dir_all(&write.path)?;
                // A container runs as whoever its image says.
                let mode = if write.writable { 0o777 } else { 0o755 };
                std::fs::set_permissions(&write.path, std::fs::Permissions::from_mode(mode))?;
            }
            Some(content) => {
                if let Some(folder) = write.path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                std::fs::write(&write.path, content)?;
            }
        }
    }
    Ok(())
}

/// Adds the time to what is written when a pod has started, where its system did: gpushare's plugin wrote it beside the assignment. Only
/// beside it, for an agent that starts again has nothing new to say.
pub fn stamp(started: &mut BTreeMap<String, String>, now: Time) {
    if started.contains_key(keys::GPUSHARE_ASSIGNED) {
        let nanoseconds = u128::from(now.0) * 1_000_000;
        started.insert(keys::GPUSHARE_ASSUME_TIME.into(), nanoseconds.to_string());
    }
}

/// What one container was promised.
pub fn for_container(emulation: &Emulation, container: &ContainerName) -> Promised {
    emulation.containers.get(container).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpushares_time_is_written_with_the_assignment_and_never_alone() {
        let mut started = BTreeMap::from([(keys::GPUSHARE_ASSIGNED.to_owned(), "true".to_owned())]);
        stamp(&mut started, Time(1_700_000_000_123));
        assert_eq!(started[keys::GPUSHARE_ASSUME_TIME], "1700000000123000000");
        let mut nothing = BTreeMap::new();
        stamp(&mut nothing, Time(1));
        assert!(nothing.is_empty());
    }
}
