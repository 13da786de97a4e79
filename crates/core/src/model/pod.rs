//! A pod as the scheduler sees it: what it asks of devices, what it asks of Kubernetes, and where it stands.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::ask::{Class, GpuAsk};
use crate::model::grant::Grant;
use crate::model::id::{GangKey, Namespace, NodeName, PodKey, PodUid};
use crate::model::labels::{Labels, Selector};
use crate::model::node::{Effect, NodeTerm, Taint};
use crate::model::resources::Resources;
use crate::model::time::Time;
use crate::model::volume::VolumeUse;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Its identity.
    pub uid: PodUid,
    /// Its name.
    pub key: PodKey,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The ordinary Kubernetes part of its request.
    #[serde(default)]
    pub spec: Arc<PodSpec>,
    /// Its request for devices; absent for an ordinary pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Arc<GpuAsk>>,
    /// Mistakes in its request, in the words of its dialect. A pod that has any (the webhook was bypassed) waits with these texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Arc<str>>,
    /// Its class now (budgets change it); absent leaves it to the ask, and then to the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Of a member of a gang: the uid of the controller that would replace it (a Job, a StatefulSet).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Arc<str>>,
    /// When it was created, or first came to us: waiting is counted from here.
    #[serde(default)]
    pub created: Time,
    /// Where it stands.
    #[serde(default)]
    pub state: State,
}

/// Where a pod stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum State {
    /// It has no node yet.
    #[default]
    Waiting,
    /// It has a node, and holds what it was granted there until it is gone.
    Bound(Bound),
}

/// What a bound pod holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// Its node.
    pub node: NodeName,
    /// Its devices; absent for an ordinary pod, and for one that somebody else bound without a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Arc<Grant>>,
    /// When it was bound.
    #[serde(default)]
    pub since: Time,
    /// Its init containers have all ended well: from now on it holds what its main containers and sidecars need.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub init_done: bool,
    /// It is being deleted. It holds its devices until it is gone, and counts as room that is about to come free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminating: bool,
}

impl Pod {
    /// A waiting pod with nothing special about it. Its uid is its name, which is enough for tests and fixtures.
    pub fn new(namespace: &str, name: &str) -> Pod {
        Pod {
            uid: PodUid::from(format!("{namespace}/{name}")),
            key: PodKey::new(namespace, name),
            labels: Labels::new(),
            spec: Arc::default(),
            ask: None,
            mistakes: Vec::new(),
            class: None,
            controller: None,
            created: Time::default(),
            state: State::Waiting,
        }
    }

    /// The gang it belongs to.
    pub fn gang(&self) -> Option<GangKey> {
        let gang = self.ask.as_ref()?.gang.as_ref()?;
        Some(GangKey { namespace: self.key.namespace.clone(), name: gang.name.clone() })
    }

    /// What it holds, if it is bound.
    pub fn bound(&self) -> Option<&Bound> {
        match &self.state {
            State::Waiting => None,
            State::Bound(bound) => Some(bound),
        }
    }

    /// Its standing when there is not enough for all. A pod that says nothing has a right to what it asked for.
    pub fn class(&self) -> Class {
        self.class.or_else(|| self.ask.as_ref().and_then(|ask| ask.class)).unwrap_or(Class::Guarantee)
    }
}

/// The ordinary Kubernetes part of a pod: everything the default filters of kube-scheduler look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// What it needs on its node, see [`Resources::of_pod`].
    pub requests: Resources,
    /// Labels its node must have.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub node_selector: Labels,
    /// What its node must be: any one of these terms; absent accepts all, an empty list none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<Vec<NodeTerm>>,
    /// What its node should be, with weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_preference: Vec<Weighted<NodeTerm>>,
    /// Taints it tolerates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Ports of the node it wants to itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<HostPort>,
    /// Pods it must be near.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<PodTerm>,
    /// Pods it must not be near.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<PodTerm>,
    /// Pods it should be near (positive weight) or not (negative).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_preference: Vec<Weighted<PodTerm>>,
    /// How it must or should spread with its like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadRule>,
    /// Its volumes, as far as they bear on where it can run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeUse>,
    /// Gates that keep it from being scheduled at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Arc<str>>,
    /// Kubelet features without which it cannot run.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub features: BTreeSet<Arc<str>>,
    /// What it uses that this scheduler does not do: it waits, and these are named (`spec.resourceClaims`, ...).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<Arc<str>>,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// `preemptionPolicy: Never`: others are not evicted for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_preempts: bool,
    /// It ends after so many seconds at the latest (`activeDeadlineSeconds`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
}

/// Something wished for, and how much.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weighted<T> {
    /// How much it is wished for.
    pub weight: i32,
    /// What is wished for.
    pub what: T,
}

/// A taint a pod does not mind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's name; absent tolerates every name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    /// What must hold of its value.
    #[serde(default)]
    pub value: TolerationValue,
    /// The effect it covers; absent covers all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// What a toleration wants of a taint's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TolerationValue {
    /// Anything.
    #[default]
    Any,
    /// Exactly this.
    Equal(Arc<str>),
    /// The taint's value is a number below this one.
    Above(i64),
    /// The taint's value is a number above this one.
    Below(i64),
}

impl Toleration {
    /// Does it cover this taint?
    pub fn covers(&self, taint: &Taint) -> bool {
        let number = || taint.value.parse::<i64>().ok();
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && match &self.value {
                TolerationValue::Any => true,
                TolerationValue::Equal(value) => *value == taint.value,
                TolerationValue::Above(bound) => number().is_some_and(|n| n < *bound),
                TolerationValue::Below(bound) => number().is_some_and(|n| n > *bound),
            }
    }
}

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    /// The address it is bound to; empty and `0.0.0.0` mean all.
    #[serde(default)]
    pub address: Arc<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// The number.
    pub port: u16,
}

impl HostPort {
    /// Do the two get in each other's way?
    pub fn conflicts(&self, other: &HostPort) -> bool {
        let everywhere = |address: &str| address.is_empty() || address == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || everywhere(&self.address) || everywhere(&other.address))
    }
}

/// Pods that are near or not: those selected, on nodes with the same value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTerm {
    /// Which pods; absent selects none.
    pub selector: Option<Selector>,
    /// In which namespaces; empty together with an absent `namespace_selector` means the pod's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
    /// In namespaces with which labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// The node label whose value says what is near.
    pub topology_key: Arc<str>,
}

/// How a pod spreads with its like.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadRule {
    /// The most by which one domain may have more of them than the emptiest.
    pub max_skew: u32,
    /// The node label whose values are the domains.
    pub topology_key: Arc<str>,
    /// Must (true) or should.
    pub hard: bool,
    /// Which pods are its like; absent selects none.
    pub selector: Option<Selector>,
    /// Labels whose values are taken from the pod itself and added to the selector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_label_keys: Vec<Arc<str>>,
    /// Count domains as empty until there are so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<u32>,
    /// Count only nodes that the pod's node affinity accepts (Kubernetes' default).
    #[serde(default = "yes")]
    pub honor_affinity: bool,
    /// Count only nodes whose taints the pod tolerates (not the default).
    #[serde(default)]
    pub honor_taints: bool,
}

fn yes() -> bool {
    true
}
