//! Whom disruption budgets keep. The eviction API refuses them, and whoever else of the same plan had left by then would have left in
//! vain: nobody is asked to leave who would not be let go.

use crate::ledger::snapshot::DisruptionBudget;
use crate::model::pod::Pod;
use crate::schedule::Round;

/// How many more each budget lets go, with those counted who were told to go already.
#[derive(Clone, Debug, Default)]
pub(super) struct Disruptions(Vec<(DisruptionBudget, usize)>);

impl Disruptions {
    pub(super) fn of(round: &Round<'_>) -> Disruptions {
        let budgets = &round.snapshot.surroundings().budgets;
        if budgets.is_empty() {
            return Disruptions::default();
        }
        let told: Vec<&Pod> =
            round.plan.evictions.iter().filter_map(|e| Some(round.snapshot.pod(&e.pod)?.pod())).collect();
        let left = |budget: &DisruptionBudget| {
            (budget.allowed as usize).saturating_sub(told.iter().filter(|pod| budget.protects(pod)).count())
        };
        Disruptions(budgets.iter().map(|budget| (budget.clone(), left(budget))).collect())
    }

    /// Would it be let go? A pod of two budgets never is: the eviction API does not choose between them.
    pub(super) fn let_go(&self, pod: &Pod) -> bool {
        let mut keepers = self.0.iter().filter(|(budget, _)| budget.protects(pod));
        match (keepers.next(), keepers.next()) {
            (None, _) => true,
            (Some((_, left)), None) => *left > 0,
            (Some(_), Some(_)) => false,
        }
    }

    /// Would they be let go all together?
    pub(super) fn let_all_go<'p>(&self, pods: impl Iterator<Item = &'p Pod> + Clone) -> bool {
        self.0.iter().all(|(budget, left)| pods.clone().filter(|pod| budget.protects(pod)).count() <= *left)
    }
}
