//! A pod that waits, or whose bind is under way.

use std::sync::Arc;

use divvy_cluster::effect::Target;
use divvy_core::id::NodeName;
use divvy_core::reason::Reason;
use divvy_core::time::Time;
use serde_json::Value;

/// A pod that waits, or whose bind is under way.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pod.
    pub target: Target,
    /// The version last seen.
    pub version: String,
    /// Pods of the same shape get the same answers.
    pub shape: u64,
    /// When it was created.
    pub created: Time,
    /// When it came to us.
    pub arrived: Time,
    /// It is ours to place; else another scheduler does, with our advice.
    pub ours: bool,
    /// It waits behind our gate until its gang fits.
    pub gated: bool,
    /// The part of its manifest users of its dialect will look for more than the grant.
    pub manifest: Option<Arc<Value>>,
    /// Where it stands.
    pub stand: Stand,
    /// When it was last tried in vain.
    pub tried: Time,
    /// Binds in a row that failed.
    pub failures: u32,
    /// What it was last told.
    pub told: Option<Told>,
    /// What it should be told when it is time.
    pub due: Option<Explanation>,
}

/// Where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// To be tried.
    Awake,
    /// Tried in vain: something has to change first.
    Asleep,
    /// Not to be tried before this moment.
    Resting(Time),
    /// Its bind is under way.
    Flying {
        /// The answer left doubts: whether it was bound is being looked at.
        doubt: bool,
        /// It was bound; the watch has not said so yet.
        bound: bool,
        /// Since when.
        since: Time,
    },
    /// Another scheduler places it; it has asked, or will.
    Theirs,
    /// A place is kept for it until then: its gang fits, and another scheduler is to place its members one by one.
    Promised {
        /// Until when.
        until: Time,
    },
}

impl Entry {
    /// Is it time to reserve something for it, or to look for that anew? Nothing else may change that would wake it.
    pub fn has_slept_long(&self, patience: u64, now: Time) -> bool {
        let overdue = self.created.0.saturating_add(patience);
        let rested = self.tried.0.saturating_add(patience);
        patience > 0 && now.0 >= overdue && (self.tried.0 < overdue || now.0 >= rested)
    }

    /// May it be tried at our own initiative?
    pub fn may_be_tried(&self) -> bool {
        let free = !matches!(self.stand, Stand::Flying { .. } | Stand::Promised { .. });
        free && (self.ours || self.gated)
    }
}

/// What a pod was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The sentence.
    pub message: String,
    /// When.
    pub at: Time,
}

/// What a pod should be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Why it waits.
    pub reason: Reason,
    /// Where room is being made for it.
    pub nominated: Option<NodeName>,
}
