//! How much of this node's devices may be promised: follows the GpuPolicy.
//!
//! The scheduler goes by what this agent writes into the inventory, so what it binds is what the agent offered when it looked. A policy
//! that allows less than before must not turn away who was bound under the one before it, hence [`Offers`].

use std::sync::Arc;

use divvy_api::policy::{ClusterPolicy, GpuPolicy, NAME, Offer};
use divvy_core::time::Time;
use divvy_service::Stop;
use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::node::Node;

/// How long after a change a scheduler may still go by what it read before it, and how far its clock may be ahead of ours.
const LATE: u64 = 10_000;

/// How many former offers are remembered. One that a later one exceeded is not among them: this many are only ever lowered in a row.
const MOST: usize = 16;

/// What is offered, and what was before: pods that were bound then may be on their way for as long as their images take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// What is offered.
    pub now: Offer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<(Offer, Time)>,
    /// Those before that, the oldest first. Apart from `before`, which is all that agents of former versions write and read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<(Offer, Time)>,
}

impl Offers {
    /// The first offer.
    pub fn first(now: Offer) -> Offers {
        Offers { now, before: None, earlier: Vec::new() }
    }

    /// The next offer.
    pub fn next(self, next: Offer, at: Time) -> Offers {
        if next == self.now {
            return self;
        }
        // Where a later one allowed as much, an earlier one adds nothing: a policy that goes up and down fills no list.
        let adds = |(offer, until): &(Offer, Time)| self.now.or_more(*offer) != self.now || *until > at;
        let mut earlier: Vec<(Offer, Time)> = self.past().filter(adds).collect();
        earlier.drain(..earlier.len().saturating_sub(MOST - 1));
        Offers { now: next, before: Some((self.now, at)), earlier }
    }

    /// What was offered, and until when, the oldest first.
    fn past(&self) -> impl Iterator<Item = (Offer, Time)> {
        self.earlier.iter().copied().chain(self.before)
    }

    /// What a grant that was decided `at` is judged by: the most that was offered then or at any time since. Since, because whoever came
    /// while more was offered may have filled the device, and must not cost those their place who were bound before.
    pub fn at(&self, at: Time) -> Offer {
        let since = self.past().filter(|(_, until)| at.0 <= until.0.saturating_add(LATE));
        since.fold(self.now, |most, (offer, _)| most.or_more(offer))
    }
}

/// Follows the policy until asked to stop. Losing the API server changes nothing.
pub async fn follow(client: Client, node: Arc<Node>, stop: Stop) -> anyhow::Result<()> {
    let policies: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<GpuPolicy>(&()));
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut events = watcher(policies, config).default_backoff().boxed();
    let mut is_there = false;
    let mut last_said = String::new();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = stop.requested() => return Ok(()),
        };
        match event {
            Ok(Some(watcher::Event::Init)) => is_there = false,
            Ok(Some(watcher::Event::InitApply(policy) | watcher::Event::Apply(policy))) => {
                is_there = true;
                match read(&policy.data, &node.name) {
                    Ok(offer) => node.set_offer(offer),
                    Err(problem) => {
                        tracing::error!(problem, "the policy stays as it was");
                        node.offer_if_silent();
                    }
                }
            }
            Ok(Some(watcher::Event::InitDone)) if is_there => {}
            Ok(Some(watcher::Event::InitDone | watcher::Event::Delete(_))) => node.set_offer(Offer::default()),
            Ok(None) => anyhow::bail!("the watch of the GpuPolicy ended"),
            Err(error) => {
                // Where it is not installed, or not ours to read, it is so every time.
                let says = error.to_string();
                if says != last_said {
                    tracing::warn!(%error, "cannot hear of the GpuPolicy; trying again");
                }
                last_said = says;
                if is_unknown_or_forbidden(&error) {
                    node.offer_if_silent();
                }
            }
        }
    }
}

fn read(policy: &Value, node: &str) -> Result<Offer, String> {
    let spec = policy.get("spec").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let spec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
    let policy = ClusterPolicy::read(&spec).map_err(|e| e.to_string())?;
    Ok(policy.devices.offer(node))
}

/// A cluster without the custom resource, or an agent that may not read it, has no policy, and never will by waiting.
fn is_unknown_or_forbidden(error: &watcher::Error) -> bool {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return false };
    matches!(status.code, 403 | 404)
}

#[cfg(test)]
mod tests {
    use divvy_core::units::Share;
    use serde_json::json;

    use super::*;

    fn offer(memory: u32) -> Offer {
        Offer { memory: Share(memory), ..Offer::default() }
    }

    #[test]
    fn a_grant_is_judged_by_what_was_offered_when_it_was_decided() {
        let offers = Offers::first(offer(1800));
        assert_eq!(offers.at(Time(0)), offer(1800));
        let offers = offers.next(offer(1000), Time::seconds(100));
        assert_eq!(offers.now, offer(1000));
        assert_eq!(offers.at(Time::seconds(99)), offer(1800));
        assert_eq!(offers.at(Time(100_000 + LATE)), offer(1800), "the scheduler may not have read it yet");
        assert_eq!(offers.at(Time(100_001 + LATE)), offer(1000));
        assert_eq!(offers.clone().next(offer(1000), Time::seconds(200)), offers, "nothing changed");
        let raised = offers.next(offer(2000), Time::seconds(300));
        assert_eq!((raised.at(Time(0)), raised.at(Time::seconds(400))), (offer(2000), offer(2000)));
    }

    #[test]
    fn whoever_was_bound_is_let_in_however_often_the_policy_changes_while_its_image_comes() {
        let lowered =
            Offers::first(offer(1800)).next(offer(1500), Time::seconds(100)).next(offer(1200), Time::seconds(200));
        let bound = |seconds| lowered.at(Time::seconds(seconds));
        assert_eq!((bound(50), bound(150), bound(250)), (offer(1800), offer(1500), offer(1200)));
        let anew =
            Offers::first(offer(1800)).next(Offer::default(), Time::seconds(100)).next(offer(1500), Time::seconds(101));
        assert_eq!((anew.at(Time::seconds(50)), anew.at(Time::seconds(150))), (offer(1800), offer(1500)));
        // Whoever came while more was offered fills the device; who was bound before them must find its room all the same.
        let between =
            Offers::first(offer(1500)).next(offer(1800), Time::seconds(100)).next(offer(1000), Time::seconds(200));
        assert_eq!((between.at(Time::seconds(50)), between.at(Time::seconds(250))), (offer(1800), offer(1000)));
    }

    #[test]
    fn what_is_forgotten_is_the_oldest_and_a_policy_that_goes_up_and_down_makes_nothing_forgotten() {
        let mut offers = Offers::first(offer(2000));
        for step in 1..=MOST as u64 + 1 {
            offers = offers.next(offer(2000 - step as u32), Time::seconds(100 * step));
        }
        assert_eq!(offers.past().count(), MOST);
        assert_eq!(offers.at(Time(0)), offer(1999), "2000 is forgotten, the next is not");
        let mut offers = Offers::first(offer(2000)).next(offer(1500), Time::seconds(1));
        for step in 1..100 {
            offers = offers.next(offer(1000 + step % 2), Time::seconds(100 * u64::from(step)));
        }
        assert_eq!((offers.at(Time(0)), offers.at(Time::seconds(50))), (offer(2000), offer(1500)));
        assert!(offers.past().count() < 5, "{offers:?}");
    }

    #[test]
    fn an_agent_that_is_started_anew_remembers_and_one_of_the_version_before_or_after_reads_what_it_knows() {
        let run = tempfile::tempdir().unwrap();
        let home = crate::home::Home::open(run.path()).unwrap();
        let offers =
            Offers::first(offer(1800)).next(offer(1500), Time::seconds(100)).next(offer(1200), Time::seconds(200));
        home.remember_offers(&offers).unwrap();
        assert_eq!(home.offers(), Some(offers.clone()));

        #[derive(Deserialize)]
        struct Former {
            now: Offer,
            before: Option<(Offer, Time)>,
        }
        let former: Former = serde_json::from_value(json!(offers)).unwrap();
        assert_eq!((former.now, former.before), (offer(1200), Some((offer(1500), Time::seconds(200)))));

        let text = r#"{"now":{"memory":1500,"share":1000},"before":[{"memory":1800,"share":1000},100000]}"#;
        std::fs::write(run.path().join("offers.json"), text).unwrap();
        let offers = home.offers().unwrap().next(offer(1200), Time::seconds(200));
        assert_eq!((offers.at(Time::seconds(50)), offers.at(Time::seconds(150))), (offer(1800), offer(1500)));
    }

    #[test]
    fn the_policy_is_read_for_this_node_and_one_that_cannot_be_followed_is_none() {
        let policy = json!({"spec": {"devices": {"memoryOversubscription": 1800, "byNode": {"a": {"memoryOversubscription": 900}}}}});
        assert_eq!((read(&policy, "a"), read(&policy, "b")), (Ok(offer(900)), Ok(offer(1800))));
        assert_eq!(read(&json!({}), "a"), Ok(Offer::default()));
        assert!(read(&json!({"spec": {"nonsense": 1}}), "a").unwrap_err().contains("nonsense"));
    }
}
