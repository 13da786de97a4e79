//! The committed code is what the generator makes of the definitions.

use std::fs;
use std::path::Path;

#[test]
fn the_committed_code_is_what_the_definitions_say() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap();
    for file in ["deviceplugin.proto", "podresources.proto", "cri.proto"] {
        let set = protox::compile([file], [own.join("proto")]).unwrap();
        tonic_prost_build::configure().out_dir(fresh.path()).compile_fds(set).unwrap();
    }
    for entry in fs::read_dir(fresh.path()).unwrap() {
        let name = entry.unwrap().file_name();
        let committed = own.join("src/generated").join(&name);
        let made = fs::read_to_string(fresh.path().join(&name)).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(committed.parent().unwrap()).unwrap();
            fs::write(&committed, &made).unwrap();
        }
        let found = fs::read_to_string(&committed).unwrap_or_default();
        assert!(found == made, "{} is stale: run `UPDATE=1 cargo test -p divvy-proto`", committed.display());
    }
}
