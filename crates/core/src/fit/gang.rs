//! What holds for a gang as a whole, by what its members say of it.

use crate::ledger::snapshot::Snapshot;
use crate::model::ask::{Dialect, Gang, GpuAsk};
use crate::model::id::GangKey;
use crate::model::pod::Pod;

/// Does the pod wait for its gang? One that only names its KubeShare group (or whose threshold rounds to nobody) is counted by the
/// others and placed by itself.
pub fn waits_for_gang(pod: &Pod) -> bool {
    declared(pod).is_some_and(|(ask, gang)| gang.min > 0 || ask.dialect != Dialect::Kubeshare)
}

fn declared(pod: &Pod) -> Option<(&GpuAsk, &Gang)> {
    let ask = pod.ask.as_deref()?;
    Some((ask, ask.gang.as_ref()?))
}

/// What holds for a gang as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangTerms {
    /// How many must be placed before any may start.
    pub min: u32,
    /// How many members it will have, as the most generous of them says.
    pub size: u32,
    /// How many have done their work already: nobody waits for them again.
    pub done: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All of KubeShare: the oldest member says what the minimum and the priority are, and who says otherwise waits alone. One odd pod
    /// must not stop a group that runs well without it.
    Loose { priority: i32 },
    /// Members must say the same, word for word; do they?
    Strict { agree: bool },
}

impl GangTerms {
    /// The terms of this gang, by what its members say of it.
    pub fn of(snapshot: &Snapshot, key: &GangKey) -> GangTerms {
        let mut members: Vec<&Pod> =
            snapshot.gang(key).map(|(_, member)| member.pod()).filter(|p| waits_for_gang(p)).collect();
        members.sort_by_key(|pod| (pod.created, &pod.key));
        let said: Vec<(&GpuAsk, &Gang)> = members.iter().copied().filter_map(declared).collect();
        let size = said.iter().map(|(_, gang)| gang.size).max().unwrap_or(0);
        let done = snapshot.surroundings().finished.beside(key, size, members.iter().copied());
        let most = said.iter().map(|(_, gang)| gang.min).max().unwrap_or(0);
        match said.first() {
            Some((first, gang)) if said.iter().all(|(ask, _)| ask.dialect == Dialect::Kubeshare) => {
                GangTerms { min: gang.min, size, done, kind: Kind::Loose { priority: first.priority } }
            }
            _ => {
                let agree = said.iter().all(|(_, gang)| (gang.size, gang.min) == (size, most));
                GangTerms { min: most, size, done, kind: Kind::Strict { agree } }
            }
        }
    }

    /// How many must hold their places together now.
    pub fn needed(&self) -> u32 {
        self.min.saturating_sub(self.done)
    }

    /// Why this member cannot be placed with the others, whatever room there is.
    pub fn objection(&self, pod: &Pod) -> Option<String> {
        let (ask, gang) = declared(pod).filter(|_| waits_for_gang(pod))?;
        match self.kind {
            Kind::Strict { agree } => (!agree).then(|| "size and minimum must be the same on all".to_owned()),
            Kind::Loose { .. } if gang.min != self.min => {
                Some(format!("its oldest member waits for {}, this one for {}", self.min, gang.min))
            }
            Kind::Loose { priority } if ask.priority != priority => {
                Some(format!("its oldest member has priority {priority}, this one {}", ask.priority))
            }
            Kind::Loose { .. } => None,
        }
    }

    /// Is the pod one of those that start together?
    pub fn holds(&self, pod: &Pod) -> bool {
        waits_for_gang(pod) && self.objection(pod).is_none()
    }
}
