//! Aliyun gpushare's way: on a node, the card with the least free memory that is enough; among nodes, whatever kube-scheduler's default
//! scores say, since gpushare has no opinion.

use crate::fit::{Choose, Placer, Trial, ordinary, take_best};
use crate::model::ask::{ContainerAsk, DeviceAsk};
use crate::model::pod::Pod;

pub(crate) struct Gpushare<'a> {
    pod: &'a Pod,
}

impl<'a> Gpushare<'a> {
    pub(crate) fn of(pod: &'a Pod) -> Gpushare<'a> {
        Gpushare { pod }
    }
}

impl Choose for Gpushare<'_> {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        order.sort_by_key(|d| (trial.book_with(*d).free_memory(), trial.devices()[*d].index));
        take_best(trial, want, &order)
    }
}

impl Placer for Gpushare<'_> {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        ordinary::least_allocated(self.pod, trial.node) + ordinary::balance(self.pod, trial.node)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::model::ask::{DeviceAsk, MemoryAsk, Topology};
    use crate::model::policy::{Placement, Policy};
    use crate::model::time::Time;
    use crate::model::units::Bytes;
    use crate::schedule::schedule;
    use crate::testing::{cluster, describe};

    /// What becomes of a pod whose containers want so many GiB each, all on one card.
    fn containers(cards: &str, gib: &[u64]) -> String {
        let mut snapshot = cluster(&format!("node a gpu={cards}\nwait p mem=1Gi near=device"));
        let mut pod = snapshot.pod(&"default/p".into()).unwrap().pod().clone();
        let ask = Arc::make_mut(pod.ask.as_mut().unwrap());
        let first = ask.containers.remove(0);
        for (number, gib) in gib.iter().enumerate() {
            let mut container = first.clone();
            container.name = format!("c{number}").as_str().into();
            container.wants = vec![DeviceAsk { memory: MemoryAsk::Bytes(Bytes::gib(*gib)), ..first.wants[0].clone() }];
            ask.containers.push(container);
        }
        assert_eq!(ask.topology, Topology::SameDevice);
        snapshot.put_pod(pod);
        said(&snapshot)
    }

    fn said(snapshot: &crate::ledger::snapshot::Snapshot) -> String {
        let mut policy = Policy::only(Placement::named("gpushare").unwrap());
        policy.defragment.propose = false;
        policy.queue.reserve_after = 0;
        describe(&schedule(snapshot, &policy, Time::seconds(1000)))
    }

    #[test]
    fn al_13_the_containers_of_a_pod_go_where_all_of_them_fit() {
        assert_eq!(containers("1:2Gi+1:5Gi", &[1, 2]), "bind p to a (a-1 a-1)\n");
        assert_eq!(containers("1:2Gi+1:5Gi+1:3Gi", &[1, 2]), "bind p to a (a-2 a-2)\n");
        assert!(containers("2:2Gi", &[1, 2]).starts_with("wait p"));
    }

    #[test]
    fn containers_that_fit_on_no_card_together_lack_memory() {
        let text = containers("2:15Gi", &[9, 9]);
        assert!(text.contains("memory") && !text.contains("connected"), "{text}");
        // A card that is too small for the first container alone says so, too.
        let text = containers("1:15Gi+1:4Gi", &[9, 9]);
        assert!(text.contains("memory") && !text.contains("connected"), "{text}");
    }

    #[test]
    fn of_cards_with_equal_memory_left_the_first_is_taken_whatever_time_they_have() {
        let snapshot = cluster("node a gpu=2:15Gi\npod x on a dev=1 mem=0Gi share=500\nwait p mem=3Gi");
        assert_eq!(said(&snapshot), "bind p to a (a-0)\n");
    }
}
