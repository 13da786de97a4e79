//! Field values: many small numbers by number.

use divvy_fakedriver::machine::Machine;
use divvy_fakedriver::sys;

use crate::abi::{Answer, Error, nvmlFieldValue_t};
use crate::api::health::{ecc_errors, ecc_pending, power_range};
use crate::call::{card, get, put};
use crate::physics;

const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;

/// Type and value of a field.
fn value(machine: &Machine, card: usize, field: u32) -> Option<(u32, u64)> {
    let model = machine.spec.cards[card].model;
    let small = |v: u32| Some((UNSIGNED_INT, u64::from(v)));
    let large = |v: u64| Some((UNSIGNED_LONG_LONG, v));
    let (low, high) = power_range(machine, card);
    match field {
        1 => small(1),
        2 => small(ecc_pending(machine, card)),
        3 | 5 | 11 | 22 => large(ecc_errors(machine, card, 0)),
        4 | 6 | 12 | 23 => large(ecc_errors(machine, card, 1)),
        7..=10 | 13..=21 | 24..=28 => large(0),
        74..=81 => large(0),
        82 => small(physics::temperature(machine, card) + 5),
        83 => large(physics::energy(machine, card)),
        91 if model.nvlinks > 0 => small(model.nvlinks),
        90 if model.nvlinks > 0 => small(26_562),
        94 | 95 => small(0),
        138..=141 if model.nvlinks > 0 => large(0),
        142..=145 => small(0),
        147 if model.nvlinks > 0 => small(0),
        161..=163 if model.nvlinks > 0 => large(0),
        164 if model.nvlinks > 0 => small(26_562),
        165 if model.nvlinks > 0 => small(1),
        173..=183 => small(0),
        184 => small(u32::from(model.capability.0 >= 9)),
        185 | 186 => small(physics::power(machine, card)),
        187 => small(low),
        188 => small(high),
        189 => small(model.power * 1000),
        190 | 192 => small(physics::power_limit(machine, card)),
        191 => large(physics::energy(machine, card)),
        193 => small(0xffff_fffb),
        194 => small(0xffff_fffe),
        195 | 196 => small(0),
        197 | 198 => large(0),
        199 => small(1),
        226 | 227 | 230 => small(0),
        _ => None,
    }
}

pub(crate) fn nvmlDeviceGetFieldValues(device: u64, valuesCount: i32, values: *mut nvmlFieldValue_t) -> Answer {
    let (machine, card) = card(device)?;
    if valuesCount <= 0 {
        return Err(Error::INVALID_ARGUMENT);
    }
    for i in 0..valuesCount as usize {
        // SAFETY: the caller has that many fields.
        let place = unsafe { values.add(i) };
        let mut field = get(place)?;
        field.time = (sys::wall_clock() / 1000).cast_signed();
        field.latency = 1;
        match value(machine, card, field.field) {
            Some((kind, value)) => (field.kind, field.value, field.outcome) = (kind, value, 0),
            None => field.outcome = Error::INVALID_ARGUMENT.0,
        }
        put(place, field)?;
    }
    Ok(())
}

pub(crate) fn nvmlDeviceClearFieldValues(device: u64, valuesCount: i32, values: *mut nvmlFieldValue_t) -> Answer {
    nvmlDeviceGetFieldValues(device, valuesCount, values)
}
