//! A namespace's quota, asked about the very grant a node would give: a percentage, a default or an init container counts as what it
//! became on the card.

use crate::ledger::charges;
use crate::ledger::quota::{Excess, Held, Usage, Verdict};
use crate::ledger::snapshot::{NodeState, Snapshot};
use crate::model::device::DeviceKind;
use crate::model::grant::Grant;
use crate::model::pod::Pod;
use crate::model::policy::Policy;
use crate::model::reason::NodeReason;

/// May the pod's namespace hold this grant on a node of this pool besides what it holds already?
pub(super) fn check(
    snapshot: &Snapshot,
    policy: &Policy,
    pod: &Pod,
    state: &NodeState,
    grant: &Grant,
) -> Result<(), NodeReason> {
    let quotas = &snapshot.surroundings().quotas;
    let namespace = &pod.key.namespace;
    if quotas.of(namespace).is_empty() {
        return Ok(());
    }
    let pool = state.node().labels.get(&policy.pool_label);
    if !quotas.allows_pool(namespace, pool.map(|pool| &**pool)) {
        return Err(NodeReason::Pool { name: pool.cloned() });
    }
    let too_much = |excess: Vec<Excess>, lent: bool| {
        let text: Vec<String> = excess.iter().map(ToString::to_string).collect();
        Err(NodeReason::Quota { text: text.join("; "), lent })
    };
    match quotas.check(snapshot.holdings(), namespace, &held(state, grant)) {
        Verdict::Fits | Verdict::Borrows => Ok(()),
        Verdict::Reclaims(excess) => too_much(excess, true),
        Verdict::Exceeds(excess) => too_much(excess, false),
    }
}

/// What a grant would hold on a node.
pub(crate) fn held(state: &NodeState, grant: &Grant) -> Held {
    let inventory = &state.node().inventory;
    let mut held = Held::default();
    for (id, charge) in charges(grant, inventory, false) {
        let device = inventory.devices.iter().find(|d| d.id == id && d.kind != DeviceKind::Nic);
        if let Some(device) = device {
            held.add(&Held::of(&device.model, Usage::of(&charge, device)));
        }
    }
    held
}
