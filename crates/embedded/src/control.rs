//! The control plane on the embedded cluster: the scheduler's own `World` and the budgets' accounts, fed with changes and served with
//! effects.

use divvy_api::reader::PodReader;
use divvy_cluster::Effect;
use divvy_cluster::change::Change;
use divvy_core::budget::Happened;
use divvy_core::keys;
use divvy_core::time::Time;
use divvy_scheduler::World;

use crate::accounts::Accounts;
use crate::store::Embedded;

/// Pods decided before effects are carried out, as the scheduler's loop does.
const ROUND: usize = 32;

/// The control plane.
pub struct ControlPlane {
    world: World,
    accounts: Accounts,
    cluster: Embedded,
    reader: PodReader,
}

impl ControlPlane {
    /// Knows nothing yet, and leads.
    pub fn new(cluster: Embedded, now: Time) -> ControlPlane {
        let accounts = Accounts::new(cluster.clone(), now);
        ControlPlane { world: World::new(keys::SCHEDULER), accounts, cluster, reader: PodReader::default() }
    }

    /// Everything the scheduler knows.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What was spent, and who is in budget.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The same, to be told who has how much to spend.
    pub fn accounts_mut(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    /// The lead is ours.
    pub fn take_lead(&mut self, now: Time) {
        self.world.take_lead(now);
    }

    /// Lets what changed have its consequences, until there are no more. Everything that changed is handed to `heard` too.
    pub fn settle(&mut self, now: Time, mut heard: impl FnMut(&Change)) {
        loop {
            let changes = self.cluster.lock().take_changes();
            let told = !changes.is_empty();
            for change in changes {
                heard(&change);
                self.accounts.hear(&change, now);
                self.world.apply(change, now);
            }
            self.world.decide(now, ROUND);
            let (effects, looks) = (self.world.take_effects(), self.world.take_looks());
            if !told && effects.is_empty() && looks.is_empty() && !self.world.has_awake() {
                return;
            }
            for effect in effects {
                let outcome = self.cluster.lock().carry_out(&effect);
                if let (Effect::Evict(evict), Ok(())) = (&effect, &outcome) {
                    self.accounts.evicted(&evict.target.uid);
                }
                self.world.done(&effect, outcome, now);
            }
            for target in looks {
                let found = self.cluster.lock().look(&target).map(|pod| self.reader.read(pod));
                self.world.looked_at(&target, Ok(found.map(Box::new)), now);
            }
        }
    }

    /// Time passed; what that meant for budgets.
    pub fn tick(&mut self, now: Time) -> Vec<Happened> {
        self.world.tick(now);
        self.accounts.advance(now)
    }
}
