//! What a node's leftovers are worth: as much as they can still host when combined well. The default policy places where least is lost.
//!
//! Two parts of one card that add up to it are worth more than two that do not; a free card without CPU beside it is worth nothing.
//! Prices come from the mix of requests ([`Mix`]), by a linear program, now and then and off the path of decisions. A
//! card's remainder is what is left of both its time and its memory: a pod that wants much of one beside a pod that wants
//! much of the other costs little.

mod demand;
mod mix;
mod pack;
mod prices;
mod several;
mod supply;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::Book;
use crate::model::ask::ModelRule;
use crate::model::device::DeviceKind;
use crate::model::id::Model;

pub use mix::Mix;
pub(crate) use supply::Leftover;

use demand::{Demand, Reserved};
use pack::{Asked, Pack};
use prices::WHOLE;
use several::{Room, Several};
use supply::Supply;

/// What the loss of value on the touched devices counts beside the node's as a whole.
const TOUCHED: f32 = 3.0;
/// Losses are compared in steps of so much: smaller differences are noise, and ties have better judges.
const STEP: f32 = 0.020;
/// Requests for several devices are reserved room with the first of these weights, those that name models with the second.
const SEVERAL: f64 = 0.3;
const NAMED: f64 = 0.5;
/// Where pods come and go a remainder is also worth what whoever comes next finds in it, beside what it can be filled with in the long
/// run: holes are as large as whoever left, and are not made to measure. The part of this in a full turnover.
const NEXT: f64 = 0.5;
/// Most wholly free devices of one node that are told apart.
const MANY: usize = 16;

/// What a remainder can be filled with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Filling {
    /// Its value; a whole device is worth 1.
    value: f32,
    /// CPU that filling it needs, in thousandths of a core.
    cpu: f32,
    /// Main memory that filling it needs, in MiB.
    memory: f32,
}

/// What requests that are particular can use of something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usable {
    /// Its value, weighted by how scarce it is.
    value: f32,
    /// CPU that using it needs, in thousandths of a core.
    cpu: f32,
}

impl Usable {
    fn plus(self, other: Usable) -> Usable {
        Usable { value: self.value + other.value, cpu: self.cpu + other.cpu }
    }

    /// What so much CPU lets be used of it.
    fn with(self, cpu: u64) -> f32 {
        let cpu = cpu as f32;
        if self.cpu > cpu { self.value * cpu / self.cpu } else { self.value }
    }
}

/// The tables by which leftovers are valued.
#[derive(Clone, Debug, PartialEq)]
pub struct Worth {
    /// By what is left of a device, in thousandths.
    fillings: Vec<Filling>,
    /// Per model and remainder: what requests that name the model can use of it, weighted by how scarce that is.
    named: Vec<Vec<Usable>>,
    /// What requests for several devices can use of those that are wholly free.
    several: Several,
    /// What full nodes are preferred by.
    pack: Pack,
}

/// What is left of a node, in the terms of [`Worth`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rest {
    pub(crate) cpu: u64,
    pub(crate) memory: u64,
    /// What is left of each device, in thousandths; nothing of one that takes no new work.
    pub(crate) left: Vec<u16>,
    /// The model of each device.
    models: Arc<[u16]>,
    /// Wholly free devices.
    pub(crate) free: u16,
    /// All its devices are of one model.
    pub(crate) uniform: bool,
    value: f32,
    needs_cpu: f32,
    needs_memory: f32,
    named: Usable,
    /// What is left of all devices together.
    sum: f32,
    /// All it is worth, with the CPU and memory there are.
    whole: f32,
}

/// How good a choice is: more is better. Whole steps of lost worth, then the tightest device, then the fewest free ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rating(pub(crate) i32);

/// One step of lost worth in a [`Rating`].
pub(crate) const STEP_BITS: u32 = 15;
/// Steps by which a model later in the pod's list falls behind: more than any loss.
const PREFERENCE: i32 = 4096;

impl Rating {
    fn of(loss: f32, tight: u16, free: u16, preference: usize) -> Rating {
        // Rounded by hand: `round` is a call on machines that are not asked whether they can do it.
        let steps = (loss / STEP + 0.5f32.copysign(loss)) as i32 + PREFERENCE * preference.min(6) as i32;
        let steps = steps.clamp(-(1 << STEP_BITS) + 1, (1 << STEP_BITS) - 1);
        Rating(-((steps << STEP_BITS) + (i32::from(tight.min(1000)) << 5) + i32::from(free.min(31))))
    }

    /// As a number of steps, for those who add wishes to it.
    pub(crate) fn steps(self) -> f64 {
        f64::from(self.0) / f64::from(1 << STEP_BITS)
    }
}

impl Default for Worth {
    /// Before anything is known: a device is worth what fits, and filling one takes eight cores.
    fn default() -> Worth {
        let fillings = fillings(&BTreeMap::from([(WHOLE, [1.0, 8000.0, 30_000.0])]));
        Worth { fillings, named: Vec::new(), several: Several::default(), pack: Pack::default() }
    }
}

/// Values of all remainders, from how often each size is demanded and the CPU and memory that go with it.
fn fillings(demand: &BTreeMap<usize, [f64; 3]>) -> Vec<Filling> {
    let sizes: Vec<usize> = demand.keys().copied().collect();
    let counts: Vec<f64> = demand.values().map(|d| d[0]).collect();
    let prices = prices::prices(&sizes, &counts);
    let mut best = vec![(0.0f64, 0.0f64, 0.0f64); WHOLE + 1];
    for room in 1..=WHOLE {
        best[room] = best[room - 1];
        for ((size, [count, cpu, memory]), price) in
            demand.iter().zip(&prices).take_while(|((size, _), _)| **size <= room)
        {
            let before = best[room - size];
            if before.0 + price > best[room].0 + 1e-12 {
                best[room] = (before.0 + price, before.1 + cpu / count, before.2 + memory / count);
            }
        }
    }
    let narrow = |(value, cpu, memory): &(f64, f64, f64)| Filling {
        value: *value as f32,
        cpu: *cpu as f32,
        memory: *memory as f32,
    };
    best.iter().map(narrow).collect()
}

impl Worth {
    /// The tables for this mix, on what is left of the nodes of a cluster with these models.
    pub(crate) fn of<'a>(mix: &Mix, models: &[Model], nodes: impl Iterator<Item = Leftover<'a>>) -> Worth {
        let supply = Supply::of(models.len(), nodes);
        let accepts = |rule: &Arc<ModelRule>| models.iter().map(|m| rule.preference(m.as_str()).is_some()).collect();
        let accepts: Vec<Vec<bool>> = mix.rules.list().iter().map(accepts).collect();
        let demand = Demand::of(mix, supply.typical_memory(), &accepts);
        let mut worth = Worth::default();
        if !demand.by_size.is_empty() {
            worth.fillings = fillings(&demand.by_size);
        }
        let turnover = f64::from(mix.turnover());
        let asked_cpu: f64 = mix.counts.iter().map(|(shape, count)| *count as f64 * shape.cpu as f64).sum();
        let asked = Asked {
            cpu: (asked_cpu, supply.cpu),
            cpu_beside_devices: (demand.cpu_beside_devices(), supply.cpu_beside_devices),
            devices: (demand.devices(), supply.devices),
        };
        worth.pack = Pack::of(turnover, &asked);
        worth.expect_next(&demand.pods, NEXT * turnover);
        worth.named = vec![vec![Usable::default(); WHOLE + 1]; models.len()];
        let left = supply.left();
        for (class, (share, cpu)) in demand.reserved {
            let accepted = &accepts[class.rule as usize];
            worth.reserve(class, share, cpu / share, left, accepted, &supply.remainders);
        }
        worth.several = Several::of(&demand.several, &supply.rooms, left);
        // So far the CPU was weighted by value.
        let settle =
            |usable: &mut Usable| usable.cpu = if usable.value > 0.0 { usable.cpu / usable.value } else { 0.0 };
        worth.named.iter_mut().flatten().for_each(settle);
        worth
    }

    /// Values remainders in part by the pods that find room in them as they are.
    fn expect_next(&mut self, sizes: &BTreeMap<usize, f64>, part: f64) {
        let all: f64 = sizes.values().sum();
        if part <= 0.0 || all <= 0.0 {
            return;
        }
        let mut fitting = 0.0;
        for (r, filling) in self.fillings.iter_mut().enumerate() {
            fitting += sizes.get(&r).copied().unwrap_or(0.0) / all;
            let next = r as f64 / WHOLE as f64 * fitting;
            filling.value = ((1.0 - part) * f64::from(filling.value) + part * next) as f32;
        }
    }

    /// Adds what leftovers are worth to a class of requests: its share of the pods, times how scarce what it can use is.
    fn reserve(
        &mut self,
        class: Reserved,
        share: f64,
        cpu: f64,
        left: f64,
        accepted: &[bool],
        remainders: &[Vec<u32>],
    ) {
        // How many of the class find room in a remainder.
        let fit = |r: usize| (r / class.size) as f64;
        let one = class.size as f64 / 1000.0;
        let own = || (0..accepted.len()).filter(|model| accepted[*model]);
        let pods: f64 = own().flat_map(|m| remainders[m].iter().enumerate()).map(|(r, n)| fit(r) * f64::from(*n)).sum();
        let weight = NAMED * share * left / (pods * one).max(1.0);
        for model in own() {
            for (r, usable) in self.named[model].iter_mut().enumerate() {
                let value = (weight * one * fit(r)) as f32;
                *usable = usable.plus(Usable { value, cpu: value * (cpu * fit(r)) as f32 });
            }
        }
    }

    fn filling(&self, left: u16) -> Filling {
        self.fillings[usize::from(left).min(WHOLE)]
    }

    fn named(&self, model: u16, left: u16) -> Usable {
        self.named.get(usize::from(model)).map_or(Usable::default(), |by| by[usize::from(left).min(WHOLE)])
    }

    /// What a node is worth to requests for several devices with so much CPU, when so many of its free devices are `gone`, which are
    /// among `taken`.
    fn several(&self, rest: &Rest, cpu: u64, taken: &[(usize, u16)], gone: usize) -> f32 {
        if rest.free == 0 {
            return 0.0;
        }
        if rest.uniform {
            return self.several.at(rest.models[0], Room { free: usize::from(rest.free) - gone, cpu });
        }
        let is_gone = |d: usize| taken.iter().any(|(device, after)| *device == d && usize::from(*after) < WHOLE);
        let mut sum = 0.0;
        for (first, model) in rest.models.iter().enumerate() {
            if !rest.models[..first].contains(model) {
                let own = |d: &usize| rest.models[*d] == *model && usize::from(rest.left[*d]) == WHOLE && !is_gone(*d);
                let free = (first..rest.left.len()).filter(own).count();
                sum += self.several.at(*model, Room { free, cpu });
            }
        }
        sum
    }

    fn shared(&self, value: f32, cpu: f32, memory: f32, rest: &Rest, less: (u64, u64)) -> f32 {
        let have_cpu = rest.cpu.saturating_sub(less.0) as f32;
        let have_memory = rest.memory.saturating_sub(less.1) as f32;
        let by_cpu = if cpu > have_cpu { have_cpu / cpu } else { 1.0 };
        let by_memory = if memory > have_memory { have_memory / memory } else { 1.0 };
        value * by_cpu.min(by_memory)
    }

    /// Values what is left of a node: call it whenever that has changed.
    pub(crate) fn value(&self, rest: &mut Rest) {
        let (mut value, mut cpu, mut memory, mut named) = (0.0, 0.0, 0.0, Usable::default());
        for (left, model) in rest.left.iter().zip(&*rest.models) {
            let filling = self.filling(*left);
            value += filling.value;
            cpu += filling.cpu;
            memory += filling.memory;
            named = named.plus(self.named(*model, *left));
        }
        (rest.value, rest.needs_cpu, rest.needs_memory, rest.named) = (value, cpu, memory, named);
        rest.free = rest.left.iter().filter(|left| usize::from(**left) == WHOLE).count() as u16;
        rest.sum = rest.left.iter().map(|left| f32::from(*left)).sum();
        let several = self.several(rest, rest.cpu, &[], 0);
        rest.whole = self.shared(value, cpu, memory, rest, (0, 0)) + named.with(rest.cpu) + several;
    }

    /// How good it is to take so much CPU and memory of a node, and to leave so much of these devices. `preference` is the place of
    /// the least wanted of them in the pod's list of models.
    pub(crate) fn rate(&self, rest: &Rest, cpu: u64, memory: u64, taken: &[(usize, u16)], preference: usize) -> Rating {
        let (mut value, mut needs_cpu, mut needs_memory) = (rest.value, rest.needs_cpu, rest.needs_memory);
        let (mut named, mut touched, mut sum) = (rest.named, 0.0, rest.sum);
        let mut gone = 0;
        for (device, after) in taken {
            let left = rest.left[*device];
            let (had, has) = (self.filling(left), self.filling(*after));
            value += has.value - had.value;
            needs_cpu += has.cpu - had.cpu;
            needs_memory += has.memory - had.memory;
            touched += had.value - has.value;
            sum -= f32::from(left.saturating_sub(*after));
            let (could, can) = (self.named(rest.models[*device], left), self.named(rest.models[*device], *after));
            named = Usable { value: named.value + can.value - could.value, cpu: named.cpu + can.cpu - could.cpu };
            gone += usize::from(usize::from(left) == WHOLE && *after < left);
        }
        let cpu_left = rest.cpu.saturating_sub(cpu);
        let several = self.several(rest, cpu_left, taken, gone);
        let then = self.shared(value, needs_cpu, needs_memory, rest, (cpu, memory)) + named.with(cpu_left) + several;
        let loss = rest.whole - then + TOUCHED * touched + self.pack.loss(!taken.is_empty(), cpu_left, sum);
        // A part of one device goes where it fits most tightly; for whole ones there is no such thing.
        let tight = match taken {
            [(device, after)] if usize::from(rest.left[*device].saturating_sub(*after)) < WHOLE => rest.left[*device],
            _ => 0,
        };
        Rating::of(loss, tight, rest.free, preference)
    }
}

/// What is left of a device, in thousandths: of whichever of time and memory there is less; nothing where no new work may come.
pub(crate) fn left(book: &Book) -> u16 {
    if book.open { book.left() as u16 } else { 0 }
}

impl Rest {
    /// What is left of a node, and what that is worth.
    pub(crate) fn of(node: &Leftover<'_>, worth: &Worth) -> Rest {
        let mut rest = Rest::default();
        rest.refresh(node, worth);
        rest
    }

    /// Something happened on the node, or there is a new worth.
    pub(crate) fn refresh(&mut self, node: &Leftover<'_>, worth: &Worth) {
        self.cpu = node.total.cpu.saturating_sub(node.used.cpu);
        self.memory = node.total.memory.saturating_sub(node.used.memory).0 >> 20;
        // Places stay those of the inventory; what only goes with others has no worth of its own.
        let devices = node.books.iter().zip(node.devices);
        self.left.clear();
        self.left.extend(devices.map(|(book, device)| if device.kind == DeviceKind::Nic { 0 } else { left(book) }));
        if self.models.is_empty() || !Arc::ptr_eq(&self.models, node.models) {
            self.models = node.models.clone();
            self.uniform = self.models.windows(2).all(|pair| pair[0] == pair[1]);
        }
        worth.value(self);
    }
}

#[cfg(test)]
mod tests;
