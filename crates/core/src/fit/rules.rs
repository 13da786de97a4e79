//! The ordinary Kubernetes rules: what the default filters of kube-scheduler check, so that a cluster with no other scheduler is safe.
//!
//! | kube-scheduler 1.36 | here |
//! |---|---|
//! | SchedulingGates | [`standing`] |
//! | NodeUnschedulable, TaintToleration, NodeAffinity, NodeName, NodeDeclaredFeatures | [`node`] |
//! | NodeResourcesFit, NodePorts | [`room`] |
//! | InterPodAffinity | [`near`] |
//! | PodTopologySpread | [`spread`] |
//! | VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone | [`volumes`] |
//! | DynamicResources and whatever else a pod uses that is not done | refused by name in [`standing`] |

pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod room;
pub(crate) mod spread;
pub(crate) mod volumes;

use crate::ledger::snapshot::{NodeState, PodIx, Snapshot};
use crate::model::pod::Pod;
use crate::model::reason::{NodeReason, Reason};

/// What keeps a pod from being looked at at all.
pub fn standing(pod: &Pod) -> Option<Reason> {
    if let Some(text) = pod.mistakes.first() {
        let all: Vec<&str> = pod.mistakes.iter().map(|m| &**m).collect();
        let text = if all.len() == 1 { text.clone() } else { all.join("; ").into() };
        return Some(Reason::Mistake { text });
    }
    if let Some(name) = pod.spec.gates.first() {
        return Some(Reason::Gate { name: name.clone() });
    }
    let what = pod.spec.unsupported.first()?;
    Some(Reason::Unsupported { what: what.clone() })
}

/// The rules of one pod, with what they ask of the rest of the cluster already counted: made once per pod, asked for every node.
#[derive(Debug)]
pub struct Rules<'a> {
    snapshot: &'a Snapshot,
    pod: &'a Pod,
    near: Option<near::Near>,
    spread: Option<spread::Spread>,
    volumes: Option<volumes::Volumes<'a>>,
}

impl<'a> Rules<'a> {
    /// The rules of the pod at `ix`.
    pub fn of(snapshot: &'a Snapshot, ix: PodIx, pod: &'a Pod) -> Rules<'a> {
        Rules {
            snapshot,
            pod,
            near: near::Near::of(snapshot, pod),
            spread: spread::Spread::of(snapshot, pod),
            volumes: volumes::Volumes::of(snapshot, ix, pod),
        }
    }

    /// Does a pod's answer from a node depend on that node alone? Then answers can be remembered until the node changes.
    pub fn is_local(snapshot: &Snapshot, pod: &Pod) -> bool {
        let spec = &pod.spec;
        spec.near.is_empty()
            && spec.apart.is_empty()
            && spec.pod_preference.is_empty()
            && spec.spread.is_empty()
            && spec.volumes.is_empty()
            && spec.host_ports.is_empty()
            && snapshot.repelling().next().is_none()
            && snapshot.surroundings().quotas.of(&pod.key.namespace).is_empty()
    }

    /// May the pod run on the node, as far as Kubernetes is concerned? The first rule that fails answers.
    pub fn check(&self, state: &NodeState) -> Result<(), NodeReason> {
        node::check(self.pod, state.node())?;
        room::check(self.snapshot, self.pod, state)?;
        if let Some(volumes) = &self.volumes {
            volumes.check(state)?;
        }
        if let Some(spread) = &self.spread {
            spread.check(state.node())?;
        }
        if let Some(near) = &self.near {
            near.check(state.node())?;
        }
        Ok(())
    }

    /// What must be done about the pod's claims when it is bound to this node.
    pub fn volume_steps(&self, state: &NodeState) -> Vec<crate::model::volume::VolumeStep> {
        self.volumes.as_ref().map_or_else(Vec::new, |volumes| volumes.steps(state))
    }

    /// How much the pod would rather be here: preferred affinities, soft spreading, soft taints. Zero for a pod without wishes.
    pub fn wishes(&self, state: &NodeState) -> i64 {
        let node = state.node();
        let mut sum = node::wishes(self.pod, node);
        if let Some(near) = &self.near {
            sum += near.wishes(node);
        }
        if let Some(spread) = &self.spread {
            sum -= spread.crowd(node);
        }
        sum
    }
}
