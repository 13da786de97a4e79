//! Gangs: enough members at once, or none.

use crate::fit::gang::GangTerms;
use crate::ledger::snapshot::PodIx;
use crate::model::id::GangKey;
use crate::model::pod::Pod;
use crate::model::reason::Reason;
use crate::plan::Bind;
use crate::schedule::Round;

impl Round<'_> {
    /// Places a gang: as many members as there is room for, if they are enough together with those that run already, or have done
    /// their work.
    pub(super) fn gang(&mut self, key: &GangKey, members: &[PodIx]) {
        let terms = GangTerms::of(self.snapshot, key);
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
    fn without_odd(&mut self, key: &GangKey, terms: &GangTerms, members: &[PodIx]) -> Vec<PodIx> {
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
