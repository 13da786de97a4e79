//! Divvy's objects in a cluster as its chart makes them: custom resources, accounts, rights, admission policies. What a test starts
//! itself, the programs, is left out.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::kubectl::Kubectl;

/// Where the chart is rendered into (`deploy/divvy.yaml`; a test keeps it as the chart is).
pub const NAMESPACE: &str = "divvy-system";
/// The account of the control plane.
pub const CONTROLLER: &str = "divvy";
/// The account of agents.
pub const AGENT: &str = "divvy-agent";
/// What the tests start themselves.
const PROGRAMS: [&str; 4] = ["Deployment", "DaemonSet", "Service", "PodDisruptionBudget"];
/// How long the API server may take to serve a new custom resource, on a busy machine.
const SOON: Duration = Duration::from_secs(90);

/// Installs them.
pub fn install(admin: &Kubectl) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/divvy.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let is_object = |part: &&str| {
        let kind = part.lines().find_map(|line| line.strip_prefix("kind: "));
        kind.is_some_and(|kind| !PROGRAMS.contains(&kind.trim()))
    };
    let (resources, rest): (Vec<&str>, Vec<&str>) =
        text.split("\n---\n").filter(is_object).partition(|part| part.contains("kind: CustomResourceDefinition"));
    // Policies name custom resources, and namespaces have objects in them: the former first.
    for parts in [resources, rest] {
        admin.feed(&["apply", "--server-side", "-f", "-"], &parts.join("\n---\n"))?;
    }
    admin.wait("crd", "gpupolicies.divvy.dev", SOON, |crd| {
        let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True")
    })?;
    Ok(())
}
