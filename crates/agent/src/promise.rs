//! What the emulated systems promised a container, as edits: the dialects say what its users are to find, here it becomes mounts of
//! files that exist. Pure: [`plan`] says what has to be written, [`write`] writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use divvy_core::device::Inventory;
use divvy_core::grant::Grant;
use divvy_core::id::ContainerName;
use divvy_core::keys;
use divvy_core::time::Time;
use divvy_dialects::emulate::{Emulation, Place, Promised, Source};
use divvy_dialects::{PodManifest, emulate};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::edits::{ContainerEdits, Mount};
use crate::pods::PodView;

/// Something that must be on the host before the container starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The container's folder, of which only the agent writes the names in it.
    pub below: PathBuf,
    /// Where in it. The container may have written everything on the way.
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
    let mut own_folders: Vec<PathBuf> = Vec::new();
    for mount in &promised.mounts {
        let inside = PathBuf::from(&mount.path);
        let host = match mount.source {
            Source::Library => ground.library.to_owned(),
            Source::Own => {
                let path = inside.strip_prefix("/").unwrap_or(&inside).to_owned();
                let host = ground.own.join(&path);
                writes.push(Write { below: ground.own.into(), path, content: None, writable: !mount.read_only });
                own_folders.push(inside.clone());
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
        let path = inside.strip_prefix("/").unwrap_or(&inside).to_owned();
        if !own_folders.iter().any(|folder| inside.starts_with(folder)) {
            edits.mounts.push(Mount::read_only(ground.own.join(&path), &inside));
        }
        let content = Some(file.content.clone());
        writes.push(Write { below: ground.own.into(), path, content, writable: false });
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

/// Writes what [`plan`] asked for. As root, and below folders that the container can write: so each name on the way is opened by itself,
/// and one that leads elsewhere is an error. That is what `openat2` does with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, which kernels
/// before 5.6 do not have.
pub fn write(writes: &[Write]) -> io::Result<()> {
    for write in writes {
        std::fs::create_dir_all(&write.below)?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", write.path.display()));
        write_one(write).map_err(named)?;
    }
    Ok(())
}

fn write_one(write: &Write) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = fs::open(&write.below, flags, Mode::empty())?;
    let mut names = Vec::new();
    for part in write.path.components() {
        let Component::Normal(name) = part else { return Err(io::Error::other("no path within a folder")) };
        names.push(name);
    }
    let file = if write.content.is_some() { names.pop() } else { None };
    for name in names {
        match fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => at = fs::openat(&at, name, flags, Mode::empty())?,
            Err(error) => return Err(error.into()),
        }
    }
    let Some((name, content)) = file.zip(write.content.as_ref()) else {
        // A container runs as whoever its image says.
        let mode = if write.writable { 0o777 } else { 0o755 };
        return Ok(fs::fchmod(&at, Mode::from_raw_mode(mode))?);
    };
    // Nobody is waited for who might read a pipe of that name.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(&at, name, flags, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(content)
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

    fn promise(path: &str, content: Option<&str>) -> Write {
        Write {
            below: PathBuf::new(),
            path: path.into(),
            content: content.map(|c| c.as_bytes().to_vec()),
            writable: true,
        }
    }

    fn written(below: &Path, mut write: Write) -> io::Result<()> {
        write.below = below.to_owned();
        super::write(&[write])
    }

    #[test]
    fn what_was_promised_is_written_and_written_again() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("c/own");
        for content in ["longer at first", "and then not"] {
            written(&own, promise("tmp/lock", None)).unwrap();
            written(&own, promise("etc/vcuda/vcuda.config", Some(content))).unwrap();
            assert_eq!(std::fs::read_to_string(own.join("etc/vcuda/vcuda.config")).unwrap(), content);
        }
        let mode = |path: &str| own.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("tmp/lock"), mode("tmp"), mode("etc/vcuda")), (0o777, 0o755, 0o755));
    }

    #[test]
    fn a_link_or_a_pipe_that_the_container_put_in_the_way_is_an_error_and_nothing_else() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let (own, host) = (root.path().join("own"), root.path().join("host"));
        std::fs::create_dir_all(&host).unwrap();
        std::fs::write(host.join("file"), "the host's").unwrap();
        written(&own, promise("w", None)).unwrap();
        symlink(&host, own.join("w/folder")).unwrap();
        symlink(host.join("file"), own.join("w/file")).unwrap();
        symlink(host.join("new"), own.join("w/new")).unwrap();
        fs::mknodat(fs::CWD, own.join("w/pipe"), fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (path, content) in [
            ("w/folder", None),
            ("w/folder/below", None),
            ("w/folder/file", Some("mine")),
            ("w/file", Some("mine")),
            ("w/new", Some("mine")),
            ("w/pipe", Some("mine")),
            ("w/../../host/file", Some("mine")),
            ("/w/file", Some("mine")),
        ] {
            assert!(written(&own, promise(path, content)).is_err(), "{path}");
        }
        assert_eq!(std::fs::read_to_string(host.join("file")).unwrap(), "the host's");
        assert_eq!(std::fs::read_dir(&host).unwrap().count(), 1);
    }
}
