//! KubeGPU's way: devices in the groups a request spells out, or the best connected ones, on the node that is fullest afterwards.

use crate::fit::groups::{Packing, choose, is_auto};
use crate::fit::topology::worst_link;
use crate::fit::{Choose, Placer, Trial};
use crate::model::ask::{ContainerAsk, DeviceAsk, Role, Topology};
use crate::model::device::DeviceKind;

pub(crate) struct Kubegpu;

/// A node that is used up scores this much.
const FULL: f64 = 1000.0;
/// A step closer is worth more than any difference in fullness.
const CLOSER: f64 = 2.0 * FULL;

impl Choose for Kubegpu {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        choose(trial, want, fits)
    }
}

impl Placer for Kubegpu {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        // KubeGPU's score is that after the last running container; init containers use the same devices again.
        let running = trial.given().iter().filter(|given| given.role != Role::Init);
        closeness(trial) * CLOSER + Packing::of(trial, running).full() * FULL
    }
}

/// How close the devices lie where the scheduler chooses how: that of the container that has it worst, and nothing where none cares.
fn closeness(trial: &Trial<'_>) -> f64 {
    if trial.ask.topology != Topology::Best {
        return 0.0;
    }
    let cares = |container: &ContainerAsk| container.wants.iter().any(|want| want.count > 1 && is_auto(want));
    let containers = trial.ask.containers.iter().enumerate().filter(|(_, container)| cares(container));
    let worst = containers.map(|(index, _)| {
        let own = trial.given().iter().filter(|given| given.container == index).map(|given| given.device);
        let own: Vec<usize> = own.filter(|device| trial.devices()[*device].kind != DeviceKind::Nic).collect();
        worst_link(trial.node, &own)
    });
    worst.min().map_or(0.0, |link| f64::from(link as u8))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fit::{Placer, Trial, TrialTerms};
    use crate::ledger::snapshot::Snapshot;
    use crate::model::ask::{Dialect, GpuAsk, GroupAsk};
    use crate::model::policy::{Placement, Policy};
    use crate::model::time::Time;
    use crate::model::units::Bytes;
    use crate::testing::{cluster, describe};
    use crate::{keys, schedule};

    use super::Kubegpu;

    /// Eight devices in pairs on a switch and quads on a bridge.
    const N8: &str = "node a gpu=8:16Gi links=0..3:host-bridge,4..7:host-bridge,0-1:single-switch,2-3:single-switch,4-5:single-switch,6-7:single-switch";

    /// The pod waits with these requests, spelled out.
    fn ask(snapshot: &mut Snapshot, pod: &str, count: u32, auto: bool, requests: &[(&str, i64)]) {
        let ix = snapshot.find_pod(&format!("default/{pod}").as_str().into()).unwrap();
        let mut pod = snapshot.pod_at(ix).unwrap().pod().clone();
        let ask: &mut GpuAsk = Arc::make_mut(pod.ask.as_mut().unwrap());
        let requests = requests.iter().map(|(name, n)| (format!("{}/{name}", keys::KUBEGPU_GROUP), *n)).collect();
        ask.containers[0].wants[0].count = count;
        ask.containers[0].wants[0].groups = Some(GroupAsk { auto, requests, scorers: Default::default() });
        snapshot.put_pod(pod);
    }

    fn planned(snapshot: &Snapshot) -> String {
        planned_by(snapshot, Placement::Kubegpu)
    }

    fn planned_by(snapshot: &Snapshot, placement: Placement) -> String {
        describe(&schedule(snapshot, &Policy::only(placement), Time(0)))
    }

    fn gib(n: u64) -> i64 {
        Bytes::gib(n).0 as i64
    }

    #[test]
    fn kg_06_labels_bind_groups_and_different_labels_may_share_one() {
        let mut snapshot = cluster(&format!("{N8}\nwait p whole\nwait q whole at=1"));
        let four = [
            ("gpugrp1/0/gpugrp0/0/gpu/0/cards", 1),
            ("gpugrp1/0/gpugrp0/1/gpu/1/cards", 1),
            ("gpugrp1/0/gpugrp0/2/gpu/2/cards", 1),
            ("gpugrp1/0/gpugrp0/3/gpu/3/cards", 1),
        ];
        ask(&mut snapshot, "p", 4, false, &four);
        ask(&mut snapshot, "q", 2, false, &[("gpugrp0/A/gpu/0/cards", 1), ("gpugrp0/A/gpu/1/cards", 1)]);
        assert_eq!(planned(&snapshot), "bind p to a (a-7 a-6 a-5 a-4)\nbind q to a (a-3 a-2)\n");
    }

    #[test]
    fn a_group_that_is_spelled_out_is_kept_together_or_the_pod_waits() {
        // Pairs of which one device each is taken: no pair is left for a group of two.
        let text = format!(
            "{N8}\npod b0 on a dev=0 whole\npod b2 on a dev=2 whole\npod b4 on a dev=4 whole\npod b6 on a dev=6 whole\nwait p whole"
        );
        let mut snapshot = cluster(&text);
        ask(&mut snapshot, "p", 2, false, &[("gpugrp0/A/gpu/0/cards", 1), ("gpugrp0/A/gpu/1/cards", 1)]);
        assert!(planned(&snapshot).starts_with("wait p: "), "{}", planned(&snapshot));
        ask(
            &mut snapshot,
            "p",
            2,
            false,
            &[("gpugrp1/B/gpugrp0/0/gpu/0/cards", 1), ("gpugrp1/B/gpugrp0/1/gpu/1/cards", 1)],
        );
        assert_eq!(planned(&snapshot), "bind p to a (a-7 a-5)\n");
        // Where the scheduler chooses the topology, labels do not bind.
        ask(&mut snapshot, "p", 2, true, &[("gpugrp0/A/gpu/0/cards", 1), ("gpugrp0/A/gpu/1/cards", 1)]);
        assert_eq!(planned(&snapshot), "bind p to a (a-7 a-5)\n");
    }

    #[test]
    fn kg_09_devices_are_chosen_well_connected_and_from_the_end() {
        let mut snapshot = cluster(&format!("{N8}\nwait p whole count=2"));
        assert_eq!(planned(&snapshot), "bind p to a (a-7 a-6)\n");
        ask(&mut snapshot, "p", 4, true, &[]);
        assert_eq!(planned(&snapshot), "bind p to a (a-7 a-6 a-5 a-4)\n");
    }

    /// A container: its name, when it runs, and what it asks for.
    type Container<'a> = (&'a str, crate::model::ask::Role, &'a [(&'a str, i64)]);

    /// Five devices of different size, two of them with a bit set where those are asked about; containers by name, role, and what is
    /// asked of each of their devices. What each got, and KubeGPU's score of the node in hundred-thousandths.
    fn five(links: &str, containers: &[Container<'_>]) -> (Vec<(String, Vec<String>)>, u32) {
        let mut snapshot = cluster("wait p whole");
        let mut node =
            crate::testing::node(&format!("node dev gpu=1:100000+1:256000+1:257000+1:192000+1:178000{links}"));
        if containers.iter().flat_map(|(_, _, requests)| *requests).any(|(name, _)| name.ends_with("enumType")) {
            for d in [1, 3] {
                node.inventory.devices[d].attributes.insert("enumType".into(), "1".into());
            }
        }
        snapshot.put_node(node);
        let pod = put(&mut snapshot, containers);
        let state = snapshot.node(&"dev".into()).unwrap();
        let mut trial = Trial::new(state, pod.ask.as_ref().unwrap(), snapshot.kinds(), TrialTerms::default());
        trial.run(&Kubegpu).unwrap();
        let score = (Kubegpu.score(&trial) * 100.0).round();
        (given(&snapshot), score as u32)
    }

    /// The pod `p` waits with these containers, whose requests are binding.
    fn put(snapshot: &mut Snapshot, containers: &[Container<'_>]) -> crate::model::pod::Pod {
        let ix = snapshot.find_pod(&"default/p".into()).unwrap();
        let mut pod = snapshot.pod_at(ix).unwrap().pod().clone();
        let ask: &mut GpuAsk = Arc::make_mut(pod.ask.as_mut().unwrap());
        ask.dialect = Dialect::Kubegpu;
        let want = ask.containers[0].wants[0].clone();
        let container = |(name, role, requests): &Container<'_>| {
            let count = requests.iter().filter(|(name, _)| name.ends_with("cards")).map(|(_, n)| *n as u32).sum();
            let requests = requests.iter().map(|(name, n)| (format!("{}/{name}", keys::KUBEGPU_GROUP), *n)).collect();
            let groups = Some(GroupAsk { auto: false, requests, scorers: Default::default() });
            let wants = vec![crate::model::ask::DeviceAsk { count, groups, ..want.clone() }];
            crate::model::ask::ContainerAsk { name: (*name).into(), role: *role, wants }
        };
        ask.containers = containers.iter().map(container).collect();
        snapshot.put_pod(pod.clone());
        pod
    }

    /// What each container of the only pod got.
    fn given(snapshot: &Snapshot) -> Vec<(String, Vec<String>)> {
        let plan = schedule(snapshot, &Policy::only(Placement::Kubegpu), Time(0));
        let grant = plan.binds[0].grant.clone().unwrap();
        let devices = |c: &crate::model::grant::ContainerGrant| c.slices.iter().map(|s| s.device.to_string()).collect();
        grant.containers.iter().map(|c| (c.name.to_string(), devices(c))).collect()
    }

    fn held(name: &str, devices: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), devices.iter().map(|d| (*d).to_owned()).collect())
    }

    #[test]
    fn kg_01_kg_02_every_gpu_has_the_memory_and_the_bits_that_were_asked_for() {
        use crate::model::ask::Role::{Init, Main};
        let run0 = [("gpu/a/cards", 1), ("gpu/a/memory", 256_000), ("gpu/b/cards", 1), ("gpu/b/memory", 178_000)];
        let run1 = [("gpu/0/cards", 1), ("gpu/0/memory", 190_000), ("gpu/0/enumType", 3)];
        for (least, dev) in [(100_000, "dev-4"), (257_000, "dev-2")] {
            let init = [("gpu/0/cards", 1), ("gpu/0/memory", least)];
            let (found, score) = five("", &[("init0", Init, &init), ("run0", Main, &run0), ("run1", Main, &run1)]);
            let expected = [held("init0", &[dev]), held("run0", &["dev-2", "dev-4"]), held("run1", &["dev-3"])];
            assert_eq!((found, score), (expected.into(), 58214));
        }
    }

    #[test]
    fn kg_03_counts_take_devices_from_the_end_and_init_containers_use_them_again() {
        use crate::model::ask::Role::{Init, Main};
        let (one, two) = ([("gpu/0/cards", 1)], [("gpu/0/cards", 1), ("gpu/1/cards", 1)]);
        let (found, score) = five("", &[("init0", Init, &one), ("run0", Main, &two), ("run1", Main, &one)]);
        assert_eq!(score, 30_000);
        assert_eq!(found, [held("init0", &["dev-4"]), held("run0", &["dev-4", "dev-3"]), held("run1", &["dev-2"])]);
    }

    #[test]
    fn kg_04_groups_are_kept_together_beside_single_gpus() {
        use crate::model::ask::Role::{Init, Main};
        let run0 = [
            ("gpugrp0/A/gpu/0/cards", 1),
            ("gpugrp0/A/gpu/0/memory", 190_000),
            ("gpugrp0/A/gpu/1/cards", 1),
            ("gpugrp0/A/gpu/1/memory", 178_000),
        ];
        let run1 = [("gpu/0/cards", 1), ("gpu/0/memory", 256_000)];
        let run2 = [("gpu/0/cards", 1), ("gpu/0/memory", 256_000), ("gpu/1/cards", 1), ("gpu/1/memory", 100_000)];
        let links = " links=0-1:single-switch,3-4:single-switch";
        let init = [("gpu/0/cards", 1), ("gpu/0/memory", 100_000)];
        let containers: [Container<'_>; 4] =
            [("init0", Init, &init), ("run0", Main, &run0), ("run1", Main, &run1), ("run2", Main, &run2)];
        let (found, score) = five(links, &containers);
        assert_eq!(score, 99857);
        let (run0, run1) = (held("run0", &["dev-3", "dev-4"]), held("run1", &["dev-2"]));
        assert_eq!(found, [held("init0", &["dev-1"]), run0, run1, held("run2", &["dev-1", "dev-0"])]);
    }

    #[test]
    fn kg_12_the_small_node_is_filled_before_the_large_one() {
        let snapshot = cluster("node large gpu=8\nnode small gpu=4\nwait p whole count=4");
        assert!(planned(&snapshot).starts_with("bind p to small"), "{}", planned(&snapshot));
    }

    #[test]
    fn kg_13_a_least_amount_of_memory_takes_the_smallest_that_will_do_and_fills_its_group() {
        let text =
            "node a gpu=1:8Gi+2:16Gi+1:32Gi links=0-1:single-switch,2-3:single-switch\nwait p whole\nwait q whole at=1";
        let mut snapshot = cluster(text);
        let memory = [("gpu/0/cards", 1), ("gpu/0/memory", Bytes::gib(12).0 as i64)];
        ask(&mut snapshot, "p", 1, false, &memory);
        ask(&mut snapshot, "q", 1, false, &memory);
        assert_eq!(planned(&snapshot), "bind p to a (a-2)\nbind q to a (a-3)\n");
    }

    #[test]
    fn kg_14_more_memory_than_any_device_has_fits_nowhere_and_the_container_is_named() {
        let mut snapshot = cluster("node a gpu=4:16Gi\nwait p whole");
        ask(&mut snapshot, "p", 1, false, &[("gpu/0/cards", 1), ("gpu/0/memory", Bytes::gib(40).0 as i64)]);
        let said = planned(&snapshot);
        assert!(said.starts_with("wait p: 0/1 nodes fit"), "{said}");
        assert!(said.contains("container main: a-0 40 GiB of memory wanted, 16 GiB free"), "{said}");
    }

    #[test]
    fn amounts_that_too_few_devices_have_are_the_reason_and_not_how_the_devices_lie() {
        let mut snapshot = cluster("node a gpu=1:32Gi+3:16Gi\nwait p whole");
        let two = [("gpu/0/memory", gib(20)), ("gpu/1/memory", gib(24))];
        ask(&mut snapshot, "p", 2, false, &two);
        let said = planned(&snapshot);
        assert!(said.contains("20 GiB of memory wanted, 16 GiB free"), "{said}");
        ask(&mut snapshot, "p", 2, false, &[("gpu/0/memory", gib(12)), ("gpu/1/memory", gib(24))]);
        assert!(planned(&snapshot).starts_with("bind p to a"), "{}", planned(&snapshot));
    }

    /// A pod that waits for one of eight devices, each with the same set of bits.
    fn with_bits() -> Snapshot {
        let mut snapshot = cluster(&format!("{N8}\nwait p whole"));
        let mut node = snapshot.nodes().next().unwrap().1.node().clone();
        for device in &mut node.inventory.devices {
            device.attributes.insert("enumType".into(), "5".into());
        }
        snapshot.put_node(node);
        snapshot
    }

    #[test]
    fn kg_24_what_devices_lack_is_named_and_so_are_labels_that_cannot_be_met() {
        let mut snapshot = with_bits();
        let mut said = |count: u32, requests: &[(&str, i64)]| {
            ask(&mut snapshot, "p", count, false, requests);
            planned(&snapshot)
        };
        assert!(said(1, &[("gpu/0/enumType", 0b0100)]).starts_with("bind p to a"));
        let other_bits = said(1, &[("gpu/0/enumType", 0b1010)]);
        assert!(other_bits.contains("container main: a-0 enumType 10 wanted, has 5"), "{other_bits}");
        let unknown = said(1, &[("gpu/0/foo", 1)]);
        assert!(unknown.contains("foo 1 wanted, has 0"), "{unknown}");
        let names: Vec<String> = (0..3).map(|n| format!("gpugrp0/A/gpu/{n}/cards")).collect();
        let three: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let crowded = said(3, &three);
        assert!(crowded.contains("not in the groups that its labels want"), "{crowded}");
    }

    #[test]
    fn a_scorer_says_whether_a_quantity_is_an_amount_or_a_set_of_bits() {
        let mut snapshot = with_bits();
        ask(&mut snapshot, "p", 1, false, &[("gpu/0/enumType", 2)]);
        assert!(planned(&snapshot).starts_with("wait p"), "no bit in common: {}", planned(&snapshot));
        let mut pod = snapshot.waiting().next().unwrap().1.pod().clone();
        let groups = Arc::make_mut(pod.ask.as_mut().unwrap()).containers[0].wants[0].groups.as_mut().unwrap();
        groups.scorers.insert(format!("{}/gpu/0/enumType", keys::KUBEGPU_GROUP), 1);
        snapshot.put_pod(pod);
        assert!(planned(&snapshot).starts_with("bind p to a"), "as an amount it is enough: {}", planned(&snapshot));
    }

    #[test]
    fn what_is_spelled_out_binds_under_every_policy() {
        let text = "node a gpu=4:8Gi+4:32Gi links=0-1:single-switch,2-3:single-switch,4-5:single-switch,6-7:single-switch\npod x on a dev=4 whole\npod y on a dev=7 whole";
        let mut snapshot = cluster(&format!("{text}\nwait p whole"));
        for name in Placement::NAMES {
            let by = Placement::named(name).unwrap();
            ask(&mut snapshot, "p", 1, false, &[("gpu/0/cards", 1), ("gpu/0/memory", gib(20))]);
            let said = planned_by(&snapshot, by.clone());
            assert!(said == "bind p to a (a-5)\n" || said == "bind p to a (a-6)\n", "{name}: {said}");
            ask(&mut snapshot, "p", 2, false, &[("gpugrp0/A/gpu/0/memory", gib(20)), ("gpugrp0/A/gpu/1/cards", 1)]);
            let said = planned_by(&snapshot, by);
            assert!(said.starts_with("wait p: "), "{name}: {said}");
        }
    }

    #[test]
    fn one_inner_label_under_two_outer_ones_is_two_groups() {
        let mut snapshot = cluster(&format!("{N8}\nwait p whole"));
        let four = [
            ("gpugrp1/A/gpugrp0/0/gpu/0/cards", 1),
            ("gpugrp1/A/gpugrp0/0/gpu/1/cards", 1),
            ("gpugrp1/B/gpugrp0/0/gpu/2/cards", 1),
            ("gpugrp1/B/gpugrp0/0/gpu/3/cards", 1),
        ];
        ask(&mut snapshot, "p", 4, false, &four);
        assert_eq!(planned(&snapshot), "bind p to a (a-7 a-6 a-5 a-4)\n");
    }

    #[test]
    fn a_large_group_is_found_behind_one_that_is_not_free() {
        // Seven of the fuller eight are free: there are millions of orders in which to try them in vain.
        let mut snapshot = cluster(
            "node a gpu=16 links=0..7:single-switch,8..15:single-switch\npod x on a dev=15 whole\nwait p whole",
        );
        let names: Vec<String> = (0..8).map(|n| format!("gpugrp0/A/gpu/{n}/cards")).collect();
        let eight: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        for auto in [false, true] {
            ask(&mut snapshot, "p", 8, auto, &eight);
            assert_eq!(planned(&snapshot), "bind p to a (a-7 a-6 a-5 a-4 a-3 a-2 a-1 a-0)\n");
        }
    }

    #[test]
    fn kg_07_the_node_where_devices_lie_closer_is_taken_whatever_its_name_and_fullness() {
        let pairs = "gpu=8 links=0..3:host-bridge,4..7:host-bridge,0-1:single-switch,2-3:single-switch,4-5:single-switch,6-7:single-switch";
        let quad = "gpu=8 links=0..3:single-switch,4..7:host-bridge,4-5:single-switch,6-7:single-switch";
        for (close, far) in [("a", "b"), ("b", "a")] {
            let text = format!("node {close} {quad}\nnode {far} {pairs}\npod x on {far} dev=0 whole\nwait p whole");
            let mut snapshot = cluster(&text);
            ask(&mut snapshot, "p", 3, true, &[]);
            assert_eq!(planned(&snapshot), format!("bind p to {close} ({close}-3 {close}-2 {close}-1)\n"));
            ask(&mut snapshot, "p", 3, false, &[]);
            assert!(planned(&snapshot).starts_with(&format!("bind p to {far}")), "{}", planned(&snapshot));
        }
    }

    #[test]
    fn where_the_scheduler_chooses_devices_with_amounts_lie_close_too() {
        let mut snapshot = cluster(&format!("{N8}\npod x on a dev=7 whole\nwait p whole"));
        for two in [[("gpu/0/cards", 1), ("gpu/1/cards", 1)], [("gpu/0/memory", gib(12)), ("gpu/1/memory", gib(12))]] {
            ask(&mut snapshot, "p", 2, true, &two);
            assert_eq!(planned(&snapshot), "bind p to a (a-5 a-4)\n");
        }
        // The amounts come first: the only two that are large enough are far from each other.
        let mut snapshot =
            cluster("node a gpu=1:16Gi+1:32Gi+1:16Gi+1:32Gi links=0-1:single-switch,2-3:single-switch\nwait p whole");
        ask(&mut snapshot, "p", 2, true, &[("gpu/0/memory", gib(20)), ("gpu/1/memory", gib(20))]);
        assert_eq!(planned(&snapshot), "bind p to a (a-3 a-1)\n");
        ask(&mut snapshot, "p", 2, true, &[("gpu/0/memory", gib(20)), ("gpu/1/memory", gib(10))]);
        assert_eq!(planned(&snapshot), "bind p to a (a-3 a-2)\n");
    }

    #[test]
    fn of_switches_and_nvlink_the_scheduler_chooses_nvlink() {
        let links = "0..3:single-switch,0-2:nv-link,1-3:nv-link";
        let mut snapshot = cluster(&format!("node a gpu=4:16Gi links={links}\nwait p whole"));
        for two in [&[][..], &[("gpu/0/memory", gib(12)), ("gpu/1/memory", gib(12))]] {
            ask(&mut snapshot, "p", 2, true, two);
            assert_eq!(planned(&snapshot), "bind p to a (a-3 a-1)\n");
        }
    }

    #[test]
    fn groups_in_use_are_filled_before_others_are_opened() {
        for (auto, requests) in [(false, &[("gpu/0/cards", 1)][..]), (false, &[]), (true, &[])] {
            let mut snapshot = cluster(&format!("{N8}\npod x on a dev=0 whole\nwait p whole"));
            ask(&mut snapshot, "p", 1, auto, requests);
            assert_eq!(planned(&snapshot), "bind p to a (a-1)\n", "{auto} {requests:?}");
            let mut snapshot = cluster(&format!("{N8}\npod x on a dev=0,1 whole\nwait p whole"));
            ask(&mut snapshot, "p", 2, auto, requests);
            assert_eq!(planned(&snapshot), "bind p to a (a-3 a-2)\n", "{auto} {requests:?}");
        }
    }

    #[test]
    fn a_pod_stays_in_the_place_that_it_uses_already() {
        use crate::model::ask::Role::Main;
        // The one large device is in the first quad; the second container follows it there.
        let mut snapshot = cluster(&format!("{}\nwait p whole", N8.replace("8:16Gi", "1:32Gi+7:16Gi")));
        let (large, any) = ([("gpu/0/cards", 1), ("gpu/0/memory", gib(20))], [("gpu/0/cards", 1)]);
        put(&mut snapshot, &[("r0", Main, &large), ("r1", Main, &any)]);
        assert_eq!(given(&snapshot), [held("r0", &["a-0"]), held("r1", &["a-1"])]);
    }

    #[test]
    fn containers_choose_in_the_order_of_their_names_and_init_containers_last() {
        use crate::model::ask::Role::{Init, Main};
        let mut snapshot = cluster("node a gpu=5\nwait p whole");
        let one = [("gpu/0/cards", 1)];
        put(&mut snapshot, &[("a-init", Init, &one), ("z", Main, &one), ("b", Main, &one)]);
        assert_eq!(given(&snapshot), [held("a-init", &["a-4"]), held("z", &["a-3"]), held("b", &["a-4"])]);
    }

    #[test]
    fn kg_24_a_set_of_bits_needs_one_in_common_and_is_not_used_up() {
        let mut snapshot = cluster("node a gpu=2\nwait p whole\nwait q whole at=1\nwait r whole at=2");
        let mut node = snapshot.node(&"a".into()).unwrap().node().clone();
        node.inventory.devices.iter_mut().for_each(|d| drop(d.attributes.insert("enumType".into(), "5".into())));
        snapshot.put_node(node);
        ask(&mut snapshot, "p", 1, false, &[("gpu/0/enumType", 0b0100)]);
        ask(&mut snapshot, "q", 1, false, &[("gpu/0/enumType", 0b0100)]);
        ask(&mut snapshot, "r", 1, false, &[("gpu/0/enumType", 0b1010)]);
        let said = planned(&snapshot);
        assert!(said.contains("bind p to a") && said.contains("bind q to a") && said.contains("wait r"), "{said}");
    }

    #[test]
    fn kg_11_a_full_wide_node_demands_nothing_of_the_others() {
        let snapshot = cluster(&format!(
            "{N8}\nnode wide gpu=8 links=0..7:single-switch\npod x on wide dev=0,1,2,3,4,5,6,7 whole\nwait p whole count=4"
        ));
        assert!(planned(&snapshot).starts_with("bind p to a"), "{}", planned(&snapshot));
    }
}
