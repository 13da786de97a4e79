//! KubeGPU's way: devices in the groups a request spells out, or the best connected ones, on the node that is fullest afterwards.

use std::collections::BTreeMap;

use crate::ask::{ContainerAsk, DeviceAsk};
use crate::device::Device;
use crate::fit::{Choose, Trial, take_best};
use crate::kubegpu::{Groups, Lifted, groups, lift};
use crate::place::{Placer, left};

pub(crate) struct Kubegpu;

/// Steps after which a search for groups is given up: far more than requests that people write take.
const STEPS: u32 = 100_000;

impl Choose for Kubegpu {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        // KubeGPU goes through a node's devices from the end.
        let mut order = fits.to_vec();
        order.reverse();
        let Some(spelled) = want.groups.as_ref().filter(|groups| !groups.requests.is_empty()) else {
            return take_best(trial, want, &order);
        };
        let wanted = lift(spelled, want.count);
        let asks_memory = wanted.iter().any(|device| device.quantities.contains_key("memory"));
        let of = groups(&trial.node.node().inventory);
        if asks_memory {
            // A group that is in use already is filled first, and of a group the smallest devices that will do.
            let group = |d: usize| of.get(&trial.devices()[d].id).map(|g| g.inner);
            let in_use =
                |d: usize| (0..trial.devices().len()).any(|o| group(o) == group(d) && !trial.book_with(o).is_idle());
            let last = std::cmp::Reverse::<usize>;
            order.sort_by_key(|d| (!in_use(*d), group(*d).map(last), trial.devices()[*d].memory, last(*d)));
        }
        let mut search = Search {
            trial,
            wanted: &wanted,
            order: &order,
            of: &of,
            bound: !spelled.auto,
            chosen: Vec::new(),
            steps: 0,
        };
        search.run().then_some(search.chosen)
    }
}

impl Placer for Kubegpu {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let all = trial.devices().len();
        let used: u32 = (0..all).map(|d| 1000 - left(&trial.book_with(d))).sum();
        f64::from(used) / all.max(1) as f64
    }
}

/// A device for every request, such that requests with one label lie in one group.
struct Search<'a> {
    trial: &'a Trial<'a>,
    wanted: &'a [Lifted],
    order: &'a [usize],
    of: &'a BTreeMap<crate::id::DeviceId, Groups>,
    /// Labels bind; else only amounts do.
    bound: bool,
    chosen: Vec<usize>,
    steps: u32,
}

impl Search<'_> {
    fn run(&mut self) -> bool {
        let Some(next) = self.wanted.get(self.chosen.len()) else { return true };
        for device in self.order {
            self.steps += 1;
            if self.steps > STEPS {
                return false;
            }
            if !self.chosen.contains(device) && self.suits(next, *device) {
                self.chosen.push(*device);
                if self.run() {
                    return true;
                }
                self.chosen.pop();
            }
        }
        false
    }

    fn suits(&self, next: &Lifted, device: usize) -> bool {
        let info = &self.trial.devices()[device];
        let Some(here) = self.of.get(&info.id) else { return false };
        let together = |(wanted, chosen): (&Lifted, &usize)| {
            let Some(there) = self.of.get(&self.trial.devices()[*chosen].id) else { return false };
            (wanted.inner != next.inner || there.inner == here.inner)
                && (wanted.outer != next.outer || there.outer == here.outer)
        };
        next.quantities.iter().all(|(name, amount)| offers(info, name, *amount))
            && (!self.bound || self.wanted.iter().zip(&self.chosen).all(together))
    }
}

/// Does the device have that much of it? A name that begins with `enum` is a set of bits, of which one in common is enough.
fn offers(device: &Device, name: &str, amount: i64) -> bool {
    let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    match name {
        "cards" => amount <= 1,
        "memory" => amount <= whole(device.memory.0),
        _ => {
            let has = device.attributes.get(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
            let bits = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("enum"));
            if bits { amount == 0 || has & amount != 0 } else { amount <= has }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::ask::{GpuAsk, GroupAsk};
    use crate::policy::{Placement, Policy};
    use crate::snapshot::Snapshot;
    use crate::testing::{cluster, describe};
    use crate::time::Time;
    use crate::units::Bytes;
    use crate::{keys, schedule};

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
        describe(&schedule(snapshot, &Policy::only(Placement::Kubegpu), Time(0)))
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
    type Container<'a> = (&'a str, crate::ask::Role, &'a [(&'a str, i64)]);

    /// Five devices of different size; containers by name, role, and what is asked of each of their devices.
    fn five(links: &str, containers: &[Container<'_>]) -> Vec<(String, Vec<String>)> {
        let mut snapshot = cluster("wait p whole");
        let mut node =
            crate::testing::node(&format!("node dev gpu=1:100000+1:256000+1:257000+1:192000+1:178000{links}"));
        for d in [1, 3] {
            node.inventory.devices[d].attributes.insert("enumType".into(), "1".into());
        }
        snapshot.put_node(node);
        let ix = snapshot.find_pod(&"default/p".into()).unwrap();
        let mut pod = snapshot.pod_at(ix).unwrap().pod().clone();
        let ask: &mut GpuAsk = Arc::make_mut(pod.ask.as_mut().unwrap());
        let want = ask.containers[0].wants[0].clone();
        let container = |(name, role, requests): &Container<'_>| {
            let count = requests.iter().filter(|(name, _)| name.ends_with("cards")).map(|(_, n)| *n as u32).sum();
            let requests = requests.iter().map(|(name, n)| (format!("{}/{name}", keys::KUBEGPU_GROUP), *n)).collect();
            let groups = Some(GroupAsk { auto: false, requests, scorers: Default::default() });
            let wants = vec![crate::ask::DeviceAsk { count, groups, ..want.clone() }];
            crate::ask::ContainerAsk { name: (*name).into(), role: *role, wants }
        };
        ask.containers = containers.iter().map(container).collect();
        snapshot.put_pod(pod);
        let plan = schedule(&snapshot, &Policy::only(Placement::Kubegpu), Time(0));
        let grant = plan.binds[0].grant.clone().unwrap();
        let devices = |c: &crate::grant::ContainerGrant| c.slices.iter().map(|s| s.device.to_string()).collect();
        grant.containers.iter().map(|c| (c.name.to_string(), devices(c))).collect()
    }

    fn held(name: &str, devices: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), devices.iter().map(|d| (*d).to_owned()).collect())
    }

    #[test]
    fn kg_01_kg_02_every_gpu_has_the_memory_and_the_bits_that_were_asked_for() {
        use crate::ask::Role::{Init, Main};
        let run0 = [("gpu/a/cards", 1), ("gpu/a/memory", 256_000), ("gpu/b/cards", 1), ("gpu/b/memory", 178_000)];
        let run1 = [("gpu/0/cards", 1), ("gpu/0/memory", 190_000), ("gpu/0/enumType", 3)];
        for (least, dev) in [(100_000, "dev-4"), (257_000, "dev-2")] {
            let init = [("gpu/0/cards", 1), ("gpu/0/memory", least)];
            let found = five("", &[("init0", Init, &init), ("run0", Main, &run0), ("run1", Main, &run1)]);
            let expected = [held("init0", &[dev]), held("run0", &["dev-2", "dev-4"]), held("run1", &["dev-3"])];
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn kg_03_counts_take_devices_from_the_end_and_init_containers_use_them_again() {
        use crate::ask::Role::{Init, Main};
        let (one, two) = ([("gpu/0/cards", 1)], [("gpu/0/cards", 1), ("gpu/1/cards", 1)]);
        let found = five("", &[("init0", Init, &one), ("run0", Main, &two), ("run1", Main, &one)]);
        assert_eq!(found, [held("init0", &["dev-4"]), held("run0", &["dev-4", "dev-3"]), held("run1", &["dev-2"])]);
    }

    #[test]
    fn kg_04_groups_are_kept_together_beside_single_gpus() {
        use crate::ask::Role::Main;
        let run0 = [
            ("gpugrp0/A/gpu/0/cards", 1),
            ("gpugrp0/A/gpu/0/memory", 190_000),
            ("gpugrp0/A/gpu/1/cards", 1),
            ("gpugrp0/A/gpu/1/memory", 178_000),
        ];
        let run1 = [("gpu/0/cards", 1), ("gpu/0/memory", 256_000)];
        let run2 = [("gpu/0/cards", 1), ("gpu/0/memory", 256_000), ("gpu/1/cards", 1), ("gpu/1/memory", 100_000)];
        let links = " links=0-1:single-switch,3-4:single-switch";
        let found = five(links, &[("run0", Main, &run0), ("run1", Main, &run1), ("run2", Main, &run2)]);
        assert_eq!(
            found,
            [held("run0", &["dev-3", "dev-4"]), held("run1", &["dev-2"]), held("run2", &["dev-1", "dev-0"])]
        );
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
