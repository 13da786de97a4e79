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

/// What is offered, and what was before: pods that were bound then may be on their way for as long as their images take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// What is offered.
    pub now: Offer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<(Offer, Time)>,
}

impl Offers {
    /// The first offer.
    pub fn first(now: Offer) -> Offers {
        Offers { now, before: None }
    }

    /// The next offer.
    pub fn next(self, next: Offer, at: Time) -> Offers {
        if next == self.now { self } else { Offers { now: next, before: Some((self.now, at)) } }
    }

    /// What a grant that was decided `at` is judged by.
    pub fn at(&self, at: Time) -> Offer {
        let before = self.before.filter(|(_, until)| at.0 <= until.0.saturating_add(LATE));
        before.map_or(self.now, |(before, _)| self.now.or_more(before))
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
        assert_eq!(offers.next(offer(1000), Time::seconds(200)), offers, "nothing changed");
        let raised = offers.next(offer(2000), Time::seconds(300));
        assert_eq!((raised.at(Time(0)), raised.at(Time::seconds(400))), (offer(2000), offer(2000)));
    }

    #[test]
    fn the_policy_is_read_for_this_node_and_one_that_cannot_be_followed_is_none() {
        let policy = json!({"spec": {"devices": {"memoryOversubscription": 1800, "byNode": {"a": {"memoryOversubscription": 900}}}}});
        assert_eq!((read(&policy, "a"), read(&policy, "b")), (Ok(offer(900)), Ok(offer(1800))));
        assert_eq!(read(&json!({}), "a"), Ok(Offer::default()));
        assert!(read(&json!({"spec": {"nonsense": 1}}), "a").unwrap_err().contains("nonsense"));
    }
}
