//! Other amounts of a grant that is held: the scheduler has admitted them, so that its ledger counts them already; here they are judged
//! against the node's own, and carried into the pages of containers that run. Nothing restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::device::Device;
use divvy_core::grant::{Grant, Slice};
use divvy_core::id::{ContainerName, DeviceId, PodUid};
use divvy_core::keys;
use divvy_core::ledger::Charge;
use divvy_core::resize::too_large;
use divvy_core::units::{Bytes, Share};
use divvy_service::Stop;

use crate::arbiter::Accounts;
use crate::events::Events;
use crate::hold;
use crate::ledger::{Refusal, peak};
use crate::node::Node;
use crate::patches::{Change, Patches};
use crate::pods::PodView;

/// What is needed to change grants.
pub struct Resize {
    /// The node.
    pub node: Arc<Node>,
    /// What containers use now.
    pub accounts: Accounts,
    /// Whom to tell.
    pub events: Events,
    /// Where the answer is written.
    pub patches: Patches,
}

impl Resize {
    /// Follows the pods of this node.
    pub async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut changes = self.node.pods.changes();
        // Changes that were refused, so that each is answered once.
        let mut refused: BTreeMap<PodUid, String> = BTreeMap::new();
        loop {
            changes.borrow_and_update();
            let pods = self.node.pods.all();
            refused.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
            for pod in pods.iter().filter(|p| !p.ended) {
                let text = pod.change.as_ref().map(|change| change.text.clone()).unwrap_or_default();
                if refused.get(&pod.uid) == Some(&text) {
                    continue;
                }
                match self.apply(pod) {
                    // Back to what is in force, after something that was refused: whoever asked waits for an answer.
                    None if refused.remove(&pod.uid).is_some() => {
                        let held = self.node.ledger().holders().get(&pod.uid).map(|holder| amounts(&holder.grant));
                        self.answer(pod, true, "Applied", held.unwrap_or_default());
                    }
                    None => {}
                    Some(Ok(amounts)) => {
                        refused.remove(&pod.uid);
                        tracing::info!(audit = "resize", pod = %pod.pod, uid = %pod.uid, amounts, "a grant was changed");
                        self.answer(pod, true, "Applied", amounts);
                    }
                    Some(Err(reasons)) => {
                        refused.insert(pod.uid.clone(), text);
                        let why = reasons.join("; ");
                        tracing::warn!(audit = "resize", pod = %pod.pod, uid = %pod.uid, why, "a change of a grant is refused");
                        self.answer(pod, false, "Refused", why);
                    }
                }
            }
            tokio::select! {
                changed = changes.changed() => changed?,
                () = stop.requested() => return Ok(()),
            }
        }
    }

    /// Nothing to do, the amounts that are now in force, or every reason why they are not.
    fn apply(&self, pod: &PodView) -> Option<Result<String, Vec<String>>> {
        // A pod that has not started takes its amounts when it starts.
        let old = self.node.ledger().holders().get(&pod.uid)?.grant.clone();
        if let Some(Err(why)) = pod.change.as_ref().map(|change| &change.grant) {
            return Some(Err(vec![format!("the change {why}")]));
        }
        let new = pod.wanted()?.as_ref().ok()?;
        if old == *new {
            return None;
        }
        let accounts = self.accounts.all();
        let used = |container: &ContainerName, device: &DeviceId| {
            let key = (hold::account(&pod.uid, container), device.to_string());
            accounts.get(&key).map_or(Bytes::ZERO, |account| Bytes(account.memory))
        };
        let against = judge(&self.node.devices(), &old, new, used);
        if !against.is_empty() {
            return Some(Err(against));
        }
        Some(match self.node.resize(pod, new) {
            Ok(()) => Ok(amounts(new)),
            Err(Refusal { reasons, .. }) => Err(reasons),
        })
    }

    fn answer(&self, pod: &PodView, holds: bool, reason: &str, message: String) {
        let kind = keys::CONDITION_RESIZED.to_owned();
        match holds {
            true => self.events.tell_pod(pod, "Resized", &message),
            false => self.events.warn_pod(pod, "ResizeRefused", &message),
        }
        self.patches.change(&pod.pod, &pod.uid, Change::Condition { kind, holds, reason: reason.to_owned(), message });
    }
}

/// What speaks against other amounts, whatever else is on the devices. They are of the same devices ([`divvy_core::grant::held`]).
fn judge(devices: &[Device], old: &Grant, new: &Grant, used: impl Fn(&ContainerName, &DeviceId) -> Bytes) -> Vec<String> {
    let mut against: Vec<String> = devices.iter().filter_map(|device| too_large(old, new, device)).collect();
    for container in &new.containers {
        for slice in &container.slices {
            let held = used(&container.name, &slice.device);
            if held > slice.memory_limit {
                let (name, device, limit) = (&container.name, &slice.device, slice.memory_limit);
                against.push(format!("{name} uses {held} of {device}, more than {limit}"));
            }
        }
    }
    against
}

/// The devices as a change from `old` to `new` is judged: by what is offered now, and only where an amount grows. What a pod holds was
/// promised to it, however little is offered by now; holding less of it is never wrong.
pub(crate) fn by_growth(devices: &[Device], old: Option<&Grant>, new: &Grant) -> Vec<Device> {
    let (held, wanted) = (old.map(peak).unwrap_or_default(), peak(new));
    let judged = |device: &Device| {
        let on_it = |of: &BTreeMap<DeviceId, Charge>| of.get(&device.id).copied().unwrap_or_default();
        let (was, is, mut device) = (on_it(&held), on_it(&wanted), device.clone());
        if is.memory <= was.memory {
            device.bookable_memory = Some(Bytes(u64::MAX));
        }
        if is.share <= was.share {
            device.bookable_share = Some(Share(u32::MAX));
        }
        if is.tasks <= was.tasks {
            device.max_tasks = None;
        }
        device
    };
    devices.iter().map(judged).collect()
}

/// A grant in words.
fn amounts(grant: &Grant) -> String {
    let slice =
        |s: &Slice| format!("{} and {} to {} thousandths of {}", s.memory_limit, s.share.0, s.share_limit.0, s.device);
    let container = |c: &divvy_core::grant::ContainerGrant| {
        format!("{}: {}", c.name, c.slices.iter().map(slice).collect::<Vec<_>>().join(", "))
    };
    grant.containers.iter().map(container).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use divvy_api::policy::Offer;
    use divvy_core::ask::Role;
    use proptest::prelude::*;

    use super::*;
    use crate::testing;

    fn grant(device: &str, gib: u64) -> Grant {
        let slice = testing::slice(&device.into(), Bytes::gib(gib), 300);
        testing::grant(vec![testing::container("main", Role::Main, vec![slice])])
    }

    #[test]
    fn memory_is_not_cut_below_what_is_used_nor_raised_above_the_card() {
        let card = [Device::gpu("G", 0, "T4", Bytes::gib(16))];
        let judged = |gib, used| judge(&card, &grant("G", 4), &grant("G", gib), |_, _| Bytes::gib(used));
        assert!(judged(8, 3).is_empty());
        assert!(judged(3, 3).is_empty());
        assert_eq!(judged(2, 3), ["main uses 3 GiB of G, more than 2 GiB"]);
        assert_eq!(judged(17, 3), ["G: a limit of 17 GiB is more than it has, 16 GiB"]);
    }

    fn pod(name: &str) -> PodView {
        PodView { uid: name.into(), pod: divvy_core::id::PodKey::new("default", name), ..testing::pod() }
    }

    /// Of a card of 16 GiB, decided `at`.
    fn part(gib: u64, share: u32, at: u64) -> Grant {
        let slice = testing::slice(&"G".into(), Bytes::gib(gib), share);
        Grant { at, ..testing::grant(vec![testing::container("main", Role::Main, vec![slice])]) }
    }

    /// Two pods, of 13 and 14 GiB, on a card of 16: 1800 was offered; now it is 1000.
    fn promised_too_much(dir: &std::path::Path) -> Arc<Node> {
        let node = testing::node(dir);
        node.set_devices(vec![vec![Device::gpu("G", 0, "T4", Bytes::gib(16))]], "535".into());
        node.set_offer(Offer { memory: Share(1800), ..Offer::default() });
        node.resize(&pod("a"), &part(13, 300, 0)).unwrap();
        node.resize(&pod("b"), &part(14, 300, 0)).unwrap();
        node.set_offer(Offer::default());
        node
    }

    #[test]
    fn what_grows_is_judged_by_what_is_offered_now_whenever_the_pod_was_bound() {
        let dir = tempfile::tempdir().unwrap();
        let node = promised_too_much(dir.path());
        for at in [0, u64::MAX] {
            let refusal = node.resize(&pod("a"), &part(14, 300, at)).unwrap_err();
            assert_eq!(
                refusal.to_string(),
                "G: 14 GiB of memory asked, 2 GiB of 16 GiB free, held by default/b",
                "decided {at}"
            );
        }
    }

    #[test]
    fn what_does_not_grow_is_not_objected_to_however_much_of_the_card_was_promised() {
        let dir = tempfile::tempdir().unwrap();
        let node = promised_too_much(dir.path());
        // Nobody remembers any more what was offered when it was bound.
        let late = u64::MAX;
        node.resize(&pod("a"), &part(13, 700, late)).unwrap();
        let refusal = node.resize(&pod("a"), &part(13, 701, late)).unwrap_err();
        assert_eq!(refusal.to_string(), "G: 0.701 of its time asked, 0.7 free, held by default/b");
        node.resize(&pod("a"), &part(8, 300, late)).unwrap();
        let refusal = node.resize(&pod("a"), &part(9, 300, late)).unwrap_err();
        assert_eq!(refusal.to_string(), "G: 9 GiB of memory asked, 2 GiB of 16 GiB free, held by default/b");
        node.resize(&pod("b"), &part(8, 200, late)).unwrap();
        assert_eq!(node.ledger().held()["G"].memory, Bytes::gib(16));
    }

    proptest! {
        #[test]
        fn no_amount_that_grew_was_ever_more_than_was_offered_then(
            steps in prop::collection::vec((0u8..4, 1u64..16, 1u32..500, 500u32..2000), 1..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let node = testing::node(dir.path());
            node.set_devices(vec![vec![Device::gpu("G", 0, "T4", Bytes::gib(16))]], "535".into());
            for (name, gib, share, offer) in steps {
                node.set_offer(Offer { memory: Share(offer), share: Share(offer), tasks: None });
                let before = node.ledger().held().remove("G").unwrap_or_default();
                if node.resize(&pod(&format!("p{name}")), &part(gib, share, 0)).is_err() {
                    continue;
                }
                let after = node.ledger().held()["G"];
                prop_assert!(after.memory <= before.memory.max(Bytes::gib(16).thousandths(Share(offer))));
                prop_assert!(after.share <= before.share.max(Share(offer)));
            }
        }
    }
}
