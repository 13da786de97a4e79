//! Does somebody else give out this node's cards? Two owners of one card over-commit it, so where another device plugin or a DRA driver
//! offers NVIDIA's cards, ours are not offered, and both owners are named.

use std::time::Duration;

use divvy_core::keys;
use divvy_service::Stop;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::events::Events;
use crate::kubelet::Kubelet;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(15);

/// Looks again and again; what is found is in `owners`: the sentence that says who else gives cards out.
pub async fn watch(
    client: Client,
    node: String,
    kubelet: Kubelet,
    events: Events,
    owners: watch::Sender<Option<String>>,
    stop: Stop,
) -> anyhow::Result<()> {
    loop {
        let plugins = kubelet.plugin_resources().await.unwrap_or_default();
        let drivers = drivers(&client, &node).await;
        let found = sentence(plugins.iter().map(String::as_str), drivers.iter().map(String::as_str));
        let changed = owners.send_if_modified(|old| {
            let changed = *old != found;
            old.clone_from(&found);
            changed
        });
        match (&found, changed) {
            (Some(sentence), true) => {
                tracing::error!(sentence, "the cards have two owners");
                events.node(true, "TwoOwners", sentence);
            }
            (None, true) => events.node(false, "OneOwner", "this node's cards are Divvy's alone"),
            (_, false) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

/// DRA drivers that offer devices of this node. A cluster without DRA has none.
async fn drivers(client: &Client, node: &str) -> Vec<String> {
    let api: Api<ResourceSlice> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = api.list(&params).await.map(|list| list.items).unwrap_or_default();
    listed.into_iter().map(|slice| slice.spec.driver).collect()
}

/// Who else gives out NVIDIA's cards, as one sentence.
fn sentence<'a>(plugins: impl Iterator<Item = &'a str>, drivers: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_card = |name: &&str| *name == keys::VGPU_COUNT || name.starts_with(keys::VGPU_MIG);
    let plugin = plugins.filter(is_card).min().map(|name| format!("a device plugin offers {name}"));
    let driver =
        drivers.filter(|name| *name == keys::NVIDIA_DRA).min().map(|name| format!("the DRA driver {name} runs"));
    let others: Vec<String> = plugin.into_iter().chain(driver).collect();
    (!others.is_empty()).then(|| {
        format!(
            "{} on this node beside divvy-agent: its cards are not offered; keep one of the two",
            others.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_owners_are_named_and_our_own_resource_is_no_stranger() {
        let none = sentence([keys::SLOT, "rdma/hca"].into_iter(), ["other.example.com"].into_iter());
        assert_eq!(none, None);
        let both = sentence([keys::SLOT, keys::VGPU_COUNT].into_iter(), [keys::NVIDIA_DRA].into_iter()).unwrap();
        assert!(
            both.starts_with("a device plugin offers nvidia.com/gpu and the DRA driver gpu.nvidia.com runs"),
            "{both}"
        );
        assert!(both.contains("beside divvy-agent"));
    }
}
