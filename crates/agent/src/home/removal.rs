//! Removes folders that strangers filled. A container may make a folder in a folder in a folder, as deep as it likes and under names
//! that change meanwhile. So nothing here goes by a path, follows a link or descends: what lies in a folder is emptied one level deep, and
//! folders in it are moved up beside it. Stack and descriptors are the same for any depth.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Files and folders that are removed of one folder before it is given up, ten seconds' worth: a tmpfs has as many inodes by default on a
/// node with 16 GB. Twice as many keep the agent twice as long from everything else that follows from a pod's end.
pub(super) const MOST_STEPS: u64 = 2_000_000;

/// Removes the folder at `path` and everything in it, in at most so many steps. What cannot be removed stays, and the error says why.
pub(super) fn remove(path: &Path, steps: u64) -> io::Result<()> {
    let stuck = empty(path, steps)?;
    let removed = fs::unlinkat(CWD, path, AtFlags::REMOVEDIR);
    removed.map_err(|error| stuck.unwrap_or(error).into())
}

/// Removes everything in the folder at `path`. Says why something stays, where that is so.
pub(super) fn empty(path: &Path, steps: u64) -> io::Result<Option<Errno>> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    let top = Dir::new(open(CWD, &name)?)?;
    let mut removal = Removal { top, moved: 0, steps: 0, done: 0, most: steps, stuck: None };
    removal.empty()?;
    Ok(removal.stuck)
}

fn open(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    fs::openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

struct Removal {
    top: Dir,
    /// How many folders were moved up so far; each has its number as its name.
    moved: u64,
    /// What was tried, and at most is.
    steps: u64,
    most: u64,
    /// What succeeded.
    done: u64,
    /// Why something stays.
    stuck: Option<Errno>,
}

impl Removal {
    /// Until nothing is left in the top folder that can be removed.
    fn empty(&mut self) -> io::Result<()> {
        loop {
            let before = self.done;
            self.top.rewind();
            for name in names(&mut self.top)? {
                self.clear(&name)?;
            }
            if self.done == before {
                return Ok(());
            }
        }
    }

    /// Removes what is in the top folder under that name.
    fn clear(&mut self, name: &CStr) -> io::Result<()> {
        while self.remove_in(None, name)? {
            let before = self.done;
            self.level(name)?;
            if self.done == before {
                break;
            }
        }
        Ok(())
    }

    /// Empties a folder of the top folder: its files are removed, its full folders moved up.
    fn level(&mut self, name: &CStr) -> io::Result<()> {
        let mut folder = match open(self.top.fd()?, name) {
            Ok(folder) => Dir::new(folder)?,
            // Somebody put something else there meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for child in names(&mut folder)? {
            if self.remove_in(Some(&folder), &child)? {
                self.move_up(&folder, &child)?;
            }
        }
        Ok(())
    }

    /// Removes a file or an empty folder, there or in the top folder; `true` for a folder that is full.
    fn remove_in(&mut self, folder: Option<&Dir>, name: &CStr) -> io::Result<bool> {
        self.steps += 1;
        if self.steps > self.most {
            return Err(io::Error::other("too much lies in it"));
        }
        let at = folder.unwrap_or(&self.top).fd()?;
        let file = fs::unlinkat(at, name, AtFlags::empty());
        let gone = if file == Err(Errno::ISDIR) { fs::unlinkat(at, name, AtFlags::REMOVEDIR) } else { file };
        match gone {
            Ok(()) => self.done += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(true),
            Err(error) => self.stuck = Some(error),
        }
        Ok(false)
    }

    fn move_up(&mut self, folder: &Dir, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let free = CString::new(self.moved.to_string())?;
            match fs::renameat_with(folder.fd()?, name, self.top.fd()?, &free, RenameFlags::NOREPLACE) {
                Ok(()) => self.done += 1,
                Err(Errno::EXIST) => continue,
                Err(Errno::NOENT) => {}
                Err(error) => self.stuck = Some(error),
            }
            return Ok(());
        }
    }
}

/// What lies in a folder, as far as the kernel tells at once. There may be more: an entry may be moved while it is read.
fn names(folder: &mut Dir) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    while names.len() < AT_ONCE
        && let Some(entry) = folder.read()
    {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// Names that are held at once, of 255 bytes at most: a quarter of a megabyte.
const AT_ONCE: usize = 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A folder in a folder in a folder.
    fn dig(at: &Path, levels: usize) {
        let name = c"d";
        let mut folder = open(CWD, &CString::new(at.as_os_str().as_encoded_bytes()).unwrap()).unwrap();
        for _ in 0..levels {
            fs::mkdirat(&folder, name, Mode::RWXU).unwrap();
            folder = fs::openat(&folder, name, OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
    }

    fn in_memory() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    /// In a process of its own, for a limit holds for all of one.
    #[test]
    fn fifty_thousand_levels_are_removed_on_a_small_stack_with_few_descriptors() {
        if let Some(path) = std::env::var_os("DIVVY_TEST_REMOVES") {
            let work = move || remove(Path::new(&path), MOST_STEPS).unwrap();
            std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
            return;
        }
        let root = in_memory();
        let path = root.path().join("pod");
        std::fs::create_dir(&path).unwrap();
        dig(&path, 50_000);
        let test = "home::removal::tests::fifty_thousand_levels_are_removed_on_a_small_stack_with_few_descriptors";
        let status = std::process::Command::new("sh")
            .args(["-c", "ulimit -n 64 && exec \"$0\" --quiet --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .env("DIVVY_TEST_REMOVES", &path)
            .status()
            .unwrap();
        let gone = !path.exists();
        // Nobody else can remove what is left.
        remove(&path, MOST_STEPS).unwrap_or_default();
        assert!(status.success() && gone, "{status}");
    }

    #[test]
    fn what_links_point_to_stays_and_wide_folders_go() {
        let root = in_memory();
        let (kept, path) = (root.path().join("kept"), root.path().join("pod"));
        std::fs::create_dir_all(kept.join("below")).unwrap();
        std::fs::write(kept.join("file"), "mine").unwrap();
        std::fs::create_dir_all(path.join("1/2/3")).unwrap();
        std::fs::create_dir_all(path.join("2/1")).unwrap();
        for (at, to) in [("link", kept.clone()), ("1/link", kept.join("file")), ("2/1/3", PathBuf::from("../../.."))] {
            symlink(to, path.join(at)).unwrap();
        }
        for wide in 0..3000 {
            std::fs::create_dir_all(path.join(format!("2/1/{wide}-wide/full"))).unwrap();
            std::fs::write(path.join(format!("1/2/{wide}-file")), "").unwrap();
        }
        remove(&path, MOST_STEPS).unwrap();
        assert!(!path.exists());
        assert_eq!(std::fs::read_to_string(kept.join("file")).unwrap(), "mine");
        assert!(kept.join("below").is_dir());
        symlink(&kept, &path).unwrap();
        assert!(remove(&path, MOST_STEPS).is_err(), "nor is the folder itself found through a link");
        assert!(kept.join("below").is_dir());
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let root = in_memory();
        dig(root.path(), 1000);
        let error = remove(root.path(), 100).unwrap_err();
        assert_eq!(error.to_string(), "too much lies in it");
        remove(root.path(), MOST_STEPS).unwrap();
    }
}
