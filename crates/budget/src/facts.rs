//! What a pod in the API server tells about what it holds, and from when to when.

use std::sync::Arc;

use divvy_api::wire::{self, Meta, Watched};
use divvy_core::ask::{Class, GpuAsk};
use divvy_core::grant::{Grant, held};
use divvy_core::id::{NodeName, PodKey, PodUid};
use divvy_core::keys;
use divvy_core::time::Time;
use jiff::Timestamp;
use serde::Deserialize;

/// Every pod, those that ended too: when they did is on them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct EveryPod(pub wire::Pod);

impl Watched for EveryPod {
    const PATH: &'static str = "/api/v1/pods";

    fn meta(&self) -> &Meta {
        &self.0.metadata
    }
}

/// What is to be known of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    /// Its identity.
    pub uid: PodUid,
    /// Its name.
    pub key: PodKey,
    /// Where it runs.
    pub node: Option<NodeName>,
    /// It asks for devices.
    pub asks: bool,
    /// The class its owner wants.
    pub wants: Option<Class>,
    /// The class it has.
    pub class: Option<Class>,
    /// What it was granted, and then the amounts that were admitted later: each from its `at` on.
    pub grants: Vec<Arc<Grant>>,
    /// Its init containers are done, since then.
    pub init_done: Option<Time>,
    /// Its containers have all ended, the last of them then.
    pub finished: Option<Time>,
    /// It is over: nothing of it will run again.
    pub over: bool,
    /// It was evicted to make room for others.
    pub evicted: bool,
}

/// The annotation's word for a class.
pub fn class_name(class: Class) -> &'static str {
    match class {
        Class::Guarantee => "guarantee",
        Class::Opportunistic => "opportunistic",
    }
}

fn class(text: &str) -> Option<Class> {
    serde_json::from_value(text.into()).ok()
}

fn time(at: Timestamp) -> Time {
    Time(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

impl PodFacts {
    /// Reads a pod; none where it is no business of ours: it asks for nothing and holds nothing.
    pub fn read(pod: &wire::Pod) -> Option<PodFacts> {
        let note = |key: &str| pod.metadata.annotations.get(key);
        let ask: Option<GpuAsk> = note(keys::ASK).and_then(|text| serde_json::from_str(text).ok());
        let grants: Vec<Arc<Grant>> = note(keys::GRANT)
            .and_then(|grant| held(grant, note(keys::GRANT_ADMITTED).map(String::as_str)).ok())
            .map(|held| {
                let later = held.admitted.map(|admitted| Grant { at: admitted.at.0, ..admitted.grant });
                [held.granted].into_iter().chain(later).map(Arc::new).collect()
            })
            .unwrap_or_default();
        if ask.is_none() && grants.is_empty() {
            return None;
        }
        let status = &pod.status;
        let over = matches!(status.phase.as_str(), "Succeeded" | "Failed");
        let ends_alone = |c: &&wire::Container| c.restart_policy.as_deref() != Some("Always");
        let init: Vec<&wire::Container> = pod.spec.init_containers.iter().filter(ends_alone).collect();
        let ended_at = |name: &str, list: &[wire::ContainerStatus]| {
            let status = list.iter().find(|s| s.name == name)?;
            let at = status.state.get("terminated")?.get("finishedAt")?.as_str()?.parse::<Timestamp>().ok()?;
            Some(time(at))
        };
        let well = |name: &str| status.init_container_statuses.iter().any(|s| s.name == name && s.has_ended_well());
        let init_done = init.iter().all(|c| well(&c.name)).then(|| {
            init.iter().filter_map(|c| ended_at(&c.name, &status.init_container_statuses)).max().unwrap_or_default()
        });
        let ends: Vec<Option<Time>> =
            pod.spec.containers.iter().map(|c| ended_at(&c.name, &status.container_statuses)).collect();
        let all_ended = !ends.is_empty() && ends.iter().all(Option::is_some);
        let deleted = pod.metadata.deletion_timestamp;
        let finished = match (all_ended, over) {
            (true, _) => ends.into_iter().flatten().max(),
            // The kubelet refused it, or nobody said when its containers ended.
            (false, true) => {
                let changed = status.conditions.iter().filter_map(|c| c.last_transition_time).max();
                Some(changed.or(deleted).or(status.start_time).map_or(Time(0), time))
            }
            (false, false) => None,
        };
        let evicted = status
            .conditions
            .iter()
            .any(|c| c.kind == "DisruptionTarget" && c.status == "True" && c.reason == "PreemptionByScheduler");
        Some(PodFacts {
            uid: PodUid::from(pod.metadata.uid.as_str()),
            key: PodKey::new(pod.metadata.namespace.clone(), pod.metadata.name.as_str()),
            node: (!pod.spec.node_name.is_empty()).then(|| NodeName::from(pod.spec.node_name.as_str())),
            asks: ask.is_some(),
            wants: ask.and_then(|ask| ask.class),
            class: note(keys::CLASS_NOW).and_then(|text| class(text)),
            grants,
            init_done,
            finished,
            over,
            evicted,
        })
    }

    /// When it began to hold something.
    pub fn held_from(&self) -> Option<Time> {
        self.node.as_ref()?;
        self.grants.first().map(|grant| Time(grant.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(pod: serde_json::Value) -> Option<PodFacts> {
        PodFacts::read(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn an_ordinary_pod_is_no_business_of_ours() {
        assert_eq!(facts(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}})), None);
    }

    #[test]
    fn amounts_that_were_admitted_later_count_from_then_on_and_a_wish_never() {
        let grant = |at: u64, share: u32, device: &str| {
            let slice = json!({"device": device, "memory": 1, "memoryLimit": 1, "share": share, "shareLimit": 1000, "isolation": "intercept"});
            json!({"v": 1, "at": at, "policy": "frag", "containers": [{"name": "c", "slices": [slice]}]}).to_string()
        };
        let held = |annotations: serde_json::Value| {
            let read =
                facts(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations},
                "spec": {"nodeName": "n0", "containers": [{"name": "c"}]}}));
            let grants = read.map(|read| read.grants).unwrap_or_default();
            grants.iter().map(|g| (g.at, g.containers[0].slices[0].share.0)).collect::<Vec<_>>()
        };
        let first = grant(1000, 300, "G");
        assert_eq!(held(json!({(keys::GRANT): first, (keys::GRANT_OVERRIDE): grant(1000, 100, "G")})), [(1000, 300)]);
        let admitted = json!({(keys::GRANT): first, (keys::GRANT_ADMITTED): grant(5000, 100, "G")});
        assert_eq!(held(admitted), [(1000, 300), (5000, 100)]);
        for bad in ["{".to_owned(), grant(5000, 100, "H")] {
            assert_eq!(held(json!({(keys::GRANT): first, (keys::GRANT_ADMITTED): bad})), [(1000, 300)]);
        }
    }

    #[test]
    fn a_pod_ends_when_the_last_of_its_containers_does() {
        let pod = |phase: &str, second: serde_json::Value| {
            json!({
                "metadata": {"name": "p", "namespace": "n", "uid": "u",
                    "annotations": {(keys::GRANT): r#"{"v":1,"at":1000,"policy":"frag","containers":[]}"#}},
                "spec": {"nodeName": "n0", "containers": [{"name": "a"}, {"name": "b"}]},
                "status": {"phase": phase, "containerStatuses": [
                    {"name": "a", "state": {"terminated": {"exitCode": 0, "finishedAt": "1970-01-01T00:00:10Z"}}},
                    {"name": "b", "state": second}]},
            })
        };
        let running = facts(pod("Running", json!({"running": {}}))).unwrap();
        assert_eq!((running.held_from(), running.finished, running.over), (Some(Time(1000)), None, false));
        let ended =
            facts(pod("Succeeded", json!({"terminated": {"exitCode": 0, "finishedAt": "1970-01-01T00:00:20Z"}})));
        let ended = ended.unwrap();
        assert_eq!((ended.finished, ended.over), (Some(Time(20_000)), true));
    }
}
