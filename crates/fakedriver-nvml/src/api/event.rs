//! Events: sets of them, and waiting. The only event a simulated card has is the XID.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_fakedriver::machine::Unit;

use crate::abi::{Answer, Error, nvmlEventData_t};
use crate::call::{card, handle, machine, put};

const XID_CRITICAL_ERROR: u64 = 8;
const SUPPORTED: u64 = 0xff9f;

/// For each card of each set, how many XIDs it has seen.
type Sets = HashMap<u64, HashMap<usize, u64>>;

/// The last handle given out, and the sets.
static SETS: Mutex<(u64, Option<Sets>)> = Mutex::new((0x7e57_0000, None));

fn with_sets<T>(act: impl FnOnce(&mut u64, &mut Sets) -> T) -> T {
    let mut guard = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    let (next, sets) = &mut *guard;
    act(next, sets.get_or_insert_default())
}

pub(crate) fn nvmlEventSetCreate(set: *mut u64) -> Answer {
    machine()?;
    let id = with_sets(|next, sets| {
        *next += 0x10;
        sets.insert(*next, HashMap::new());
        *next
    });
    put(set, id)
}

pub(crate) fn nvmlEventSetFree(set: u64) -> Answer {
    machine()?;
    with_sets(|_, sets| sets.remove(&set)).map(drop).ok_or(Error::INVALID_ARGUMENT)
}

pub(crate) fn nvmlDeviceGetSupportedEventTypes(device: u64, eventTypes: *mut u64) -> Answer {
    card(device)?;
    put(eventTypes, SUPPORTED)
}

pub(crate) fn nvmlDeviceRegisterEvents(device: u64, eventTypes: u64, set: u64) -> Answer {
    let (machine, card) = card(device)?;
    if eventTypes & !SUPPORTED != 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    let seen = machine.xid_count(card);
    with_sets(|_, sets| {
        let found = sets.get_mut(&set).ok_or(Error::INVALID_ARGUMENT)?;
        if eventTypes & XID_CRITICAL_ERROR != 0 {
            found.insert(card, seen);
        }
        Ok(())
    })
}

pub(crate) fn nvmlEventSetWait(set: u64, data: *mut nvmlEventData_t, timeoutms: u32) -> Answer {
    nvmlEventSetWait_v2(set, data, timeoutms)
}

pub(crate) fn nvmlEventSetWait_v2(set: u64, data: *mut nvmlEventData_t, timeoutms: u32) -> Answer {
    let machine = machine()?;
    let deadline = Instant::now() + Duration::from_millis(timeoutms.into());
    loop {
        let found = with_sets(|_, sets| {
            let cards = sets.get_mut(&set).ok_or(Error::INVALID_ARGUMENT)?;
            Ok(cards.iter_mut().find_map(|(&card, seen)| {
                let xid = machine.xid_after(card, *seen)?;
                *seen = xid.number;
                Some((card, xid.code))
            }))
        })?;
        if let Some((card, code)) = found {
            let none = u32::MAX;
            let answer = nvmlEventData_t {
                device: handle(Unit::card(card)),
                kind: XID_CRITICAL_ERROR,
                data: code,
                gpu_instance: none,
                compute_instance: none,
            };
            return put(data, answer);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::TIMEOUT);
        }
        // Events come from another process through the machine's file, so they are looked for; seldom, for who waits here waits always.
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
