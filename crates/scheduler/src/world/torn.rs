//! Gangs that were bound in part: whoever bound them died between two binds, or lost the room for the rest. They are completed when
//! there is room; when there is none in time, everybody who was bound leaves, so that nobody holds devices for company that never comes.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::id::{GangKey, PodUid};
use divvy_core::schedule::{GangTerms, waits_for_gang};
use divvy_core::time::Time;

use super::World;

/// A gang that is bound in part, now.
struct Part {
    /// Those that leave if the others do not come.
    bound: Vec<PodUid>,
    /// All that are bound.
    have: u32,
    min: u32,
    size: u32,
}

impl World {
    /// Returns what is held by gangs that could not be completed in time.
    pub(super) fn return_torn_gangs(&mut self, now: Time) {
        let waiting: BTreeSet<GangKey> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.may_be_tried())
            .filter_map(|(uid, _)| self.snapshot.pod(uid)?.pod().gang())
            .collect();
        let torn: BTreeMap<GangKey, Part> =
            waiting.into_iter().filter_map(|gang| Some((gang.clone(), self.part_of(&gang)?))).collect();
        self.torn.retain(|gang, _| torn.contains_key(gang));
        let per_member = self.policy.scheduling.gangs.timeout_per_member.saturating_mul(1000);
        for (gang, part) in torn {
            let since = *self.torn.entry(gang.clone()).or_insert(now);
            let patience = per_member.saturating_mul(u64::from(part.size));
            if now.millis_since(since) < patience {
                continue;
            }
            let (have, min) = (part.have, part.min);
            let reason = format!(
                "its gang {} could not be completed: {have} of at least {min} members were bound, and there was no room for more in {} s",
                gang.name,
                patience / 1000
            );
            for uid in part.bound {
                self.evict(&uid, &reason, "GangIncomplete", now);
            }
            self.torn.remove(&gang);
        }
    }

    /// The bound part of a gang that was never whole. A member that came after the others were bound takes the place of one that is
    /// gone: for it the others wait as long as they like.
    fn part_of(&self, gang: &GangKey) -> Option<Part> {
        let terms = GangTerms::of(&self.snapshot, gang);
        let mut part = Part { bound: Vec::new(), have: 0, min: terms.needed(), size: terms.size };
        let (mut first_bound, mut first_created) = (Time(u64::MAX), Time(u64::MAX));
        for (_, member) in self.snapshot.gang(gang) {
            let pod = member.pod();
            match pod.bound() {
                Some(bound) if !bound.terminating => {
                    part.have += 1;
                    // Who never waited for the others does not leave with them.
                    if waits_for_gang(pod) {
                        first_bound = first_bound.min(bound.since);
                        part.bound.push(pod.uid.clone());
                    }
                }
                None if terms.holds(pod) => first_created = first_created.min(pod.created),
                _ => {}
            }
        }
        let torn = !part.bound.is_empty() && part.have < part.min && first_created <= first_bound;
        torn.then_some(part)
    }
}
