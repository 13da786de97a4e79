//! Every manifest under examples/ is read, and asks for what examples.txt says.

use std::fs;
use std::path::{Path, PathBuf};

use divvy_core::ask::Dialect;
use divvy_dialects::{DialectConfig, NvidiaFlavour, PodManifest, Reading, parse, pod_templates, sentence};
use expect_test::expect_file;
use serde_json::Value;

fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

/// The pods of a file with several documents.
fn pods(text: &str) -> Vec<Value> {
    let documents = serde_saphyr::from_multiple::<Value>(text).unwrap();
    documents.iter().flat_map(|document| pod_templates(document).into_iter().cloned().collect::<Vec<_>>()).collect()
}

/// Every pod of every example: its folder, its file, and itself.
pub(crate) fn all_pods() -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for path in examples() {
        let folder = path.parent().and_then(Path::file_name).unwrap().to_string_lossy().into_owned();
        let name = format!("{folder}/{}", path.file_name().unwrap().to_string_lossy());
        let found = pods(&fs::read_to_string(&path).unwrap());
        assert!(!found.is_empty(), "{name} holds no pod");
        all.extend(found.into_iter().map(|pod| (folder.clone(), name.clone(), pod)));
    }
    all
}

#[test]
fn every_example_asks_for_what_it_says() {
    let mut shown = String::new();
    for (folder, name, pod) in all_pods() {
        let nvidia = if folder == "vgpu" { NvidiaFlavour::Vgpu } else { NvidiaFlavour::Hami };
        let config = DialectConfig { nvidia, ..DialectConfig::default() };
        match parse(&PodManifest::new(&pod), &config) {
            Reading::Ask(ask, hints) => {
                let ask = serde_json::to_string(&ask).unwrap();
                shown += &format!("# {name}\n{ask}\n");
                for (key, value) in &hints.annotations {
                    shown += &format!("+ annotation {key}={value}\n");
                }
                for hint in &hints.resources {
                    shown += &format!("+ {} {}={}\n", hint.container, hint.resource, hint.amount);
                }
                for hint in &hints.env {
                    shown += &format!("+ {} {}={}\n", hint.container, hint.name, hint.value);
                }
                for hint in &hints.post_start {
                    shown += &format!("+ {} runs {}\n", hint.container, hint.command.join(" "));
                }
            }
            Reading::Refused(mistakes) => panic!("{name}: {}", sentence(&mistakes)),
            Reading::NotOurs => panic!("{name} asks for nothing"),
        }
    }
    expect_file!["examples.txt"].assert_eq(&shown);
}

#[test]
fn each_folder_speaks_its_dialect() {
    for (folder, name, pod) in all_pods() {
        let (nvidia, dialects) = match folder.as_str() {
            "native" => (NvidiaFlavour::Hami, vec![Dialect::Native]),
            "kubeshare" => (NvidiaFlavour::Hami, vec![Dialect::Kubeshare]),
            // A count without the annotation is read by the cluster's flavour, which gives whole cards too.
            "kubegpu" => (NvidiaFlavour::Hami, vec![Dialect::Kubegpu, Dialect::Hami]),
            "gpu-manager" => (NvidiaFlavour::Hami, vec![Dialect::GpuManager]),
            "gpushare" => (NvidiaFlavour::Hami, vec![Dialect::Gpushare]),
            "vgpu" => (NvidiaFlavour::Vgpu, vec![Dialect::Vgpu]),
            "hami" => (NvidiaFlavour::Hami, vec![Dialect::Hami]),
            other => panic!("examples/{other} belongs to no dialect"),
        };
        let config = DialectConfig { nvidia, ..DialectConfig::default() };
        match parse(&PodManifest::new(&pod), &config) {
            Reading::Ask(ask, _) => assert!(dialects.contains(&ask.dialect), "{name}: {:?}", ask.dialect),
            other => panic!("{name}: {other:?}"),
        }
    }
}
