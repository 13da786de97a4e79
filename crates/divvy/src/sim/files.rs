//! Files in and out. What is written is written at the end, all of it or none.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use divvy_sim::csv::Mistake;

/// A file's text.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// What a file says; a mistake names the file too.
pub(super) fn parse<T>(path: &Path, parse: fn(&str) -> Result<T, Mistake>) -> anyhow::Result<T> {
    parse(&read(path)?).map_err(|mistake| anyhow::anyhow!("{}: {mistake}", path.display()))
}

/// Files to be written.
#[derive(Default)]
pub(super) struct Output {
    files: Vec<(PathBuf, String)>,
}

impl Output {
    /// One more.
    pub(super) fn add(&mut self, path: &Path, text: String) {
        self.files.push((path.to_owned(), text));
    }

    /// Writes them beside their places first, so that a full disk leaves nothing half written.
    pub(super) fn write(self) -> anyhow::Result<()> {
        let beside = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".part");
            PathBuf::from(name)
        };
        let tidy = |error: std::io::Error, path: &Path| {
            self.files.iter().for_each(|(path, _)| drop(fs::remove_file(beside(path))));
            Err(error).with_context(|| format!("{} cannot be written", path.display()))
        };
        for (path, text) in &self.files {
            if let Err(error) = fs::write(beside(path), text) {
                return tidy(error, path);
            }
        }
        for (path, _) in &self.files {
            if let Err(error) = fs::rename(beside(path), path) {
                return tidy(error, path);
            }
        }
        Ok(())
    }
}
