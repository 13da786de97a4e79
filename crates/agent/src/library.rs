//! libdivvy.so on the host, under a path that names its content. It is never overwritten: a container that has the old one
//! mapped keeps it through every upgrade and downgrade, and it is swept away when the last such container is gone.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::edits::inside;

const FILE: &str = "libdivvy.so";
const PRELOAD: &str = "ld.so.preload";

/// All versions of the library that this node still needs.
#[derive(Clone, Debug)]
pub struct Shelf {
    dir: PathBuf,
    current: String,
}

impl Shelf {
    /// Puts `library` on the shelf in `dir`, if its content is not there yet.
    pub fn stock(dir: &Path, library: &Path) -> io::Result<Shelf> {
        let content = fs::read(library)?;
        let current: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
        let home = dir.join(&current);
        fs::create_dir_all(&home)?;
        for (name, bytes, mode) in
            [(FILE, content.as_slice(), 0o755), (PRELOAD, format!("{}\n", inside::LIBRARY).as_bytes(), 0o644)]
        {
            let path = home.join(name);
            // What stands under this name has this content, or was torn by a crash: only then is it written again.
            if fs::read(&path).is_ok_and(|found| found == bytes) {
                continue;
            }
            let half = home.join(format!("{name}.part"));
            let mut out = fs::File::create(&half)?;
            out.write_all(bytes)?;
            out.set_permissions(fs::Permissions::from_mode(mode))?;
            out.sync_all()?;
            fs::rename(half, path)?;
        }
        Ok(Shelf { dir: dir.to_owned(), current })
    }

    /// The version new containers get.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// The library of a version.
    pub fn library(&self, version: &str) -> PathBuf {
        self.dir.join(version).join(FILE)
    }

    /// The preload file of a version.
    pub fn preload(&self, version: &str) -> PathBuf {
        self.dir.join(version).join(PRELOAD)
    }

    /// Removes the versions that nobody uses. Returns them.
    pub fn sweep(&self, used: &BTreeSet<String>) -> io::Result<Vec<String>> {
        let mut removed = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_version = name.len() == 64 && name.chars().all(|c| c.is_ascii_hexdigit());
            if is_version && name != self.current && !used.contains(&name) {
                fs::remove_dir_all(self.dir.join(&name))?;
                removed.push(name);
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_side_by_side_and_the_unused_go() {
        let root = tempfile::tempdir().unwrap();
        let (library, dir) = (root.path().join("new.so"), root.path().join("lib"));
        fs::write(&library, "one").unwrap();
        let first = Shelf::stock(&dir, &library).unwrap();
        fs::write(&library, "two").unwrap();
        let second = Shelf::stock(&dir, &library).unwrap();
        assert_eq!(fs::read_to_string(second.library(first.current())).unwrap(), "one");
        assert_eq!(fs::read_to_string(second.preload(second.current())).unwrap(), format!("{}\n", inside::LIBRARY));
        let used = BTreeSet::from([first.current().to_owned()]);
        assert!(second.sweep(&used).unwrap().is_empty());
        assert_eq!(second.sweep(&BTreeSet::new()).unwrap(), [first.current()]);
        assert!(second.library(second.current()).exists());
    }

    #[test]
    fn stocking_again_leaves_the_file_alone() {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("l.so");
        fs::write(&library, "one").unwrap();
        let shelf = Shelf::stock(root.path(), &library).unwrap();
        let inode = || fs::metadata(shelf.library(shelf.current())).unwrap().ino();
        let before = inode();
        Shelf::stock(root.path(), &library).unwrap();
        assert_eq!(before, inode());
    }
}
