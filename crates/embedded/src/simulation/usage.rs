//! What programs use of their cards, as the limiter lets them.

use std::collections::{BTreeMap, BTreeSet};

use divvy_cluster::change::Change;
use divvy_core::id::{DeviceId, NodeName, PodUid};
use divvy_core::units::Bytes;

use super::{Simulation, Used};
use crate::card::{Program, Watched};

/// A card is looked at again after so many looks even if nobody came or went: programs change their mind.
const ROUNDS: u64 = 10;

/// What programs do, and what they got when last looked at.
#[derive(Debug, Default)]
pub(super) struct Usage {
    programs: BTreeMap<PodUid, Habit>,
    used: BTreeMap<(NodeName, DeviceId), Vec<Used>>,
    /// Nodes on which somebody came, went or changed.
    stale: BTreeSet<NodeName>,
    on: BTreeMap<PodUid, NodeName>,
    round: u64,
    cards: Watched,
}

#[derive(Clone, Copy, Debug)]
struct Habit {
    appetite: u32,
    fill: u32,
}

impl Usage {
    pub(super) fn begin(&mut self, uid: &PodUid, appetite: u32, fill: u32) {
        self.programs.insert(uid.clone(), Habit { appetite, fill });
        self.stale.extend(self.on.get(uid).cloned());
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.programs.remove(uid);
        self.stale.extend(self.on.remove(uid));
    }

    pub(super) fn mark(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Pod(seen) = change
                && let Some(bound) = seen.pod.bound()
            {
                self.on.insert(seen.pod.uid.clone(), bound.node.clone());
                self.stale.insert(bound.node.clone());
            }
        }
    }

    pub(super) fn all(&self) -> Vec<Used> {
        self.used.values().flatten().cloned().collect()
    }
}

impl Simulation {
    /// Looks at the cards of nodes where something changed, and at a part of the others.
    pub(super) fn measure(&mut self) {
        let usage = &mut self.usage;
        usage.round += 1;
        let snapshot = self.control.world().snapshot();
        for (ix, state) in snapshot.nodes() {
            let name = &state.node().name;
            let due = usage.stale.remove(name) || u64::from(ix.0) % ROUNDS == usage.round % ROUNDS;
            if !due {
                continue;
            }
            for device in &state.node().inventory.devices {
                let mut programs = Vec::new();
                let mut here = Vec::new();
                for pod in state.pods().iter().filter_map(|pod| snapshot.pod_at(*pod)) {
                    let Some(habit) = usage.programs.get(&pod.pod().uid) else { continue };
                    let grant = pod.pod().bound().and_then(|bound| bound.grant.clone());
                    let slices = grant.iter().flat_map(|grant| &grant.containers).flat_map(|c| &c.slices);
                    let slices = slices.filter(|slice| slice.device == device.id);
                    let Some((request, limit, memory)) = slices
                        .map(|s| (s.share.0, s.share_limit.0, s.memory_limit))
                        .reduce(|a, b| (a.0 + b.0, (a.1 + b.1).min(1000), Bytes(a.2.0.saturating_add(b.2.0))))
                    else {
                        continue;
                    };
                    // In steps, so that most cards have been watched before.
                    let wobble = self.random.between(0, 4) as u32 * 50;
                    let appetite = (habit.appetite * (900 + wobble) / 1000 / 50 * 50).clamp(5, 1000);
                    programs.push(Program { request, limit, appetite });
                    let memory = memory.min(device.memory);
                    let memory = memory.thousandths(divvy_core::units::Share(habit.fill));
                    here.push((pod.pod().uid.clone(), memory));
                }
                let got = usage.cards.share_out(programs);
                let used = here.into_iter().zip(got).map(|((pod, memory), got)| Used {
                    pod,
                    node: name.clone(),
                    device: device.id.clone(),
                    share: got.share,
                    throttled: got.throttled,
                    memory,
                });
                usage.used.insert((name.clone(), device.id.clone()), used.collect());
            }
        }
    }
}
