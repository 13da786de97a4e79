//! KubeGPU's way: the best connected devices, on the node that is fullest afterwards.

use crate::ask::{ContainerAsk, DeviceAsk};
use crate::fit::{Choose, Trial, take_best};
use crate::place::{Placer, left};

pub(crate) struct Kubegpu;

impl Choose for Kubegpu {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        order.reverse();
        take_best(trial, want, &order)
    }
}

impl Placer for Kubegpu {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let all = trial.devices().len();
        let used: u32 = (0..all).map(|d| 1000 - left(&trial.book_with(d))).sum();
        f64::from(used) / all.max(1) as f64
    }
}
