//! Plans that the audit accepts. What it refuses costs the pods that it names, and nobody else.

use std::collections::BTreeSet;

use super::Engine;
use crate::ledger::snapshot::{PodIx, Snapshot};
use crate::model::id::PodUid;
use crate::model::policy::Policy;
use crate::model::time::Time;
use crate::plan::Plan;
use crate::plan::audit::{Violation, audit};

/// A plan, and who was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// The plan: the audit has nothing against it.
    pub plan: Plan,
    /// Pods for which nothing could be planned that the audit accepts.
    pub refused: BTreeSet<PodUid>,
    /// What it had against plans with them: each of these is a mistake of ours.
    pub violations: Vec<Violation>,
}

impl Engine {
    /// As [`Engine::schedule_some`], planned anew without those whom the audit names until it has nothing to say.
    pub fn schedule_audited(
        &mut self,
        snapshot: &mut Snapshot,
        policy: &Policy,
        now: Time,
        awake: impl Fn(PodIx) -> bool,
        most: usize,
    ) -> Audited {
        self.schedule_until(snapshot, audit, |engine, snapshot, left| {
            engine.schedule_some(snapshot, policy, now, |ix| awake(ix) && left(ix), most)
        })
    }

    /// Each round leaves somebody out whom the round before did not, so that there is a last one.
    fn schedule_until(
        &mut self,
        snapshot: &mut Snapshot,
        audit: impl Fn(&Snapshot, &Plan) -> Vec<Violation>,
        plan: impl Fn(&mut Engine, &mut Snapshot, &dyn Fn(PodIx) -> bool) -> Plan,
    ) -> Audited {
        let (mut all, mut out) = (Audited::default(), BTreeSet::new());
        // What was kept for whom before: a plan that is not carried out leaves nothing behind.
        let keepings = self.keepings.clone();
        loop {
            let plan = plan(self, snapshot, &|ix| !out.contains(&ix));
            let violations = audit(snapshot, &plan);
            if violations.is_empty() {
                return Audited { plan, ..all };
            }
            self.keepings = keepings.clone();
            let mut named: BTreeSet<&PodUid> = violations.iter().flat_map(|v| v.concerned(snapshot, &plan)).collect();
            if !leave_out(snapshot, &named, &mut out) {
                // Whom it names is in no plan of ours: then nothing of this plan is to be trusted.
                named =
                    plan.binds.iter().map(|bind| &bind.pod).chain(plan.waits.iter().map(|wait| &wait.pod)).collect();
                if !leave_out(snapshot, &named, &mut out) {
                    all.violations.extend(violations);
                    return all;
                }
            }
            all.refused.extend(named.into_iter().cloned());
            all.violations.extend(violations);
        }
    }
}

/// Leaves these pods out of the next plan, and with each its gang, which is placed as a whole. Is anybody of them new?
fn leave_out(snapshot: &Snapshot, named: &BTreeSet<&PodUid>, out: &mut BTreeSet<PodIx>) -> bool {
    let before = out.len();
    for ix in named.iter().filter_map(|uid| snapshot.find_pod(uid)) {
        out.insert(ix);
        let gang = snapshot.pod_at(ix).and_then(|state| state.pod().gang());
        out.extend(gang.iter().flat_map(|gang| snapshot.gang(gang)).map(|(member, _)| member));
    }
    out.len() > before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::laws::{policies, snapshots};

    const NOW: Time = Time::seconds(10_000);

    /// An audit that has something against whatever is done for these pods.
    fn against(bad: &BTreeSet<PodUid>, plan: &Plan) -> Vec<Violation> {
        let binds = plan.binds.iter().filter(|bind| bad.contains(&bind.pod));
        binds.map(|bind| Violation::NotAsAsked { pod: bind.key.clone(), text: "made up".into() }).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_violation_costs_only_the_pods_that_it_names(
            mut snapshot in snapshots(),
            policy in policies(),
            bad in prop::collection::vec(any::<bool>(), 16),
        ) {
            let waiting: Vec<(PodIx, PodUid)> =
                snapshot.waiting().map(|(ix, state)| (ix, state.pod().uid.clone())).collect();
            let bad: BTreeSet<PodUid> =
                waiting.iter().zip(&bad).filter(|(_, bad)| **bad).map(|((_, uid), _)| uid.clone()).collect();
            let before = snapshot.clone();
            let found = Engine::default().schedule_until(&mut snapshot, |_, plan| against(&bad, plan), |engine, snapshot, left| {
                engine.schedule_some(snapshot, &policy, NOW, left, usize::MAX)
            });
            prop_assert_eq!(&snapshot, &before);
            prop_assert!(against(&bad, &found.plan).is_empty() && found.refused.is_subset(&bad));
            // The others have what they would have had if the refused had never been there.
            let mut out = BTreeSet::new();
            leave_out(&snapshot, &found.refused.iter().collect(), &mut out);
            let without = Engine::default().schedule_some(&mut snapshot, &policy, NOW, |ix| !out.contains(&ix), usize::MAX);
            prop_assert_eq!(&found.plan, &without);
            prop_assert_eq!(found.violations.is_empty(), found.refused.is_empty());
        }
    }

    #[test]
    fn an_audit_that_nothing_pleases_ends_the_planning() {
        let mut snapshot = crate::testing::cluster("node a gpu=1\nwait p share=300\nwait q share=300");
        let nothing =
            |_: &Snapshot, _: &Plan| vec![Violation::UnknownPod { pod: crate::model::id::PodKey::new("x", "y") }];
        let found = Engine::default().schedule_until(&mut snapshot, nothing, |engine, snapshot, left| {
            engine.schedule_some(snapshot, &Policy::default(), NOW, left, usize::MAX)
        });
        assert_eq!((found.plan, found.refused.len(), found.violations.len()), (Plan::default(), 2, 2));
    }
}
