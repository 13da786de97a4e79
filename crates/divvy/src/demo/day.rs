//! The day: simulated time goes by, and the board is told.

use std::time::Duration;

use divvy_core::time::Time;
use divvy_dashboard::view::Demo;
use divvy_dashboard::{Shared, Used, budgets};
use divvy_embedded::{Simulation, Told};
use divvy_service::Stop;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::proof::Proof;
use super::wishes::Wish;

/// Real time between two looks at the clock.
const STEP: Duration = Duration::from_millis(100);
/// Simulated milliseconds advanced at once.
const MOST: u64 = 2 * 60_000;
/// Simulated milliseconds between two looks at budgets.
const BUDGETS: u64 = 120_000;

/// The day, and everybody who takes part in it.
pub(crate) struct Day {
    pub(crate) simulation: Simulation,
    pub(crate) shared: Shared,
    pub(crate) clock: Clock,
    pub(crate) wishes: mpsc::Receiver<Wish>,
    pub(crate) proof: Option<Proof>,
    pub(crate) stop: Stop,
}

impl Day {
    /// Runs until asked to stop.
    pub(crate) fn run(mut self) -> Simulation {
        let (mut told, mut balanced, mut measured) = (0, Time(0), Time(0));
        while !self.stop.is_requested() {
            while let Ok(wish) = self.wishes.try_recv() {
                wish.grant(&mut self.simulation, &mut self.clock);
            }
            let wanted = self.clock.now();
            let to = wanted.min(Time(self.simulation.now().0 + MOST));
            self.simulation.advance(to);
            self.clock.reached(to);
            let changes = self.simulation.take_changes();
            let (news, tellings) = self.simulation.cluster().lock().told_since(told);
            told = tellings;
            let used = (to.millis_since(measured) >= 60_000).then(|| self.used());
            let balances = (to.millis_since(balanced) >= BUDGETS)
                .then(|| budgets::of(self.simulation.control().accounts().accounting()));
            let proof = self.proof.as_ref().map(Proof::view).unwrap_or_default();
            let demo = Demo { speed: self.clock.speed(), proof };
            self.shared.change(|board| {
                changes.into_iter().for_each(|change| board.apply(change, to));
                for Told { at, about, reason, message, .. } in news {
                    if let Some(kind) = kind(&reason) {
                        board.tell(at, kind, about, message);
                    }
                }
                if let Some(used) = used {
                    measured = to;
                    board.set_used(used, to);
                }
                if let Some(balances) = balances {
                    balanced = to;
                    board.set_budgets(balances);
                }
                board.set_demo(demo);
                board.tick(to);
            });
            if to == wanted {
                std::thread::sleep(STEP);
            }
        }
        self.simulation
    }

    fn used(&self) -> Vec<Used> {
        let used = self.simulation.used().into_iter().map(|used| Used {
            pod: used.pod,
            node: used.node,
            device: used.device,
            share: used.share,
            throttled: used.throttled,
            memory: used.memory,
        });
        used.collect()
    }
}

/// What people are shown of what pods and nodes are told: that a pod waits, or has a place, they see anyway.
fn kind(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "GangPlaced" => "placed",
        "Preempted" | "Evicted" => "evicted",
        "DeviceUnhealthy" => "failed",
        "DeviceHealthy" => "mended",
        "Refused" => "refused",
        "OutOfBudget" | "BackInBudget" => "budget",
        _ => return None,
    })
}
