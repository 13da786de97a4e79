//! Installing: the chart on paper, and with helm on a real node, from images made without a container engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod install {
    mod chart;
    mod node;
}

use std::path::{Path, PathBuf};
use std::process::Command;

use divvy_e2e::programs;

const NAMESPACE: &str = "divvy-system";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs helm, against a cluster where one is named; what it said.
fn helm(kubeconfig: Option<&Path>, words: &[&str]) -> String {
    let mut command = Command::new(programs::helm().unwrap());
    command.args(words).current_dir(repository());
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "helm {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
