//! What a group's tenants used: read off the meters of its cards, and written down where others read it, in gate files and
//! [`Accounts`].

use std::collections::VecDeque;

use divvy_limiter::{Directive, Domain, Meter, Ns, Period};
use divvy_shm::gate::Booked;

use super::tenant::Tenant;
use super::{Account, Accounts};

/// Utilisation is that of the last second.
const WINDOW: Ns = 1_000_000_000;

/// The books of one group.
pub(super) struct Books {
    accounts: Accounts,
    /// By card: its meter, and whether somebody was held back there since it was last read.
    meters: Vec<(Meter, bool)>,
    lanes: Vec<Lane>,
}

/// A lane's card and its place there, its use of it over the last second, and what was last written down about it.
struct Lane {
    card: usize,
    place: usize,
    history: VecDeque<(Ns, Ns)>,
    account: Option<Account>,
}

impl Books {
    pub(super) fn new(accounts: Accounts) -> Books {
        Books { accounts, meters: Vec::new(), lanes: Vec::new() }
    }

    /// Begins afresh, with these lanes on `cards` cards, each told by its card.
    pub(super) fn begin(&mut self, cards: usize, lanes: impl Iterator<Item = usize>) {
        let mut on = vec![0; cards];
        let lane = |card: usize| {
            on[card] += 1;
            Lane { card, place: on[card] - 1, history: VecDeque::new(), account: None }
        };
        self.lanes = lanes.map(lane).collect();
        self.meters = on.iter().map(|&lanes| (Meter::new(lanes), false)).collect();
    }

    /// What a card says about itself.
    pub(super) fn hear(&mut self, card: usize, said: &[Period]) {
        if let Some((meter, _)) = self.meters.get_mut(card) {
            said.iter().for_each(|period| meter.hear(*period));
        }
    }

    /// A lane's gate is closed.
    pub(super) fn held_back(&mut self, lane: usize) {
        self.meters[self.lanes[lane].card].1 = true;
    }

    /// Reads the meters.
    pub(super) fn read(&mut self, now: Ns, domain: &Domain) {
        for (card, (meter, held_back)) in self.meters.iter_mut().enumerate() {
            let here = self.lanes.iter().zip(domain.directives()).filter(|(lane, _)| lane.card == card);
            meter.read(now, here.map(|(_, directive)| directive.charged), std::mem::take(held_back));
        }
    }

    /// Nothing more is waited for: what was charged and never told by the card stands.
    pub(super) fn close(&mut self) {
        self.meters.iter_mut().for_each(|(meter, _)| meter.close());
    }

    /// Writes down what the meters say: for every lane whose it is, which of its devices, and what was decided about it.
    pub(super) fn write<'a>(&mut self, now: Ns, all: impl Iterator<Item = (&'a Tenant, usize, Directive)>) {
        for (lane, (tenant, device, directive)) in self.lanes.iter_mut().zip(all) {
            let meter = &self.meters[lane.card].0;
            let (until, metered) = (meter.until(lane.place), meter.metered()[lane.place]);
            lane.remember(until, metered);
            let since = Booked {
                busy_ns: metered,
                throttled_ns: directive.throttled,
                turns: directive.turns,
                utilisation: utilisation(&lane.history),
            };
            let booked = tenant.booked(device, since);
            let account = Account {
                busy_ns: booked.busy_ns,
                behind_ns: now.saturating_sub(until),
                throttled_ns: booked.throttled_ns,
                turns: booked.turns,
                utilisation: booked.utilisation,
                unit_ns: directive.unit_ns,
                chunk_units: directive.chunk_units,
                memory: tenant.memory(device),
                refused: tenant.refused(device),
                broken: tenant.is_broken(),
            };
            if lane.account.as_ref() == Some(&account) {
                continue;
            }
            tenant.book(device, booked);
            if let Some(device) = tenant.config.devices.get(device) {
                self.accounts.set(&tenant.name, &device.id, account.clone());
                lane.account = Some(account);
            }
        }
    }

    /// A tenant is gone: what it used stays in its gate file, and nowhere else.
    pub(super) fn forget(&self, tenant: &Tenant) {
        for device in &tenant.config.devices {
            self.accounts.remove(&tenant.name, &device.id);
        }
    }
}

impl Lane {
    fn remember(&mut self, until: Ns, metered: Ns) {
        match self.history.back_mut() {
            Some((last, used)) if *last == until => *used = metered,
            _ => self.history.push_back((until, metered)),
        }
        let is_old = |&(at, _): &(Ns, Ns)| until.saturating_sub(at) >= WINDOW;
        while self.history.len() > 2 && self.history.get(1).is_some_and(is_old) {
            self.history.pop_front();
        }
    }
}

/// Thousandths of the time the history covers.
fn utilisation(history: &VecDeque<(Ns, Ns)>) -> u32 {
    let (Some(first), Some(last)) = (history.front(), history.back()) else { return 0 };
    let (time, used) = (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1));
    used.saturating_mul(1000).checked_div(time).map_or(0, |part| u32::try_from(part).unwrap_or(1000).min(1000))
}
