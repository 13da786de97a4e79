//! What a container writes on the node is bounded: its ledger and the folders that its dialect's system promised it lie on a tmpfs of its
//! own, which is full before the node's `/run` is.
//!
//! The agent mounts it when it makes the container's pages, and unmounts it with the container's folder. A container that runs keeps it
//! through its own mounts, whatever becomes of the agent. The runtime has to see it: in a pod that takes a volume with
//! `mountPropagation: Bidirectional`. Where it would not, or where the agent may not mount, files lie in the container's folder unbounded,
//! which is told once, and again when there is little room left.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use divvy_shm::place;
use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::removal;

/// In a container's folder, where its tmpfs is mounted.
const FOLDER: &str = "bounded";
/// In either, what its dialect's system promised it.
pub(super) const OWN: &str = "own";
/// Bytes and files: the ledger has up to 5 MiB, and what the dialects promise is for lock files, one for each process. A node with 1,024
/// containers that fill theirs gives 8 GiB of memory; twice as many bytes or files double what one of them can take.
const OPTIONS: &std::ffi::CStr = c"size=8m,nr_inodes=1024,mode=0755";
/// Little room is less than one part of so many. What the agent, the runtime and the kubelet write for a pod's start is far less.
const LITTLE: u64 = 10;

/// Where the ledger of a container is, given its folder.
pub fn ledger_of(container: &Path) -> PathBuf {
    let bounded = container.join(FOLDER);
    if bounded.join(place::LEDGER).exists() { bounded } else { container.to_owned() }
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    unbounded: AtomicBool,
    crowded: AtomicBool,
}

impl Bounds {
    /// Where what a container writes is to be. A container that was started without bounds keeps its files where they are.
    pub(super) fn folder(&self, container: &Path) -> PathBuf {
        let bounded = container.join(FOLDER);
        let has_files = || container.join(place::LEDGER).exists() || container.join(OWN).exists();
        if is_mounted(&bounded) {
            return bounded;
        }
        if has_files() {
            return container.to_owned();
        }
        match bind(&bounded) {
            Ok(()) => bounded,
            Err(error) => {
                let _ = fs::remove_dir(&bounded);
                if !self.unbounded.swap(true, Ordering::Relaxed) {
                    let mend = "give the agent CAP_SYS_ADMIN, and its volume `run` mountPropagation: Bidirectional";
                    tracing::warn!(%error, mend, "what containers write in their folders on this node is not bounded");
                }
                container.to_owned()
            }
        }
    }

    /// Tells when there is little room where containers' folders are, and again only after there was more.
    pub(super) fn tell_of_room(&self, run: &Path) {
        let Ok(room) = statvfs(run) else { return };
        let little = |left: u64, all: u64| all > 0 && left < all / LITTLE;
        let crowded = little(room.f_bavail, room.f_blocks) || little(room.f_favail, room.f_files);
        if crowded && !self.crowded.swap(crowded, Ordering::Relaxed) {
            let (bytes, files) = (room.f_bavail.saturating_mul(room.f_frsize), room.f_favail);
            tracing::error!(folder = %run.display(), bytes, files, "little room is left, without which no container starts");
        }
        self.crowded.store(crowded, Ordering::Relaxed);
    }
}

/// Takes away a container's tmpfs, if it has one. It is emptied first: another container that has the whole node mounted keeps what was
/// mounted when it began.
pub(super) fn unbind(container: &Path) {
    let bounded = container.join(FOLDER);
    if !is_mounted(&bounded) {
        return;
    }
    let emptied = removal::empty(&bounded, removal::MOST_STEPS).map(drop);
    let unmounted = unmount(&bounded, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(io::Error::from);
    if let Err(error) = emptied.and(unmounted) {
        tracing::warn!(folder = %bounded.display(), %error, "cannot take away what a container wrote");
    }
}

fn bind(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    if !is_the_nodes_own() && !is_shared(&mounts, folder) {
        return Err(io::Error::other("mounts made here do not reach the container runtime"));
    }
    Ok(mount("divvy", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, OPTIONS)?)
}

/// Is something mounted there?
fn is_mounted(folder: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|m| m.dev()).ok();
    device(folder).is_some_and(|own| folder.parent().and_then(device).is_some_and(|above| own != above))
}

/// Are our mounts those of the node's first process? It is the node's own where the agent sees its processes, as it has to.
fn is_the_nodes_own() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    namespace("1").is_some_and(|first| namespace("self") == Some(first))
}

/// By the text of `/proc/self/mountinfo`: do mounts that are made in this folder reach those who share it?
fn is_shared(mounts: &str, folder: &Path) -> bool {
    let around = mounts.lines().filter_map(|line| {
        let (before, _) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(4);
        let point = Path::new(fields.next()?);
        folder.starts_with(point).then(|| (point.components().count(), fields.any(|f| f.starts_with("shared:"))))
    });
    // Of several in one place the last is the one that is seen.
    around.max_by_key(|(depth, _)| *depth).is_some_and(|(_, shared)| shared)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    use divvy_shm::LedgerFile;

    use super::*;
    use crate::home::Home;

    /// Runs a test once more where mounts are its own, and handed on as said. For the first time it says `false`.
    fn among_mounts_of_its_own(test: &str, propagation: &str) -> bool {
        if std::env::var_os("DIVVY_TEST_MOUNTS").is_some() {
            return true;
        }
        let user: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
        let status = Command::new("unshare")
            .args(user)
            .args(["--mount", "--propagation", propagation, "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--quiet", "--exact", &format!("home::bounds::tests::{test}")])
            .env("DIVVY_TEST_MOUNTS", "yes")
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        false
    }

    /// A container with its folder made, as far as the agent makes it.
    fn container(home: &Home) -> PathBuf {
        let dir = home.container(&"u".into(), &"main".into()).unwrap();
        fs::create_dir_all(&dir).unwrap();
        let folder = home.bounds.folder(&dir);
        if LedgerFile::open_guarded(&folder).is_err() {
            drop(LedgerFile::create(&folder, 2).unwrap());
        }
        fs::create_dir_all(folder.join(OWN)).unwrap();
        dir
    }

    /// How many bytes of a file are written before there is no room.
    fn fill(path: &Path, most: u64) -> u64 {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
        (0..most).step_by(4096).find(|at| file.write_all_at(&[1; 4096], *at).is_err()).unwrap_or(most)
    }

    #[test]
    fn a_container_fills_its_own_folder_and_not_the_nodes() {
        if !among_mounts_of_its_own("a_container_fills_its_own_folder_and_not_the_nodes", "shared") {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let home = Home::open(root.path()).unwrap();
        let dir = container(&home);
        let bounded = ledger_of(&dir);
        assert_eq!(bounded, dir.join(FOLDER));
        let files = (0..2000).take_while(|n| fs::write(bounded.join(format!("own/{n}")), "").is_ok()).count();
        assert!((1000..1024).contains(&files), "{files}");
        let bytes = fill(&bounded.join("own/0"), 64 << 20) + fill(&bounded.join(place::LEDGER), 64 << 20);
        assert!((6 << 20..12 << 20).contains(&bytes), "{bytes}, part of it over what the ledger had");
        assert!(LedgerFile::open_guarded(&bounded).is_err(), "its own ledger is damaged");
        assert_eq!(fill(&dir.join("beside"), 16 << 20), 16 << 20, "the node's room is as it was");

        // Another agent finds it as it is. When the container is forgotten, who has a file open keeps it, and nobody else anything.
        let again = Home::open(root.path()).unwrap();
        assert_eq!(again.bounds.folder(&dir), bounded);
        let (kept, elsewhere) = (fs::File::open(bounded.join("own/0")).unwrap(), fs::File::open(&bounded).unwrap());
        again.forget(&"u".into()).unwrap();
        assert!(!dir.exists() && again.set_aside().is_empty());
        assert_eq!(kept.read_at(&mut [0; 10], 0).unwrap(), 10);
        assert_eq!(rustix::fs::Dir::read_from(&elsewhere).unwrap().count(), 2, "no more than . and ..");
    }

    #[test]
    fn where_mounts_do_not_reach_the_runtime_files_lie_beside_the_gate() {
        if !among_mounts_of_its_own("where_mounts_do_not_reach_the_runtime_files_lie_beside_the_gate", "private") {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let home = Home::open(root.path()).unwrap();
        let dir = container(&home);
        assert_eq!(ledger_of(&dir), dir);
        assert!(!dir.join(FOLDER).exists() && home.bounds.unbounded.load(Ordering::Relaxed));
        assert_eq!(home.bounds.folder(&dir), dir, "nor is it moved later");
        home.forget(&"u".into()).unwrap();
    }

    #[test]
    fn whether_mounts_are_handed_on_is_read_from_the_mount_that_is_seen() {
        let text = "22 1 0:20 / / rw shared:1 - ext4 /dev/a rw\n\
                    23 22 0:21 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n\
                    24 22 0:22 / /run/private rw - tmpfs tmpfs rw\n\
                    25 22 0:23 / /run/slave rw master:5 - tmpfs tmpfs rw\n\
                    26 23 0:24 / /run/over rw - tmpfs tmpfs rw\n\
                    27 26 0:25 / /run/over rw shared:9 - tmpfs tmpfs rw\n";
        let shared = |path: &str| is_shared(text, Path::new(path));
        assert!(shared("/run/divvy") && shared("/runs") && shared("/run/over/x"));
        assert!(!shared("/run/private/a/b") && !shared("/run/slave"));
        assert!(!is_shared("nonsense", Path::new("/run")));
    }
}
