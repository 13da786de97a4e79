//! The shared pages as a context of the driver's knows them.
//!
//! Each context registers mappings of its own: a registration dies with the context that made it, and the driver does not take the
//! same addresses twice. The gate page is registered read-only, which also keeps the GPU from writing it; where a card refuses that
//! the agent may have mounted it writable, and then we watch over it ourselves.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use divvy_shm::GatePage;
use divvy_shm::frame::EventKind;

use crate::cuda::real;
use crate::cuda::types::SUCCESS;
use crate::files;
use crate::gate::watchdog;
use crate::hooks::stream::relaxed;
use crate::lock::Lock;
use crate::process::Member;

const PORTABLE: u32 = 1;
const DEVICE_MAP: u32 = 2;
const READ_ONLY: u32 = 8;
/// Contexts of a process that are remembered at once; one more uses the gate on the CPU.
const MOST: usize = 32;

/// Where the GPU finds the words of a device.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    /// The gate words.
    pub(crate) gates: u64,
    /// The completion words of the context's device.
    pub(crate) completions: u64,
}

/// The registered pages of a process. None when all zero.
pub(crate) struct Pages {
    making: Lock<()>,
    entries: [Entry; MOST],
}

struct Entry {
    context: AtomicU64,
    /// 0 for a context in which it failed.
    gates: AtomicU64,
    completions: AtomicU64,
    length: AtomicU64,
}

impl Pages {
    /// The words of `device` as the current context, `context`, knows them; registers them at the first call. `None` where that
    /// cannot be done: the gate is on the CPU then.
    pub(crate) fn of(&self, member: Member, context: u64, device: usize) -> Option<Registered> {
        let _one_at_a_time = self.making.lock();
        let entry = self.entries.iter().find(|e| e.context.load(Ordering::Acquire) == context);
        let entry = match entry {
            Some(entry) => entry,
            None => {
                let free = self.entries.iter().find(|e| e.context.load(Ordering::Acquire) == 0)?;
                let mut made = None;
                relaxed(member, || made = register(member, device));
                let (gates, completions, length) = made.unwrap_or((0, 0, 0));
                free.gates.store(gates, Ordering::Relaxed);
                free.completions.store(completions, Ordering::Relaxed);
                free.length.store(length, Ordering::Relaxed);
                free.context.store(context, Ordering::Release);
                free
            }
        };
        let gates = entry.gates.load(Ordering::Relaxed);
        (gates != 0).then(|| Registered { gates, completions: entry.completions.load(Ordering::Relaxed) })
    }

    /// A context is gone, and its registrations with it. Its mappings stay: they are small, and the handle may come back at once.
    pub(crate) fn forget(&self, context: u64) {
        let _one_at_a_time = self.making.lock();
        for entry in self.entries.iter().filter(|e| e.context.load(Ordering::Acquire) == context) {
            entry.gates.store(0, Ordering::Relaxed);
            entry.context.store(0, Ordering::Release);
        }
    }

    /// Whether a range of GPU addresses touches any of them.
    pub(crate) fn hold(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.entries.iter().filter(|e| e.context.load(Ordering::Acquire) != 0).any(|e| {
            let length = e.length.load(Ordering::Relaxed);
            [&e.gates, &e.completions].iter().any(|start| {
                let start = start.load(Ordering::Relaxed);
                start != 0 && address < start.saturating_add(length) && start < end
            })
        })
    }
}

/// Maps and registers both pages in the current context: where the GPU finds them, and how long they are.
fn register(member: Member, device: usize) -> Option<(u64, u64, u64)> {
    let length = page_length();
    let ledger = files::ledger_again().ok()?;
    // SAFETY: just mapped whole, and never unmapped.
    let (completions, _) = unsafe { &*ledger }.completions_area(device)?;
    let completions = known_to_gpu(completions, length, DEVICE_MAP | PORTABLE)?;
    let gate = files::gate_again(false).ok()?;
    // SAFETY: as above.
    let (gates, _) = unsafe { &*gate }.gates_area();
    if let Some(gates) = known_to_gpu(gates, length, DEVICE_MAP | READ_ONLY) {
        return Some((gates, completions, length as u64));
    }
    let (_, config) = member.gate().config();
    if !config.gate_writable {
        return None;
    }
    let gate = files::gate_again(true).ok()?;
    // SAFETY: as above.
    let page: &'static GatePage = unsafe { &*gate };
    let gates = known_to_gpu(page.gates_area().0, length, DEVICE_MAP)?;
    member.tell(EventKind::GateNotReadOnly, device, 0, 0);
    watchdog::start(member, page);
    Some((gates, completions, length as u64))
}

fn known_to_gpu(address: *const u8, length: usize, flags: u32) -> Option<u64> {
    let (register, find) = (real::cuMemHostRegister_v2()?, real::cuMemHostGetDevicePointer_v2()?);
    let address = address.cast_mut().cast::<c_void>();
    let mut found = 0u64;
    // SAFETY: whole pages of a mapping that stays, and a place for the answer.
    unsafe {
        let registered = register(address, length, flags);
        if registered != SUCCESS || find(&mut found, address, 0) != SUCCESS {
            return None;
        }
    }
    Some(found).filter(|&f| f != 0)
}

/// The words of a device fill 4 KiB; a page may be larger.
fn page_length() -> usize {
    // SAFETY: asks the C library for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(4096)
}
