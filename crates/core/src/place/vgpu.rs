//! The way of 4paradigm's vGPU scheduler: nodes with many cards, then busy ones; on a node the card with most free slots.

use crate::ask::{ContainerAsk, DeviceAsk};
use crate::fit::{Choose, Trial, take_best};
use crate::ledger::Book;
use crate::place::Placer;

/// How many containers may share a card where nobody says: the system's own default.
pub(crate) const SPLIT: u32 = 10;

pub(crate) struct Vgpu;

/// How many containers may share a card.
pub(crate) fn split(book: &Book) -> u32 {
    if book.max_tasks == u32::MAX { SPLIT } else { book.max_tasks }
}

impl Choose for Vgpu {
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
