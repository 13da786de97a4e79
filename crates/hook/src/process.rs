//! This process as a member of its container: the shared pages, its slot in the ledger, and everything that must not outlive it.
//!
//! All of it lies in memory that the kernel wipes in a forked child ([`Process`] is unattached when zero), so that a child,
//! however it was made, finds nothing of its parent's and becomes a member of its own at its first use of the GPU.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use divvy_shm::ledger::{Newcomer, ProcessId};
use divvy_shm::{GatePage, Ledger};

use crate::agent::Acquaintance;
use crate::books::{Block, Books};
use crate::device::Devices;
use crate::gate::Streams;
use crate::hooks::context::Contexts;
use crate::hooks::graph::Graphs;
use crate::hooks::pool::Pools;
use crate::hooks::vmm::Physical;
use crate::lock::Lock;
use crate::map::Map;
use crate::nvml::devices::Cards;
use crate::{files, liveness};

/// The state of a process.
#[repr(C)]
pub(crate) struct Process {
    // On one line, with the main stream behind them on the next: every launch looks at them, and finds them as far away as the
    // driver's own data has pushed them since the last one.
    /// [`UNKNOWN`] and so on.
    state: AtomicU32,
    /// How many streams record a graph.
    pub(crate) captures: AtomicU32,
    gate: AtomicPtr<GatePage>,
    ledger: AtomicPtr<Ledger>,
    /// The only context there is, while the set of contexts changed but once.
    pub(crate) only_context: AtomicU64,
    /// Streams and their chunks.
    pub(crate) streams: Streams,
    /// The process that wrote this, for kernels that do not wipe.
    pid: AtomicU32,
    attaching: Lock<()>,
    /// One more than the slot, 0 before there is one.
    slot: AtomicUsize,
    generation: AtomicU64,
    token: AtomicU64,
    /// What this process holds.
    pub(crate) books: Books,
    /// Which device of the container each of the driver's is.
    pub(crate) devices: Devices,
    /// Contexts and what they were charged with.
    pub(crate) contexts: Contexts,
    /// Arrays by their handles.
    pub(crate) arrays: Map<Block>,
    /// Pools of stream-ordered memory.
    pub(crate) pools: Pools,
    /// Physical memory by handles and mappings.
    pub(crate) physical: Physical,
    /// Graphs that allocate.
    pub(crate) graphs: Graphs,
    /// Cards by NVML's handles.
    pub(crate) cards: Cards,
    /// What the agent was told.
    pub(crate) agent: Acquaintance,
}

const UNKNOWN: u32 = 0;
/// In a container of Divvy's.
const MEMBER: u32 = 1;
/// In none: everything passes.
const OUTSIDE: u32 = 2;
/// In one whose pages cannot be used: nothing new is allowed.
const BROKEN: u32 = 3;
/// In a container, on a kernel that does not wipe memory at a fork: every call looks whether it is in a child.
const UNSURE: u32 = 4;

/// Whole pages, for they are wiped in a child.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
struct Pages(UnsafeCell<MaybeUninit<Process>>);

// SAFETY: what is in a process is atomic or locked.
unsafe impl Sync for Pages {}

/// At an address of the library's own, which a launch has not to look up.
static HERE: Pages = Pages(UnsafeCell::new(MaybeUninit::zeroed()));
/// [`NOT_ASKED`] and so on.
static WIPING: AtomicU32 = AtomicU32::new(NOT_ASKED);
const NOT_ASKED: u32 = 0;
/// The kernel wipes it in a child.
const WIPES: u32 = 1;
/// It cannot: whoever looks has to see whether it is in a child.
const CANNOT: u32 = 2;
// Shared mappings stay valid across a fork, so these need no wiping.
static GATE: AtomicPtr<GatePage> = AtomicPtr::new(null_mut());
static LEDGER: AtomicPtr<Ledger> = AtomicPtr::new(null_mut());

/// What a hook has to go by.
#[derive(Clone, Copy)]
pub(crate) enum Standing {
    /// The process belongs to a container of Divvy's.
    Member(Member),
    /// It does not.
    Outside,
    /// It does, and its pages cannot be used.
    Broken,
}

/// A process in a container of Divvy's. No more than a pointer: every launch carries it.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Its private state.
    pub(crate) process: &'static Process,
}

/// Where this process stands; found out at the first call.
#[inline]
pub(crate) fn standing() -> Standing {
    let process = here();
    match process.state.load(Ordering::Acquire) {
        MEMBER => Standing::Member(process.member()),
        OUTSIDE => Standing::Outside,
        BROKEN => Standing::Broken,
        _ => attach(),
    }
}

/// The member this process is, if it is one.
#[inline]
pub(crate) fn of_container() -> Option<Member> {
    match standing() {
        Standing::Member(member) => Some(member),
        Standing::Outside | Standing::Broken => None,
    }
}

impl Process {
    /// Only after the state said that this is one.
    #[inline]
    fn member(&'static self) -> Member {
        Member { process: self }
    }
}

#[cold]
fn attach() -> Standing {
    let process = here();
    let unsure = !wiped_in_children();
    if unsure {
        start_over_in_a_child(process);
    }
    let _one_at_a_time = process.attaching.lock();
    if process.state.load(Ordering::Acquire) == UNKNOWN {
        process.pid.store(own_pid(), Ordering::Relaxed);
        let state = match files() {
            Ok(Some((gate, ledger))) => {
                process.gate.store(gate, Ordering::Relaxed);
                process.ledger.store(ledger, Ordering::Relaxed);
                if unsure { UNSURE } else { MEMBER }
            }
            Ok(None) => OUTSIDE,
            Err(fault) => {
                crate::say!("{fault}; this container's GPU memory cannot be accounted for, so none is given out");
                BROKEN
            }
        };
        process.state.store(state, Ordering::Release);
    }
    match process.state.load(Ordering::Acquire) {
        MEMBER | UNSURE => Standing::Member(process.member()),
        OUTSIDE => Standing::Outside,
        _ => Standing::Broken,
    }
}

/// The shared files, mapped once: a child has its parent's mappings.
fn files() -> Result<Option<(*mut GatePage, *mut Ledger)>, files::Fault> {
    let (gate, ledger) = (GATE.load(Ordering::Acquire), LEDGER.load(Ordering::Acquire));
    if !gate.is_null() && !ledger.is_null() {
        return Ok(Some((gate, ledger)));
    }
    let opened = files::open()?;
    if let Some((gate, ledger)) = opened {
        GATE.store(gate, Ordering::Release);
        LEDGER.store(ledger, Ordering::Release);
    }
    Ok(opened)
}

#[inline(always)]
fn here() -> &'static Process {
    // SAFETY: zero is a valid process, and nobody has it but by shared reference.
    unsafe { (*HERE.0.get()).assume_init_ref() }
}

/// Whether the kernel wipes it in a child, which it is told to at the first call of all. A child has the answer of its parent.
fn wiped_in_children() -> bool {
    if WIPING.load(Ordering::Acquire) == NOT_ASKED {
        // SAFETY: pages of our own, in which only the process is.
        let refused = unsafe { libc::madvise(HERE.0.get().cast(), size_of::<Pages>(), libc::MADV_WIPEONFORK) } != 0;
        WIPING.store(if refused { CANNOT } else { WIPES }, Ordering::Release);
    }
    WIPING.load(Ordering::Acquire) == WIPES
}

/// Kernels before 4.14 do not wipe: a child recognises itself by its pid and wipes by hand.
#[cold]
fn start_over_in_a_child(process: &'static Process) {
    let written_by = process.pid.load(Ordering::Acquire);
    if written_by != 0 && written_by != own_pid() {
        // SAFETY: a child begins with one thread, and zero is a valid Process.
        unsafe { core::ptr::write_bytes(core::ptr::from_ref(process).cast_mut(), 0, 1) };
    }
}

pub(crate) fn own_pid() -> u32 {
    // SAFETY: asks the kernel for a number.
    unsafe { libc::getpid() as u32 }
}

impl Member {
    /// What the container was granted.
    #[inline]
    pub(crate) fn gate(self) -> &'static GatePage {
        // SAFETY: set before the state was, to a mapping that is never unmapped.
        unsafe { &*self.process.gate.load(Ordering::Relaxed) }
    }

    /// What the container uses.
    #[inline]
    pub(crate) fn ledger(self) -> &'static Ledger {
        // SAFETY: as above.
        unsafe { &*self.process.ledger.load(Ordering::Relaxed) }
    }

    /// This process's slot in the ledger, taken at its first use of the GPU. `None` if all are taken.
    #[inline]
    pub(crate) fn id(self) -> Option<ProcessId> {
        match self.process.slot.load(Ordering::Acquire) {
            0 => self.enter(),
            slot => ProcessId::from_parts(slot as u32 - 1, self.process.generation.load(Ordering::Relaxed)),
        }
    }

    #[cold]
    fn enter(self) -> Option<ProcessId> {
        let _one_at_a_time = self.process.attaching.lock();
        let slot = self.process.slot.load(Ordering::Acquire);
        if slot != 0 {
            return ProcessId::from_parts(slot as u32 - 1, self.process.generation.load(Ordering::Relaxed));
        }
        let name = liveness::command_name();
        let name = CStr::from_bytes_until_nul(&name).ok().and_then(|n| n.to_str().ok()).unwrap_or_default();
        let (pid, token) = (own_pid(), liveness::token());
        let (start_time, namespace) = (liveness::start_time(pid).unwrap_or(0), liveness::own_namespace());
        liveness::reap_former_self(self.ledger(), pid, start_time, namespace);
        let who = Newcomer { pid, start_time, namespace, token, name };
        let id = self.ledger().claim_process(&who).or_else(|| {
            liveness::reap_the_dead(self.ledger(), 0);
            self.ledger().claim_process(&who)
        });
        let Some(id) = id else {
            crate::say!(
                "all {} process slots of this container are taken; this process gets no GPU memory",
                divvy_shm::MAX_PROCESSES
            );
            return None;
        };
        self.process.generation.store(id.generation(), Ordering::Relaxed);
        self.process.token.store(token, Ordering::Relaxed);
        self.process.slot.store(id.slot() + 1, Ordering::Release);
        Some(id)
    }

    /// What this process is known by: slot, pid, and the number it drew.
    pub(crate) fn identity(self) -> Option<(ProcessId, u32, u64)> {
        let id = self.id()?;
        Some((id, self.process.pid.load(Ordering::Relaxed), self.process.token.load(Ordering::Relaxed)))
    }

    /// The blocks of memory this process knows.
    pub(crate) fn blocks(self) -> &'static Map<Block> {
        &self.process.books.blocks
    }

    /// Whether a range of this process's addresses touches the shared pages.
    pub(crate) fn touches_our_pages(self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let meets = |start: u64, size: usize| address < start + size as u64 && start < end;
        meets(core::ptr::from_ref(self.gate()) as u64, size_of::<GatePage>())
            || meets(core::ptr::from_ref(self.ledger()) as u64, size_of::<Ledger>())
    }
}
