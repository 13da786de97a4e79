//! Folders whose content can be seen at once.

use std::collections::BTreeMap;

use crate::tidy::lists::List;
use crate::tidy::{File, files, none};

const FILES: usize = 15;
/// What people write; data and recordings may be many.
const WRITTEN: &[&str] = &[".rs", ".md", ".c", ".py", ".sh", ".js"];

#[test]
fn folders_are_small_but_for_those_that_are_listed() {
    none(
        &List::read("full-folders").compare(&full(files())),
        &format!(
            "Give each concern in a folder of more than {FILES} files a folder of its own, or list it in xtask/tidy/full-folders.txt with the reason."
        ),
    );
}

fn full(files: &[File]) -> BTreeMap<String, String> {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| WRITTEN.iter().any(|end| file.ends_with(end))) {
        let folder = file.path.rsplit_once('/').map_or(".", |(folder, _)| folder);
        *folders.entry(folder.to_owned()).or_default() += 1;
    }
    folders.retain(|_, count| *count > FILES);
    folders.into_iter().map(|(folder, count)| (folder, format!("{count} files"))).collect()
}

#[test]
fn a_folder_of_one_file_too_many_is_found() {
    let mut files: Vec<File> = (0..=FILES).map(|n| File::new(&format!("a/{n}.rs"), "")).collect();
    assert_eq!(full(&files), BTreeMap::from([("a".into(), "16 files".into())]));
    files[0].path = "a/0.csv".into();
    assert_eq!(full(&files), BTreeMap::new());
}
