//! Names this program goes by, and help for shells.
//!
//! - `kubectl-divvy`: `kubectl divvy ...`
//! - `kubectl-inspect-gpushare`: `kubectl inspect gpushare ...`, for those who come from there
//! - `kubectl_complete-divvy`: kubectl calls it to complete `kubectl divvy ...`

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which shell
    shell: Shell,
}

pub(crate) fn print(args: &Args, command: &mut Command) {
    clap_complete::generate(args.shell, command, "kubectl-divvy", &mut std::io::stdout());
}

/// The name we were called by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Divvy,
    InspectGpushare,
    Complete,
}

pub(crate) fn called_as(words: &[OsString]) -> Name {
    let own = words.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    match own {
        Some("kubectl-inspect-gpushare" | "kubectl-inspect_gpushare") => Name::InspectGpushare,
        Some("kubectl_complete-divvy") => Name::Complete,
        _ => Name::Divvy,
    }
}

/// The words behind the name of gpushare's tool in our spelling: Go's flag package takes one dash or two, and a value.
pub(crate) fn from_go(words: Vec<OsString>) -> Vec<OsString> {
    let mut ours = Vec::with_capacity(words.len());
    for word in words {
        match word.to_str() {
            Some("--d" | "-d=true" | "--d=true") => ours.push("-d".into()),
            Some("-d=false" | "--d=false") => {}
            _ => ours.push(word),
        }
    }
    ours
}

/// Answers kubectl: one candidate per line, then a word of cobra's that says not to offer files.
pub(crate) fn candidates(root: &Command, words: &[OsString]) -> ExitCode {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    for candidate in matching(root, &words) {
        println!("{candidate}");
    }
    println!(":4");
    ExitCode::SUCCESS
}

fn matching(root: &Command, words: &[String]) -> Vec<String> {
    let (last, before) = words.split_last().map_or(("", &[] as &[String]), |(last, rest)| (last.as_str(), rest));
    let mut at = root;
    for word in before {
        at = at.find_subcommand(word).unwrap_or(at);
    }
    let commands = at.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned());
    let flags = at.get_arguments().chain(root.get_arguments()).filter_map(|a| a.get_long()).map(|f| format!("--{f}"));
    let all: Vec<String> = if last.starts_with('-') { flags.collect() } else { commands.collect() };
    all.into_iter().filter(|word| word.starts_with(last)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn kubectl_is_told_commands_and_flags() {
        let root = crate::Args::command();
        let ask = |words: &[&str]| matching(&root, &words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(ask(&["re"]), ["replay", "resize"]);
        assert_eq!(ask(&["resize", "--sh"]), ["--share", "--share-limit"]);
        assert!(ask(&["inspect", "--"]).contains(&"--snapshot".to_owned()));
    }

    #[test]
    fn it_knows_its_names() {
        assert_eq!(called_as(&["/usr/bin/kubectl-inspect-gpushare".into()]), Name::InspectGpushare);
        assert_eq!(called_as(&["kubectl-divvy".into()]), Name::Divvy);
        assert_eq!(called_as(&[]), Name::Divvy);
    }

    #[test]
    fn gpushares_flags_are_read_as_go_reads_them() {
        let ours = |words: &[&str]| from_go(words.iter().map(Into::into).collect());
        for word in ["-d", "--d", "-d=true", "--d=true"] {
            assert_eq!(ours(&[word, "n1"]), ["-d", "n1"], "{word}");
        }
        assert_eq!(ours(&["-d=false", "n1"]), ["n1"]);
    }
}
