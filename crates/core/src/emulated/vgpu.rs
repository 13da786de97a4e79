//! The way of 4paradigm's vGPU scheduler: nodes with many cards, then busy ones; on a node the card with most free slots.

use crate::fit::{Choose, Placer, Trial, take_best};
use crate::ledger::Book;
use crate::model::ask::{ContainerAsk, DeviceAsk, Role};
use crate::model::device::DeviceKind;
use crate::model::reason::Obstacle;

/// How many containers may share a card where nobody says: the system's own default.
pub(crate) const SPLIT: u32 = 10;

pub(crate) struct Vgpu {
    /// Most containers on a card, where the policy says so for all.
    pub(crate) most: Option<u32>,
}

/// How many containers may share a card.
pub(crate) fn split(book: &Book) -> u32 {
    if book.max_tasks == u32::MAX { SPLIT } else { book.max_tasks }
}

/// A card of which as many containers hold a part as it is split into takes no more. A count of the cluster's or of the card's own is
/// kept for every policy; this is the one of those who say neither.
pub(crate) fn full(trial: &Trial<'_>, container: &ContainerAsk, device: usize, most: Option<u32>) -> Option<Obstacle> {
    let split = most.unwrap_or_else(|| split(trial.book(device)));
    if trial.devices()[device].kind == DeviceKind::Nic {
        return None;
    }
    // Sidecars before an init container run beside it already; the pod's other containers come when it has ended.
    let before = |other: usize| trial.ask.containers[..other].iter().all(|c| c.name != container.name);
    let beside = trial.given().iter().filter(|g| g.device == device && g.role == Role::Sidecar && before(g.container));
    let own = if container.role == Role::Init { beside.count() as u32 } else { 0 };
    (trial.beside(container, device).tasks + own >= split).then_some(Obstacle::Tasks { most: split })
}

impl Choose for Vgpu {
    fn refuses(&self, trial: &Trial<'_>, container: &ContainerAsk, device: usize) -> Option<Obstacle> {
        full(trial, container, device, self.most)
    }

    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        // The system sorts upwards and walks from the end: the highest NUMA node, most free slots, the last of equal cards.
        order.sort_by_key(|d| {
            let book = trial.book_with(*d);
            (trial.devices()[*d].numa.unwrap_or(0), split(&book).saturating_sub(book.tasks), *d)
        });
        order.reverse();
        take_best(trial, want, &order)
    }
}

impl Placer for Vgpu {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let cards: Vec<usize> = trial.cards().collect();
        let mut score = 0.0;
        for container in 0..trial.ask.containers.len() {
            let chosen: Vec<usize> = trial
                .given()
                .iter()
                .filter(|g| g.container == container && cards.contains(&g.device))
                .map(|g| g.device)
                .collect();
            if chosen.is_empty() {
                continue;
            }
            let own = |d: &usize| chosen.iter().any(|c| trial.devices()[*c].kind == trial.devices()[*d].kind);
            let cards = cards.iter().filter(|d| own(d)).count();
            let split = |d: &usize| u64::from(split(trial.book(*d)));
            let slots: u64 = chosen.iter().map(split).sum();
            let free: u64 = chosen.iter().map(|d| split(d).saturating_sub(u64::from(trial.book(*d).tasks))).sum();
            score += slots as f64 / free.max(1) as f64 + cards.saturating_sub(chosen.len()) as f64;
        }
        score
    }

    fn time_for_all(&self) -> bool {
        true
    }
}
