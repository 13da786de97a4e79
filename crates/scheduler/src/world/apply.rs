//! What changed in the cluster, taken in.

use std::sync::Arc;

use divvy_api::convert::{InventoryProblem, PodSeen, opted_in};
use divvy_api::policy::ClusterPolicy;
use divvy_cluster::effect::{About, Event, Target};
use divvy_cluster::{Change, Effect, StorageChange};
use divvy_core::cells::CellFile;
use divvy_core::id::{GangKey, Namespace, NodeName, PodUid};
use divvy_core::node::Node;
use divvy_core::pod::Pod;
use divvy_core::schedule::waits_for_gang;
use divvy_core::snapshot::{DisruptionBudget, Surroundings};
use divvy_core::time::Time;

use super::entry::{Entry, Stand, Told};
use super::{World, lines};

impl World {
    /// Takes a change in.
    pub fn apply(&mut self, change: Change, now: Time) {
        match change {
            Change::Pod(seen) => self.pod(*seen, now),
            Change::PodGone(uid) => self.pod_gone(&uid),
            Change::Finished(pod) => {
                if self.snapshot.finish(&pod)
                    && let Some(gang) = pod.gang()
                {
                    self.wake_gang(&gang);
                }
            }
            Change::FinishedGone(uid) => self.snapshot.forget_finished(&uid),
            Change::Node(node, problem) => self.node(*node, problem, now),
            Change::NodeGone(name) => {
                self.notes.remove(&name);
                self.snapshot.remove_node(&name);
                self.stirred = true;
            }
            Change::Namespace(name, labels) => {
                let same = self.snapshot.surroundings().namespaces.get(&name) == Some(&labels);
                self.surround(same, |s| s.namespaces.insert(name, labels));
            }
            Change::NamespaceGone(name) => self.surround(false, |s| s.namespaces.remove(&name)),
            Change::Budget(budget) => {
                let same = self.snapshot.surroundings().budgets.contains(&budget);
                if !same {
                    self.loosen(&budget.namespace, &budget.name, Some(&budget));
                }
                self.surround(same, |s| {
                    s.budgets.retain(|b| (&b.namespace, &b.name) != (&budget.namespace, &budget.name));
                    s.budgets.push(budget);
                });
            }
            Change::BudgetGone(namespace, name) => {
                self.loosen(&namespace, &name, None);
                self.surround(false, |s| s.budgets.retain(|b| (&b.namespace, &b.name) != (&namespace, &name)));
            }
            Change::Storage(change) => self.storage(change),
            // One that cannot be followed any more changes nothing.
            Change::Quota(_, _, None) => {}
            Change::Quota(namespace, name, Some(quota)) => {
                // Its status changes with every pod that comes or goes; what it says does not.
                let same = self.snapshot.surroundings().quotas.of(&namespace).contains(&quota);
                self.surround(same, |s| {
                    let quotas = s.quotas.0.entry(namespace).or_default();
                    quotas.retain(|known| known.name != name);
                    quotas.push(quota);
                });
            }
            Change::QuotaGone(namespace, name) => self.surround(false, |s| {
                let quotas = s.quotas.0.entry(namespace.clone()).or_default();
                quotas.retain(|known| known.name != name);
                if quotas.is_empty() {
                    s.quotas.0.remove(&namespace);
                }
            }),
            Change::Policy(generation, policy) => self.new_policy(generation, policy),
            Change::Complete(kind, _) => {
                self.complete.insert(kind);
            }
        }
    }

    fn pod(&mut self, seen: PodSeen, now: Time) {
        let mut pod = seen.pod;
        let uid = pod.uid.clone();
        if let Some(bound) = pod.bound() {
            self.ports.note(&bound.node, &uid, seen.port);
            if let Some(problem) = &seen.bad_grant {
                tracing::error!(pod = %pod.key, problem, "a grant cannot be read; its devices look free to us and not to the node");
            }
            if let Some(problem) = &seen.bad_amounts {
                tracing::error!(pod = %pod.key, problem, "the amounts said to be admitted are not followed; those before them count");
            }
            let (node, orphan) =
                (bound.node.clone(), pod.ask.is_some() && bound.grant.is_none() && seen.bad_grant.is_none());
            self.note_wish(&mut pod, seen.wish);
            self.entries.remove(&uid).inspect(|entry| self.lines.leave(entry.shape, entry.created, &uid));
            self.awake.remove(&uid);
            self.shared.share(&mut pod);
            let wanted = !pod.spec.apart.is_empty() || !pod.labels.is_empty();
            let class_of = |pod: &Pod| self.policy.scheduling.class_of(pod);
            self.loosened |= self.snapshot.pod(&uid).is_some_and(|old| class_of(&pod) < class_of(old.pod()));
            self.snapshot.put_pod(pod);
            self.stirred |= wanted;
            self.evict_if_named(&uid, &node, now);
            self.grant_wish(&uid, now);
            if orphan {
                self.orphans.insert(uid, seen.manifest);
            }
            return;
        }
        let ours = self.is_ours(&seen.scheduler);
        if seen.deleting || (!ours && pod.ask.is_none()) {
            return self.pod_gone(&uid);
        }
        if let Some(entry) = self.entries.get_mut(&uid) {
            entry.version = seen.version.clone();
            // The snapshot has it placed already; whether that came true is for the bind's answer or a later event to say.
            if matches!(entry.stand, Stand::Flying { .. } | Stand::Promised { .. }) {
                entry.gated = seen.gated;
                return;
            }
        }
        let same = self.snapshot.pod(&uid).is_some_and(|state| *state.pod() == pod);
        if same && self.entries.get(&uid).is_some_and(|entry| entry.gated == seen.gated) {
            return;
        }
        let before = self.entries.remove(&uid).inspect(|entry| self.lines.leave(entry.shape, entry.created, &uid));
        self.awake.remove(&uid);
        self.shared.share(&mut pod);
        let entry = Entry {
            target: Target { pod: pod.key.clone(), uid: uid.clone() },
            version: seen.version,
            shape: lines::shape(&pod),
            created: pod.created,
            arrived: before.as_ref().map_or(now, |entry| entry.arrived),
            ours,
            gated: seen.gated,
            manifest: seen.manifest,
            stand: if ours { Stand::Asleep } else { Stand::Theirs },
            tried: Time(0),
            failures: before.as_ref().map_or(0, |entry| entry.failures),
            told: before.and_then(|b| b.told).or(seen.explained.map(|(_, message)| Told { message, at: Time(0) })),
            due: None,
        };
        let in_gang = pod.gang().is_some();
        let shape = entry.shape;
        self.snapshot.put_pod(pod);
        self.entries.insert(uid.clone(), entry);
        self.company(&uid).iter().for_each(|gang| self.wake_gang(gang));
        if !ours && !seen.gated {
            return;
        }
        // Its like wait already: it will be woken when they are.
        match self.lines.get(shape).map(|line| line.reason.clone()) {
            Some(reason) if !in_gang => self.fall_asleep(&uid, reason, None, now),
            _ => self.wake(&uid),
        }
    }

    /// The gang of a pod that waits for nobody. It may be whom the others waited for, when it comes and when it is placed.
    pub(super) fn company(&self, uid: &PodUid) -> Option<GangKey> {
        let pod = self.snapshot.pod(uid)?.pod();
        pod.gang().filter(|_| !waits_for_gang(pod))
    }

    /// Wakes the sleeping members of a gang.
    pub(super) fn wake_gang(&mut self, gang: &GangKey) {
        let members: Vec<PodUid> = self.snapshot.gang(gang).map(|(_, member)| member.pod().uid.clone()).collect();
        for uid in members {
            if self.entries.get(&uid).is_some_and(|entry| entry.stand == Stand::Asleep) {
                self.wake(&uid);
            }
        }
    }

    /// A pod is gone, or has ended, or is none of our business any more.
    fn pod_gone(&mut self, uid: &PodUid) {
        self.entries.remove(uid).inspect(|entry| self.lines.leave(entry.shape, entry.created, uid));
        self.awake.remove(uid);
        self.evicting.remove(uid);
        self.orphans.remove(uid);
        self.wishes.remove(uid);
        self.ports.forget(uid);
        self.advice.forget(uid);
        if self.snapshot.pod(uid).is_some() {
            self.snapshot.remove_pod(uid);
            self.stirred = true;
        }
    }

    fn node(&mut self, mut node: Node, problem: Option<InventoryProblem>, now: Time) {
        let name = node.name.clone();
        let notes = self.notes.entry(name.clone()).or_default();
        let found = node.inventory.generation;
        let mut problem = problem;
        if problem.is_none() && !node.inventory.devices.is_empty() {
            if found < notes.generation {
                problem = Some(InventoryProblem::Stale { found, seen: notes.generation });
                node.inventory.devices.clear();
            }
            notes.generation = notes.generation.max(found);
        }
        let said = problem.map(|p| p.to_string());
        if said != notes.problem {
            if let Some(message) = &said {
                let (about, message) = (About::Node(name.clone()), message.clone());
                self.effects.push(Effect::Tell(Event { about, reason: "InventoryUnusable", message, warning: true }));
            }
            notes.problem = said;
        }
        node.volume_limits = notes.limits.clone();
        self.keep_to_policy(&mut node);
        self.snapshot.put_node(node);
        self.evict_named(&name, now);
    }

    /// Leaves a node the devices, and of them as much, as the policy lets it offer.
    pub(super) fn keep_to_policy(&self, node: &mut Node) {
        let opted = opted_in(&node.labels);
        if opted == Some(false) || (self.policy.devices.only_opted_in && opted != Some(true)) {
            node.inventory.devices.clear();
        }
        self.policy.devices.offer(node.name.as_str()).lower(&mut node.inventory.devices);
    }

    /// A disruption budget changes, or goes: does it let somebody go who holds devices and whom it kept?
    fn loosen(&mut self, namespace: &Namespace, name: &str, next: Option<&DisruptionBudget>) {
        let budgets = &self.snapshot.surroundings().budgets;
        let Some(old) = budgets.iter().find(|b| b.namespace == *namespace && &*b.name == name) else { return };
        let kept = |pod: &Pod| pod.ask.is_some() && pod.bound().is_some() && old.protects(pod);
        let still = |pod: &Pod| next.is_some_and(|next| next.protects(pod) && next.allowed <= old.allowed);
        let freed = |pod: &Pod| kept(pod) && !still(pod);
        self.loosened |= !self.lines.is_empty() && self.snapshot.pods().any(|(_, state)| freed(state.pod()));
    }

    /// Changes what else bears on placing, unless it is so already. Only pods whose answer does not depend on one node alone can mind.
    fn surround<T>(&mut self, same: bool, change: impl FnOnce(&mut Surroundings) -> T) {
        if same {
            return;
        }
        self.gather();
        change(self.snapshot.surroundings_mut());
        self.looked = self.snapshot.position();
        self.stirred = true;
    }

    fn storage(&mut self, change: StorageChange) {
        let around = self.snapshot.surroundings();
        match change {
            StorageChange::Claim(claim) => {
                let same = around.claims.get(&claim.key) == Some(&claim);
                self.surround(same, |s| s.claims.insert(claim.key.clone(), *claim));
            }
            StorageChange::ClaimGone(key) => self.surround(false, |s| s.claims.remove(&key)),
            StorageChange::Volume(volume) => {
                let same = around.volumes.get(&volume.name) == Some(&volume);
                self.surround(same, |s| s.volumes.insert(volume.name.clone(), *volume));
            }
            StorageChange::VolumeGone(name) => self.surround(false, |s| s.volumes.remove(&name)),
            StorageChange::Class(mut class) => {
                let driver = class.provisioner.clone();
                class.tracks_capacity = driver.is_some_and(|d| self.tracked.get(&d).copied().unwrap_or(false));
                let same = around.classes.get(&class.name) == Some(&class);
                self.surround(same, |s| s.classes.insert(class.name.clone(), class));
            }
            StorageChange::ClassGone(name) => self.surround(false, |s| s.classes.remove(&name)),
            StorageChange::Limits(node, limits) => self.volume_limits(&node, limits),
            StorageChange::Driver(driver, tracks) => {
                self.tracked.insert(driver.clone(), tracks);
                self.surround(false, |s| {
                    let of_driver = s.classes.values_mut().filter(|c| c.provisioner.as_ref() == Some(&driver));
                    of_driver.for_each(|class| class.tracks_capacity = tracks);
                });
            }
            StorageChange::Capacity(name, capacity) => {
                let same = self.capacities.insert(name, capacity.clone()).as_ref() == Some(&capacity);
                self.refresh_capacities(same);
            }
            StorageChange::CapacityGone(name) => {
                self.capacities.remove(&name);
                self.refresh_capacities(false);
            }
        }
    }

    fn refresh_capacities(&mut self, same: bool) {
        let all = self.capacities.values().cloned().collect();
        self.surround(same, |s| s.capacities = all);
    }

    fn volume_limits(&mut self, name: &NodeName, limits: std::collections::BTreeMap<Arc<str>, u32>) {
        self.notes.entry(name.clone()).or_default().limits = limits.clone();
        if let Some(state) = self.snapshot.node(name)
            && state.node().volume_limits != limits
        {
            let mut node = state.node().clone();
            node.volume_limits = limits;
            self.snapshot.put_node(node);
        }
    }

    fn new_policy(&mut self, generation: i64, policy: Result<Arc<ClusterPolicy>, divvy_api::policy::PolicyProblem>) {
        if generation > 0 {
            let problem = policy.as_ref().err().map(ToString::to_string);
            self.effects.push(Effect::AcknowledgePolicy { generation, problem });
        }
        let policy = match policy {
            Ok(policy) => policy,
            Err(problem) => {
                tracing::error!(%problem, "the policy stays as it was");
                return;
            }
        };
        if *policy == *self.policy {
            return;
        }
        tracing::info!(generation, "a new policy is in force");
        // KubeShare's own examples have some of these, and its users' files too: what can be used of them is.
        for mistake in policy.scheduling.cells.iter().flat_map(CellFile::mistakes) {
            tracing::warn!(generation, mistake, "spec.cells of the policy is followed only in part");
        }
        // How pods and nodes are read depends on it: both are read anew.
        self.relist |= policy.dialects != self.policy.dialects || policy.devices != self.policy.devices;
        self.policy = policy;
        self.wake_everyone();
    }
}
