//! What surrounds every call: whether NVML is initialized, faults somebody asked for, panics. And how handles, arguments and
//! answers are read and written.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use divvy_fakedriver::machine::{Machine, Unit};

use crate::SYMBOLS;
use crate::abi::{Answer, Error};

static MACHINE: OnceLock<Machine> = OnceLock::new();
/// How often it was initialized and not yet shut down.
static USERS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn call(index: usize, run: impl FnOnce() -> Answer) -> u32 {
    if let Some(fault) = MACHINE.get().and_then(|m| m.fault(SYMBOLS[index])) {
        std::thread::sleep(std::time::Duration::from_nanos(fault.delay));
        if fault.answer != 0 {
            return fault.answer;
        }
    }
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => {
            eprintln!("fake driver: {} failed in itself", SYMBOLS[index]);
            Error::UNKNOWN.0
        }
    }
}

pub(crate) fn not_supported() -> Answer {
    machine()?;
    Err(Error::NOT_SUPPORTED)
}

/// `nvmlInit`.
pub(crate) fn init() -> Answer {
    if MACHINE.get().is_none() {
        match Machine::from_env() {
            Ok(machine) => drop(MACHINE.set(machine)),
            Err(why) => {
                eprintln!("fake driver: {why}");
                return Err(Error::DRIVER_NOT_LOADED);
            }
        }
    }
    USERS.fetch_add(1, SeqCst);
    Ok(())
}

/// `nvmlShutdown`.
pub(crate) fn shutdown() -> Answer {
    let less = USERS.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    less.map(drop).map_err(|_| Error::UNINITIALIZED)
}

/// The machine, if NVML is initialized.
pub(crate) fn machine() -> Result<&'static Machine, Error> {
    if USERS.load(SeqCst) == 0 { Err(Error::UNINITIALIZED) } else { MACHINE.get().ok_or(Error::UNINITIALIZED) }
}

const HANDLES: u64 = 0x7e56_0000_0000;
const KINDS: [u64; 3] = [0, 0x1_0000, 0x2_0000];

/// The handle of a device, whole card or MIG instance.
pub(crate) fn handle(unit: Unit) -> u64 {
    let instance = unit.instance_index().map_or(0, |i| i as u64 + 1);
    HANDLES + (unit.card_index() as u64 * 8 + instance) * 0x40
}

/// The handle of the GPU instance (1) or compute instance (2) under a MIG device.
pub(crate) fn instance_handle(unit: Unit, kind: usize) -> u64 {
    handle(unit) + KINDS[kind]
}

fn unit_of(handle: u64, kind: usize) -> Option<Unit> {
    let number = handle.checked_sub(HANDLES + KINDS[kind])?;
    if number % 0x40 != 0 || number / 0x40 >= 128 {
        return None;
    }
    let (card, instance) = ((number / 0x40 / 8) as usize, (number / 0x40 % 8) as usize);
    Some(if instance == 0 { Unit::card(card) } else { Unit::instance(card, instance - 1) })
}

/// The machine and the device a handle means, which must be on the bus.
pub(crate) fn device(handle: u64) -> Result<(&'static Machine, Unit), Error> {
    let (machine, unit) = device_even_lost(handle)?;
    if machine.is_lost(unit.card_index()) { Err(Error::GPU_IS_LOST) } else { Ok((machine, unit)) }
}

/// The same, on the bus or not.
pub(crate) fn device_even_lost(handle: u64) -> Result<(&'static Machine, Unit), Error> {
    let machine = machine()?;
    let unit = unit_of(handle, 0).filter(|&u| exists(machine, u)).ok_or(Error::INVALID_ARGUMENT)?;
    Ok((machine, unit))
}

/// The machine and the MIG instance a GPU instance's or compute instance's handle means.
pub(crate) fn instance(handle: u64, kind: usize) -> Result<(&'static Machine, Unit), Error> {
    let machine = machine()?;
    let unit = unit_of(handle, kind).filter(|&u| exists(machine, u) && u.instance_index().is_some());
    Ok((machine, unit.ok_or(Error::INVALID_ARGUMENT)?))
}

/// The same as [`device`], but only whole cards.
pub(crate) fn card(handle: u64) -> Result<(&'static Machine, usize), Error> {
    let (machine, unit) = device(handle)?;
    if unit.instance_index().is_some() { Err(Error::INVALID_ARGUMENT) } else { Ok((machine, unit.card_index())) }
}

fn exists(machine: &Machine, unit: Unit) -> bool {
    unit.card_index() < machine.spec.cards.len()
        && (unit.instance_index().is_none() || machine.instance(unit).is_some())
}

// NVML's contract with its callers: a pointer argument is null or valid for what the function does with it. These helpers are
// where we rely on it; null is answered as an error, never followed.

/// Writes an answer that the caller must have a place for.
pub(crate) fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: not null, hence valid by the contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Reads an argument.
pub(crate) fn get<T: Copy>(place: *const T) -> Result<T, Error> {
    if place.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: not null, hence valid by the contract.
    Ok(unsafe { place.read() })
}

/// Reads a C string.
pub(crate) fn text(place: *const c_char) -> Result<String, Error> {
    if place.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: not null, hence a C string by the contract.
    Ok(unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned())
}

/// Writes a C string into a buffer of the caller's, which must be large enough.
pub(crate) fn put_text(place: *mut c_char, room: u32, text: &str) -> Answer {
    if place.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    if text.len() >= room as usize {
        return Err(Error::INSUFFICIENT_SIZE);
    }
    // SAFETY: the buffer has `room` bytes by the contract.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list by NVML's rule: the caller says how many it has room for and is told how many there are; with too little
/// room (or none at all) it gets the count and an error, and nothing else is written.
pub(crate) fn put_list<T: Copy>(count: *mut u32, place: *mut T, items: &[T]) -> Answer {
    let room = get(count)? as usize;
    put(count, u32::try_from(items.len()).unwrap_or(u32::MAX))?;
    if items.is_empty() {
        return Ok(());
    }
    if room < items.len() {
        return Err(Error::INSUFFICIENT_SIZE);
    }
    if place.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: room for the items by the contract, checked above.
    unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), place, items.len()) };
    Ok(())
}
