//! Where the files of a container are.

use std::path::{Path, PathBuf};

/// The directory as the container sees it.
pub const IN_CONTAINER: &str = "/run/divvy";
/// Names another directory, for tests, the demo and bare metal. Heard only where [`IN_CONTAINER`] holds no gate: a tenant cannot
/// leave its own pages for others by setting a variable.
pub const DIR_VARIABLE: &str = "DIVVY_DIR";
/// The file with configuration and gate words.
pub const GATE: &str = "gate";
/// The file with processes, memory and streams.
pub const LEDGER: &str = "ledger";
/// The agent's socket.
pub const SOCKET: &str = "agent.sock";

/// The directory of the container this process runs in, if it is one of ours.
pub fn own_dir() -> Option<PathBuf> {
    choose(Path::new(IN_CONTAINER), std::env::var_os(DIR_VARIABLE).map(PathBuf::from))
}

fn choose(fixed: &Path, named: Option<PathBuf>) -> Option<PathBuf> {
    let has_gate = |dir: &Path| dir.join(GATE).exists();
    if has_gate(fixed) {
        return Some(fixed.to_path_buf());
    }
    named.filter(|dir| has_gate(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_heard_only_where_the_fixed_place_holds_no_gate() {
        let (fixed, other, empty) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join(GATE), b"").unwrap();
        let named = || Some(other.path().to_path_buf());
        assert_eq!(choose(fixed.path(), None), None);
        assert_eq!(choose(fixed.path(), Some(empty.path().to_path_buf())), None);
        assert_eq!(choose(fixed.path(), named()), named());
        std::fs::write(fixed.path().join(GATE), b"").unwrap();
        assert_eq!(choose(fixed.path(), named()), Some(fixed.path().to_path_buf()));
    }
}
