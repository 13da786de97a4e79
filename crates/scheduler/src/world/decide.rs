//! Who is woken, and what is decided about those who are awake.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use divvy_cluster::Effect;
use divvy_cluster::effect::Bind;
use divvy_core::grant::Grant;
use divvy_core::id::{NodeName, PodUid};
use divvy_core::keys;
use divvy_core::plan::Plan;
use divvy_core::reason::Reason;
use divvy_core::rules::Rules;
use divvy_core::schedule::{Audited, ask_some};
use divvy_core::snapshot::PodIx;
use divvy_core::time::Time;
use divvy_core::volume::VolumeStep;
use divvy_dialects::PodManifest;
use divvy_dialects::emulate::{Place, emulate};
use serde_json::Value;

use super::World;
use super::entry::Stand;
use super::lines::Line;

/// How long a pod rests for which the audit accepts no plan: a bug in us must not become a loop.
const AFTER_VIOLATION: u64 = 60_000;

impl World {
    /// Decides about at most `most` pods or gangs that are awake. What is to be done about it is among the effects afterwards.
    pub fn decide(&mut self, now: Time, most: usize) {
        self.wake_sleepers(now);
        if self.awake.is_empty() {
            return;
        }
        let awake: HashSet<PodIx> = self.awake.iter().filter_map(|uid| self.snapshot.find_pod(uid)).collect();
        let scheduling = &self.policy.scheduling;
        let engine = &mut self.engine;
        let audited = engine.schedule_audited(&mut self.snapshot, scheduling, now, |ix| awake.contains(&ix), most);
        let Audited { plan, refused, violations } = audited;
        if !violations.is_empty() {
            self.counts.violations += 1;
            tracing::error!(?violations, ?refused, "the audit refused a plan: it was made again without these pods");
        }
        refused.iter().for_each(|uid| self.rest(uid, now, AFTER_VIOLATION));
        let tried = plan.binds.len() + plan.waits.len() + refused.len();
        self.counts.attempts += tried as u64;
        self.carry_out(plan, now);
        if tried == 0 {
            // Nobody could even be tried: without this they would be asked for ever.
            for uid in std::mem::take(&mut self.awake) {
                self.rest(&uid, now, AFTER_VIOLATION);
            }
        }
    }

    fn carry_out(&mut self, plan: Plan, now: Time) {
        let mut company = Vec::new();
        for bind in plan.binds {
            let grant = bind.grant.map(Arc::new);
            if let Err(refusal) = self.snapshot.place(&bind.pod, &bind.node, grant.clone(), now) {
                tracing::error!(pod = %bind.key, ?refusal, "a planned place is taken");
                self.rest(&bind.pod, now, AFTER_VIOLATION);
                continue;
            }
            self.awake.remove(&bind.pod);
            company.extend(self.company(&bind.pod));
            let Some(entry) = self.entries.get(&bind.pod) else { continue };
            let shape = entry.shape;
            self.counts.placed += 1;
            if entry.ours {
                self.fly(&bind.pod, &bind.node, grant.as_deref(), bind.volumes, now);
            } else {
                self.promise(&bind.pod, now);
            }
            // There was room for one of them; perhaps there is for the next.
            if let Some(next) = self.lines.get(shape).and_then(|line| line.first()).cloned() {
                self.wake(&next);
            }
        }
        // Binding takes room, which wakes nobody, except those who wait to be near somebody: for them it comes back by the watch.
        self.looked = self.snapshot.position();
        for wait in plan.waits {
            self.counts.waits += 1;
            self.fall_asleep(&wait.pod, wait.reason, wait.nominated, now);
        }
        company.iter().for_each(|gang| self.wake_gang(gang));
        for eviction in plan.evictions {
            let reason = format!("making room for {}, which goes first", eviction.makes_room_for);
            self.evict(&eviction.pod, &reason, "Preempted", now);
        }
    }

    /// Begins to bind a pod that the snapshot has placed.
    pub(super) fn fly(
        &mut self,
        uid: &PodUid,
        node: &NodeName,
        grant: Option<&Grant>,
        volumes: Vec<VolumeStep>,
        now: Time,
    ) {
        let manifest = self.entries.get(uid).and_then(|entry| entry.manifest.clone());
        let mut annotations = self.emulated(uid, node, grant, manifest.as_deref());
        if let Some(grant) = grant {
            annotations.insert(keys::GRANT.to_owned(), serde_json::to_string(grant).unwrap_or_default());
        }
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.stand = Stand::Flying { doubt: false, bound: false, since: now };
        entry.due = None;
        let (target, version, node) = (entry.target.clone(), entry.version.clone(), node.clone());
        self.effects.push(Effect::Bind(Bind { target, version, node, annotations, volumes }));
    }

    /// What users of an emulated system find on the pod besides its grant.
    pub(super) fn emulated(
        &mut self,
        uid: &PodUid,
        node: &NodeName,
        grant: Option<&Grant>,
        manifest: Option<&Value>,
    ) -> BTreeMap<String, String> {
        let found = || {
            let ask = self.snapshot.pod(uid)?.pod().ask.clone()?;
            let state = self.snapshot.node(node)?;
            let mut inventory = Cow::Borrowed(&state.node().inventory);
            if let Some(cells) = &self.policy.scheduling.cells {
                cells.name_devices(node, inventory.to_mut());
            }
            let place = Place { node: node.as_str(), inventory: &inventory, ports_taken: self.ports.taken(node) };
            Some(emulate(&PodManifest::new(manifest?), &ask, grant?, &place).annotations)
        };
        let annotations = found().unwrap_or_default();
        let port = annotations.get(keys::KUBESHARE_PORT).and_then(|port| port.parse().ok());
        self.ports.note(node, uid, port);
        annotations
    }

    /// Notes which nodes changed since the last look.
    pub(super) fn gather(&mut self) {
        match self.snapshot.changed_since(self.looked) {
            Some(nodes) if !self.lines.is_empty() => self.changed.extend(nodes),
            Some(_) => {}
            None => self.everything = true,
        }
        self.looked = self.snapshot.position();
    }

    /// Wakes those for whom a change since the last look may matter.
    fn wake_sleepers(&mut self, now: Time) {
        self.gather();
        let mut nodes = std::mem::take(&mut self.changed);
        nodes.sort_unstable();
        nodes.dedup();
        let everything = std::mem::take(&mut self.everything);
        let stirred = std::mem::take(&mut self.stirred);
        let loosened = std::mem::take(&mut self.loosened) && self.policy.scheduling.preemption.enabled;
        if self.lines.is_empty() || (!everything && !stirred && !loosened && nodes.is_empty()) {
            return;
        }
        let first = |(shape, line): (u64, &Line)| Some((shape, line.local, line.first()?.clone()));
        let firsts: Vec<(u64, bool, PodUid)> = self.lines.iter().filter_map(first).collect();
        let mut woken: Vec<PodUid> = Vec::new();
        for (shape, was_local, uid) in firsts {
            let Some(ix) = self.snapshot.find_pod(&uid) else { continue };
            let Some(state) = self.snapshot.pod_at(ix) else { continue };
            let scheduling = &self.policy.scheduling;
            let is_local = Rules::is_local(&self.snapshot, state.pod());
            let fits = if loosened && !state.pod().spec.never_preempts {
                // Whether others would leave for it is found out by trying.
                true
            } else if !everything && was_local && is_local {
                let answers = ask_some(&self.snapshot, scheduling, ix, nodes.iter().copied(), now);
                answers.is_ok_and(|answers| answers.iter().any(|(_, answer)| answer.is_ok()))
            } else {
                let decided = self.engine.decide(&self.snapshot, scheduling, ix, now);
                self.lines.asked(shape, is_local);
                decided.is_ok()
            };
            if fits {
                woken.push(uid);
            }
        }
        for uid in woken {
            self.counts.woken += 1;
            self.wake(&uid);
        }
    }

    /// The policy changed, or the lead did: everybody is tried again.
    pub(super) fn wake_everyone(&mut self) {
        let waiting: Vec<PodUid> = self.entries.keys().cloned().collect();
        for uid in waiting {
            self.wake(&uid);
        }
    }

    /// A pod is to be tried.
    pub(super) fn wake(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if !entry.may_be_tried() {
            return;
        }
        self.lines.leave(entry.shape, entry.created, uid);
        entry.stand = Stand::Awake;
        self.awake.insert(uid.clone());
    }

    /// A pod was tried in vain: it sleeps until something changes that may help it.
    pub(super) fn fall_asleep(&mut self, uid: &PodUid, reason: Reason, nominated: Option<NodeName>, now: Time) {
        self.awake.remove(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if !entry.may_be_tried() {
            return;
        }
        (entry.stand, entry.tried) = (Stand::Asleep, now);
        let local = self.snapshot.pod(uid).is_some_and(|state| Rules::is_local(&self.snapshot, state.pod()));
        self.lines.join(entry.shape, entry.created, uid, reason.clone(), local);
        self.explain(uid, reason, nominated, now);
    }

    /// A pod is not tried for a while.
    pub(super) fn rest(&mut self, uid: &PodUid, now: Time, millis: u64) {
        self.awake.remove(uid);
        if let Some(entry) = self.entries.get_mut(uid) {
            self.lines.leave(entry.shape, entry.created, uid);
            entry.stand = Stand::Resting(Time(now.0.saturating_add(millis)));
        }
    }
}
