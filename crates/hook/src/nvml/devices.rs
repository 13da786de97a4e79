//! Which cards there are: those of the container, numbered from zero in NVML's order.

use core::ffi::{CStr, c_char};

use super::real;
use super::types::{NOT_FOUND, SUCCESS, nvmlDevice_t, nvmlReturn_t};
use crate::map::Map;
use crate::process::{Member, of_container};

/// What is known of NVML's handles. Nothing when all zero.
pub(crate) struct Cards {
    by_handle: Map<u8>,
}

const FOREIGN: u8 = 255;
const PARENT: u8 = 254;

/// What a card is to the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// Granted, by its place in the container.
    Granted(usize),
    /// Partitioned, and one of its instances is granted.
    Parent,
    /// Somebody else's.
    Foreign,
}

impl Member {
    /// What a card is to the container; nothing if NVML does not know it.
    pub(crate) fn card(self, handle: nvmlDevice_t) -> Option<Card> {
        let kept = self.process.cards.by_handle.get(handle as u64);
        let code = match kept {
            Some(code) => code,
            None => {
                let code = match self.granted(handle)? {
                    Some(device) => u8::try_from(device).unwrap_or(FOREIGN),
                    None if self.has_granted_instance(handle) => PARENT,
                    None => FOREIGN,
                };
                self.process.cards.by_handle.insert(handle as u64, code);
                code
            }
        };
        Some(match code {
            FOREIGN => Card::Foreign,
            PARENT => Card::Parent,
            device => Card::Granted(usize::from(device)),
        })
    }

    fn granted(self, handle: nvmlDevice_t) -> Option<Option<usize>> {
        let mut text = [0 as c_char; 96];
        // SAFETY: room for the text, of the length said.
        if unsafe { real::nvmlDeviceGetUUID()?(handle, text.as_mut_ptr(), text.len() as u32) } != SUCCESS {
            return None;
        }
        // SAFETY: NVML ends it with a zero within the room it was given.
        let uuid = parse(unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes());
        let same = |i: &usize| self.gate().limits(*i).is_some_and(|l| Some(l.uuid) == uuid);
        Some((0..self.gate().devices()).find(same))
    }

    fn has_granted_instance(self, handle: nvmlDevice_t) -> bool {
        let (Some(most), Some(instance)) =
            (real::nvmlDeviceGetMaxMigDeviceCount(), real::nvmlDeviceGetMigDeviceHandleByIndex())
        else {
            return false;
        };
        let mut count = 0;
        // SAFETY: a place for the number.
        if unsafe { most(handle, &mut count) } != SUCCESS {
            return false;
        }
        (0..count).any(|i| {
            let mut child = core::ptr::null_mut();
            // SAFETY: a place for the handle.
            unsafe { instance(handle, i, &mut child) == SUCCESS && matches!(self.granted(child), Some(Some(_))) }
        })
    }

    /// The handles of the container's cards, in NVML's order.
    fn cards(self) -> impl Iterator<Item = (u32, nvmlDevice_t)> {
        let mut count = 0;
        // SAFETY: a place for the number.
        let known = real::nvmlDeviceGetCount_v2().is_some_and(|ask| unsafe { ask(&mut count) } == SUCCESS);
        (0..if known { count } else { 0 })
            .filter_map(move |index| {
                let mut handle = core::ptr::null_mut();
                // SAFETY: a place for the handle.
                (unsafe { real::nvmlDeviceGetHandleByIndex_v2()?(index, &mut handle) } == SUCCESS)
                    .then_some((index, handle))
            })
            .filter(move |(_, handle)| matches!(self.card(*handle), Some(Card::Granted(_) | Card::Parent)))
    }
}

/// `GPU-` or `MIG-` and sixteen bytes in hexadecimal.
fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let digits = text.strip_prefix(b"GPU-").or_else(|| text.strip_prefix(b"MIG-"))?;
    let mut uuid = [0; 16];
    let mut halves = digits.iter().filter(|&&c| c != b'-').map(|&c| (c as char).to_digit(16));
    for byte in &mut uuid {
        *byte = u8::try_from(halves.next()?? * 16 + halves.next()??).ok()?;
    }
    halves.next().is_none().then_some(uuid)
}

/// How many cards there are.
///
/// # Safety
/// `count` is null or where NVML puts the number.
pub(crate) unsafe fn count(count: *mut u32, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    let status = go();
    // SAFETY: by contract.
    if let (Some(member), SUCCESS, Some(count)) = (of_container(), status, unsafe { count.as_mut() }) {
        *count = u32::try_from(member.cards().count()).unwrap_or(0);
    }
    status
}

/// The card of a number.
///
/// # Safety
/// `device` is null or where NVML puts the handle.
pub(crate) unsafe fn by_index(index: u32, device: *mut nvmlDevice_t, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    let Some(member) = of_container() else { return go() };
    match member.cards().nth(index as usize) {
        Some((_, handle)) if !device.is_null() => {
            // SAFETY: by contract.
            unsafe { *device = handle };
            SUCCESS
        }
        // Too high, or null: NVML has its own words for that, unless it knows more cards than the container has.
        Some(_) => go(),
        None => match go() {
            SUCCESS => super::types::INVALID_ARGUMENT,
            status => status,
        },
    }
}

/// A card by its name.
///
/// # Safety
/// `device` is null or where NVML puts the handle.
pub(crate) unsafe fn by_name(device: *mut nvmlDevice_t, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    let status = go();
    // SAFETY: by contract.
    match (of_container(), status, unsafe { device.as_mut() }) {
        (Some(member), SUCCESS, Some(handle)) if member.card(*handle) == Some(Card::Foreign) => {
            *handle = core::ptr::null_mut();
            NOT_FOUND
        }
        _ => status,
    }
}

/// An instance of a partitioned card.
///
/// # Safety
/// `device` is null or where NVML puts the handle.
pub(crate) unsafe fn instance(
    parent: nvmlDevice_t,
    device: *mut nvmlDevice_t,
    go: impl Fn() -> nvmlReturn_t,
) -> nvmlReturn_t {
    if of_container().and_then(|m| m.card(parent)).is_some_and(|card| matches!(card, Card::Granted(_))) {
        return go(); // the whole card, with all its instances
    }
    // SAFETY: by contract.
    unsafe { by_name(device, go) }
}

/// The number of a card.
///
/// # Safety
/// `index` is null or where NVML puts the number.
pub(crate) unsafe fn index(device: nvmlDevice_t, index: *mut u32, go: impl Fn() -> nvmlReturn_t) -> nvmlReturn_t {
    let status = go();
    // SAFETY: by contract.
    if let (Some(member), SUCCESS, Some(index)) = (of_container(), status, unsafe { index.as_mut() })
        && let Some(place) = member.cards().position(|(_, handle)| handle == device)
    {
        *index = u32::try_from(place).unwrap_or(*index);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn identities_are_read_as_nvml_spells_them() {
        let uuid = [0x6e, 0xa1, 0xf1, 0xd2, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0xbe, 0xef];
        assert_eq!(parse(b"GPU-6ea1f1d2-0000-4000-8000-00000000beef"), Some(uuid));
        assert_eq!(parse(b"MIG-6ea1f1d2-0000-4000-8000-00000000beef"), Some(uuid));
        for bad in [
            &b"GPU-"[..],
            b"GPU-6ea1f1d2",
            b"6ea1f1d2-0000-4000-8000-00000000beef",
            b"GPU-6ea1f1d2-0000-4000-8000-00000000beefff",
            b"GPU-xx",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
