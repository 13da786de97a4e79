//! `kubectl divvy quota`: what namespaces hold at once, and what they may.

use std::collections::BTreeMap;

use divvy_core::id::Namespace;
use divvy_core::quota::{Usage, What};
use divvy_core::units::{Bytes, Share};
use serde::Serialize;
use serde_json::Value;

use crate::cluster::{Source, View};
use crate::ending::Ending;
use crate::output::Table;

#[derive(clap::Args)]
pub(crate) struct Args {}

/// What a namespace holds of one model, and what it may.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    /// The model; absent where a limit is about all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    held: Usage,
    /// The GpuQuota that limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Value>,
}

pub(crate) async fn run(_: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    let rows = rows(&view, source.wanted_namespace());
    source.output.print(&rows, |_| table(&rows))?;
    Ok(Ending::Yes)
}

fn rows(view: &View, only: Option<&str>) -> Vec<Row> {
    let mut held: BTreeMap<(Namespace, String), Usage> = BTreeMap::new();
    for (_, state) in view.snapshot.nodes() {
        for pod in state.pods().iter().filter_map(|ix| view.snapshot.pod_at(*ix)) {
            for (device, charge) in pod.charges() {
                let Some(device) = state.node().inventory.devices.get(*device as usize) else { continue };
                let usage = Usage::of(charge, device);
                let sum = held.entry((pod.pod().key.namespace.clone(), device.model.to_string())).or_default();
                sum.devices += usage.devices;
                sum.share += usage.share;
                sum.memory += usage.memory;
            }
        }
    }
    let wanted = |namespace: &str| only.is_none_or(|only| only == namespace);
    let limits = view.quotas.iter().map(|quota| Row {
        namespace: quota["metadata"]["namespace"].as_str().unwrap_or("-").to_owned(),
        quota: quota["metadata"]["name"].as_str().map(str::to_owned),
        limit: Some(quota["spec"].clone()),
        ..Row::default()
    });
    let limits: Vec<Row> = limits.filter(|row| wanted(&row.namespace)).collect();
    held.into_iter()
        .filter(|((namespace, _), _)| wanted(namespace.as_str()))
        .map(|((namespace, model), held)| Row {
            namespace: namespace.to_string(),
            model: Some(model),
            held,
            ..Row::default()
        })
        .chain(limits)
        .collect()
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No namespace holds a device, and none is limited.\n".into();
    }
    let mut table = Table::new(["NAMESPACE", "MODEL", "DEVICES", "SHARE", "MEMORY"]);
    for row in rows.iter().filter(|row| row.limit.is_none()) {
        let held = |what| row.held.get(what);
        table.row([
            row.namespace.clone(),
            row.model.clone().unwrap_or_else(|| "any".into()),
            held(What::Devices).to_string(),
            Share(u32::try_from(held(What::Share)).unwrap_or(u32::MAX)).to_string(),
            Bytes(held(What::Memory)).to_string(),
        ]);
    }
    let mut out = table.text();
    for row in rows {
        if let Some((quota, limit)) = row.quota.as_ref().zip(row.limit.as_ref()) {
            out.push_str(&format!("{} is limited by {quota}: {limit}\n", row.namespace));
        }
    }
    out
}
