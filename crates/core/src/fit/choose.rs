//! What a policy says: which devices of a node, and which node.

use crate::fit::ordinary;
use crate::fit::trial::Trial;
use crate::ledger::snapshot::NodeState;
use crate::model::ask::{ContainerAsk, DeviceAsk};
use crate::model::pod::Pod;
use crate::model::reason::Obstacle;

/// How a policy chooses among the devices that fit.
pub trait Choose {
    /// Why this policy would not give a container a device that fits; absent where it would.
    fn refuses(&self, _trial: &Trial<'_>, _container: &ContainerAsk, _device: usize) -> Option<Obstacle> {
        None
    }

    /// Chooses `want.count` of `fits` for a container; absent where no choice does.
    fn choose(
        &self,
        trial: &Trial<'_>,
        container: &ContainerAsk,
        want: &DeviceAsk,
        fits: &[usize],
    ) -> Option<Vec<usize>>;
}

/// A policy, ready to place one pod.
pub(crate) trait Placer: Choose {
    /// How good the node is with what the pod was given there: more is better.
    fn score(&self, trial: &Trial<'_>) -> f64;

    /// How good the node is for a pod without devices: more is better.
    fn score_ordinary(&self, pod: &Pod, state: &NodeState) -> f64 {
        ordinary::score(pod, state)
    }

    /// Makes scores of several nodes comparable, where the policy does so before it compares.
    fn settle(&self, _scores: &mut [f64]) {}

    /// A container that books no time is refused where all time is booked.
    fn time_for_all(&self) -> bool {
        false
    }
}
