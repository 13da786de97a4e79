//! Does somebody else give out this node's cards? Two owners of one card over-commit it, so where another device plugin or a DRA driver
//! offers NVIDIA's cards, ours are not offered, and both owners are named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use divvy_core::keys;
use divvy_service::Stop;
use futures::StreamExt;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

use crate::events::Events;
use crate::kubelet::Kubelet;
use crate::node::Node;

/// Between two looks at the kubelet's device plugins.
const LOOK: Duration = Duration::from_secs(5);

/// What is known about others.
#[derive(Default)]
struct Others {
    /// Resources that device plugins offer here; unknown before the first look.
    plugins: Option<BTreeSet<String>>,
    /// DRA drivers that offer devices of this node, by their objects; unknown before the first list.
    drivers: Option<BTreeMap<String, String>>,
    /// The list that is being told.
    listed: BTreeMap<String, String>,
}

impl Others {
    fn hear(&mut self, event: Event<ResourceSlice>) {
        let known = self.drivers.get_or_insert_default();
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(slice) => drop(self.listed.insert(slice.name_any(), slice.spec.driver)),
            Event::InitDone => *known = std::mem::take(&mut self.listed),
            Event::Apply(slice) => drop(known.insert(slice.name_any(), slice.spec.driver)),
            Event::Delete(slice) => drop(known.remove(&slice.name_any())),
        }
    }

    /// The sentence that says who else gives cards out, once everybody was looked at.
    fn sentence(&self) -> Option<Option<String>> {
        let (plugins, drivers) = (self.plugins.as_ref()?, self.drivers.as_ref()?);
        Some(sentence(plugins.iter().map(String::as_str), drivers.values().map(String::as_str)))
    }
}

/// Looks again and again; what is found is in `owners`: the sentence that says who else gives cards out. The first look is told
/// whatever it finds.
pub async fn watch(
    client: Client,
    node: Arc<Node>,
    kubelet: Kubelet,
    events: Events,
    owners: watch::Sender<Option<String>>,
    stop: Stop,
) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name));
    let mut slices = watcher(Api::<ResourceSlice>::all(client), config).default_backoff().boxed();
    let mut looks = tokio::time::interval(LOOK);
    let mut others = Others::default();
    let mut is_first = true;
    loop {
        tokio::select! {
            _ = looks.tick() => match kubelet.plugin_resources().await {
                Ok(plugins) => {
                    node.set_taken(plugins.iter().filter(|name| *name != keys::SLOT).cloned().collect());
                    others.plugins = Some(plugins);
                }
                // A kubelet that is away changes nothing about who offers what.
                Err(_) => drop(others.plugins.get_or_insert_default()),
            },
            event = slices.next() => match event {
                Some(Ok(event)) => others.hear(event),
                // A cluster without DRA has no such objects.
                Some(Err(error)) => {
                    tracing::debug!(%error, "cannot hear of DRA drivers");
                    others.drivers.get_or_insert_default();
                }
                None => anyhow::bail!("the watch of DRA drivers ended"),
            },
            () = stop.requested() => return Ok(()),
        }
        let Some(found) = others.sentence() else { continue };
        let is_new = *owners.borrow() != found;
        match &found {
            Some(sentence) if is_new => {
                tracing::error!(sentence, "the cards have two owners");
                events.node(true, "TwoOwners", sentence);
            }
            None if is_new => events.node(false, "OneOwner", "this node's cards are Divvy's alone"),
            _ => {}
        }
        if is_new || is_first {
            owners.send_replace(found);
        }
        is_first = false;
    }
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
