//! One group of cards and the thread that arbitrates it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_limiter::{Domain, Ns, Seen, TenantId};
use divvy_shm::clock::monotonic_ns;
use divvy_shm::gate::{Booked, ChunkHint};

use super::record::Record;
use super::tenant::Tenant;
use super::{Account, Accounts, Container, Settings};

/// Time between two rounds of what need not be exact: heartbeats, books, changed grants.
const ROUND: Ns = 20_000_000;
/// Utilisation is that of the last second.
const WINDOW: Ns = 1_000_000_000;
/// Below this, and where a core may be burnt, the thread spins rather than sleeps.
const SPIN_BELOW: Ns = 60_000;

/// What the thread is told from outside.
#[derive(Debug)]
pub(super) struct Orders {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    containers: Option<Vec<Container>>,
    stop: bool,
}

impl Orders {
    pub(super) fn new(containers: Vec<Container>) -> Orders {
        Orders { inner: Mutex::new(Inner { containers: Some(containers), stop: false }), changed: Condvar::new() }
    }

    pub(super) fn set_containers(&self, containers: Vec<Container>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).containers = Some(containers);
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.changed.notify_one();
    }

    /// New containers, if there are any; `None` once it is time to stop.
    fn take(&self) -> Option<Option<Vec<Container>>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.stop { None } else { Some(inner.containers.take()) }
    }

    /// Sleeps, or is woken by an order.
    fn sleep(&self, time: Duration) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.stop && inner.containers.is_none() {
            drop(self.changed.wait_timeout(inner, time));
        }
    }
}

/// A tenant's lane: which of its devices, and its use of it over the last second.
struct Lane {
    tenant: usize,
    device: usize,
    history: VecDeque<(Ns, Ns)>,
}

struct Group<'a> {
    devices: &'a [String],
    settings: &'a Settings,
    accounts: &'a Accounts,
    domain: Domain,
    tenants: Vec<(Tenant, TenantId)>,
    lanes: Vec<Lane>,
    seen: Vec<Seen>,
    record: Option<Record>,
}

/// Arbitrates until told to stop, and leaves all gates open.
pub(super) fn arbitrate(devices: &[String], settings: &Settings, accounts: &Accounts, orders: &Orders) {
    // A microsecond of slack instead of fifty: turns are short.
    let _ = rustix::thread::set_current_timer_slack(core::num::NonZeroU64::new(1_000));
    let domain = Domain::new(devices.len(), settings.tuning);
    let (tenants, lanes, seen) = (Vec::new(), Vec::new(), Vec::new());
    let record = settings.record.as_deref().and_then(|path| Record::begin(path, devices));
    let mut group = Group { devices, settings, accounts, domain, tenants, lanes, seen, record };
    let mut rounded: Option<Ns> = None;
    while let Some(new) = orders.take() {
        if let Some(containers) = new {
            group.replace(&containers);
            rounded = None;
        }
        let now = monotonic_ns();
        if rounded.is_none_or(|at| now.saturating_sub(at) >= ROUND) {
            group.round(now);
            rounded = Some(now);
        }
        let next = group.step(now);
        rest(orders, Instant::now(), next.min(ROUND), settings.spin);
    }
    for (tenant, _) in &group.tenants {
        tenant.open_all();
    }
}

fn rest(orders: &Orders, from: Instant, time: Ns, spin: bool) {
    let time = Duration::from_nanos(time);
    if time >= Duration::from_millis(5) {
        orders.sleep(time);
    } else if spin && time.as_nanos() < u128::from(SPIN_BELOW) {
        while from.elapsed() < time {
            std::hint::spin_loop();
        }
    } else {
        std::thread::sleep(time);
    }
}

impl Group<'_> {
    /// Other containers: the decision begins afresh, the books go on.
    fn replace(&mut self, containers: &[Container]) {
        for (tenant, _) in &self.tenants {
            if containers.iter().all(|c| c.name != tenant.name) {
                tenant.open_all();
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
        self.seen = vec![Seen::default(); self.lanes.len()];
    }

    fn admit(&mut self, tenant: Tenant) {
        let place = |id: &String| self.devices.iter().position(|d| d == id);
        let on: Vec<(usize, usize)> =
            tenant.config.devices.iter().enumerate().filter_map(|(i, d)| Some((i, place(&d.id)?))).collect();
        let cards: Vec<usize> = on.iter().map(|&(_, card)| card).collect();
        let id = self.domain.add(tenant.shares(), &cards);
        let index = self.tenants.len();
        self.lanes.extend(on.iter().map(|&(device, _)| Lane { tenant: index, device, history: VecDeque::new() }));
        self.tenants.push((tenant, id));
    }

    /// One look and what follows from it; how long until the next.
    fn step(&mut self, now: Ns) -> Ns {
        for (lane, seen) in self.lanes.iter().zip(&mut self.seen) {
            *seen = self.tenants[lane.tenant].0.look(lane.device);
        }
        let outcome = self.domain.step(now, &self.seen);
        for (lane, directive) in self.lanes.iter().zip(self.domain.directives()) {
            let tenant = &mut self.tenants[lane.tenant].0;
            let open = if tenant.is_broken() { static_turn(now, tenant.shares().request) } else { directive.open };
            tenant.set_gate(lane.device, open);
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
        for (tenant, id) in &mut self.tenants {
            tenant.gate.beat_arbiter(now);
            tenant.mend();
            if tenant.gate.controller() != divvy_shm::gate::Controller::Arbiter {
                // The keeper thought we were gone.
                tenant.gate.take_control(divvy_shm::gate::Controller::Arbiter);
            }
            if tenant.changed() {
                self.domain.set_shares(*id, tenant.shares());
            }
        }
        for (lane, directive) in self.lanes.iter_mut().zip(self.domain.directives()) {
            let tenant = &self.tenants[lane.tenant].0;
            lane.history.push_back((now, directive.charged));
            while lane.history.len() > 2 && lane.history.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW)
            {
                lane.history.pop_front();
            }
            let since = Booked {
                busy_ns: directive.charged,
                throttled_ns: directive.throttled,
                turns: directive.turns,
                utilisation: utilisation(&lane.history),
            };
            let booked = tenant.book(lane.device, since);
            let account = Account {
                busy_ns: booked.busy_ns,
                throttled_ns: booked.throttled_ns,
                turns: booked.turns,
                utilisation: booked.utilisation,
                unit_ns: directive.unit_ns,
                chunk_units: directive.chunk_units,
                memory: tenant.memory(lane.device),
                refused: tenant.refused(lane.device),
                broken: tenant.is_broken(),
            };
            if let Some(device) = tenant.config.devices.get(lane.device) {
                self.accounts.set(&tenant.name, &device.id, account);
            }
        }
    }
}

/// Thousandths of the time the history covers.
fn utilisation(history: &VecDeque<(Ns, Ns)>) -> u32 {
    let (Some(first), Some(last)) = (history.front(), history.back()) else { return 0 };
    let (time, used) = (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1));
    used.saturating_mul(1000).checked_div(time).map_or(0, |part| u32::try_from(part).unwrap_or(1000).min(1000))
}

/// A tenant that damaged its own ledger cannot be watched any more: it gets its request of every tenth of a second, blindly.
fn static_turn(now: Ns, request: u32) -> bool {
    const CYCLE: Ns = 100_000_000;
    now % CYCLE < CYCLE / 1000 * u64::from(request.max(1))
}
