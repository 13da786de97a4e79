//! A card in a few hundred lines: contexts that take turns by time slice, streams of chunks behind gates, programs that launch and
//! synchronise, and the arbiter's looks with the jitter of a real machine. Events only, no clock.
#![allow(dead_code, reason = "each test file uses a part of it")]

mod program;
pub(crate) mod runs;

use std::collections::VecDeque;

use divvy_limiter::{Domain, Ns, Seen, Shares, TenantId, Tuning};

pub(crate) use program::Program;

pub(crate) const US: Ns = 1_000;
pub(crate) const MS: Ns = 1_000_000;
pub(crate) const SEC: Ns = 1_000_000_000;

enum Op {
    Wait,
    Kernel(Ns),
    /// So many units are done.
    Write(u32),
}

/// Work in order, and units of it in the chunk that is being filled.
#[derive(Default)]
struct Stream {
    queue: VecDeque<(u64, Op)>,
    filling: u32,
    began_open: bool,
    began_turn: u32,
}

struct Tenant {
    id: TenantId,
    program: Program,
    streams: Vec<Stream>,
    kernels: usize,
    launched: u64,
    submitted: u32,
    ended: u32,
    completed: u32,
    gate: bool,
    /// The card sees the gate open from here on.
    gate_seen: Ns,
    /// It had run out of work when the card left it: the card comes to look once, a time slice later.
    left_idle: bool,
    turn: u32,
    chunk_units: u32,
    slow_start: u32,
    cpu: Ns,
    syncing: bool,
    in_burst: u32,
    pub(crate) gpu: Ns,
    by_slot: Vec<Ns>,
    done: u64,
    waited_since: Ns,
    worst_wait: Ns,
}

impl Tenant {
    fn is_idle(&self) -> bool {
        self.streams.iter().all(|stream| stream.queue.is_empty())
    }

    /// The stream whose turn it is on the card: what was submitted first goes first, but for what waits for its gate.
    fn next(&self, open: bool) -> Option<usize> {
        let front = |stream: &Stream| match stream.queue.front() {
            Some((_, Op::Wait)) if !open => None,
            Some((order, _)) => Some(*order),
            None => None,
        };
        (0..self.streams.len()).filter_map(|i| Some((front(&self.streams[i])?, i))).min().map(|(_, i)| i)
    }

    fn waits_for_gate(&self) -> bool {
        self.streams.iter().any(|stream| matches!(stream.queue.front(), Some((_, Op::Wait))))
    }

    fn is_kept_back(&self, managed: bool) -> bool {
        managed && self.streams.len() > 1 && !self.gate
    }

    fn end_chunk(&mut self, i: usize) {
        let units = std::mem::take(&mut self.streams[i].filling);
        if units > 0 {
            self.ended += units;
            self.streams[i].queue.push_back((self.launched, Op::Write(units)));
            self.cpu += self.program.boundary;
        }
    }
}

pub(crate) struct Card {
    pub(crate) domain: Domain,
    tenants: Vec<Tenant>,
    pub(crate) now: Ns,
    managed: bool,
    running: Option<usize>,
    /// Which of its streams.
    stream: usize,
    /// Whose context the card has.
    resident: Option<usize>,
    op_ends: Ns,
    op_began: Ns,
    slice_ends: Ns,
    /// What runs is a look at a context that has nothing to do, or waits for its gate.
    looks_in_vain: bool,
    look: Ns,
    rng: u64,
    pub(crate) looks: u64,
}

/// Resolution of the record of who ran when.
pub(crate) const SLOT: Ns = 50 * MS;
const SLICE: Ns = 2 * MS;
/// From one context to another. Measured on an H200, as is the next.
const SWITCH: Ns = 140 * US;
/// To find that a context has nothing to do, besides going there and back.
const LOOK: Ns = 150 * US;
const FRONT_END: Ns = 1_400;
const DEPTH: usize = 1024;

impl Card {
    pub(crate) fn new(tuning: Tuning) -> Card {
        Card {
            domain: Domain::new(1, tuning),
            tenants: Vec::new(),
            now: 0,
            managed: true,
            running: None,
            stream: 0,
            resident: None,
            op_ends: Ns::MAX,
            op_began: 0,
            slice_ends: 0,
            looks_in_vain: false,
            look: 0,
            rng: 0x9e37_79b9_7f4a_7c15,
            looks: 0,
        }
    }

    /// Nobody arbitrates: plain time slicing.
    pub(crate) fn unmanaged(mut self) -> Card {
        self.managed = false;
        self
    }

    /// Another course of latencies and late looks.
    pub(crate) fn seeded(mut self, seed: u64) -> Card {
        self.rng = seed | 1;
        self
    }

    /// Changes a tenant's shares while it runs.
    pub(crate) fn set_shares(&mut self, id: TenantId, request: u32, limit: u32) {
        self.domain.set_shares(id, Shares { request, limit });
    }

    pub(crate) fn add(&mut self, request: u32, limit: u32, program: Program) -> TenantId {
        let id = self.domain.add(Shares { request, limit }, &[0]);
        self.tenants.push(Tenant {
            id,
            program,
            streams: (0..program.streams).map(|_| Stream::default()).collect(),
            kernels: 0,
            launched: 0,
            submitted: 0,
            ended: 0,
            completed: 0,
            gate: true,
            gate_seen: 0,
            left_idle: false,
            turn: 0,
            chunk_units: 0,
            slow_start: 1,
            cpu: program.from,
            syncing: false,
            in_burst: 0,
            gpu: 0,
            by_slot: Vec::new(),
            done: 0,
            waited_since: 0,
            worst_wait: 0,
        });
        id
    }

    fn random(&mut self, below: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % below.max(1)
    }

    pub(crate) fn run_until(&mut self, end: Ns) {
        loop {
            let next = self.next_event();
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            for i in 0..self.tenants.len() {
                self.cpu(i);
            }
            self.gpu();
            if self.managed && self.now >= self.look {
                self.arbitrate();
                self.gpu();
            }
        }
    }

    fn next_event(&self) -> Ns {
        let mut next = if self.managed { self.look } else { Ns::MAX };
        for t in &self.tenants {
            if !t.syncing && t.kernels < DEPTH && t.cpu < t.program.until && !t.is_kept_back(self.managed) {
                next = next.min(t.cpu);
            }
            if t.waits_for_gate() && t.gate && t.gate_seen > self.now {
                next = next.min(t.gate_seen);
            }
        }
        if self.running.is_some() {
            next = next.min(self.op_ends);
            if self.slice_ends > self.now {
                next = next.min(self.slice_ends);
            }
        }
        next.max(self.now)
    }

    fn cpu(&mut self, i: usize) {
        let now = self.now;
        let managed = self.managed;
        let t = &mut self.tenants[i];
        if t.syncing && t.is_idle() {
            t.syncing = false;
            t.cpu = now + t.program.think;
            t.in_burst = 0;
            let (on, off) = t.program.on_off;
            if on > 0 && (t.cpu - t.program.from) % (on + off) >= on {
                t.cpu += on + off - (t.cpu - t.program.from) % (on + off);
            }
        }
        while !t.syncing && t.kernels < DEPTH && t.cpu <= now && t.cpu < t.program.until && !t.is_kept_back(managed) {
            let p = t.program;
            t.cpu = now + p.launch;
            let i = (t.launched % u64::from(p.streams)) as usize;
            let passed = t.streams[i].began_open || t.streams[i].began_turn != t.turn;
            if managed && !t.gate && passed {
                // The library sees the gate closed and does not add to a chunk that has passed it.
                t.end_chunk(i);
            }
            if managed && t.streams[i].filling == 0 {
                t.streams[i].queue.push_back((t.launched, Op::Wait));
                (t.streams[i].began_open, t.streams[i].began_turn) = (t.gate, t.turn);
            }
            t.launched += 1;
            let long = p.every > 0 && t.launched.is_multiple_of(u64::from(p.every));
            let back = p.phase > 0 && (u64::from(t.in_burst) / u64::from(p.phase)) % 2 == 1;
            let kernel = if p.turns_at > 0 && now >= p.turns_at { p.turns_to } else { p.kernel };
            let kernel = if back { p.other } else { kernel };
            let kernel = if long { p.long } else { kernel };
            let kernel = if t.in_burst < p.head { p.wide } else { kernel };
            t.streams[i].queue.push_back((t.launched, Op::Kernel(kernel)));
            t.kernels += 1;
            t.submitted += p.units;
            t.streams[i].filling += p.units;
            let most = if t.chunk_units > 0 { t.chunk_units } else { t.slow_start };
            if managed && t.streams[i].filling >= most {
                t.end_chunk(i);
            }
            t.in_burst += 1;
            if p.burst > 0 && t.in_burst >= p.burst {
                for i in (0..t.streams.len()).filter(|_| managed && !p.polls) {
                    t.end_chunk(i);
                }
                t.syncing = true;
            }
        }
    }

    fn runnable(&self, i: usize) -> bool {
        self.tenants[i].left_idle || self.tenants[i].next(self.is_open(i)).is_some()
    }

    fn is_open(&self, i: usize) -> bool {
        self.tenants[i].gate && self.tenants[i].gate_seen <= self.now
    }

    fn account(&mut self, i: usize, from: Ns, to: Ns) {
        let t = &mut self.tenants[i];
        t.gpu += to - from;
        let mut at = from;
        while at < to {
            let slot = (at / SLOT) as usize;
            if t.by_slot.len() <= slot {
                t.by_slot.resize(slot + 1, 0);
            }
            let end = to.min((slot as u64 + 1) * SLOT);
            t.by_slot[slot] += end - at;
            at = end;
        }
    }

    fn gpu(&mut self) {
        loop {
            if let Some(i) = self.running {
                if self.now >= self.op_ends && self.looks_in_vain {
                    self.running = None;
                    self.pick(Some(i));
                    continue;
                }
                if self.now >= self.op_ends {
                    let (from, to) = (self.op_began.min(self.op_ends), self.op_ends);
                    self.account(i, from, to);
                    let t = &mut self.tenants[i];
                    match t.streams[self.stream].queue.pop_front() {
                        Some((_, Op::Write(units))) => t.completed += units,
                        Some((_, Op::Kernel(_))) => {
                            t.kernels -= 1;
                            t.done += 1;
                            t.worst_wait = t.worst_wait.max(to - t.waited_since);
                            t.waited_since = to;
                            if t.kernels + 1 == DEPTH {
                                t.cpu = t.cpu.max(self.now);
                            }
                        }
                        _ => {}
                    }
                    self.running = None;
                    if t.syncing && t.is_idle() {
                        self.cpu(i);
                    }
                    if self.runnable(i) && self.now < self.slice_ends {
                        self.start(i, 0);
                        continue;
                    }
                    self.pick(Some(i));
                    if self.running.is_none() {
                        return;
                    }
                    continue;
                }
                let others = (0..self.tenants.len()).any(|o| o != i && self.runnable(o));
                if self.now >= self.slice_ends && others {
                    // The card stops it in the middle.
                    let ran = self.now.saturating_sub(self.op_began);
                    if ran > 0 {
                        self.account(i, self.op_began, self.now);
                    }
                    if let Some((_, Op::Kernel(left))) = self.tenants[i].streams[self.stream].queue.front_mut() {
                        *left -= ran.min(*left);
                    }
                    self.running = None;
                    self.pick(Some(i));
                    continue;
                }
                if self.now >= self.slice_ends {
                    self.slice_ends = self.now + SLICE;
                }
                return;
            }
            self.pick(None);
            if self.running.is_none() {
                return;
            }
        }
    }

    fn pick(&mut self, last: Option<usize>) {
        let n = self.tenants.len();
        let first = last.map_or(0, |l| l + 1);
        for k in 0..n {
            let i = (first + k) % n;
            if self.runnable(i) {
                self.slice_ends = self.now + SLICE;
                let cost = if self.resident == Some(i) { 0 } else { SWITCH };
                if let Some(left) = self.resident.replace(i).filter(|left| *left != i) {
                    self.tenants[left].left_idle = self.tenants[left].is_idle() && !self.looks_in_vain;
                }
                self.start(i, cost);
                return;
            }
        }
    }

    fn start(&mut self, i: usize, cost: Ns) {
        let next = self.tenants[i].next(self.is_open(i));
        self.looks_in_vain = next.is_none();
        self.tenants[i].left_idle = false;
        self.stream = next.unwrap_or(0);
        let took = match self.tenants[i].streams[self.stream].queue.front() {
            _ if next.is_none() => LOOK,
            Some((_, Op::Kernel(left))) => *left,
            _ => FRONT_END,
        };
        self.running = Some(i);
        self.op_began = self.now + cost;
        self.op_ends = self.now + cost + took;
    }

    fn arbitrate(&mut self) {
        self.looks += 1;
        let seen: Vec<Seen> = self
            .tenants
            .iter()
            .map(|t| Seen {
                queued: t.ended - t.completed,
                filling: t.submitted - t.ended,
                streams: t.streams.iter().filter(|stream| !stream.queue.is_empty() || stream.filling > 0).count()
                    as u32,
                completed: t.completed,
                submitted: t.submitted,
            })
            .collect();
        let outcome = self.domain.step(self.now, &seen);
        let directives: Vec<_> = self.domain.directives().collect();
        for (i, d) in directives.into_iter().enumerate() {
            let latency = 7 * US + self.random(20) * US;
            let now = self.now;
            let t = &mut self.tenants[i];
            if d.open && !t.gate {
                t.gate_seen = now + latency;
                t.turn += 1;
            }
            t.gate = d.open;
            t.chunk_units = d.chunk_units;
        }
        // A real machine oversleeps, now and then by a lot.
        let late = if self.random(1000) == 0 { 300 * US } else { self.random(15) * US };
        self.look = self.now + outcome.next + late;
    }

    /// Thousandths of the time between two moments (multiples of 50 ms) in which each tenant's kernels ran.
    pub(crate) fn shares(&self, from: Ns, to: Ns) -> Vec<u32> {
        let slots = (from / SLOT) as usize..(to / SLOT) as usize;
        let ran = |t: &Tenant| slots.clone().map(|s| t.by_slot.get(s).copied().unwrap_or(0)).sum::<Ns>();
        self.tenants.iter().map(|t| (ran(t) * 1000 / (to - from)) as u32).collect()
    }

    /// What each tenant was charged so far, and what it really had.
    pub(crate) fn charged(&self) -> Vec<(Ns, Ns)> {
        self.domain.directives().zip(&self.tenants).map(|(d, t)| (d.charged, t.gpu)).collect()
    }

    pub(crate) fn kernels(&self) -> Vec<u64> {
        self.tenants.iter().map(|t| t.done).collect()
    }

    /// The longest time between two kernels of a tenant.
    pub(crate) fn worst_wait(&self, i: usize) -> Ns {
        self.tenants[i].worst_wait
    }
}
