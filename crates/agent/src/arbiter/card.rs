//! One group of cards and the thread that arbitrates it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use divvy_limiter::{Domain, Ns, Period, Seen, Shares, TenantId};
use divvy_shm::clock::monotonic_ns;
use divvy_shm::gate::ChunkHint;

use super::books::Books;
use super::promised::Promised;
use super::record::Record;
use super::tenant::Tenant;
use super::{Accounts, Container, Settings};

/// Time between two rounds of what need not be exact: heartbeats, books, changed grants.
const ROUND: Ns = 20_000_000;
/// The same while nobody does anything. Whoever begins is seen at the lookout's next look all the same.
const IDLE_ROUND: Ns = 100_000_000;
/// Below this, and where a core may be burnt, the thread spins rather than sleeps.
const SPIN_BELOW: Ns = 60_000;

/// One group: what is decided about it, and what its thread is told from outside.
pub(super) struct Card {
    group: Mutex<Group>,
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Debug)]
struct Orders {
    containers: Option<Vec<Container>>,
    stop: bool,
    /// The thread sleeps, and the [lookout](super::lookout) looks in its place.
    dozes: bool,
}

impl std::fmt::Debug for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Card").field("orders", &self.orders).finish_non_exhaustive()
    }
}

impl Card {
    pub(super) fn new(
        devices: Vec<String>,
        settings: Settings,
        accounts: Accounts,
        containers: Vec<Container>,
    ) -> Card {
        let orders = Orders { containers: Some(containers), stop: false, dozes: false };
        let group = Mutex::new(Group::new(devices, settings, accounts));
        Card { group, orders: Mutex::new(orders), changed: Condvar::new() }
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_containers(&self, containers: Vec<Container>) {
        self.orders().containers = Some(containers);
        self.changed.notify_one();
    }

    /// What one of its devices says about itself.
    pub(super) fn hear(&self, device: &str, said: &[Period]) {
        self.group().hear(device, said);
    }

    pub(super) fn stop(&self) {
        self.orders().stop = true;
        self.changed.notify_one();
    }

    /// New containers, if there are any; `None` once it is time to stop.
    fn take(&self) -> Option<Option<Vec<Container>>> {
        let mut orders = self.orders();
        if orders.stop { None } else { Some(orders.containers.take()) }
    }

    /// Sleeps, or is woken by an order.
    fn sleep(&self, time: Duration) {
        let orders = self.orders();
        if !orders.stop && orders.containers.is_none() {
            drop(self.changed.wait_timeout(orders, time));
        }
    }

    /// Sleeps until there is an order, or the lookout sees that something stirs.
    fn doze(&self) {
        let mut orders = self.orders();
        orders.dozes = true;
        let asleep = |orders: &mut Orders| orders.dozes && !orders.stop && orders.containers.is_none();
        let mut orders = self.changed.wait_while(orders, asleep).unwrap_or_else(PoisonError::into_inner);
        orders.dozes = false;
    }

    /// Looks in the place of a thread that sleeps, and wakes it where something stirs.
    pub(super) fn look_in(&self, now: Ns) {
        if !self.orders().dozes || self.group().idles(now) {
            return;
        }
        self.orders().dozes = false;
        self.changed.notify_one();
    }

    /// Arbitrates until told to stop, and leaves all gates open.
    pub(super) fn arbitrate(&self) {
        // A microsecond of slack instead of fifty: turns are short.
        let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1_000));
        let spin = self.group().settings.spin;
        while let Some(new) = self.take() {
            let mut group = self.group();
            if let Some(containers) = new {
                group.replace(&containers);
            }
            let next = group.look(monotonic_ns());
            drop(group);
            if next >= ROUND { self.doze() } else { self.rest(Instant::now(), next, spin) }
        }
        let mut group = self.group();
        group.close_books(monotonic_ns());
        for (tenant, _) in &group.tenants {
            tenant.open_all();
        }
    }

    fn rest(&self, from: Instant, time: Ns, spin: bool) {
        let time = Duration::from_nanos(time);
        if time >= Duration::from_millis(5) {
            self.sleep(time);
        } else if spin && time.as_nanos() < u128::from(SPIN_BELOW) {
            while from.elapsed() < time {
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(time);
        }
    }
}

/// A tenant's lane: which of its devices, and which card of the group that is.
struct Lane {
    tenant: usize,
    device: usize,
    card: usize,
}

struct Group {
    devices: Vec<String>,
    settings: Settings,
    books: Books,
    domain: Domain,
    tenants: Vec<(Tenant, TenantId)>,
    lanes: Vec<Lane>,
    seen: Vec<Seen>,
    record: Option<Record>,
    rounded: Option<Ns>,
}

impl Group {
    fn new(devices: Vec<String>, settings: Settings, accounts: Accounts) -> Group {
        let domain = Domain::new(devices.len(), settings.tuning);
        let (tenants, lanes, seen) = (Vec::new(), Vec::new(), Vec::new());
        let record = settings.record.as_deref().and_then(|path| Record::begin(path, &devices));
        let books = Books::new(accounts);
        Group { devices, settings, books, domain, tenants, lanes, seen, record, rounded: None }
    }

    /// What a device says about itself.
    fn hear(&mut self, device: &str, said: &[Period]) {
        if let Some(card) = self.devices.iter().position(|id| id == device) {
            self.books.hear(card, said);
        }
    }

    /// Other containers: the decision begins afresh, the books go on.
    fn replace(&mut self, containers: &[Container]) {
        self.close_books(monotonic_ns());
        for (tenant, _) in &self.tenants {
            if containers.iter().all(|c| c.name != tenant.name) {
                tenant.open_all();
                self.books.forget(tenant);
            }
        }
        self.tenants.clear();
        self.lanes.clear();
        self.domain = Domain::new(self.devices.len(), self.settings.tuning);
        for container in containers {
            match Tenant::open(container) {
                Ok(tenant) => self.admit(tenant),
                Err(error) => {
                    tracing::error!(container = %container.name, %error, "its pages cannot be used; it is not arbitrated");
                }
            }
        }
        self.share_out();
        self.seen = vec![Seen::default(); self.lanes.len()];
        self.books.begin(self.devices.len(), self.lanes.iter().map(|lane| lane.card));
        self.rounded = None;
    }

    fn admit(&mut self, tenant: Tenant) {
        let place = |id: &String| self.devices.iter().position(|d| d == id);
        let on: Vec<(usize, usize)> =
            tenant.config.devices.iter().enumerate().filter_map(|(i, d)| Some((i, place(&d.id)?))).collect();
        let cards: Vec<usize> = on.iter().map(|&(_, card)| card).collect();
        let id = self.domain.add(tenant.shares(), &cards);
        let index = self.tenants.len();
        self.lanes.extend(on.into_iter().map(|(device, card)| Lane { tenant: index, device, card }));
        self.tenants.push((tenant, id));
    }

    /// What each tenant may use, beside what the others may.
    fn share_out(&mut self) {
        let beside = self.tenants.iter().filter(|(tenant, _)| tenant.is_beside_others());
        let promised = Promised::sum(beside.flat_map(|(tenant, _)| tenant.promised()));
        for (tenant, id) in &self.tenants {
            let shares = tenant.shares();
            let request = promised.keep(shares.request, tenant.promised().map(|(card, _)| card));
            self.domain.set_shares(*id, Shares { request, ..shares });
        }
    }

    /// Everything that is due; how long until the next look, and [`ROUND`] or more where nobody does anything.
    fn look(&mut self, now: Ns) -> Ns {
        if self.rounded.is_none_or(|at| now.saturating_sub(at) >= ROUND) {
            self.round(now);
            self.rounded = Some(now);
        }
        let next = self.step(now);
        // Who is given turns blindly needs somebody who gives them.
        let is_blind = self.tenants.iter().any(|(tenant, _)| tenant.is_broken());
        if is_blind { next.min(ROUND / 2) } else { next }
    }

    /// After a look that saw nobody do anything: is it still so? Only what a tenant that begins must change is looked at, until the
    /// rest is due.
    fn idles(&mut self, now: Ns) -> bool {
        let is_due = self.rounded.is_none_or(|at| now.saturating_sub(at) >= IDLE_ROUND);
        let is_still = |(lane, seen): (&Lane, &Seen)| self.tenants[lane.tenant].0.look(lane.device) == *seen;
        if is_due || !self.lanes.iter().zip(&self.seen).all(is_still) {
            return self.look(now) >= ROUND;
        }
        // Time passes for the decision, too, or whoever begins would be taken to have worked since the last look.
        self.domain.step(now, &self.seen).next >= ROUND
    }

    /// One look and what follows from it; how long until the next.
    fn step(&mut self, now: Ns) -> Ns {
        for (lane, seen) in self.lanes.iter().zip(&mut self.seen) {
            *seen = self.tenants[lane.tenant].0.look(lane.device);
        }
        let outcome = self.domain.step(now, &self.seen);
        for (at, (lane, directive)) in self.lanes.iter().zip(self.domain.directives()).enumerate() {
            let (tenant, id) = &mut self.tenants[lane.tenant];
            let request = || self.domain.shares(*id).map_or(0, |shares| shares.request);
            let open = if tenant.is_broken() { static_turn(now, request()) } else { directive.open };
            tenant.set_gate(lane.device, open);
            if !open {
                self.books.held_back(at);
            }
            let hint = ChunkHint { units: directive.chunk_units, cost_ns: directive.unit_ns };
            tenant.set_hint(lane.device, hint);
        }
        if let Some(record) = &mut self.record {
            record.look(now, &self.seen, self.domain.directives());
        }
        outcome.next
    }

    /// Heartbeats, changed grants, books.
    fn round(&mut self, now: Ns) {
        let mut is_changed = false;
        for (tenant, _) in &mut self.tenants {
            tenant.gate.beat_arbiter(now);
            tenant.mend();
            if tenant.gate.controller() != divvy_shm::gate::Controller::Arbiter {
                // The keeper thought we were gone.
                tenant.gate.take_control(divvy_shm::gate::Controller::Arbiter);
            }
            is_changed |= tenant.changed();
        }
        if is_changed {
            self.share_out();
        }
        self.book(now);
    }

    /// Reads the meters and writes down what they say.
    fn book(&mut self, now: Ns) {
        self.books.read(now, &self.domain);
        self.write_down(now);
    }

    /// Nothing more is waited for.
    fn close_books(&mut self, now: Ns) {
        self.books.read(now, &self.domain);
        self.books.close();
        self.write_down(now);
    }

    fn write_down(&mut self, now: Ns) {
        let whose = |lane: &Lane| (&self.tenants[lane.tenant].0, lane.device);
        let all = self.lanes.iter().map(whose).zip(self.domain.directives());
        self.books.write(now, all.map(|((tenant, device), directive)| (tenant, device, directive)));
    }
}

/// A tenant that damaged its own ledger cannot be watched any more: it gets its request of every tenth of a second, blindly.
fn static_turn(now: Ns, request: u32) -> bool {
    const CYCLE: Ns = 100_000_000;
    now % CYCLE < CYCLE / 1000 * u64::from(request.max(1))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{container, played};
    use super::*;

    #[test]
    fn time_that_is_promised_again_after_an_init_container_is_promised_once() {
        let root = tempfile::tempdir().unwrap();
        let names = ["init", "main", "other"];
        let _pages = names.map(|name| played(&root.path().join(name), &["one"], 500, 1000));
        let mut group = Group::new(vec!["one".into()], Settings::default(), Accounts::default());
        let mut requests = |is_init: bool| {
            let of = |name: &str| Container { is_init: is_init && name == "init", ..container(root.path(), name) };
            group.replace(&names.map(of));
            let request = |(_, id): &(Tenant, TenantId)| group.domain.shares(*id).unwrap().request;
            group.tenants.iter().map(request).collect::<Vec<_>>()
        };
        assert_eq!(requests(true), [500, 500, 500], "it is done before the others of its pod begin");
        assert_eq!(requests(false), [333, 333, 333], "three of 500 at once are more than there is");
    }
}
