use std::collections::BTreeSet;

use divvy_api::convert;
use divvy_api::reader::PodReader;
use divvy_core::device::{Device, Health, Inventory};
use divvy_core::keys;
use serde_json::{Value, json};

use super::*;
use crate::access::Sight;

const NOW: Time = Time(1_772_431_200_000);

fn node(name: &str, change: impl Fn(&mut Inventory)) -> Change {
    let devices = (0..2).map(|i| Device::gpu(format!("GPU-{name}-{i}"), i, "NVIDIA-A100", Bytes::gib(80))).collect();
    let mut inventory = Inventory { generation: 1, devices, ..Inventory::default() };
    change(&mut inventory);
    let text = serde_json::to_string(&inventory).unwrap();
    let object = json!({"metadata": {"name": name, "annotations": {(keys::INVENTORY): text}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let (node, problem) = convert::node(serde_json::from_value(object).unwrap());
    Change::Node(Box::new(node), problem)
}

fn pod(namespace: &str, name: &str, on: Option<&str>, why: &str) -> Change {
    let want = json!({"count": 1, "memory": {"bytes": 20u64 << 30}, "share": 250, "shareLimit": 500});
    let ask = json!({"v": 1, "dialect": "native", "containers": [{"name": "main", "wants": [want]}]});
    let mut object: Value = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": "1",
                     "creationTimestamp": "2026-03-02T05:59:00Z", "annotations": {(keys::ASK): ask.to_string()}},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]},
    });
    if let Some(node) = on {
        let slice = json!({"device": format!("GPU-{node}-0"), "memory": 20u64 << 30, "memoryLimit": 20u64 << 30,
            "share": 250, "shareLimit": 500, "isolation": "intercept"});
        let grant = json!({"v": 1, "at": NOW.0, "policy": "test", "containers": [{"name": "main", "slices": [slice]}]});
        object["spec"]["nodeName"] = json!(node);
        object["metadata"]["annotations"][keys::GRANT] = json!(grant.to_string());
    }
    let seen = PodReader::default().read(serde_json::from_value(object).unwrap());
    assert_eq!((&seen.bad_ask, &seen.bad_grant), (&None, &None));
    Change::Pod(Box::new(seen))
}

fn board() -> Board {
    let mut board = Board::default();
    board.apply(node("n1", |_| {}), NOW);
    board.apply(node("n2", |i| i.devices[1].health = Health::Unhealthy { reason: "XID 79".into() }), NOW);
    board.apply(pod("a", "runs", Some("n1"), ""), NOW);
    board.apply(pod("b", "waits", None, "0/2 nodes: full"), NOW);
    board.set_used(
        vec![Used {
            pod: "uid-runs".into(),
            node: "n1".into(),
            device: "GPU-n1-0".into(),
            share: 200,
            throttled: 30,
            memory: Bytes::gib(12),
        }],
        NOW,
    );
    board.tick(NOW);
    board
}

fn only(namespace: &str) -> Sight {
    Sight::Only(Arc::new(BTreeSet::from([namespace.to_owned()])))
}

#[test]
fn the_picture_shows_cards_slices_use_queue_and_sums() {
    let cluster = board().cluster(&Sight::All);
    let slice = &cluster.nodes[0].cards[0].slices[0];
    assert_eq!((slice.pod.as_str(), slice.memory, slice.share), ("a/runs", 20 << 10, 250));
    assert_eq!((slice.share_used, slice.memory_used, slice.throttled), (Some(200), Some(12 << 10), 30));
    assert_eq!(cluster.nodes[1].cards[1].down.as_deref(), Some("XID 79"));
    assert_eq!((cluster.queue.all, cluster.queue.pods[0].why.as_str()), (1, "0/2 nodes: full"));
    assert_eq!(cluster.queue.pods[0].ask, "GPU, 20 GiB, 25 % of its time (up to 50 %)");
    let totals = &cluster.totals;
    assert_eq!((totals.nodes, totals.cards, totals.down, totals.running, totals.waiting), (2, 4, 1, 1, 1));
    assert_eq!((totals.promised, totals.used, totals.stranded, totals.oldest), (250, 200, 750, 60));
    assert_eq!(cluster.history.len(), 1);
}

#[test]
fn an_update_tells_only_what_changed_since() {
    let mut board = board();
    let before = board.version();
    assert_eq!(board.update(before, NOW.0, &Sight::All).nodes.len(), 0);
    board.apply(pod("b", "waits", Some("n2"), ""), NOW);
    let update = board.update(before, NOW.0, &Sight::All);
    assert_eq!(update.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n2"]);
    assert_eq!(update.queue.map(|queue| queue.all), Some(0));
    assert!(update.history.is_empty() && update.budgets.is_none());
    board.apply(Change::NodeGone("n1".into()), NOW);
    assert_eq!(board.update(before, NOW.0, &Sight::All).gone, ["n1"]);
}

#[test]
fn a_viewer_of_one_namespace_sees_what_others_hold_but_not_who_they_are() {
    let mut board = board();
    board.tell(NOW, "placed", "a/runs".into(), "on n1".into());
    let cluster = board.cluster(&only("b"));
    let slice = &cluster.nodes[0].cards[0].slices[0];
    assert_eq!((slice.pod.as_str(), slice.memory), ("", 20 << 10));
    assert_eq!((cluster.queue.all, cluster.news.len()), (1, 0));
    assert_eq!(cluster.only, Some(vec!["b".to_owned()]));
    assert_eq!(board.cluster(&only("a")).queue.all, 0);
    assert!(!serde_json::to_string(&cluster).unwrap().contains("a/runs"));
}

#[test]
fn a_pods_story_goes_from_ask_to_grant_to_usage_and_outlives_the_pod() {
    let mut board = board();
    let waits = board.story(&PodKey::new("b", "waits")).unwrap();
    assert_eq!(waits.state, "waiting");
    assert!(!waits.answers.is_empty(), "{waits:?}");
    board.apply(pod("b", "waits", Some("n1"), ""), NOW);
    let story = board.story(&PodKey::new("b", "waits")).unwrap();
    let chapters: Vec<&str> = story.chapters.iter().map(|chapter| chapter.what.as_str()).collect();
    assert_eq!(chapters, ["asked", "waits", "granted"]);
    let grant = story.grant.unwrap();
    assert_eq!((grant.node.as_str(), grant.slices[0].share_limit), ("n1", 500));
    assert_eq!(story.neighbours, ["a/runs"]);
    board.apply(Change::PodGone("uid-waits".into()), NOW);
    let past = board.story(&PodKey::new("b", "waits")).unwrap();
    assert_eq!((past.state.as_str(), past.chapters.last().unwrap().what.as_str()), ("ended", "ended"));
    assert_eq!(board.cluster(&Sight::All).nodes[0].cards[0].slices.len(), 1);
}

#[test]
fn a_namespace_is_there_before_and_after_its_pods_and_those_with_pods_come_first() {
    let mut board = board();
    for name in ["0-idle", "a"] {
        board.apply(Change::Namespace(name.into(), BTreeMap::new()), NOW);
    }
    assert_eq!(board.namespaces(), ["a", "b", "0-idle"]);
    board.apply(Change::PodGone("uid-runs".into()), NOW);
    assert_eq!(board.namespaces(), ["b", "0-idle", "a"]);
    board.apply(Change::NamespaceGone("a".into()), NOW);
    assert_eq!(board.namespaces(), ["b", "0-idle"]);
}
