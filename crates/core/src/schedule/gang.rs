//! Gangs: enough members at once, or none.

use crate::ask::{Dialect, Gang, GpuAsk};
use crate::id::GangKey;
use crate::plan::Bind;
use crate::pod::Pod;
use crate::reason::Reason;
use crate::schedule::Round;
use crate::snapshot::{PodIx, Snapshot};

/// How many must start together where the gang is given by head count and threshold (KubeShare): half a member is a member.
/// Both in thousandths of a member, so that no float decides.
pub fn minimum(headcount: u32, threshold_thousandths: u32) -> u32 {
    let product = u64::from(headcount) * u64::from(threshold_thousandths);
    u32::try_from((product + 500) / 1000).unwrap_or(u32::MAX)
}

/// Does the pod wait for its gang? One that only names its KubeShare group (or whose threshold rounds to nobody) is counted by the
/// others and placed by itself.
pub fn gates(pod: &Pod) -> bool {
    declared(pod).is_some_and(|(ask, gang)| gang.min > 0 || ask.dialect != Dialect::Kubeshare)
}

fn declared(pod: &Pod) -> Option<(&GpuAsk, &Gang)> {
    let ask = pod.ask.as_deref()?;
    Some((ask, ask.gang.as_ref()?))
}

/// What holds for a gang as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
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

impl Terms {
    /// The terms of this gang, by what its members say of it.
    pub fn of(snapshot: &Snapshot, key: &GangKey) -> Terms {
        let mut members: Vec<&Pod> = snapshot.gang(key).map(|(_, member)| member.pod()).filter(|p| gates(p)).collect();
        members.sort_by_key(|pod| (pod.created, &pod.key));
        let said: Vec<(&GpuAsk, &Gang)> = members.iter().copied().filter_map(declared).collect();
        let size = said.iter().map(|(_, gang)| gang.size).max().unwrap_or(0);
        let done = snapshot.surroundings().finished.beside(key, size, members.iter().copied());
        let most = said.iter().map(|(_, gang)| gang.min).max().unwrap_or(0);
        match said.first() {
            Some((first, gang)) if said.iter().all(|(ask, _)| ask.dialect == Dialect::Kubeshare) => {
                Terms { min: gang.min, size, done, kind: Kind::Loose { priority: first.priority } }
            }
            _ => {
                let agree = said.iter().all(|(_, gang)| (gang.size, gang.min) == (size, most));
                Terms { min: most, size, done, kind: Kind::Strict { agree } }
            }
        }
    }

    /// How many must hold their places together now.
    pub fn needed(&self) -> u32 {
        self.min.saturating_sub(self.done)
    }

    /// Why this member cannot be placed with the others, whatever room there is.
    pub fn objection(&self, pod: &Pod) -> Option<String> {
        let (ask, gang) = declared(pod).filter(|_| gates(pod))?;
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
        gates(pod) && self.objection(pod).is_none()
    }
}

impl Round<'_> {
    /// Places a gang: as many members as there is room for, if they are enough together with those that run already, or have done
    /// their work.
    pub(super) fn gang(&mut self, key: &GangKey, members: &[PodIx]) {
        let terms = Terms::of(self.snapshot, key);
        let waiting = &self.without_odd(key, &terms, members)[..];
        let counts = |pod: &Pod| pod.bound().is_some() || terms.objection(pod).is_none();
        let all: Vec<&Pod> = self.snapshot.gang(key).map(|(_, m)| m.pod()).filter(|pod| counts(pod)).collect();
        let running = all.iter().filter(|pod| pod.bound().is_some()).count() as u32;
        let (have, min) = (all.len() as u32, terms.needed());
        if have < min {
            let (have, want) = (have + terms.done, terms.min);
            return self.wait_all(waiting, |_| Reason::GangIncomplete { gang: key.clone(), have, want });
        }
        let kept = self.take_keepings(waiting);
        let checkpoint = self.snapshot.checkpoint();
        let mut binds: Vec<Bind> = Vec::new();
        let mut refused: Vec<(PodIx, Reason)> = Vec::new();
        for ix in waiting {
            match self.place(*ix, Some(key)) {
                Ok(bind) => binds.push(bind),
                Err(reason) => refused.push((*ix, reason)),
            }
        }
        let fit = running + binds.len() as u32;
        if fit < min {
            self.snapshot.rollback(checkpoint);
            self.placed.retain(|ix| !waiting.contains(ix));
            let rooms = kept.iter().filter(|(_, keeping)| keeping.room).count() as u32;
            if running + rooms >= min && self.stay(&kept) {
                let others = waiting.iter().filter(|ix| !kept.iter().any(|(of, keeping)| of == *ix && keeping.room));
                return others.for_each(|ix| self.wait(*ix, Reason::BehindOthers));
            }
            if self.make_room_for_gang(waiting, running, min, key) {
                return;
            }
            if waiting.iter().any(|ix| self.has_waited(*ix)) {
                self.reserve(waiting, &kept);
            }
            return self.wait_all(waiting, |_| Reason::GangDoesNotFit { gang: key.clone(), fit, want: min });
        }
        self.snapshot.commit(checkpoint);
        self.plan.binds.extend(binds);
        for (ix, reason) in refused {
            self.wait(ix, reason);
        }
    }

    /// The members that can be placed together; the others are told why they cannot.
    fn without_odd(&mut self, key: &GangKey, terms: &Terms, members: &[PodIx]) -> Vec<PodIx> {
        let mut fellows = Vec::new();
        for ix in members {
            let odd = self.snapshot.pod_at(*ix).and_then(|state| terms.objection(state.pod()));
            match odd {
                Some(text) => self.wait(*ix, Reason::GangDisagrees { gang: key.clone(), text }),
                None => fellows.push(*ix),
            }
        }
        fellows
    }

    fn wait_all(&mut self, members: &[PodIx], reason: impl Fn(PodIx) -> Reason) {
        for ix in members {
            self.wait(*ix, reason(*ix));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ks_17_half_a_member_is_a_member() {
        let cases = [(5, 200, 1), (10, 250, 3), (3, 500, 2), (4, 1000, 4), (5, 50, 0), (5, 2000, 10)];
        for (headcount, threshold, min) in cases {
            assert_eq!(super::minimum(headcount, threshold), min, "{headcount} x {threshold}");
        }
    }
}
