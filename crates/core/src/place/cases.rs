//! Cases of the emulated systems about who is placed where, by their ids.

use crate::model::ask::Role;
use crate::model::policy::{Placement, Policy};
use crate::model::time::Time;
use crate::testing::{cluster, describe};
use crate::{Snapshot, schedule};

fn by(policy: &str) -> Policy {
    let mut policy = Policy::only(Placement::named(policy).unwrap());
    policy.defragment.propose = false;
    policy.queue.reserve_after = 0;
    policy
}

fn hami(settings: &[(&str, &str)]) -> Policy {
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let choice = crate::model::ask::PolicyChoice { name: Some("hami".into()), settings };
    Policy::only(Placement::read(&choice, &Placement::Frag).unwrap())
}

fn plan(snapshot: &Snapshot, policy: &Policy) -> String {
    describe(&schedule(snapshot, policy, Time::seconds(1000)))
}

/// What is planned for this cluster begins so.
fn check(policy: &Policy, text: &str, expected: &str) {
    let said = plan(&cluster(text), policy);
    assert!(said.starts_with(expected), "{text}\n{said}");
}

#[test]
fn gpu_manager_goes_by_the_pcie_tree_also_where_nvlink_joins_every_card() {
    let pairs = "0-1:single-switch,2-3:single-switch,4-5:single-switch,6-7:single-switch";
    let tree = format!("0..7:cross-cpu,0..3:host-bridge,4..7:host-bridge,{pairs}");
    let node = format!("node a gpu=8 links=0..7:nv-link pcie={tree}");
    let by = by("gpu-manager");
    check(&by, &format!("{node}\npod x on a dev=0 whole\nwait p count=2 whole"), "bind p to a (a-2 a-3)");
    check(&by, &format!("{node}\npod x on a dev=6 whole\nwait p whole"), "bind p to a (a-7)");
}

#[test]
fn al_02_one_card_must_have_all_the_memory() {
    let text = "node n2 gpu=2:8138Mi
         node n3 gpu=1:8138Mi
         pod a on n2 dev=0 mem=4069Mi
         pod b on n2 dev=1 mem=4069Mi
         wait p mem=8138Mi";
    check(&by("gpushare"), text, "bind p to n3 (n3-0)");
}

#[test]
fn al_03_pods_fill_the_first_card_before_the_next() {
    let text = "node a gpu=2:15Gi\nwait p mem=3Gi\nwait q mem=3Gi at=1\nwait r mem=3Gi at=2";
    check(&by("gpushare"), text, "bind p to a (a-0)\nbind q to a (a-0)\nbind r to a (a-0)\n");
}

#[test]
fn al_04_a_card_without_enough_left_is_passed_over() {
    check(&by("gpushare"), "node a gpu=2:15Gi\npod x on a dev=0 mem=13Gi\nwait p mem=3Gi", "bind p to a (a-1)");
}

#[test]
fn al_07_hm_14_a_sick_card_takes_nothing_new() {
    let sick = "node a gpu=1:15Gi+1:5Gi sick=0";
    for policy in ["gpushare", "hami", "frag"] {
        check(&by(policy), &format!("{sick}\nwait p mem=3Gi"), "bind p to a (a-1)");
        check(&by(policy), &format!("{sick}\nwait p mem=6Gi"), "wait p: 0/1 nodes fit");
    }
}

#[test]
fn al_16_a_pod_that_has_ended_holds_nothing() {
    let mut snapshot = cluster("node a gpu=1:15Gi\npod x on a dev=0 mem=6Gi\nwait p mem=15Gi");
    assert!(plan(&snapshot, &by("gpushare")).starts_with("wait p"));
    snapshot.remove_pod(&"default/x".into());
    assert_eq!(plan(&snapshot, &by("gpushare")), "bind p to a (a-0)\n");
}

#[test]
fn fp_07_two_cards_are_two_distinct_cards() {
    check(&by("vgpu"), "node a gpu=1 split=10\nwait p count=2 mem=1Gi", "wait p: 0/1 nodes fit");
    check(&by("vgpu"), "node a gpu=2 split=10\nwait p count=2 mem=1Gi", "bind p to a (a-1 a-0)");
}

#[test]
fn fp_12_all_cores_need_an_idle_card_and_leave_nothing_for_others() {
    check(&by("vgpu"), "node a gpu=1\npod x on a dev=0 share=100\nwait p share=1000 alone", "wait p");
    check(&by("vgpu"), "node a gpu=1\nwait p share=1000 alone\nwait q share=0 at=1", "bind p to a (a-0)\nwait q");
}

#[test]
fn fp_13_cores_are_never_promised_twice() {
    check(&by("vgpu"), "node a gpu=1\npod x on a dev=0 share=800\nwait p share=300", "wait p");
    check(&by("vgpu"), "node a gpu=1\npod x on a dev=0 share=800\nwait p share=200", "bind p to a (a-0)");
}

#[test]
fn fp_14_no_more_tasks_than_a_card_is_split_into() {
    let full: String = (0..10).map(|i| format!("pod t{i} on a dev=0 mem=1Mi\n")).collect();
    check(&by("vgpu"), &format!("node a gpu=1 split=10\n{full}wait p mem=1Mi"), "wait p");
    check(&by("vgpu"), &format!("node a gpu=1 split=11\n{full}wait p mem=1Mi"), "bind p to a");
    // Where nobody says into how many, it is ten; other systems had no such number.
    for policy in ["vgpu", "hami"] {
        let said = plan(&cluster(&format!("node a gpu=1\n{full}wait p mem=1Mi")), &by(policy));
        assert!(said.starts_with("wait p") && said.contains("as may (10)"), "{policy}: {said}");
        let nine = full.replace("pod t9 on a dev=0 mem=1Mi\n", "");
        check(&by(policy), &format!("node a gpu=1\n{nine}wait p mem=1Mi"), "bind p to a (a-0)");
        check(&by(policy), &format!("node a gpu=1 split=11\n{full}wait p mem=1Mi"), "bind p to a");
        let more = Policy { max_tasks: Some(11), ..by(policy) };
        check(&more, &format!("node a gpu=1\n{full}wait p mem=1Mi"), "bind p to a");
    }
    for policy in ["gpushare", "frag", "binpack"] {
        check(&by(policy), &format!("node a gpu=1\n{full}wait p mem=1Mi"), "bind p to a (a-0)");
    }
}

#[test]
fn a_split_counts_all_containers_of_a_pod_and_no_nics() {
    let eight: String = (0..8).map(|i| format!("pod t{i} on a dev=0 mem=1Mi\n")).collect();
    for policy in ["vgpu", "hami"] {
        let two = several(&format!("node a gpu=1\n{eight}"), &[(Role::Main, 0), (Role::Main, 0)]);
        assert_eq!(plan(&two, &by(policy)), "bind p to a (a-0 a-0)\n", "{policy}");
        let three = several(&format!("node a gpu=1\n{eight}"), &[(Role::Main, 0), (Role::Main, 0), (Role::Main, 0)]);
        assert!(plan(&three, &by(policy)).starts_with("wait p"), "{policy}");
        // A sidecar runs beside the init container after it.
        let nine = format!("{eight}pod t8 on a dev=0 mem=1Mi");
        let beside = several(&format!("node a gpu=1\n{nine}"), &[(Role::Sidecar, 0), (Role::Init, 0)]);
        assert!(plan(&beside, &by(policy)).starts_with("wait p"), "{policy}");
        let after = several(&format!("node a gpu=1\n{nine}"), &[(Role::Init, 0), (Role::Main, 0)]);
        assert_eq!(plan(&after, &by(policy)), "bind p to a (a-0 a-0)\n", "{policy}");
    }
    let nics: String = (0..10).map(|i| format!("pod t{i} on a dev=0 kind=nic\n")).collect();
    check(&by("vgpu"), &format!("node a nic=1\n{nics}wait p kind=nic"), "bind p to a");
}

#[test]
fn fp_16_nodes_with_many_cards_go_first_and_then_busy_ones() {
    let busy: String = (0..10).map(|i| format!("pod t{i} on b dev={} mem=1Mi\n", i % 2)).collect();
    let two = format!("node a gpu=2 split=10\nnode b gpu=2 split=10\n{busy}");
    check(&by("vgpu"), &format!("{two}wait p mem=1Mi"), "bind p to b");
    check(&by("vgpu"), &format!("{two}node c gpu=8 split=10\nwait p mem=1Mi"), "bind p to c");
}

#[test]
fn fp_17_the_card_with_fewer_users_is_chosen() {
    let text = "node a gpu=2 split=10
         pod a1 on a dev=0 mem=1Mi
         pod a2 on a dev=0 mem=1Mi
         pod a3 on a dev=0 mem=1Mi
         pod b1 on a dev=1 mem=1Mi
         wait p mem=1Mi";
    check(&by("vgpu"), text, "bind p to a (a-1)");
}

#[test]
fn hm_09_binpack_takes_the_busy_node_and_spread_the_idle_one() {
    let text = "node a gpu=4:16000Mi split=10
         node b gpu=4:16000Mi split=10
         pod a1 on a dev=0 share=250 mem=8000Mi
         pod a2 on a dev=1 share=250 mem=8000Mi
         pod a3 on a dev=2 share=250 mem=8000Mi
         pod a4 on a dev=3 share=250 mem=8000Mi
         wait p mem=100Mi";
    check(&hami(&[("node", "binpack")]), text, "bind p to a");
    check(&hami(&[("node", "spread")]), text, "bind p to b");
}

#[test]
fn hm_11_mutex_wants_an_idle_card() {
    let mutex = hami(&[("gpu", "mutex")]);
    let text = "node a gpu=2\npod x on a dev=0 share=100\n";
    check(&mutex, &format!("{text}pod y on a dev=1 share=100\nwait p share=100"), "wait p");
    check(&mutex, &format!("{text}wait p share=100"), "bind p to a (a-1)");
    let full = plan(&cluster(&format!("{text}pod y on a dev=1 share=100\nwait p share=100")), &mutex);
    assert!(full.contains("without an idle GPU") && !full.contains("connected"), "{full}");
    // An init container has ended when the others begin: their card is no other's.
    let init = several("node a gpu=1", &[(Role::Init, 100), (Role::Main, 100)]);
    assert_eq!(plan(&init, &mutex), "bind p to a (a-0 a-0)\n");
    let beside = several("node a gpu=1", &[(Role::Main, 100), (Role::Main, 100)]);
    assert!(plan(&beside, &mutex).starts_with("wait p"));
}

/// These nodes, and a pod with a container of each of these roles and shares.
fn several(nodes: &str, containers: &[(Role, u32)]) -> Snapshot {
    let mut snapshot = cluster(&format!("{nodes}\nwait p share=0"));
    let mut pod = snapshot.pod(&"default/p".into()).unwrap().pod().clone();
    let ask = std::sync::Arc::make_mut(pod.ask.as_mut().unwrap());
    let first = ask.containers.remove(0);
    for (number, (role, share)) in containers.iter().enumerate() {
        let mut container = first.clone();
        (container.name, container.role) = (format!("c{number}").into(), *role);
        container.wants[0].share = crate::model::units::Share(*share);
        ask.containers.push(container);
    }
    snapshot.put_pod(pod);
    snapshot
}

#[test]
fn a_container_without_time_needs_some_beside_those_of_its_own_pod() {
    for policy in ["vgpu", "hami"] {
        let full = several("node a gpu=1", &[(Role::Main, 1000), (Role::Main, 0)]);
        assert!(plan(&full, &by(policy)).starts_with("wait p"), "{policy}");
        let another = several("node a gpu=2", &[(Role::Main, 1000), (Role::Main, 0)]);
        assert!(plan(&another, &by(policy)).starts_with("bind p to a"), "{policy}");
        let before = several("node a gpu=1", &[(Role::Init, 0), (Role::Main, 1000)]);
        assert!(plan(&before, &by(policy)).starts_with("bind p to a (a-0 a-0)"), "an init container comes before");
    }
}

#[test]
fn nics_are_no_cards_to_those_that_count_cards() {
    check(&by("vgpu"), "node a gpu=2 nic=6\nnode b gpu=4\nwait p mem=1Mi", "bind p to b");
    let busy =
        "node a gpu=1 nic=3\nnode b gpu=1\npod x on a dev=0 share=300\npod y on b dev=0 share=200\nwait p share=100";
    check(&hami(&[("node", "binpack")]), busy, "bind p to a");
    check(&by("gpu-manager"), busy, "bind p to a");
    let leaf = "node a nic=1 gpu=3 links=0-1:single-switch,0..3:cross-cpu,2-3:single-switch";
    check(&by("gpu-manager"), &format!("{leaf}\nwait p whole"), "bind p to a (a-2)");
}

#[test]
fn a_type_is_part_of_the_name_a_card_is_registered_by() {
    let card = "node a gpu=1:16Gi:Tesla-V100-SXM2-16GB\nwait p share=100";
    for model in ["NVIDIA", "nvidia-tesla-v100", "V100", "dia-tesla"] {
        check(&by("hami"), &format!("{card} model={model}"), "bind p to a");
        check(&by("hami"), &format!("{card} notmodel={model}"), "wait p");
        check(&by("frag"), &format!("{card} model={model}"), "bind p to a");
    }
    for model in ["NVIDIA-V100", "NVIDIA-NVIDIA", "MLU-Tesla", "AMD"] {
        check(&by("hami"), &format!("{card} model={model}"), "wait p");
    }
    check(&by("vgpu"), "node a mlu=1:24Gi:MLU370-X4\nwait p kind=mlu whole model=MLU-MLU370", "bind p to a");
    check(&by("vgpu"), "node a gpu=1:16Gi:NVIDIA-A100\nwait p share=100 model=NVIDIA-NVIDIA", "wait p");
}

#[test]
fn hm_18_pairs_are_chosen_well_connected_and_single_cards_badly() {
    let aware = hami(&[("gpu", "topology-aware")]);
    let node = "node a gpu=3 links=0-1:nv-link,0-2:cross-cpu,1-2:cross-cpu";
    check(&aware, &format!("{node}\nwait p count=2 share=100"), "bind p to a (a-0 a-1)");
    check(&aware, &format!("{node}\nwait p share=100"), "bind p to a (a-2)");
}

#[test]
fn hm_19_numa_bind_holds_where_cards_are_chosen_by_their_links() {
    let aware = hami(&[("gpu", "topology-aware")]);
    let links = "links=0..3:cross-cpu,0-1:nv-link,0-2:host-bridge,1-3:single-switch";
    let node = format!("node a gpu=4 numa=0,1,0,1 {links}");
    check(&aware, &format!("{node}\nwait p count=2 share=100"), "bind p to a (a-1 a-0)");
    check(&aware, &format!("{node}\nwait p count=2 share=100 near=numa"), "bind p to a (a-1 a-3)");
    check(&aware, &format!("{node}\nwait p count=3 share=100 near=numa"), "wait p");
    check(&aware, "node vm gpu=2\nwait p count=2 share=100 near=numa", "bind p to vm");
}

#[test]
fn hm_21_a_pod_that_is_leaving_holds_its_devices_until_it_is_gone() {
    let mut snapshot = cluster("node a gpu=1\npod x on a dev=0 share=800 leaving\nwait p share=500");
    assert!(plan(&snapshot, &by("hami")).starts_with("wait p"));
    snapshot.remove_pod(&"default/x".into());
    assert!(plan(&snapshot, &by("hami")).starts_with("bind p to a"));
}

const LEAVES: &str = "node a gpu=3\npod x on a dev=1 share=600\npod y on a dev=2 share=300\n";

#[test]
fn ks_11_an_opportunistic_pod_packs() {
    check(&by("kubeshare"), &format!("{LEAVES}wait p share=500 class=opportunistic"), "bind p to a (a-2)");
}

#[test]
fn ks_12_a_guaranteed_pod_goes_to_an_idle_gpu() {
    check(&by("kubeshare"), &format!("{LEAVES}wait p share=500 class=guarantee"), "bind p to a (a-0)");
}

#[test]
fn ks_13_ks_14_opportunistic_pods_go_to_busy_nodes_and_guaranteed_ones_to_idle() {
    let nodes = "node a gpu=2\nnode b gpu=2\npod x on b dev=0 share=800\n";
    check(&by("kubeshare"), &format!("{nodes}wait p share=100 class=opportunistic"), "bind p to b (b-0)");
    check(&by("kubeshare"), &format!("{nodes}wait p share=100 class=guarantee"), "bind p to a");
}

#[test]
fn ks_16_a_group_is_kept_close() {
    let with = |gang: &str| {
        format!(
            "node s gpu=2\nnode t gpu=2\npod m on s dev=0 share=500 class=guarantee gang=g:2:1\nwait n share=500 class=guarantee {gang}"
        )
    };
    let near = plan(&cluster(&with("gang=g:2:1")), &by("kubeshare"));
    assert!(near.starts_with("bind n to s"), "{near}");
    let stranger = plan(&cluster(&with("")), &by("kubeshare"));
    assert!(stranger.starts_with("bind n to t"), "{stranger}");
}

#[test]
fn ks_21_ks_22_two_whole_gpus_need_two_idle_ones() {
    for node in [
        "node a gpu=3\npod x on a dev=1 share=500\npod y on a dev=2 share=500",
        "node a gpu=2\npod x on a dev=0 share=500\npod y on a dev=1 share=500",
    ] {
        check(&by("kubeshare"), &format!("{node}\nwait p count=2 whole"), "wait p: 0/1 nodes fit");
    }
}

/// A pod on whole GPUs, with a container that books them and one that looks on at the same ones.
fn looked_on(mut snapshot: Snapshot, pod: &str, topology: crate::model::ask::Topology) -> Snapshot {
    use crate::model::ask::MemoryAsk;
    let mut pod = snapshot.pod(&pod.into()).unwrap().pod().clone();
    let ask = std::sync::Arc::make_mut(pod.ask.as_mut().unwrap());
    let mut onlooker = ask.containers[0].clone();
    onlooker.name = "onlooker".into();
    (onlooker.wants[0].memory, onlooker.wants[0].share) = (MemoryAsk::Nothing, crate::model::units::Share::ZERO);
    ask.containers.push(onlooker);
    ask.topology = topology;
    snapshot.put_pod(pod);
    snapshot
}

#[test]
fn whole_gpus_are_the_pods_own_however_many_of_its_containers_see_them() {
    use crate::model::ask::Topology;
    let look = |text: &str| looked_on(cluster(text), "default/p", Topology::SameDevice);
    let two = "node a gpu=2\nwait p count=2 whole\nwait q mem=1Gi share=0 at=9";
    for policy in ["kubeshare", "frag", "hami"] {
        let mut snapshot = look(two);
        let first = schedule(&snapshot, &by(policy), Time::seconds(1000));
        let said = describe(&first);
        assert!(said.starts_with("bind p to a (") && said.contains("\nwait q: "), "{policy}: {said}");
        assert_eq!(crate::plan::audit::audit(&snapshot, &first), []);
        let bind = &first.binds[0];
        let devices = |container: usize| {
            let slices = &bind.grant.as_ref().unwrap().containers[container].slices;
            slices.iter().map(|slice| slice.device.clone()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!((devices(0).len(), devices(0)), (2, devices(1)), "{policy}");
        snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(std::sync::Arc::new), Time(0)).unwrap();
        assert!(plan(&snapshot, &by(policy)).starts_with("wait q"), "nobody comes later either: {policy}");
        let used = look("node a gpu=2\npod x on a dev=1 mem=1Gi share=0\nwait p count=2 whole");
        assert!(plan(&used, &by(policy)).starts_with("wait p"), "{policy}");
        // Containers that do not say so have a GPU each.
        let apart = looked_on(cluster("node a gpu=1\nwait p whole"), "default/p", Topology::Best);
        assert!(plan(&apart, &by(policy)).starts_with("wait p"), "{policy}");
    }
}

#[test]
fn ks_23_ks_24_tenths_add_up() {
    let mut snapshot = cluster("node a gpu=1\npod x on a dev=0 share=100\npod y on a dev=0 share=200\nwait p whole");
    snapshot.remove_pod(&"default/y".into());
    snapshot.remove_pod(&"default/x".into());
    assert_eq!(plan(&snapshot, &by("kubeshare")), "bind p to a (a-0)\n");
    let text = "node a gpu=1\npod x on a dev=0 share=300\npod y on a dev=0 share=600\nwait p share=100";
    check(&by("kubeshare"), text, "bind p to a (a-0)");
}

#[test]
fn ks_32_a_cordoned_node_is_skipped_and_comes_back_with_its_bookings() {
    let mut snapshot =
        cluster("node a gpu=1 cordoned\npod x on a dev=0 share=700\nwait p share=300\nwait q share=500 at=1");
    assert!(plan(&snapshot, &by("kubeshare")).starts_with("wait p"));
    let mut node = snapshot.node(&"a".into()).unwrap().node().clone();
    node.unschedulable = false;
    snapshot.put_node(node);
    let said = plan(&snapshot, &by("kubeshare"));
    assert!(said.starts_with("bind p to a (a-0)\nwait q"), "{said}");
}

#[test]
fn ks_33_ordinary_pods_prefer_nodes_without_gpus() {
    for policy in ["kubeshare", "frag"] {
        check(
            &by(policy),
            "node a cpu=64 gpu=4\nnode b cpu=16\nwait q share=500 cpu=8000 at=9\nwait p ordinary cpu=4000",
            "bind p to b",
        );
    }
}

#[test]
fn kg_26_a_deleted_pod_returns_exactly_its_devices() {
    let mut snapshot = cluster("node a gpu=4\npod x on a dev=0 share=300\nwait p count=2 whole");
    let before = snapshot.node(&"a".into()).unwrap().books().to_vec();
    let plan = schedule(&snapshot, &by("kubegpu"), Time(0));
    let bind = &plan.binds[0];
    snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(std::sync::Arc::new), Time(0)).unwrap();
    assert_ne!(snapshot.node(&"a".into()).unwrap().books(), before);
    snapshot.remove_pod(&bind.pod);
    assert_eq!(snapshot.node(&"a".into()).unwrap().books(), before);
}

/// Pairs on switches, four on a bridge, two far away.
const SIX: &str =
    "node a gpu=6 links=0..5:cross-cpu,0..3:host-bridge,0-1:single-switch,2-3:single-switch,4-5:single-switch";

#[test]
fn tk_11_three_cards_are_the_closest_three() {
    check(&by("gpu-manager"), &format!("{SIX}\nwait p count=3 whole"), "bind p to a (a-0 a-1 a-2)");
}

#[test]
fn tk_12_two_cards_are_a_pair_that_is_free() {
    check(&by("gpu-manager"), &format!("{SIX}\npod x on a dev=2 whole\nwait p count=2 whole"), "bind p to a (a-0 a-1)");
}

#[test]
fn tk_13_one_card_is_taken_where_fewest_are_free() {
    check(&by("gpu-manager"), &format!("{SIX}\npod x on a dev=4 whole\nwait p whole"), "bind p to a (a-5)");
}

#[test]
fn tk_14_shares_go_to_the_fullest_card_that_fits() {
    let node = "node a gpu=6";
    check(&by("gpu-manager"), &format!("{node}\nwait p share=500"), "bind p to a (a-0)");
    for (share, card) in [(600, "a-1"), (400, "a-0")] {
        let text = format!("{node}\npod x on a dev=0 share=500\nwait p share={share}");
        check(&by("gpu-manager"), &text, &format!("bind p to a ({card})"));
    }
}

#[test]
fn gs_16_a_pod_within_its_budget_takes_the_card_of_one_beyond() {
    let text = "node a gpu=1\npod low on a dev=0 whole class=opportunistic\nwait p whole class=guarantee";
    check(&by("gpu-manager"), text, "evict low from a for p\nwait p [a]");
}

/// A pod whose containers want so many hundredths of a card and blocks of 256 MiB each; a hundred is a card alone, two are two.
fn vcuda(name: &str, at: u64, containers: &[(u32, u64)]) -> crate::model::pod::Pod {
    use crate::model::ask::{ContainerAsk, DeviceAsk, Dialect, GpuAsk, MemoryAsk, Role};
    use crate::model::units::{Bytes, Share};
    let part = |core: u32, blocks: u64| DeviceAsk {
        share: Share(core * 10),
        memory: MemoryAsk::Bytes(Bytes::mib(256 * blocks)),
        ..DeviceAsk::default()
    };
    let container = |(i, (core, blocks)): (usize, &(u32, u64))| ContainerAsk {
        name: format!("c{i}").into(),
        role: Role::Main,
        wants: vec![if *core >= 100 { DeviceAsk::whole(core / 100) } else { part(*core, *blocks) }],
    };
    let mut pod = crate::model::pod::Pod::new("default", name);
    pod.created = Time::seconds(at);
    let containers = containers.iter().enumerate().map(container).collect();
    pod.ask = Some(std::sync::Arc::new(GpuAsk::of(Dialect::GpuManager, containers)));
    pod
}

#[test]
fn tk_01_tk_02_tk_03_tk_04_pods_fill_nodes_one_after_another() {
    // Three nodes of two cards with four blocks each.
    let mut snapshot = cluster("node n0 gpu=2:1Gi\nnode n1 gpu=2:1Gi\nnode n2 gpu=2:1Gi");
    type Case<'a> = (&'a str, &'a [(u32, u64)], &'a str);
    let asks: [Case<'_>; 4] = [
        ("p1", &[(10, 1), (10, 1)], "bind p1 to n0 (n0-0 n0-0)\n"),
        ("p2", &[(100, 3), (80, 3)], "bind p2 to n1 (n1-0 n1-1)\n"),
        ("p3", &[(200, 10)], "bind p3 to n2 (n2-0 n2-1)\n"),
        ("p4", &[(10, 2)], "bind p4 to n0 (n0-0)\n"),
    ];
    for (at, (name, containers, expected)) in asks.into_iter().enumerate() {
        snapshot.put_pod(vcuda(name, at as u64, containers));
        let plan = schedule(&snapshot, &by("gpu-manager"), Time::seconds(10));
        assert_eq!(describe(&plan), expected);
        let bind = &plan.binds[0];
        snapshot.place(&bind.pod, &bind.node, bind.grant.clone().map(std::sync::Arc::new), Time(0)).unwrap();
    }
}

#[test]
fn by_gpu_manager_equal_nodes_are_taken_by_name_and_by_other_policies_as_they_came() {
    let nodes = "node n2 gpu=1\nnode n0 gpu=1\nnode n1 gpu=1\nwait p mem=1Gi share=100";
    check(&by("gpu-manager"), nodes, "bind p to n0 (n0-0)");
    check(&by("binpack"), nodes, "bind p to n2 (n2-0)");
    // Asked for, rather than from memory.
    let snapshot = cluster(nodes);
    let (ix, pod) = snapshot.pods().map(|(ix, state)| (ix, state.pod().clone())).next().unwrap();
    let (policy, kept) = (by("gpu-manager"), super::Kept::default());
    let spot = super::Attempt::new(&snapshot, &policy, ix, &pod, &kept, Time(0)).unwrap().best().unwrap();
    assert_eq!(snapshot.node_at(spot.node).unwrap().node().name.as_str(), "n0");
}

#[test]
fn fp_19_cards_that_are_no_longer_reported_take_nothing_and_come_back_when_they_are() {
    let mut snapshot = cluster("node a gpu=1\nwait p share=500");
    let node = snapshot.node(&"a".into()).unwrap().node().clone();
    let mut silent = node.clone();
    silent.inventory.devices.clear();
    snapshot.put_node(silent);
    assert!(plan(&snapshot, &by("vgpu")).starts_with("wait p"));
    snapshot.put_node(node);
    assert!(plan(&snapshot, &by("vgpu")).starts_with("bind p to a (a-0)"));
}

#[test]
fn fp_26_a_part_of_an_mlu_fits_a_370_and_no_270() {
    let part = "wait p kind=mlu mem=10Gi";
    check(&by("vgpu"), &format!("node a mlu=1:24Gi:MLU-MLU370-X4\n{part}"), "bind p to a (a-mlu0)");
    let older = "node a mlu=1:16Gi:MLU-MLU270-S4";
    check(&by("vgpu"), &format!("{older}\n{part}"), "wait p: 0/1 nodes fit");
    check(&by("vgpu"), &format!("{older}\nwait p kind=mlu whole"), "bind p to a (a-mlu0)");
    // All cores of an MLU are not all of its memory.
    let snapshot = cluster("node a mlu=1:24Gi:MLU370-X4\nwait p kind=mlu mem=5Gi share=1000 alone");
    let plan = schedule(&snapshot, &by("hami"), Time(0));
    let slice = &plan.binds[0].grant.as_ref().unwrap().containers[0].slices[0];
    assert_eq!((slice.memory, slice.exclusive), (crate::model::units::Bytes::gib(5), true));
}

#[test]
fn fp_28_what_two_pods_hold_of_a_card_adds_up() {
    let snapshot = cluster("node a gpu=1\npod x on a dev=0 mem=100Mi share=100\npod y on a dev=0 mem=100Mi share=100");
    let book = snapshot.node(&"a".into()).unwrap().books()[0];
    assert_eq!((book.tasks, book.used_memory.0, book.used_share.0), (2, 209_715_200, 200));
}

#[test]
fn hm_16_nobody_waits_for_the_lock_of_a_pod_that_is_gone() {
    // There is no lock: two pods that come at once are both placed, and one that is deleted leaves nothing behind.
    let mut snapshot = cluster("node a gpu=1\nwait a share=500\nwait b share=500 at=1");
    check(
        &by("hami"),
        "node a gpu=1\nwait a share=500\nwait b share=500 at=1",
        "bind a to a (a-0)\nbind b to a (a-0)\n",
    );
    snapshot.remove_pod(&"default/a".into());
    assert_eq!(plan(&snapshot, &by("hami")), "bind b to a (a-0)\n");
}

const X: &str = "node x gpu=8 links=0..3:host-bridge,4..7:host-bridge,0-1:single-switch,2-3:single-switch,4-5:single-switch,6-7:single-switch";
const Y: &str = "node y gpu=8 links=0..3:single-switch,4..7:host-bridge,4-5:single-switch,6-7:single-switch";

#[test]
fn kg_07_three_gpus_lie_in_one_quad_where_there_is_one_and_else_under_one_bridge() {
    let check = |text: &str, node: &str, least: crate::model::device::Link| {
        let snapshot = cluster(text);
        let plan = schedule(&snapshot, &by("kubegpu"), Time(0));
        let bind = &plan.binds[0];
        assert_eq!(bind.node.as_str(), node);
        let state = snapshot.node(&bind.node).unwrap();
        let slices = &bind.grant.as_ref().unwrap().containers[0].slices;
        let devices: Vec<usize> = slices.iter().map(|s| state.node().device(&s.device).unwrap()).collect();
        assert_eq!(crate::fit::topology::worst_link(state, &devices), least, "{devices:?}");
    };
    check(&format!("{Y}\nwait p whole count=3"), "y", crate::model::device::Link::SingleSwitch);
    check(&format!("{X}\nwait p whole count=3"), "x", crate::model::device::Link::HostBridge);
}

#[test]
fn kg_08_a_node_that_goes_takes_only_its_own_room_with_it() {
    let mut snapshot = cluster(&format!("{X}\n{}\nwait p whole count=4", X.replacen("node x", "node x2", 1)));
    snapshot.remove_node(&"x".into());
    assert!(plan(&snapshot, &by("kubegpu")).starts_with("bind p to x2"));
    snapshot.remove_node(&"x2".into());
    assert!(plan(&snapshot, &by("kubegpu")).starts_with("wait p: there is no node"));
}
