//! What containers use, as the agents tell it on their metrics ports; reached through the API server, with the reader's own rights.

use std::collections::BTreeMap;

use divvy_api::usage::{self, What};
use divvy_core::units::Bytes;
use kube::Client;
use serde_json::Value;

/// Where agents' pods are found.
const AGENTS: &str =
    "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Ddivvy%2Capp.kubernetes.io%2Fcomponent%3Dagent";

/// What a pod uses of all its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Devices' time over the last second; 1 is one device.
    pub(super) busy: f64,
    /// Seconds it had work and waited for its turn, since it was granted.
    pub(super) throttled: f64,
    /// Memory in use.
    pub(super) memory: Bytes,
}

/// Usage by `namespace/pod`.
pub(super) type All = BTreeMap<String, Usage>;

/// Asks every agent; one that does not answer is left out.
pub(super) async fn ask(client: &Client) -> All {
    let mut all = All::new();
    let agents: Value = divvy_cluster::get(client, AGENTS).await.unwrap_or_default();
    for pod in agents["items"].as_array().into_iter().flatten() {
        let (meta, ports) = (&pod["metadata"], &pod["spec"]["containers"][0]["ports"]);
        let place = meta["namespace"].as_str().zip(meta["name"].as_str());
        let Some(((namespace, name), port)) = place.zip(ports[0]["containerPort"].as_u64()) else { continue };
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
        let Ok(request) = http::Request::get(&path).body(Vec::new()) else { continue };
        if let Ok(text) = client.request_text(request).await {
            read(&text, &mut all);
        }
    }
    all
}

/// Adds up what one agent says.
pub(super) fn read(text: &str, all: &mut All) {
    for told in usage::told(text) {
        let usage = all.entry(format!("{}/{}", told.namespace, told.pod)).or_default();
        match told.what {
            What::Busy => usage.busy += told.value,
            What::Throttled => usage.throttled += told.value,
            What::Memory => usage.memory = Bytes(usage.memory.0 + told.value as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_metrics_are_added_up_by_pod() {
        let mut all = All::new();
        read(
            "# HELP divvy_container_busy_ratio x\n\
             divvy_container_busy_ratio{device=\"GPU-1\",container=\"a\",namespace=\"n\",pod=\"p\"} 0.25\n\
             divvy_container_busy_ratio{device=\"GPU-2\",container=\"a\",namespace=\"n\",pod=\"p\"} 0.5\n\
             divvy_container_throttled_seconds_total{namespace=\"n\",pod=\"p\",container=\"a\"} 12.5 1700000000\n\
             divvy_container_memory_used_bytes{pod=\"q\",namespace=\"n\"} 1073741824.0\n\
             divvy_container_busy_ratio{broken\nnonsense\n",
            &mut all,
        );
        assert_eq!(all["n/p"], Usage { busy: 0.75, throttled: 12.5, memory: Bytes::ZERO });
        assert_eq!(all["n/q"].memory, Bytes::gib(1));
    }
}
