//! A pod's place from memory: what nodes answered to pods of its shape before.

use crate::fit::Trial;
use crate::ledger::snapshot::NodeIx;
use crate::place::attempt::{Attempt, Spot};
use crate::place::board::{Board, Unfit};

impl Attempt<'_> {
    /// The best node, or the best of `only` these, from memory; an error where it must be asked for.
    pub(crate) fn recall(&self, board: &mut Board, only: Option<&[NodeIx]>) -> Result<Option<Spot>, Unfit> {
        let Some(found) = board.find(self.snapshot, self.policy, self.pod, self, only)? else { return Ok(None) };
        let node = found.node;
        let Some(state) = self.snapshot.node_at(node) else { return Err(Unfit) };
        let grant = match (found.device, &self.pod.ask) {
            (Some(device), Some(ask)) => {
                let mut trial = Trial::new(state, ask, self.snapshot.kinds(), self.terms(None, false));
                if !trial.run_on(device) {
                    return Err(Unfit);
                }
                Some(trial.grant(self.placement(state).name(), self.now))
            }
            _ => self.ask(node, state).map_err(|_| Unfit)?.grant,
        };
        Ok(Some(Spot { node, grant, volumes: Vec::new() }))
    }
}
