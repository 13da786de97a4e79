//! `kubectl divvy cordon GPU` and `uncordon GPU`: a GPU out of service and back.

use anyhow::bail;
use divvy_cluster::Failure;
use divvy_core::keys;
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::{Source, View};
use crate::ending::{Ending, NotFound};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The GPU, by its UUID (or the start of it that only one has) or as NODE/INDEX
    gpu: String,
}

pub(crate) async fn run(args: &Args, source: &Source, cordon: bool) -> anyhow::Result<Ending> {
    let client = source.client().await?;
    let view = source.view().await?;
    let (node, id) = find(&view, &args.gpu)?;
    let pods = holders(&view, &node, &id);
    if !change(&client, &node, &id, cordon).await? {
        let state = if cordon { "out of service" } else { "in service" };
        output::show(&format!("{id} on {node} is {state} already.\n"))?;
        return Ok(Ending::Yes);
    }
    if cordon {
        let stay = match pods {
            0 => "Nothing runs on it.".to_owned(),
            n => format!("{n} pods on it run on; nothing new comes."),
        };
        output::show(&format!("{id} on {node} is out of service. {stay}\n"))?;
    } else {
        output::show(&format!("{id} on {node} is in service again.\n"))?;
    }
    Ok(Ending::Yes)
}

/// The node and the id of a GPU.
pub(crate) fn find(view: &View, wanted: &str) -> anyhow::Result<(String, String)> {
    let devices = view.snapshot.nodes().flat_map(|(_, state)| {
        let name = state.node().name.as_str();
        state.node().inventory.devices.iter().map(move |device| (name, device))
    });
    let by_place =
        |node: &str, index: u32| wanted.split_once('/').is_some_and(|(n, i)| n == node && i == index.to_string());
    let mut found: Vec<(String, String)> = devices
        .filter(|(node, device)| device.id.as_str().starts_with(wanted) || by_place(node, device.index))
        .map(|(node, device)| (node.to_owned(), device.id.to_string()))
        .collect();
    if let Some(exact) = found.iter().position(|(_, id)| id == wanted) {
        return Ok(found.swap_remove(exact));
    }
    match found.len() {
        0 => Err(NotFound(format!("there is no GPU {wanted}: `kubectl divvy inspect -o wide` lists them")).into()),
        1 => Ok(found.swap_remove(0)),
        n => bail!(
            "{n} GPUs begin with {wanted}: {}",
            found.into_iter().map(|(_, id)| id).collect::<Vec<_>>().join(", ")
        ),
    }
}

fn holders(view: &View, node: &str, id: &str) -> usize {
    let Some(state) = view.snapshot.node(&node.into()) else { return 0 };
    let Some(device) = state.node().inventory.devices.iter().position(|d| d.id.as_str() == id) else { return 0 };
    let pods = state.pods().iter().filter_map(|ix| view.snapshot.pod_at(*ix));
    pods.filter(|pod| pod.charges().iter().any(|(d, _)| *d as usize == device)).count()
}

/// Writes the change; false where there is none. Somebody else's change in the meantime is read again, never lost.
async fn change(client: &Client, node: &str, id: &str, cordon: bool) -> anyhow::Result<bool> {
    let path = format!("/api/v1/nodes/{node}");
    for _ in 0..5 {
        let object: Value = divvy_cluster::get(client, &path).await?;
        let Some(annotations) = patched(&object, id, cordon) else { return Ok(false) };
        let version = &object["metadata"]["resourceVersion"];
        let body = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
        match divvy_cluster::patch::<serde::de::IgnoredAny>(client, &path, &body).await {
            Ok(_) => return Ok(true),
            Err(Failure::Conflict { .. }) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    bail!("node {node} changes faster than it can be changed: try again")
}

/// The annotations to set; none where nothing changes. Back in service means in everybody's words.
fn patched(node: &Value, id: &str, cordon: bool) -> Option<Value> {
    let list = |key: &str| -> Vec<String> {
        let text = node["metadata"]["annotations"][key].as_str().unwrap_or_default();
        text.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect()
    };
    let mut changes = serde_json::Map::new();
    if cordon {
        if [keys::CORDON, keys::HAMI_CORDON].iter().any(|key| list(key).iter().any(|listed| listed == id)) {
            return None;
        }
        let mut all = list(keys::CORDON);
        all.push(id.to_owned());
        changes.insert(keys::CORDON.into(), all.join(",").into());
    } else {
        for key in [keys::CORDON, keys::HAMI_CORDON] {
            let all = list(key);
            let rest: Vec<&String> = all.iter().filter(|listed| *listed != id).collect();
            if rest.len() < all.len() {
                let text = rest.into_iter().map(String::as_str).collect::<Vec<_>>().join(",");
                changes.insert(key.into(), if text.is_empty() { Value::Null } else { text.into() });
            }
        }
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_goes_out_of_service_beside_others_and_comes_back_in_everybodys_words() {
        let node = json!({"metadata": {"annotations": {(keys::CORDON): "GPU-1", (keys::HAMI_CORDON): "GPU-2, GPU-3"}}});
        assert_eq!(patched(&node, "GPU-4", true), Some(json!({(keys::CORDON): "GPU-1,GPU-4"})));
        assert_eq!(patched(&node, "GPU-1", true), None);
        assert_eq!(patched(&node, "GPU-2", true), None);
        assert_eq!(patched(&node, "GPU-1", false), Some(json!({(keys::CORDON): null})));
        assert_eq!(patched(&node, "GPU-3", false), Some(json!({(keys::HAMI_CORDON): "GPU-2"})));
        assert_eq!(patched(&node, "GPU-9", false), None);
        assert_eq!(patched(&json!({"metadata": {}}), "GPU-1", true), Some(json!({(keys::CORDON): "GPU-1"})));
    }
}
