//! `divvy crds`: the custom resource definitions, as they are committed under `deploy/crds`.

use std::io::Write;

use anyhow::Context;
use divvy_api::budget::{ClusterGpuBudget, GpuBudget, GpuBudgetEntry, GpuCharges, GpuQuota};
use divvy_api::policy::GpuPolicy;
use kube::CustomResourceExt;
use serde_json::Value;

/// File name and content of each definition.
pub(crate) fn all() -> anyhow::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("gpupolicies.yaml", yaml(&GpuPolicy::crd())?),
        ("gpubudgets.yaml", yaml(&GpuBudget::crd())?),
        ("clustergpubudgets.yaml", yaml(&ClusterGpuBudget::crd())?),
        ("gpubudgetentries.yaml", yaml(&GpuBudgetEntry::crd())?),
        ("gpucharges.yaml", yaml(&GpuCharges::crd())?),
        ("gpuquotas.yaml", yaml(&GpuQuota::crd())?),
    ])
}

fn yaml(crd: &impl serde::Serialize) -> anyhow::Result<String> {
    let mut json = serde_json::to_value(crd).context("a definition cannot be written")?;
    drop_rust_formats(&mut json);
    serde_saphyr::to_string(&json).context("a definition cannot be written as YAML")
}

/// The API server knows `int32` and `int64` and warns about the other widths; the bounds say the same.
fn drop_rust_formats(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|f| f.starts_with("uint")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(drop_rust_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_rust_formats),
        _ => {}
    }
}

pub(crate) fn print() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (_, text) in all()? {
        write!(out, "---\n{text}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    /// `UPDATE=1 cargo test -p divvy crds` writes them.
    #[test]
    fn the_committed_definitions_are_current() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        for (name, text) in super::all().unwrap() {
            let path = folder.join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == text, "deploy/crds/{name} is out of date: UPDATE=1 cargo test -p divvy crds");
        }
    }
}
