//! How a platform team wants its cluster run: plain data, read from a file or a custom resource.

pub mod cells;
mod placement;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::ask::{Class, Dialect};
use crate::model::id::Namespace;
use crate::model::pod::Pod;
use crate::model::policy::cells::CellFile;
use crate::model::time::Time;

pub use placement::{CardPolicy, Hami, NodePolicy, Placement, PolicyMistake, Weights};

/// Everything the scheduler is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    /// How pods are placed for which nothing below says otherwise.
    pub placement: Placement,
    /// How pods of a dialect are placed. Each dialect has its own system's way by default; leave one out and its pods are placed
    /// like any other.
    pub by_dialect: BTreeMap<Dialect, Placement>,
    /// The node label that names a node's pool.
    pub pool_label: Arc<str>,
    /// How pods are placed on nodes of a pool.
    pub by_pool: BTreeMap<Arc<str>, Placement>,
    /// Most containers that may share one device, whatever the device says; absent sets no cap.
    pub max_tasks: Option<u32>,
    /// Worth of GPU models to each other (KubeShare's `childCellPriority`), 0..100.
    pub model_priority: BTreeMap<Arc<str>, i32>,
    /// KubeShare's topology file.
    pub cells: Option<CellFile>,
    /// The class of a pod about which neither ask nor budget says anything.
    pub class: Class,
    /// Who goes first.
    pub queue: Queue,
    /// Gangs.
    pub gangs: Gangs,
    /// Eviction of lesser pods.
    pub preemption: Preemption,
    /// Moves that make room.
    pub defragment: Defragment,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            placement: Placement::Frag,
            by_dialect: BTreeMap::from([
                (Dialect::Kubeshare, Placement::Kubeshare),
                (Dialect::Kubegpu, Placement::Kubegpu),
                (Dialect::GpuManager, Placement::GpuManager),
                (Dialect::Gpushare, Placement::Gpushare),
                (Dialect::Vgpu, Placement::Vgpu),
                (Dialect::Hami, Placement::Hami(Hami::default())),
            ]),
            pool_label: crate::keys::POOL.into(),
            by_pool: BTreeMap::new(),
            max_tasks: None,
            model_priority: BTreeMap::new(),
            cells: None,
            class: Class::Guarantee,
            queue: Queue::default(),
            gangs: Gangs::default(),
            preemption: Preemption::default(),
            defragment: Defragment::default(),
        }
    }
}

impl Policy {
    /// The policy that places every pod one way, whatever its dialect. Simulations and tests start here.
    pub fn only(placement: Placement) -> Policy {
        Policy { placement, by_dialect: BTreeMap::new(), ..Policy::default() }
    }

    /// How a pod is placed on nodes of any pool: its own choice, else its dialect's; absent leaves it to the node's pool.
    pub fn placement_of(&self, pod: &Pod) -> Result<Option<Placement>, PolicyMistake> {
        let Some(ask) = &pod.ask else { return Ok(None) };
        let of_dialect = self.by_dialect.get(&ask.dialect);
        match &ask.policy {
            Some(choice) => Placement::read(choice, of_dialect.unwrap_or(&self.placement)).map(Some),
            None => Ok(of_dialect.cloned()),
        }
    }

    /// How pods are placed on nodes of this pool that have no policy of their own.
    pub fn placement_in(&self, pool: Option<&str>) -> &Placement {
        pool.and_then(|pool| self.by_pool.get(pool)).unwrap_or(&self.placement)
    }

    /// Seconds that a pod is left alone from its bind on.
    pub fn protects(&self, pod: &Pod) -> u64 {
        let own = pod.ask.as_ref().and_then(|ask| ask.min_runtime);
        let heeded = own.filter(|_| self.class_of(pod) == Class::Guarantee);
        heeded.map_or(self.preemption.min_runtime, |own| own.min(self.preemption.max_min_runtime))
    }

    /// Has a pod run as long as it is left alone?
    pub fn has_run(&self, pod: &Pod, now: Time) -> bool {
        pod.bound().map_or(0, |bound| now.seconds_since(bound.since)) >= self.protects(pod)
    }

    /// A pod's class.
    pub fn class_of(&self, pod: &Pod) -> Class {
        pod.class.or_else(|| pod.ask.as_ref().and_then(|ask| ask.class)).unwrap_or(self.class)
    }
}

/// Who goes first: class, then PriorityClass, then the dialect's priority, then the namespace that had least for its weight, then age.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Queue {
    /// What each namespace is worth; 1 where nothing is said. A namespace of weight 2 has had its share when it has had twice as much.
    pub weights: BTreeMap<Namespace, u32>,
    /// After so many seconds, what a namespace has used counts half.
    pub half_life: u64,
    /// A pod (or gang) that has waited so many seconds gets devices reserved; zero never reserves.
    pub reserve_after: u64,
    /// Most pods and gangs with reservations at any one time.
    pub reservations: u32,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { weights: BTreeMap::new(), half_life: 4 * 3600, reserve_after: 600, reservations: 16 }
    }
}

/// Gangs: all or nothing at the declared minimum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Gangs {
    /// Seconds per member that a gang may hold devices while its last members are not bound yet; then everything is returned.
    pub timeout_per_member: u64,
}

impl Default for Gangs {
    fn default() -> Gangs {
        Gangs { timeout_per_member: 2 }
    }
}

/// Eviction of lesser pods for greater ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Preemption {
    /// Evict at all.
    pub enabled: bool,
    /// Seconds a pod must have run before it may be evicted, where it does not say itself.
    pub min_runtime: u64,
    /// Most seconds that a pod may say itself. Where it says more, it has these; what an opportunistic pod says counts for nothing.
    pub max_min_runtime: u64,
}

impl Default for Preemption {
    /// A day is time for a checkpoint of whatever trains, and nobody waits longer for what is his.
    fn default() -> Preemption {
        Preemption { enabled: true, min_runtime: 0, max_min_runtime: 86_400 }
    }
}

/// Moving opportunistic pods so that a waiting one fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Defragment {
    /// Look for moves, and say so.
    pub propose: bool,
    /// Do them: evict the pods, which are then placed elsewhere.
    pub act: bool,
    /// Most moves for one waiting pod.
    pub moves: u32,
}

impl Default for Defragment {
    fn default() -> Defragment {
        Defragment { propose: true, act: false, moves: 4 }
    }
}
