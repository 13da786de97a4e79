//! What was lent is taken back: a pod with a right to devices that others of its cohort borrowed makes the fewest of them leave.

use crate::ledger::quota::{Held, Holder, Verdict, reclaim};
use crate::ledger::snapshot::PodIx;
use crate::model::id::{NodeName, PodUid};
use crate::model::pod::Pod;
use crate::model::reason::Reason;
use crate::model::time::Time;
use crate::place::{Attempt, quota::held};
use crate::plan::Eviction;
use crate::schedule::Round;
use crate::schedule::disruption::Disruptions;

impl Round<'_> {
    /// Why a pod that found no place waits: where only borrowers stand in its way, they leave.
    pub(super) fn reclaim(&mut self, ix: PodIx, reason: Reason) -> Reason {
        let Some((node, leaving, victims)) = self.borrowers(ix) else { return reason };
        let Some(key) = self.snapshot.pod_at(ix).map(|state| state.pod().key.clone()) else { return reason };
        for uid in victims {
            let Some(state) = self.snapshot.find_pod(&uid).and_then(|ix| self.snapshot.pod_at(ix)) else { continue };
            let Some(bound) = state.pod().bound() else { continue };
            self.plan.evictions.push(Eviction {
                pod: uid.clone(),
                key: state.pod().key.clone(),
                node: bound.node.clone(),
                makes_room_for: key.clone(),
                moves: false,
            });
        }
        Reason::MakingRoom { node, leaving }
    }

    /// The node on which the pod would fit, how many leave for it, and who of them has not been told yet.
    fn borrowers(&self, ix: PodIx) -> Option<(NodeName, u32, Vec<PodUid>)> {
        let pod = self.snapshot.pod_at(ix)?.pod();
        let quotas = &self.snapshot.surroundings().quotas;
        let namespace = &pod.key.namespace;
        let cohort = quotas.of(namespace).iter().any(|quota| quota.cohort.is_some());
        if !cohort || !self.policy.preemption.enabled || pod.spec.never_preempts {
            return None;
        }
        // Who is on the way out, or was told in this plan, gives back what it holds.
        let disruptions = Disruptions::of(self);
        let mut everybody = self.snapshot.holdings().clone();
        let (mut holders, mut leaving) = (Vec::new(), 0);
        for (_, state) in self.snapshot.pods() {
            let (Some(bound), Some(on)) = (state.pod().bound(), state.on()) else { continue };
            if state.charges().is_empty() {
                continue;
            }
            let node = self.snapshot.node_at(on)?;
            let (other, holds) = (state.pod(), state.holding(&node.node().inventory));
            let told = self.plan.evictions.iter().any(|eviction| eviction.pod == other.uid);
            if bound.terminating || told {
                everybody.entry(other.key.namespace.clone()).or_default().take(&holds);
                leaving += 1;
            } else if self.has_run(other, bound.since) && disruptions.let_go(other) {
                holders.push(Holder {
                    uid: other.uid.clone(),
                    namespace: other.key.namespace.clone(),
                    held: holds,
                    class: other.class(),
                    priority: other.spec.priority,
                    since: bound.since,
                });
            }
        }
        let attempt = Attempt::new(self.snapshot, self.policy, ix, pod, &self.kept, self.now).ok()?.unlimited();
        let mut best: Option<(NodeName, u32, Vec<PodUid>)> = None;
        let mut asked: Vec<Held> = Vec::new();
        for (node, state) in self.snapshot.nodes() {
            let Ok(answer) = attempt.ask(node, state) else { continue };
            let want = held(state, answer.grant.as_ref()?);
            // Nodes of one kind get one answer.
            if asked.contains(&want) {
                continue;
            }
            asked.push(want.clone());
            let name = || state.node().name.clone();
            match quotas.check(&everybody, namespace, &want) {
                Verdict::Fits | Verdict::Borrows if leaving > 0 => return Some((name(), leaving, Vec::new())),
                Verdict::Reclaims(_) => {
                    let Some(victims) = reclaim(quotas, &everybody, namespace, &want, &holders) else { continue };
                    if !disruptions.let_all_go(victims.iter().filter_map(|uid| Some(self.snapshot.pod(uid)?.pod()))) {
                        continue;
                    }
                    let count = victims.len() as u32;
                    if best.as_ref().is_none_or(|(_, _, fewest)| victims.len() < fewest.len()) {
                        best = Some((name(), leaving + count, victims));
                    }
                }
                _ => {}
            }
        }
        best
    }

    /// Has a pod run as long as it is left alone by those who are owed what it holds? They wait at least as long as the policy says.
    fn has_run(&self, pod: &Pod, since: Time) -> bool {
        let policy = self.policy;
        self.now.seconds_since(since) >= policy.protects(pod).max(policy.preemption.min_runtime)
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::quota::{Amounts, Limit, Quota};
    use crate::ledger::snapshot::{DisruptionBudget, Snapshot};
    use crate::model::labels::Selector;
    use crate::model::policy::{Placement, Policy};
    use crate::model::time::Time;
    use crate::testing::cluster;
    use crate::{audit, schedule};

    fn with_quota(mut snapshot: Snapshot, quotas: &[(&str, u64, Option<&str>, Option<&str>)]) -> Snapshot {
        for (namespace, share, cohort, model) in quotas {
            let nominal = Amounts { share: Some(*share), ..Amounts::default() };
            let limit = Limit { model: model.map(Into::into), nominal, ..Limit::default() };
            let quota =
                Quota { name: "q".into(), cohort: cohort.map(Into::into), limits: vec![limit], ..Quota::default() };
            snapshot.surroundings_mut().quotas.0.entry((*namespace).into()).or_default().push(quota);
        }
        snapshot
    }

    fn plan(snapshot: &Snapshot) -> (Vec<String>, Vec<String>, Vec<String>) {
        let plan = schedule(snapshot, &Policy::only(Placement::Binpack), Time::seconds(1000));
        assert_eq!(audit(snapshot, &plan), []);
        (
            plan.binds.iter().map(|b| format!("{} {}", b.key, b.node)).collect(),
            plan.evictions.iter().map(|e| e.key.to_string()).collect(),
            plan.waits.iter().map(|w| format!("{}: {}", w.key, w.reason)).collect(),
        )
    }

    /// gpu-admission's quota of 100 cores on M40, of which 60 are in use: 50 more are too much, 40 are not.
    #[test]
    fn tk_24_a_quota_by_model_counts_what_is_granted_and_lets_through_what_is_left() {
        let text = "node m gpu=4:16Gi:M40
                    node p gpu=4:16Gi:P100
                    pod foo/held on m dev=0 share=600
                    wait foo/more share=500 model=M40 at=1";
        let snapshot = with_quota(cluster(text), &[("foo", 1000, None, Some("M40"))]);
        let (binds, _, waits) = plan(&snapshot);
        assert_eq!(binds, Vec::<String>::new());
        assert!(waits[0].contains("quota q") && waits[0].contains("on M40"), "{waits:?}");
        let snapshot =
            with_quota(cluster(&text.replace("share=500", "share=400")), &[("foo", 1000, None, Some("M40"))]);
        assert_eq!(plan(&snapshot).0, ["foo/more m"]);
        // Where it does not insist on the model, it goes where its quota does not look.
        let snapshot = with_quota(cluster(&text.replace(" model=M40", "")), &[("foo", 1000, None, Some("M40"))]);
        assert_eq!(plan(&snapshot).0, ["foo/more p"]);
    }

    /// With gpu-admission a namespace with a quota has no other models than those it names.
    #[test]
    fn tk_24_a_quota_may_keep_a_namespace_to_the_models_it_names() {
        let text = "node m gpu=4:16Gi:M40
                    node p gpu=4:16Gi:P100
                    pod foo/held on m dev=0 share=600
                    wait foo/more share=500 at=1
                    wait bar/other share=1000 at=2";
        let with_others_refused = |text: &str| {
            let mut snapshot = with_quota(cluster(text), &[("foo", 1000, None, Some("m40"))]);
            let quotas = &mut snapshot.surroundings_mut().quotas.0;
            quotas.values_mut().flatten().for_each(|quota| quota.only_named = true);
            snapshot
        };
        let (binds, _, waits) = plan(&with_others_refused(text));
        assert_eq!(binds.len(), 1, "{binds:?}");
        assert!(binds[0].starts_with("bar/other"), "other namespaces do not mind: {binds:?}");
        assert!(waits[0].contains("of a model that the quota names") && waits[0].contains("quota q"), "{waits:?}");
        assert_eq!(plan(&with_others_refused(&text.replace("share=500", "share=400"))).0[0], "foo/more m");
        // On a node with both, the card is chosen among those that are allowed.
        let mixed = "node a gpu=1:16Gi:P100+1:16Gi:M40
                     wait foo/one share=100 at=1";
        let snapshot = with_others_refused(mixed);
        let plan = schedule(&snapshot, &Policy::only(Placement::Binpack), Time::seconds(1000));
        let grant = plan.binds[0].grant.as_ref().unwrap();
        assert_eq!(grant.containers[0].slices[0].device.as_str(), "a-1");
    }

    #[test]
    fn a_quota_holds_within_one_plan_too() {
        let text = "node a gpu=4
                    wait x/one share=600 at=1
                    wait x/two share=600 at=2
                    wait y/one share=600 at=3";
        let snapshot = with_quota(cluster(text), &[("x", 1000, None, None)]);
        let (binds, evictions, waits) = plan(&snapshot);
        assert_eq!(binds, ["x/one a", "y/one a"]);
        assert_eq!((evictions.len(), waits.len()), (0, 1));
    }

    #[test]
    fn nobody_gives_back_whom_a_disruption_budget_keeps() {
        let text = "node a gpu=3
                    pod y/a on a dev=0 share=1000 at=1 label:app=kept
                    pod y/b on a dev=1 share=1000 at=2
                    wait x/mine share=1000 at=10";
        let mut snapshot = with_quota(cluster(text), &[("x", 1000, Some("c"), None), ("y", 1000, Some("c"), None)]);
        assert_eq!(plan(&snapshot).1, ["y/a"]);
        for (name, selector) in [("one", Selector::equals([("app", "kept")])), ("all", Selector(Vec::new()))] {
            let budget =
                DisruptionBudget { namespace: "y".into(), name: name.into(), selector: Some(selector), allowed: 0 };
            snapshot.surroundings_mut().budgets.push(budget);
            let expected: &[&str] = if name == "one" { &["y/b"] } else { &[] };
            assert_eq!(plan(&snapshot).1, expected, "{name}");
        }
    }

    #[test]
    fn what_others_of_the_cohort_do_not_use_is_borrowed_and_given_back_by_the_fewest() {
        let text = "node a gpu=2
                    pod y/a on a dev=0 share=500 at=1
                    pod y/b on a dev=0 share=500 at=2
                    pod y/c on a dev=1 share=500 at=3
                    wait x/mine share=500 at=10";
        let both = [("x", 1000, Some("c"), None), ("y", 1000, Some("c"), None)];
        // Half a device of x's own is free: nobody has to leave.
        assert_eq!(plan(&with_quota(cluster(text), &both)).0, ["x/mine a"]);
        let full = text.replace("wait x/mine share=500", "wait x/mine share=1000");
        let (binds, evictions, waits) = plan(&with_quota(cluster(&full), &both));
        assert_eq!(binds, Vec::<String>::new());
        assert_eq!(evictions, Vec::<String>::new(), "there is no room for a whole device, quota or not: {waits:?}");
        let roomy = full.replace("node a gpu=2", "node a gpu=3");
        let (_, evictions, waits) = plan(&with_quota(cluster(&roomy), &both));
        assert!(evictions.len() == 1 && evictions[0].starts_with("y/"), "one borrower, and no more: {evictions:?}");
        assert!(waits[0].contains("room is being made"), "{waits:?}");
    }
}
