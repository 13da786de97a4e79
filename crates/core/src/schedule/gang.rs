//! Gangs: enough members at once, or none.

use crate::id::GangKey;
use crate::plan::Bind;
use crate::reason::Reason;
use crate::schedule::Round;
use crate::snapshot::PodIx;

/// How many must start together where the gang is given by head count and threshold (KubeShare): half a member is a member.
/// Both in thousandths of a member, so that no float decides.
pub fn minimum(headcount: u32, threshold_thousandths: u32) -> u32 {
    let product = u64::from(headcount) * u64::from(threshold_thousandths);
    u32::try_from((product + 500) / 1000).unwrap_or(u32::MAX)
}

impl Round<'_> {
    /// Places a gang: as many members as there is room for, if they are enough together with those that run already.
    pub(super) fn gang(&mut self, key: &GangKey, waiting: &[PodIx]) {
        let all = self.snapshot.gang(key);
        let (bound, declared): (Vec<bool>, Vec<(u32, u32)>) = all
            .filter_map(|(_, member)| {
                let gang = member.pod().ask.as_ref()?.gang.as_ref()?;
                Some((member.pod().bound().is_some(), (gang.size, gang.min)))
            })
            .unzip();
        let running = bound.iter().filter(|b| **b).count() as u32;
        let Some((size, min)) = declared.first().copied() else { return };
        if declared.iter().any(|d| *d != (size, min)) {
            let text = "size and minimum must be the same on all".to_owned();
            return self.wait_all(waiting, |_| Reason::GangDisagrees { gang: key.clone(), text: text.clone() });
        }
        let have = declared.len() as u32;
        if have < min {
            return self.wait_all(waiting, |_| Reason::GangIncomplete { gang: key.clone(), have, want: min });
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
