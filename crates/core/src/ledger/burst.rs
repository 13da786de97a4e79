//! Memory above a booking. What a pod uses of a card above its booking is borrowed from the memory that no pod has booked: it shrinks as
//! others book, and it is given back when the owner of a booking cannot have its own.
//!
//! ```text
//! |<------------------- memory of the card -------------------->|
//! | booked by a | booked by b |         not booked              |
//!               |<- b's ceiling: its booking and what is not booked ->|
//! ```
//!
//! A tenant of a card is a pod: its containers share what the pod may use. Pure: what pods use comes in as an argument.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::grant::Slice;
use crate::model::id::{Namespace, PodUid};
use crate::model::units::Bytes;

/// A pod is above its booking when it is by more than this: the card gives memory in grains of 2 MiB, and the driver keeps some for each
/// process. Twice as much, and a borrower of that size keeps an owner waiting; half as much, and a pod that uses just what it booked may
/// be taken for a borrower.
pub const CLEARLY: Bytes = Bytes::mib(64);

/// Which pods may use memory of a card that no pod has booked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemoryBurst {
    /// Every pod, up to its memory limit.
    #[default]
    Allow,
    /// Every pod, up to its memory limit, while all pods on the card are of one namespace. No pod, otherwise.
    SameNamespace,
    /// No pod: each has what it booked.
    Forbid,
}

/// A pod that holds a part of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its namespace.
    pub namespace: Namespace,
    /// The memory it has booked on the card.
    pub booked: Bytes,
    /// One of its containers may use more than it has booked. Whoever may not is no borrower, whatever is counted as its use.
    pub borrows: bool,
}

/// A card and the pods that hold parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// All of its memory.
    pub memory: Bytes,
    /// The pods.
    pub tenants: BTreeMap<PodUid, Tenant>,
}

/// Why nobody is made to leave for a pod that could not have memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// The pod asks for more than it has booked.
    NotBooked,
    /// No other pod on the card uses more than it has booked.
    NoBorrower,
}

impl Card {
    /// The most memory that a pod may use of the card: its booking, and what no pod has booked if the policy lets it borrow.
    pub fn ceiling(&self, pod: &PodUid, burst: MemoryBurst) -> Bytes {
        let booked = self.booked(pod);
        if !self.lends(burst) {
            return booked;
        }
        let others: Bytes = self.tenants.iter().filter(|(uid, _)| *uid != pod).map(|(_, tenant)| tenant.booked).sum();
        self.memory.saturating_sub(others).max(booked)
    }

    /// The pod that has to leave so that `owner` gets `asked` bytes of its booking: the one that is furthest above its own. Among equals
    /// it is the first by uid, so that every look finds the same one.
    pub fn borrower(
        &self,
        owner: &PodUid,
        asked: Bytes,
        used: impl Fn(&PodUid) -> Bytes,
    ) -> Result<(&PodUid, Bytes), Spared> {
        if Bytes(used(owner).0.saturating_add(asked.0)) > self.booked(owner) {
            return Err(Spared::NotBooked);
        }
        let others = self.tenants.iter().filter(|(uid, tenant)| *uid != owner && tenant.borrows);
        let above = others.map(|(uid, tenant)| (uid, used(uid).saturating_sub(tenant.booked)));
        let borrowers = above.filter(|(_, above)| *above > CLEARLY);
        // The last of equals is what `max_by_key` finds.
        borrowers.rev().max_by_key(|(_, above)| *above).ok_or(Spared::NoBorrower)
    }

    fn booked(&self, pod: &PodUid) -> Bytes {
        self.tenants.get(pod).map_or(Bytes::ZERO, |tenant| tenant.booked)
    }

    fn lends(&self, burst: MemoryBurst) -> bool {
        let mut namespaces = self.tenants.values().map(|tenant| &tenant.namespace);
        let first = namespaces.next();
        match burst {
            MemoryBurst::Allow => true,
            MemoryBurst::SameNamespace => namespaces.all(|other| Some(other) == first),
            MemoryBurst::Forbid => false,
        }
    }
}

/// May the container use more of the card's memory than it has booked?
pub fn borrows(slice: &Slice) -> bool {
    !slice.exclusive && slice.memory_limit > slice.memory
}

/// The memory that a container may use of a card now, where its pod may use `ceiling` of it: never more than its grant allows and never
/// less than it has booked. Whoever has a card to itself has all of it.
pub fn limit(slice: &Slice, ceiling: Bytes) -> Bytes {
    if slice.exclusive {
        return slice.memory_limit;
    }
    slice.memory_limit.min(ceiling.max(slice.memory))
}

#[cfg(test)]
mod tests;
