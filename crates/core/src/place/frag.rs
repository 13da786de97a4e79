//! The default way: where the least of what could still be hosted is lost. See [`crate::ledger::worth`].

use crate::fit::{Choose, Placer, Trial, take_best};
use crate::ledger::snapshot::{NodeState, Snapshot};
use crate::ledger::worth::{Rating, Rest, Worth, left};
use crate::ledger::{Book, charge_of};
use crate::model::ask::{ContainerAsk, DeviceAsk};
use crate::model::pod::Pod;

pub(crate) struct Frag<'a> {
    worth: &'a Worth,
    cpu: u64,
    memory: u64,
}

impl<'a> Frag<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot, pod: &Pod) -> Frag<'a> {
        let requests = &pod.spec.requests;
        Frag { worth: snapshot.worth(), cpu: requests.cpu, memory: requests.memory.0.div_ceil(1 << 20) }
    }

    /// How good one device is for a slice of the pod, beside what the pod was given on the node so far.
    fn rate(&self, trial: &Trial<'_>, rest: &Rest, device: usize, after: &Book) -> Rating {
        let wish = trial.preference(device);
        self.worth.rate(rest, self.cpu, self.memory, &[(device, left(after))], wish)
    }
}

impl Choose for Frag<'_> {
    fn choose(
        &self,
        trial: &Trial<'_>,
        container: &ContainerAsk,
        want: &DeviceAsk,
        fits: &[usize],
    ) -> Option<Vec<usize>> {
        let mut rest = Rest::of(&trial.node.leftover(), self.worth);
        if !trial.given().is_empty() {
            (0..rest.left.len()).for_each(|d| rest.left[d] = rest.left[d].min(left(&trial.book_with(d))));
            self.worth.value(&mut rest);
        }
        let index = trial.ask.containers.iter().position(|c| c.name == container.name).unwrap_or_default();
        let rated = |device: &usize| {
            let slice = trial.fits(index, container, want, *device).ok()?;
            let mut book = trial.book_with(*device);
            book.take(&charge_of(&slice, trial.devices().get(*device)));
            Some((self.rate(trial, &rest, *device, &book), *device))
        };
        let mut order: Vec<(Rating, usize)> = fits.iter().filter_map(rated).collect();
        // Best first; of equally good ones the first.
        order.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let order: Vec<usize> = order.into_iter().map(|(_, device)| device).collect();
        take_best(trial, want, &order)
    }
}

impl Placer for Frag<'_> {
    fn score(&self, trial: &Trial<'_>) -> f64 {
        let rest = Rest::of(&trial.node.leftover(), self.worth);
        let mut taken: Vec<(usize, u16)> = Vec::new();
        let mut wish = 0;
        for given in trial.given() {
            if rest.left[given.device] > 0 && !taken.iter().any(|(d, _)| *d == given.device) {
                taken.push((given.device, left(&trial.book_with(given.device))));
                wish = wish.max(trial.preference(given.device));
            }
        }
        self.worth.rate(&rest, self.cpu, self.memory, &taken, wish).steps()
    }

    fn score_ordinary(&self, _: &Pod, state: &NodeState) -> f64 {
        self.worth.rate(&Rest::of(&state.leftover(), self.worth), self.cpu, self.memory, &[], 0).steps()
    }
}
