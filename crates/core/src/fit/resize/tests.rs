use std::sync::Arc;

use super::*;
use crate::ledger::quota::{Amounts, Limit, Quota};
use crate::model::ask::Role;
use crate::model::device::Isolation;
use crate::model::grant::ContainerGrant;
use crate::model::node::Node;
use crate::model::pod::{Bound, Pod, State};
use crate::model::resources::Resources;
use crate::model::time::Time;

fn grant(memory: u64, limit: u64, share: u32) -> Grant {
    let slice = Slice {
        device: "G".into(),
        kind: DeviceKind::Gpu,
        memory: Bytes::gib(memory),
        memory_limit: Bytes::gib(limit),
        share: Share(share),
        share_limit: Share(share),
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    };
    let container = ContainerGrant { name: "main".into(), role: Role::Main, slices: vec![slice] };
    Grant { v: Grant::VERSION, at: 0, policy: "frag".into(), containers: vec![container], claim: None }
}

fn pod(name: &str, memory: u64, limit: u64) -> Pod {
    let (node, grant, since) = ("n".into(), Some(Arc::new(grant(memory, limit, 300))), Time(0));
    let bound = Bound { node, grant, since, init_done: true, terminating: false };
    Pod { state: State::Bound(bound), ..Pod::new("default", name) }
}

/// A card of 16 GiB that is promised once by now, with these pods on it.
fn card(pods: &[Pod]) -> Snapshot {
    let mut node = Node::new("n", Resources::of(64_000, Bytes::gib(256)));
    node.inventory.devices.push(Device::gpu("G", 0, "T4", Bytes::gib(16)));
    let mut snapshot = Snapshot::new();
    snapshot.put_node(node);
    pods.iter().for_each(|pod| snapshot.put_pod(pod.clone()));
    snapshot
}

/// What speaks against other amounts for the first of the pods.
fn against(pods: &[Pod], next: &Grant) -> Vec<String> {
    fits(&card(pods), &pods[0].uid, next).err().unwrap_or_default()
}

#[test]
fn on_a_card_that_is_promised_less_often_than_it_was_only_what_grows_is_objected_to() {
    let pods = [pod("a", 14, 14), pod("b", 14, 14)];
    for fine in [grant(8, 8, 300), grant(14, 14, 700), grant(8, 8, 700)] {
        assert_eq!(against(&pods, &fine), [""; 0]);
    }
    assert_eq!(against(&pods, &grant(15, 15, 300)), ["G: 15 GiB of memory wanted, 2 GiB free"]);
    assert_eq!(against(&pods, &grant(8, 8, 701)), ["G: share 0.701 wanted, 0.7 free"]);
}

#[test]
fn a_limit_above_the_card_that_was_granted_once_may_stay_and_sink_but_not_rise() {
    let pods = [pod("a", 14, 24)];
    for fine in [grant(14, 24, 500), grant(16, 24, 300), grant(14, 20, 300)] {
        assert_eq!(against(&pods, &fine), [""; 0]);
    }
    assert_eq!(against(&pods, &grant(14, 25, 300)), ["G: a limit of 25 GiB is more than it has, 16 GiB"]);
    assert_eq!(against(&[pod("a", 8, 8)], &grant(8, 17, 300)), ["G: a limit of 17 GiB is more than it has, 16 GiB"]);
}

#[test]
fn what_grows_must_fit_into_the_namespaces_quota_and_what_does_not_grow_may_stay_above_it() {
    let pods = [pod("a", 6, 6), pod("b", 6, 6)];
    let with = |memory: u64, next: &Grant| {
        let mut snapshot = card(&pods);
        let nominal = Amounts { memory: Some(memory << 30), share: Some(800), ..Amounts::default() };
        let limits = vec![Limit { nominal, ..Limit::default() }];
        let quota = Quota { name: "q".into(), limits, ..Quota::default() };
        snapshot.surroundings_mut().quotas.0.insert("default".into(), vec![quota]);
        fits(&snapshot, &pods[0].uid, next).err().unwrap_or_default()
    };
    assert_eq!(with(14, &grant(8, 8, 300)), [""; 0]);
    assert_eq!(with(13, &grant(8, 8, 300)), ["quota q: 2 GiB of GPU memory wanted, 12 GiB held, 13 GiB allowed"]);
    assert_eq!(with(13, &grant(8, 8, 501)).len(), 2, "memory and share");
    assert_eq!(with(4, &grant(6, 6, 500)), [""; 0], "its memory is no more than it was");
    assert_eq!(with(4, &grant(5, 5, 300)), [""; 0]);
}

#[test]
fn a_pod_that_holds_nothing_cannot_hold_more() {
    let snapshot = card(&[]);
    assert_eq!(fits(&snapshot, &"gone".into(), &grant(1, 1, 1)).unwrap_err(), ["the pod is gone"]);
}
