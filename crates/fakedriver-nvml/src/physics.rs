//! What a card would measure of itself, from how busy it is: utilisation, power, temperature, clocks.

use divvy_fakedriver::machine::{BUCKET, Machine, Setting, Unit};
use divvy_fakedriver::sys;

/// Percent of the last second in which a unit was busy.
pub(crate) fn utilization(machine: &Machine, unit: Unit) -> u32 {
    let now = sys::now();
    let past = (1..=5).map(|i| machine.busy_around(unit, now.saturating_sub(i * BUCKET))).sum::<u64>();
    percent(past, 5 * BUCKET)
}

/// Percent of the card's units that were busy, weighed by their multiprocessors.
pub(crate) fn card_utilization(machine: &Machine, card: usize) -> u32 {
    let units: Vec<Unit> = machine.units().into_iter().filter(|u| u.card_index() == card).collect();
    let whole: u32 = machine.spec.cards[card].sms;
    let busy: u32 = units.iter().map(|&u| utilization(machine, u) * machine.sms(u)).sum();
    (busy / whole.max(1)).min(100)
}

pub(crate) fn percent(part: u64, whole: u64) -> u32 {
    u32::try_from((part * 100 + whole / 2) / whole.max(1)).unwrap_or(100).min(100)
}

/// Milliwatts: a sixth of the limit at rest, the limit when busy.
pub(crate) fn power(machine: &Machine, card: usize) -> u32 {
    let limit = power_limit(machine, card);
    let rest = machine.spec.cards[card].model.power * 1000 / 9;
    rest + (limit.saturating_sub(rest)) / 100 * card_utilization(machine, card)
}

pub(crate) fn power_limit(machine: &Machine, card: usize) -> u32 {
    let set = machine.setting(card, Setting::PowerLimit).and_then(|mw| u32::try_from(mw).ok());
    set.unwrap_or(machine.spec.cards[card].model.power * 1000)
}

/// Degrees: 30 at rest, 65 when busy, or what somebody set.
pub(crate) fn temperature(machine: &Machine, card: usize) -> u32 {
    let set = machine.setting(card, Setting::Temperature).and_then(|t| u32::try_from(t).ok());
    set.unwrap_or_else(|| 30 + 35 * card_utilization(machine, card) / 100)
}

/// Millijoules since the machine exists: rest power all the time, the rest of it while busy.
pub(crate) fn energy(machine: &Machine, card: usize) -> u64 {
    let model = machine.spec.cards[card].model;
    let (rest, full) = (u64::from(model.power) * 1000 / 9, u64::from(model.power) * 1000);
    let busy: u64 =
        machine.units().into_iter().filter(|u| u.card_index() == card).map(|u| machine.busy(u)).max().unwrap_or(0);
    (sys::now() / 1_000_000) * rest / 1000 + (busy / 1_000_000) * (full - rest) / 1000
}

/// MHz of a clock domain: 0 graphics, 1 multiprocessors, 2 memory, 3 video.
pub(crate) fn clock(machine: &Machine, card: usize, domain: u32) -> Option<u32> {
    let model = machine.spec.cards[card].model;
    let locked = machine.setting(card, Setting::LockedClocks).map(|v| (v & 0xffff_ffff) as u32);
    let top = locked.unwrap_or(model.sm_clock).min(model.sm_clock);
    let busy = card_utilization(machine, card) > 0;
    match domain {
        0 | 1 => Some(if busy { top } else { 345.min(top) }),
        2 => Some(model.memory_clock),
        3 => Some(if busy { top * 4 / 5 } else { 765 }),
        _ => None,
    }
}

pub(crate) fn max_clock(machine: &Machine, card: usize, domain: u32) -> Option<u32> {
    let model = machine.spec.cards[card].model;
    match domain {
        0 | 1 => Some(model.sm_clock),
        2 => Some(model.memory_clock),
        3 => Some(model.sm_clock * 4 / 5),
        _ => None,
    }
}
