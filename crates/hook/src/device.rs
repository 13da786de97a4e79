//! Which device of the container a device of the driver's is.
//!
//! The driver numbers what it sees as `CUDA_VISIBLE_DEVICES` has it, in any order; the container's devices are known by their UUIDs.
//! Every answer is kept, so that it costs one question to the driver at most.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::cuda::real;
use crate::cuda::types::{CUdevice, CUstream, CUuuid, SUCCESS};
use crate::map::Map;
use crate::process::Member;

const MOST: usize = 64;
/// Nobody asked yet.
const UNASKED: u8 = 0;
/// No device of the container.
const FOREIGN: u8 = 255;
/// The bits of a context's handle.
const CONTEXT: u64 = (1 << 56) - 1;

/// What is known of the driver's devices and contexts. Nothing when all zero.
pub(crate) struct Devices {
    /// The context that was asked about last, with its answer in the highest byte: a program has one, mostly.
    last: AtomicU64,
    by_ordinal: [AtomicU8; MOST],
    by_context: Map<u8>,
}

/// A device of the container, by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Granted.
    Granted(usize),
    /// Visible to the driver, and not granted.
    Foreign,
}

impl Member {
    /// The place of a device of the driver's; nothing if the driver does not know it either.
    pub(crate) fn place(self, ordinal: CUdevice) -> Option<Place> {
        let kept = usize::try_from(ordinal).ok().and_then(|i| self.process.devices.by_ordinal.get(i))?;
        match kept.load(Ordering::Relaxed) {
            UNASKED => {
                let place = self.ask_place(ordinal)?;
                kept.store(encode(place), Ordering::Relaxed);
                Some(place)
            }
            code => Some(decode(code)),
        }
    }

    #[cold]
    fn ask_place(self, ordinal: CUdevice) -> Option<Place> {
        let mut uuid = CUuuid::default();
        // The second form tells the instances of a partitioned card apart; drivers before 11.4 have the first alone.
        let asked = match (real::cuDeviceGetUuid_v2(), real::cuDeviceGetUuid()) {
            // SAFETY: a place for the UUID.
            (Some(ask), _) | (None, Some(ask)) => unsafe { ask(&mut uuid, ordinal) },
            (None, None) => return None,
        };
        if asked != SUCCESS {
            return None;
        }
        let granted = (0..self.gate().devices()).find(|&i| self.gate().limits(i).is_some_and(|l| l.uuid == uuid.bytes));
        Some(granted.map_or(Place::Foreign, Place::Granted))
    }

    /// The calling thread's context and its device; nothing without a context.
    #[inline]
    pub(crate) fn current(self) -> Option<(u64, Place)> {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: a place for the context.
        if unsafe { real::cuCtxGetCurrent()?(&mut context) } != SUCCESS || context.is_null() {
            return None;
        }
        let context = context as u64;
        let last = self.process.devices.last.load(Ordering::Relaxed);
        if last & CONTEXT == context {
            return Some((context, decode((last >> 56) as u8)));
        }
        self.current_but_not_last(context)
    }

    fn current_but_not_last(self, context: u64) -> Option<(u64, Place)> {
        let (_, place) = match self.process.devices.by_context.get(context) {
            Some(code) => (context, decode(code)),
            None => self.ask_current(context)?,
        };
        if context <= CONTEXT {
            self.process.devices.last.store(context | (u64::from(encode(place)) << 56), Ordering::Relaxed);
        }
        Some((context, place))
    }

    #[cold]
    fn ask_current(self, context: u64) -> Option<(u64, Place)> {
        let mut ordinal = 0;
        // SAFETY: a place for the ordinal.
        if unsafe { real::cuCtxGetDevice()?(&mut ordinal) } != SUCCESS {
            return None;
        }
        let place = self.place(ordinal)?;
        self.process.devices.by_context.insert(context, encode(place));
        Some((context, place))
    }

    /// The driver's number of a device of the container.
    pub(crate) fn ordinal(self, device: usize) -> Option<CUdevice> {
        let wanted = Some(Place::Granted(device));
        let kept =
            self.process.devices.by_ordinal.iter().position(|c| Some(decode(c.load(Ordering::Relaxed))) == wanted);
        match kept {
            Some(ordinal) => CUdevice::try_from(ordinal).ok(),
            None => (0..MOST as CUdevice).find(|&ordinal| self.place(ordinal) == wanted),
        }
    }

    /// The device a stream of the program's belongs to.
    pub(crate) fn stream_place(self, stream: CUstream) -> Option<Place> {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: a stream of the caller's, and a place for its context.
        if unsafe { real::cuStreamGetCtx()?(stream, &mut context) } != SUCCESS {
            return None;
        }
        self.process.devices.by_context.get(context as u64).map(decode)
    }

    /// A context is gone; its handle may come back for another device.
    pub(crate) fn forget_context(self, context: u64) {
        self.process.devices.by_context.remove(context);
        self.process.devices.last.store(0, Ordering::Relaxed);
    }
}

fn encode(place: Place) -> u8 {
    match place {
        Place::Granted(index) => u8::try_from(index + 1).unwrap_or(FOREIGN),
        Place::Foreign => FOREIGN,
    }
}

fn decode(code: u8) -> Place {
    match code {
        UNASKED | FOREIGN => Place::Foreign,
        code => Place::Granted(usize::from(code) - 1),
    }
}
