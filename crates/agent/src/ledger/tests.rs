use divvy_core::grant::Slice;
use divvy_core::units::Share;
use proptest::prelude::*;

use super::*;
use crate::testing::{container, grant, slice};

fn gpu(index: u32) -> Device {
    Device::gpu(format!("GPU-{index}"), index, "H200", Bytes::gib(100))
}

fn part(device: u32, gib: u64, share: u32) -> Slice {
    slice(&format!("GPU-{device}").into(), Bytes::gib(gib), share)
}

fn one(device: u32, gib: u64, share: u32) -> Grant {
    grant(vec![container("main", Role::Main, vec![part(device, gib, share)])])
}

fn key(name: &str) -> PodKey {
    PodKey::new("default", name)
}

struct Node {
    ledger: Ledger,
    devices: Vec<Device>,
    foreign: BTreeMap<DeviceId, Bytes>,
}

impl Node {
    fn new() -> Node {
        Node { ledger: Ledger::default(), devices: vec![gpu(0), gpu(1)], foreign: BTreeMap::new() }
    }

    fn admit(&mut self, name: &str, grant: &Grant) -> Result<(), Refusal> {
        self.ledger.admit(&name.into(), &key(name), grant, &self.devices, &self.foreign)
    }
}

#[test]
fn the_first_grant_wins_and_the_second_is_refused_with_its_holder_named() {
    let mut node = Node::new();
    node.admit("a", &one(0, 60, 600)).unwrap();
    let refusal = node.admit("b", &one(0, 50, 500)).unwrap_err();
    assert!(!refusal.passing);
    assert_eq!(
        refusal.to_string(),
        "GPU-0: 50 GiB of memory asked, 40 GiB of 100 GiB free, held by default/a; \
         GPU-0: 0.5 of its time asked, 0.4 free, held by default/a"
    );
    node.admit("c", &one(1, 50, 500)).unwrap();
}

#[test]
fn a_container_that_restarts_is_not_counted_twice() {
    let mut node = Node::new();
    node.admit("a", &one(0, 60, 600)).unwrap();
    node.admit("a", &one(0, 60, 600)).unwrap();
    assert_eq!(node.ledger.held()[&DeviceId::from("GPU-0")].memory, Bytes::gib(60));
}

fn unprotected(device: u32) -> Grant {
    let slice = Slice { isolation: divvy_core::device::Isolation::None, ..part(device, 1, 1) };
    grant(vec![container("main", Role::Main, vec![slice])])
}

#[test]
fn a_grant_of_a_part_without_isolation_is_refused_for_good() {
    let mut node = Node::new();
    let refusal = node.admit("a", &unprotected(0)).unwrap_err();
    assert!(!refusal.passing);
    assert_eq!(
        refusal.to_string(),
        "GPU-0: main is granted a part of it without isolation, which only a container alone on a device may have"
    );
    assert!(node.ledger.held().is_empty());
    let alone = Slice { exclusive: true, isolation: divvy_core::device::Isolation::None, ..part(0, 1, 1) };
    node.admit("b", &grant(vec![container("main", Role::Main, vec![alone])])).unwrap();
}

#[test]
fn a_pod_that_held_a_part_without_isolation_before_keeps_it_and_gets_no_company() {
    let mut node = Node::new();
    node.ledger.adopt(&"old".into(), &key("old"), &unprotected(0));
    node.admit("old", &unprotected(0)).unwrap();
    let refusal = node.admit("new", &one(0, 1, 0)).unwrap_err();
    assert_eq!(refusal.to_string(), "GPU-0: it is given out exclusively, held by default/old");
    node.admit("new", &one(1, 1, 0)).unwrap();
}

#[test]
fn a_force_deleted_pod_holds_what_its_running_containers_use_and_the_refusal_passes() {
    let mut node = Node::new();
    let two = grant(vec![
        container("train", Role::Main, vec![part(0, 60, 0)]),
        container("serve", Role::Main, vec![part(0, 20, 0)]),
    ]);
    node.admit("a", &two).unwrap();
    let still = BTreeMap::from([(PodUid::from("a"), BTreeSet::from(["train".into()]))]);
    assert!(node.ledger.settle(&BTreeSet::new(), &still).is_empty());
    let refusal = node.admit("b", &one(0, 50, 0)).unwrap_err();
    assert!(refusal.passing, "{refusal}");
    assert!(refusal.to_string().contains("default/a (deleted, still running)"), "{refusal}");
    node.admit("c", &one(0, 40, 0)).unwrap();
    let bound = BTreeSet::from(["c".into()]);
    assert_eq!(node.ledger.settle(&bound, &BTreeMap::new()), ["a".into()]);
    node.admit("b", &one(0, 50, 0)).unwrap();
}

#[test]
fn foreign_processes_take_memory_and_pass() {
    let mut node = Node::new();
    node.foreign.insert("GPU-0".into(), Bytes::gib(80));
    let refusal = node.admit("a", &one(0, 30, 0)).unwrap_err();
    assert!(refusal.passing);
    assert!(refusal.to_string().contains("processes without a grant (80 GiB)"), "{refusal}");
    node.admit("b", &one(0, 20, 0)).unwrap();
}

#[test]
fn exclusive_means_nobody_before_and_nobody_after() {
    let mut node = Node::new();
    let mut whole = one(0, 10, 100);
    whole.containers[0].slices[0].exclusive = true;
    node.admit("a", &one(0, 10, 100)).unwrap();
    assert!(node.admit("b", &whole).unwrap_err().to_string().contains("asked for exclusively"));
    node.ledger.settle(&BTreeSet::new(), &BTreeMap::new());
    node.admit("b", &whole).unwrap();
    assert!(node.admit("c", &one(0, 1, 1)).unwrap_err().to_string().contains("given out exclusively"));
}

#[test]
fn unknown_failed_and_cordoned_devices_take_nobody_new_but_keep_their_own() {
    let mut node = Node::new();
    assert!(node.admit("x", &one(7, 1, 1)).unwrap_err().to_string().contains("no device GPU-7"));
    node.admit("a", &one(0, 10, 100)).unwrap();
    node.devices[0].health = Health::Unhealthy { reason: "XID 79".into() };
    assert!(node.admit("b", &one(0, 1, 1)).unwrap_err().to_string().contains("XID 79"));
    node.admit("a", &one(0, 10, 100)).unwrap();
    node.devices[1].cordoned = true;
    assert!(node.admit("c", &one(1, 1, 1)).unwrap_err().to_string().contains("cordoned"));
}

#[test]
fn a_resize_is_judged_with_the_old_amount_given_back() {
    let mut node = Node::new();
    node.admit("a", &one(0, 60, 0)).unwrap();
    node.admit("b", &one(0, 30, 0)).unwrap();
    node.admit("a", &one(0, 70, 0)).unwrap();
    assert!(node.admit("a", &one(0, 71, 0)).is_err());
    assert_eq!(node.ledger.held()[&DeviceId::from("GPU-0")].memory, Bytes::gib(100));
}

#[test]
fn init_containers_count_by_the_largest_and_sidecars_beside_all_that_follows() {
    let pod = grant(vec![
        container("first", Role::Init, vec![part(0, 80, 0)]),
        container("proxy", Role::Sidecar, vec![part(0, 10, 0)]),
        container("second", Role::Init, vec![part(0, 30, 0)]),
        container("main", Role::Main, vec![part(0, 20, 0), part(1, 5, 0)]),
        container("other", Role::Main, vec![part(0, 25, 0)]),
    ]);
    let peak = peak(&pod);
    assert_eq!(peak[&DeviceId::from("GPU-0")].memory, Bytes::gib(80));
    assert_eq!(peak[&DeviceId::from("GPU-0")].tasks, 3);
    assert_eq!(peak[&DeviceId::from("GPU-1")].memory, Bytes::gib(5));
}

#[derive(Clone, Debug)]
enum Step {
    Admit { pod: u8, device: u32, gib: u64, share: u32, exclusive: bool },
    Delete { pod: u8, force: bool },
    Foreign { device: u32, gib: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..12, 0u32..2, 1u64..80, 0u32..700, prop::bool::weighted(0.1))
            .prop_map(|(pod, device, gib, share, exclusive)| Step::Admit { pod, device, gib, share, exclusive }),
        2 => (0u8..12, any::<bool>()).prop_map(|(pod, force)| Step::Delete { pod, force }),
        1 => (0u32..2, 0u64..50).prop_map(|(device, gib)| Step::Foreign { device, gib }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever comes, and in whatever order pods leave: what was admitted never sums to more than the device has, at the
    /// moment of each admission.
    #[test]
    fn nothing_is_ever_admitted_over_capacity(steps in steps()) {
        let mut node = Node::new();
        let mut bound = BTreeSet::new();
        let mut running: BTreeMap<PodUid, BTreeSet<ContainerName>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Admit { pod, device, gib, share, exclusive } => {
                    let name = format!("pod-{pod}");
                    if running.contains_key(name.as_str()) {
                        continue;
                    }
                    let mut grant = one(device, gib, share);
                    grant.containers[0].slices[0].exclusive = exclusive;
                    if node.admit(&name, &grant).is_err() {
                        continue;
                    }
                    bound.insert(PodUid::from(name.as_str()));
                    running.insert(name.as_str().into(), BTreeSet::from(["main".into()]));
                    let id = DeviceId::from(format!("GPU-{device}"));
                    let held = node.ledger.held()[&id];
                    let foreign = node.foreign.get(&id).copied().unwrap_or_default();
                    prop_assert!(held.memory.0 + foreign.0 <= Bytes::gib(100).0);
                    prop_assert!(held.share <= Share::WHOLE);
                    prop_assert!(!held.exclusive || held.tasks == 1);
                }
                Step::Delete { pod, force } => {
                    let uid = PodUid::from(format!("pod-{pod}"));
                    bound.remove(&uid);
                    if !force {
                        running.remove(&uid);
                    }
                    node.ledger.settle(&bound, &running);
                }
                Step::Foreign { device, gib } => {
                    node.foreign.insert(format!("GPU-{device}").into(), Bytes::gib(gib));
                }
            }
        }
    }
}
