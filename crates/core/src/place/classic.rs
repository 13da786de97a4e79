//! The two oldest ways: on the fullest that fits, or on the emptiest.

use crate::fit::{Choose, Placer, Trial, take_best};
use crate::model::ask::{ContainerAsk, DeviceAsk};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classic {
    Pack,
    Spread,
}

impl Choose for Classic {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        order.sort_by_key(|d| {
            let left = trial.book_with(*d).left();
            let key = if *self == Classic::Pack { left } else { 1000 - left };
            (trial.preference(*d), key)
        });
        take_best(trial, want, &order)
    }
}

impl Placer for Classic {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let kinds = |d: usize| trial.given().iter().any(|g| g.slice.kind == trial.devices()[d].kind);
        let own: Vec<usize> = (0..trial.devices().len()).filter(|d| kinds(*d)).collect();
        let used: u32 = own.iter().map(|d| 1000 - trial.book_with(*d).left()).sum();
        let full = f64::from(used) / (own.len().max(1) as f64);
        let wish = trial.given().iter().map(|g| trial.preference(g.device)).max().unwrap_or(0);
        // A model earlier in the pod's list beats any fullness.
        (if *self == Classic::Pack { full } else { -full }) - 10_000.0 * wish as f64
    }
}
