//! Other amounts of a grant that is held: the scheduler has admitted them, so that its ledger counts them already; here they are judged
//! against the node's own, and carried into the pages of containers that run. Nothing restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_core::device::Device;
use divvy_core::grant::{Grant, Slice};
use divvy_core::id::{ContainerName, DeviceId, PodUid};
use divvy_core::keys;
use divvy_core::resize::too_large;
use divvy_core::units::Bytes;
use divvy_service::Stop;

use crate::arbiter::Accounts;
use crate::events::Events;
use crate::hold;
use crate::ledger::Refusal;
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

/// Between two looks at changes that are refused: room may have come, or what was broken is mended. Twice as long, and a change waits
/// twice as long for room that is there; half as long, and a page that stays broken is opened twice as often.
const AGAIN: Duration = Duration::from_secs(2);
/// The reasons against one change name amounts in use, which move all the time. Others than before are told after this time, so that a
/// pod's events can be read.
const NEWS: Duration = Duration::from_secs(30);

/// What was said against a change.
#[derive(Clone, Debug)]
struct Answer {
    change: String,
    why: String,
    at: Instant,
}

impl Answer {
    /// Is it an answer to another change, or another one to the same change after a while?
    fn is_news_after(&self, before: Option<&Answer>) -> bool {
        let known = before.filter(|before| before.change == self.change);
        known.is_none_or(|before| before.why != self.why && self.at.duration_since(before.at) >= NEWS)
    }
}

impl Resize {
    /// Follows the pods of this node.
    pub async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut changes = self.node.pods.changes();
        // Changes that are refused, and what was last said against them.
        let mut refused: BTreeMap<PodUid, Answer> = BTreeMap::new();
        loop {
            changes.borrow_and_update();
            self.look(&mut refused);
            let again = async {
                if refused.is_empty() { std::future::pending().await } else { tokio::time::sleep(AGAIN).await }
            };
            tokio::select! {
                changed = changes.changed() => changed?,
                () = again => {}
                () = stop.requested() => return Ok(()),
            }
        }
    }

    /// Looks at every pod once, and answers what was not answered yet.
    fn look(&self, refused: &mut BTreeMap<PodUid, Answer>) {
        let pods = self.node.pods.all();
        refused.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        for pod in pods.iter().filter(|p| !p.ended) {
            let before = refused.remove(&pod.uid);
            match self.apply(pod) {
                // Back to what is in force, after something that was refused: whoever asked waits for an answer.
                None if before.is_some() => {
                    let held = self.node.ledger().holders().get(&pod.uid).map(|holder| amounts(&holder.grant));
                    self.answer(pod, true, "Applied", held.unwrap_or_default());
                }
                None => {}
                Some(Ok(amounts)) => {
                    tracing::info!(audit = "resize", pod = %pod.pod, uid = %pod.uid, amounts, "a grant was changed");
                    self.answer(pod, true, "Applied", amounts);
                }
                Some(Err(reasons)) => {
                    let change = pod.change.as_ref().map(|change| change.text.clone()).unwrap_or_default();
                    let now = Answer { change, why: reasons.join("; "), at: Instant::now() };
                    if !now.is_news_after(before.as_ref()) {
                        refused.extend(before.map(|before| (pod.uid.clone(), before)));
                        continue;
                    }
                    let why = now.why.clone();
                    tracing::warn!(audit = "resize", pod = %pod.pod, uid = %pod.uid, why, "a change of a grant is refused");
                    self.answer(pod, false, "Refused", why);
                    refused.insert(pod.uid.clone(), now);
                }
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
fn judge(
    devices: &[Device],
    old: &Grant,
    new: &Grant,
    used: impl Fn(&ContainerName, &DeviceId) -> Bytes,
) -> Vec<String> {
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
    use divvy_core::units::Share;
    use proptest::prelude::*;

    use super::*;
    use crate::home;
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

    /// A pod of two containers with 4 GiB each, which have pages.
    fn with_pages(dir: &std::path::Path) -> (Arc<Node>, PodView) {
        let node = testing::node(dir);
        let card = Device::gpu("G", 0, "T4", Bytes::gib(16));
        node.set_devices(vec![vec![card.clone()]], "535".into());
        let library = dir.join("l.so");
        std::fs::write(&library, "library").unwrap();
        let shelf = crate::library::Shelf::stock(&dir.join("lib"), &library).unwrap();
        let pod = PodView { grant: Some(Ok(two(4))), ..pod("a") };
        node.resize(&pod, &two(4)).unwrap();
        for container in &two(4).containers {
            let config = home::config("a".into(), &container.slices, std::slice::from_ref(&card), Bytes::ZERO);
            node.home().prepare(&pod.uid, &container.name, &config, Some(&shelf), &[]).unwrap();
        }
        node.pods.put(pod.clone());
        (node, pod)
    }

    fn two(gib: u64) -> Grant {
        let slice = || vec![testing::slice(&"G".into(), Bytes::gib(gib), 100)];
        testing::grant(vec![
            testing::container("first", Role::Main, slice()),
            testing::container("second", Role::Main, slice()),
        ])
    }

    /// What the pages say, and what the ledger does, in GiB.
    fn limits(node: &Node, pod: &PodView) -> Vec<u64> {
        let page = |name: &str| node.home().container(&pod.uid, &name.into()).unwrap();
        let limit = |name| divvy_shm::GateReader::open(&page(name)).unwrap().config().1.devices[0].memory_limit >> 30;
        vec![limit("first"), limit("second"), node.ledger().held()["G"].memory.0 >> 31]
    }

    #[test]
    fn a_page_that_cannot_be_written_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (node, pod) = with_pages(dir.path());
        let gate = node.home().container(&pod.uid, &"second".into()).unwrap().join("gate");
        let aside = dir.path().join("aside");
        std::fs::rename(&gate, &aside).unwrap();
        std::fs::write(&gate, "garbage").unwrap();
        let refusal = node.resize(&pod, &two(8)).unwrap_err();
        assert!(refusal.to_string().contains("cannot open the pages of second"), "{refusal}");
        std::fs::rename(&aside, &gate).unwrap();
        assert_eq!(limits(&node, &pod), [4, 4, 4]);
        node.resize(&pod, &two(8)).unwrap();
        assert_eq!(limits(&node, &pod), [8, 8, 8]);
    }

    #[test]
    fn what_cannot_be_written_down_is_not_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let (node, pod) = with_pages(dir.path());
        let note = node.home().containers().join(pod.uid.as_str()).join("pod.json");
        std::fs::remove_file(&note).unwrap();
        std::fs::create_dir(&note).unwrap();
        let refusal = node.resize(&pod, &two(8)).unwrap_err();
        assert!(refusal.to_string().contains("cannot write down what the pod holds"), "{refusal}");
        assert_eq!(limits(&node, &pod), [4, 4, 4]);
    }

    #[tokio::test]
    async fn a_change_is_refused_with_the_reason_until_every_page_says_it_and_then_applied() {
        let dir = tempfile::tempdir().unwrap();
        let (node, pod) = with_pages(dir.path());
        let gate = node.home().container(&pod.uid, &"second".into()).unwrap().join("gate");
        let aside = dir.path().join("aside");
        std::fs::rename(&gate, &aside).unwrap();
        std::fs::write(&gate, "garbage").unwrap();
        let change = crate::pods::Change { text: "8".into(), grant: Ok(two(8)) };
        node.pods.put(PodView { change: Some(change), ..pod.clone() });
        let (events, _told) = Events::new("n");
        let (patches, mut orders) = Patches::new();
        let (mut tasks, resized) = (divvy_service::Tasks::new(), node.clone());
        let resize = Resize { node: resized, accounts: Accounts::default(), events, patches };
        tasks.add("resize", resize.run(tasks.stop()));
        let running = tokio::spawn(tasks.run());
        let refused = orders.next().await;
        assert!(
            matches!(&refused, Change::Condition { holds: false, reason, message, .. }
            if reason == "Refused" && message.contains("cannot open the pages of second")),
            "{refused:?}"
        );
        std::fs::rename(&aside, &gate).unwrap();
        let applied = orders.next().await;
        assert!(
            matches!(&applied, Change::Condition { holds: true, reason, .. } if reason == "Applied"),
            "{applied:?}"
        );
        assert_eq!(limits(&node, &pod), [8, 8, 8]);
        running.abort();
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
