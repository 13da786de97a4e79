//! What a bound pod takes of its node, and gives back.

use super::{PodIx, Snapshot};
use crate::ledger::charges;
use crate::model::pod::State;

impl Snapshot {
    /// Writes a bound pod into its node's books.
    pub(super) fn charge(&mut self, ix: PodIx) {
        let Some(pod) = self.pods[ix.0 as usize].as_mut() else { return };
        let State::Bound(bound) = &pod.pod.state else { return };
        let Some(&node_ix) = self.node_by_name.get(&bound.node) else {
            self.orphans.entry(bound.node.clone()).or_default().insert(ix);
            return;
        };
        let Some(node) = self.nodes[node_ix.0 as usize].as_mut() else { return };
        pod.charges.clear();
        pod.on = Some(node_ix);
        node.pods.push(ix);
        node.used.add(&pod.pod.spec.requests);
        let inventory = &node.node.inventory;
        // What the node refused is void in every fold: the pod is on its way out and holds nothing.
        if let Some(grant) = bound.grant.as_ref().filter(|_| !inventory.refused.contains_key(pod.pod.uid.as_str())) {
            for (id, charge) in charges(grant, inventory, bound.init_done) {
                let Some(device) = inventory.devices.iter().position(|d| d.id == id) else { continue };
                if let Some(kind) = self.kinds.of(inventory.devices[device].kind) {
                    kind.take(&mut node.books[device], &charge);
                    pod.charges.push((device as u32, charge));
                }
            }
        }
        let weight = pod.weight(&node.books);
        if weight > 0 {
            *self.held.entry(pod.pod.key.namespace.clone()).or_default() += weight;
        }
        if !pod.charges.is_empty() {
            let holding = pod.holding(&node.node.inventory);
            self.holdings.entry(pod.pod.key.namespace.clone()).or_default().add(&holding);
        }
        if !pod.pod.spec.apart.is_empty() {
            self.repelling.insert(ix);
        }
        self.changes.node(node_ix);
    }

    /// Takes a pod out of its node's books.
    pub(super) fn uncharge(&mut self, ix: PodIx) {
        let Some(pod) = self.pods[ix.0 as usize].as_mut() else { return };
        let Some(node_ix) = pod.on.take() else { return };
        let Some(node) = self.nodes[node_ix.0 as usize].as_mut() else { return };
        let weight = pod.weight(&node.books);
        if !pod.charges.is_empty()
            && let Some(held) = self.holdings.get_mut(&pod.pod.key.namespace)
        {
            held.take(&pod.holding(&node.node.inventory));
            if held.is_empty() {
                self.holdings.remove(&pod.pod.key.namespace);
            }
        }
        node.used.sub(&pod.pod.spec.requests);
        for (device, charge) in pod.charges.drain(..) {
            let device = device as usize;
            if let Some(kind) = self.kinds.of(node.node.inventory.devices[device].kind) {
                kind.give_back(&mut node.books[device], &charge);
            }
        }
        if let Some(place) = node.pods.iter().position(|p| *p == ix) {
            node.pods.swap_remove(place);
        }
        if weight > 0
            && let Some(held) = self.held.get_mut(&pod.pod.key.namespace)
        {
            *held = held.saturating_sub(weight);
            if *held == 0 {
                self.held.remove(&pod.pod.key.namespace);
            }
        }
        self.repelling.remove(&ix);
        self.changes.node(node_ix);
    }
}
