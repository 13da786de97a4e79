//! Reservations: whoever has waited long gets devices that nobody else is given until it runs.

use crate::ledger::snapshot::{NodeIx, PodIx};
use crate::model::id::DeviceId;
use crate::model::time::Time;
use crate::schedule::Round;
use crate::schedule::keep::Keeping;

/// Nodes that are looked at for one reservation: those on which others hold least.
const LOOKED_AT: usize = 64;

impl Round<'_> {
    /// Has it waited so long that something is kept for it?
    pub(super) fn has_waited(&self, ix: PodIx) -> bool {
        let after = self.policy.queue.reserve_after;
        let created = self.snapshot.pod_at(ix).map(|state| state.pod().created);
        after > 0 && created.is_some_and(|created| self.now.seconds_since(created) >= after)
    }

    /// Keeps a place for these pods (one, or the members of a gang): each gets the node on which least stands in its way, and has it
    /// for as long again as it had to wait for it. As nobody else comes there, less stands in its way with every pod that ends.
    pub(super) fn reserve(&mut self, pods: &[PodIx], kept: &[(PodIx, Keeping)]) {
        if self.reserved >= self.policy.queue.reservations {
            return;
        }
        let mut any = false;
        for ix in pods {
            if self.stay_reserved(*ix, kept) {
                any = true;
            } else if let Some((node, devices)) = self.closest(*ix) {
                any = true;
                self.reserve_on(*ix, node, &devices);
            }
        }
        self.reserved += u32::from(any);
    }

    /// The node, and the devices on it, where least stands in the pod's way.
    fn closest(&mut self, ix: PodIx) -> Option<(NodeIx, Vec<usize>)> {
        let mut nodes: Vec<(u64, NodeIx)> = Vec::new();
        for node in self.allowed(ix) {
            let Some(state) = self.snapshot.node_at(node) else { continue };
            let held =
                state.pods().iter().filter_map(|ix| self.snapshot.pod_at(*ix)).map(|pod| pod.weight(state.books()));
            nodes.push((held.sum(), node));
        }
        nodes.sort_unstable();
        let mut best: Option<(u64, NodeIx, Vec<usize>)> = None;
        for (_, node) in nodes.into_iter().take(LOOKED_AT) {
            let Some(state) = self.snapshot.node_at(node) else { continue };
            let books = state.books().to_vec();
            let weigh = |ix: &PodIx| (self.snapshot.pod_at(*ix).map_or(0, |pod| pod.weight(&books)), *ix);
            let mut others: Vec<(u64, PodIx)> = state.pods().iter().map(weigh).collect();
            others.sort_unstable_by(|a, b| b.cmp(a));
            let mut gone: Vec<PodIx> = others.iter().map(|(_, ix)| *ix).collect();
            if self.fits_without(ix, node, &gone).is_none() {
                continue;
            }
            // The heaviest stays if it can.
            for (_, heaviest) in &others {
                let without: Vec<PodIx> = gone.iter().copied().filter(|ix| ix != heaviest).collect();
                if self.fits_without(ix, node, &without).is_some() {
                    gone = without;
                }
            }
            let in_the_way = others.iter().filter(|(_, ix)| gone.contains(ix)).map(|(weight, _)| weight + 1).sum();
            if best.as_ref().is_some_and(|(least, ..)| *least <= in_the_way) {
                continue;
            }
            let Some(grant) = self.fits_without(ix, node, &gone) else { continue };
            let slices = grant.iter().flat_map(|g| &g.containers).flat_map(|c| &c.slices);
            let Some(state) = self.snapshot.node_at(node) else { continue };
            let mut devices: Vec<usize> = slices.filter_map(|slice| state.node().device(&slice.device)).collect();
            devices.sort_unstable();
            devices.dedup();
            best = Some((in_the_way, node, devices));
        }
        best.map(|(_, node, devices)| (node, devices))
    }

    fn reserve_on(&mut self, ix: PodIx, node: NodeIx, devices: &[usize]) {
        let (Some(pod), Some(state)) = (self.snapshot.pod_at(ix), self.snapshot.node_at(node)) else { return };
        // Where CPU or memory is what lacks, devices alone do not help.
        let short = state.node().allocatable.short_of(state.used(), &pod.pod().spec.requests).is_some();
        let ids = || devices.iter().map(|d| state.node().inventory.devices[*d].id.clone());
        let devices: Vec<DeviceId> = if short { Vec::new() } else { ids().collect() };
        let until = Time(self.now.0.saturating_add(self.policy.queue.reserve_after.saturating_mul(1000)));
        let (node_name, turn) = (state.node().name.clone(), self.keepings.next_turn());
        let keeping = Keeping { node: node_name, devices, room: false, until, turn };
        self.keep_reserved(ix, node, keeping);
    }
}
