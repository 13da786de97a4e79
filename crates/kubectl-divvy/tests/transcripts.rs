//! What people see: commands and their answers, about one cluster in a file (`transcripts/cluster.json`, made by `make_cluster.py`).
//!
//! `TRYCMD=overwrite cargo test -p kubectl-divvy --test transcripts` writes what is said now; read the difference before it is committed.

#[test]
fn commands_say_what_the_transcripts_say() {
    // The commands name files beside the transcripts.
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts")).expect("the folder is there");
    let cases = trycmd::TestCases::new();
    cases.env("COLUMNS", "120");
    cases.case("*.md");
    // The cases run when they are dropped.
    drop(cases);
}

#[test]
fn it_goes_by_the_name_of_gpushares_tool() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("kubectl-inspect-gpushare");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubectl-divvy"), &name).expect("a link");
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/cluster.json");
    let said = std::process::Command::new(&name).args(["--snapshot", cluster]).output().expect("it runs");
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert!(text.starts_with("NAME   IPADDRESS  GPU0(Allocated/Total)"), "{text}");
    assert!(text.contains("gpu-b  10.0.0.2   40/40"), "{text}");
}

#[test]
fn colours_are_for_terminals() {
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/cluster.json");
    let ask = |force: bool| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-divvy"));
        command.args(["inspect", "--snapshot", cluster]);
        if force {
            command.env("CLICOLOR_FORCE", "1");
        }
        command.env_remove("NO_COLOR").output().expect("it runs").stdout
    };
    assert!(!ask(false).contains(&0x1b));
    assert!(ask(true).contains(&0x1b));
}
