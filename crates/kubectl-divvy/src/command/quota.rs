//! `kubectl divvy quota`: what namespaces hold at once, and what they may.

use std::collections::BTreeMap;

use divvy_core::id::Namespace;
use divvy_core::quota::{Held, Usage, What};
use divvy_core::units::{Bytes, Share};
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{Source, View};
use crate::ending::Ending;
use crate::output::{BAD, Cell, PLAIN, Table};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// What a namespace holds of some devices, and what it may.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    /// A model, or the part of a model's name that a limit is about; absent for a limit about all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    held: Usage,
    /// The GpuQuota that limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    limit: BTreeMap<&'static str, u64>,
}

pub(crate) async fn run(_: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    let rows = rows(&view, source.wanted_namespace());
    source.output.print(&rows, |_| table(&rows))?;
    Ok(Ending::Yes)
}

/// A row for each limit; and for namespaces without one a row for each model they hold.
fn rows(view: &View, only: Option<&str>) -> Vec<Row> {
    let held = held(view);
    let nothing = Held::default();
    let mut rows = Vec::new();
    let mut limited = Vec::new();
    for quota in &view.quotas {
        let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
        let holds = held.get(namespace).unwrap_or(&nothing);
        limited.push(namespace);
        for limit in quota["spec"]["limits"].as_array().into_iter().flatten() {
            let model = limit["model"].as_str();
            let sum = |what| holds.sum(model, what);
            rows.push(Row {
                namespace: namespace.to_owned(),
                model: model.map(str::to_owned),
                held: Usage { devices: sum(What::Devices), share: sum(What::Share), memory: sum(What::Memory) },
                quota: quota["metadata"]["name"].as_str().map(str::to_owned),
                limit: amounts(limit),
            });
        }
    }
    for (namespace, held) in held.iter().filter(|(namespace, _)| !limited.contains(&namespace.as_str())) {
        rows.extend(held.models().map(|(model, usage)| Row {
            namespace: namespace.to_string(),
            model: Some(model.to_string()),
            held: *usage,
            ..Row::default()
        }));
    }
    rows.retain(|row| only.is_none_or(|only| only == row.namespace));
    rows.sort_by(|a, b| (&a.namespace, &a.quota, &a.model).cmp(&(&b.namespace, &b.quota, &b.model)));
    rows
}

/// What namespaces hold, from the ledger.
fn held(view: &View) -> BTreeMap<Namespace, Held> {
    let mut all: BTreeMap<Namespace, Held> = BTreeMap::new();
    for (_, state) in view.snapshot.nodes() {
        for pod in state.pods().iter().filter_map(|ix| view.snapshot.pod_at(*ix)) {
            for (device, charge) in pod.charges() {
                if let Some(device) = state.node().inventory.devices.get(*device as usize) {
                    let part = Held::of(&device.model, Usage::of(charge, device));
                    all.entry(pod.pod().key.namespace.clone()).or_default().add(&part);
                }
            }
        }
    }
    all
}

fn amounts(limit: &Value) -> BTreeMap<&'static str, u64> {
    let mut amounts = BTreeMap::new();
    for what in ["devices", "share"] {
        amounts.extend(limit[what].as_u64().map(|n| (what, n)));
    }
    amounts.extend(limit["memory"].as_str().map(|text| ("memory", divvy_api::quantity::units(text))));
    amounts
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No namespace holds a device, and none is limited.\n".into();
    }
    let mut table = Table::new(["NAMESPACE", "QUOTA", "MODEL", "DEVICES", "SHARE", "MEMORY"]);
    for row in rows {
        let cell = |what: What, name: &str, show: fn(u64) -> String| {
            let (held, limit) = (row.held.get(what), row.limit.get(name));
            let full = limit.is_some_and(|limit| held >= *limit);
            let text = limit.map_or_else(|| show(held), |limit| format!("{}/{}", show(held), show(*limit)));
            Cell(text, if full { BAD } else { PLAIN })
        };
        table.row([
            Cell::from(&row.namespace),
            Cell::from(row.quota.as_deref().unwrap_or("-")),
            Cell::from(row.model.as_deref().unwrap_or("any")),
            cell(What::Devices, "devices", |n| n.to_string()),
            cell(What::Share, "share", |n| Share(u32::try_from(n).unwrap_or(u32::MAX)).to_string()),
            cell(What::Memory, "memory", |n| Bytes(n).to_string()),
        ]);
    }
    table.text()
}
