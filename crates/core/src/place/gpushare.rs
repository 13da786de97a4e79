//! Aliyun gpushare's way: on a node, the card with the least free memory that is enough; among nodes, whatever kube-scheduler's default
//! scores say, since gpushare has no opinion.

use crate::ask::{ContainerAsk, DeviceAsk};
use crate::fit::{Choose, Trial, take_best};
use crate::place::{Placer, ordinary};
use crate::pod::Pod;

pub(crate) struct Gpushare<'a> {
    pod: &'a Pod,
}

impl<'a> Gpushare<'a> {
    pub(crate) fn of(pod: &'a Pod) -> Gpushare<'a> {
        Gpushare { pod }
    }
}

impl Choose for Gpushare<'_> {
    fn choose(&self, trial: &Trial<'_>, _: &ContainerAsk, want: &DeviceAsk, fits: &[usize]) -> Option<Vec<usize>> {
        let mut order = fits.to_vec();
        order.sort_by_key(|d| {
            let book = trial.book_with(*d);
            (book.free_memory(), book.free_share())
        });
        take_best(trial, want, &order)
    }
}

impl Placer for Gpushare<'_> {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        ordinary::least_allocated(self.pod, trial.node) + ordinary::balance(self.pod, trial.node)
    }
}
