//! What is known of each stream, found without a lock.
//!
//! A stream is known by its handle. The default streams have one handle for all contexts, and one of them even for all threads, so
//! those are known by their context, and thread.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use divvy_shm::GatePage;
use divvy_shm::frame::EventKind;
use divvy_shm::gate::Gate;
use divvy_shm::ledger::{Marks, StreamId};

use super::boundary;
use super::hold::Events;
use super::page::Pages;
use crate::cuda::real;
use crate::cuda::types::{CUstream, PER_THREAD, SUCCESS};
use crate::device::Place;
use crate::lock::Lock;
use crate::map::Map;
use crate::process::Member;

/// Places of the cache in front of the map: a program launches into few streams.
const CACHED: usize = 64;
/// While no cost is known, a chunk is at most this many launches.
const MOST_UNTRIED: u32 = 1024;
/// Chunks of several kernels are no longer than this while others want the card.
const LONGEST_SHARED_NS: u64 = 1_000_000;
/// A stream that found no slot looks at the gate every so many launches.
const UNMETERED: u32 = 32;

/// The streams of a process. None when all zero.
#[repr(C)]
pub(crate) struct Streams {
    /// The stream that was found first: most programs have one that nearly everything goes into.
    main: Known,
    /// How many have an open chunk.
    open: AtomicU32,
    /// How often the set of contexts changed.
    context_changes: AtomicU32,
    /// Each stream knows its own key, so that nobody takes one for another.
    cache: [AtomicPtr<Known>; CACHED],
    known: Map<usize>,
    /// All that were ever made, linked; vacant ones are used again.
    first: AtomicPtr<Known>,
    making: Lock<()>,
    /// Streams wait for each other.
    depend: AtomicBool,
    /// What had been submitted in all when somebody last asked how far the GPU is.
    asked_at: AtomicU64,
    /// The pages as each context knows them.
    pub(super) pages: Pages,
    /// How much work each executable graph is.
    pub(super) graph_units: Map<u32>,
    /// The watchdog's state.
    pub(super) watched: AtomicU32,
}

/// A stream. What a launch needs of it is at the beginning, on one line. Vacant when all zero.
#[repr(C, align(64))]
pub(crate) struct Known {
    key: AtomicU64,
    /// The gate when the open chunk began: its turn, and whether it was open, in the lowest bit.
    began: AtomicU64,
    facts: UnsafeCell<MaybeUninit<Facts>>,
    /// Launches per chunk while nothing is known about their cost.
    untried: AtomicU32,
    next: AtomicPtr<Known>,
    /// Chunks end and begin one at a time.
    pub(super) crossing: Lock<()>,
    /// For the gate on the CPU.
    pub(super) events: Lock<Events>,
}

// SAFETY: the facts are written before a stream can be found, or while its place is vacant; everything else is atomic or locked.
unsafe impl Sync for Known {}
// SAFETY: as above.
unsafe impl Send for Known {}

/// What does not change while a stream exists.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Facts {
    pub(super) gate: &'static Gate,
    /// `None` if all slots were taken.
    pub(super) metered: Option<(StreamId, Marks<'static>)>,
    pub(super) way: Way,
    pub(super) stream: CUstream,
    pub(super) context: u64,
    pub(super) thread: u64,
    pub(super) device: usize,
}

/// How the stream is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Not at all: the device is not of the container.
    Free,
    /// By the GPU: where it finds the gate word and the completion word.
    Gpu { gate: u64, completion: u64 },
    /// By the CPU.
    Cpu,
}

/// What ended a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was destroyed; the GPU still does what is queued.
    Stream,
    /// Its context was, and everything queued is gone.
    Context,
}

/// The stream, made known if it is not yet.
#[inline(always)]
pub(super) fn find(member: Member, stream: CUstream) -> Option<&'static Known> {
    let streams = &member.process.streams;
    let key = key(member, stream)?;
    if streams.main.key.load(Ordering::Acquire) == key {
        return Some(&streams.main);
    }
    // SAFETY: streams are never freed.
    match unsafe { streams.cache[place(key)].load(Ordering::Acquire).as_ref() } {
        Some(known) if known.key.load(Ordering::Acquire) == key => Some(known),
        _ => find_uncached(member, stream, key),
    }
}

#[cold]
fn find_uncached(member: Member, stream: CUstream, key: u64) -> Option<&'static Known> {
    let streams = &member.process.streams;
    let known = match streams.known.get(key) {
        // SAFETY: never freed.
        Some(known) => unsafe { (known as *const Known).as_ref() }?,
        None => make(member, stream, key)?,
    };
    streams.cache[place(key)].store(core::ptr::from_ref(known).cast_mut(), Ordering::Release);
    Some(known)
}

/// The stream, if it is known.
pub(super) fn lookup(member: Member, stream: CUstream) -> Option<&'static Known> {
    let streams = &member.process.streams;
    let known = streams.known.get(key(member, stream)?)?;
    // SAFETY: never freed.
    unsafe { (known as *const Known).as_ref() }
}

fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

fn thread() -> u64 {
    // SAFETY: asks for the caller's own identity.
    unsafe { libc::pthread_self() as u64 }
}

/// Makes a stream known: finds its context and device, registers the pages there, takes a slot in the ledger.
#[cold]
fn make(member: Member, stream: CUstream, key: u64) -> Option<&'static Known> {
    let streams = &member.process.streams;
    let _one_at_a_time = streams.making.lock();
    if let Some(known) = streams.known.get(key) {
        // SAFETY: never freed.
        return unsafe { (known as *const Known).as_ref() };
    }
    let (current, current_place) = member.current()?;
    let context = if is_default(stream) { current } else { context_of(stream).unwrap_or(current) };
    let device = match if context == current { Some(current_place) } else { member.stream_place(stream) } {
        Some(Place::Granted(device)) => Some(device),
        _ => None,
    };
    let gate = member.gate().gate(device.unwrap_or(0))?;
    let mut facts =
        Facts { stream, context, thread: thread(), device: device.unwrap_or(0), gate, way: Way::Free, metered: None };
    if let Some(device) = device {
        member.introduce();
        let id = member.id()?;
        let slot = member.ledger().claim_stream(id, device).or_else(|| {
            streams.give_back_idle_threads(member);
            member.ledger().claim_stream(id, device)
        });
        facts.metered = slot.and_then(|slot| Some((slot, member.ledger().marks(slot)?)));
        if facts.metered.is_none() {
            member.tell(EventKind::StreamsFull, device, 0, 0);
        }
        let registered = if context == current { streams.pages.of(member, context, device) } else { None };
        facts.way = match (registered, slot) {
            (Some(pages), Some(slot)) => Way::Gpu {
                gate: pages.gates + GatePage::word_offset(device) as u64,
                completion: pages.completions + slot.completion_offset() as u64,
            },
            (Some(pages), None) => Way::Gpu { gate: pages.gates + GatePage::word_offset(device) as u64, completion: 0 },
            (None, _) => {
                member.ledger().set_cpu_gate(id);
                member.tell(EventKind::CpuGate, device, 0, 0);
                Way::Cpu
            }
        };
    }
    let known = streams.vacant().unwrap_or_else(|| streams.link(Known::new(facts)));
    // SAFETY: nobody can find it yet, and nobody else makes one.
    unsafe { (*known.facts.get()).write(facts) };
    known.began.store(0, Ordering::Relaxed);
    known.untried.store(1, Ordering::Relaxed);
    known.key.store(key, Ordering::Release);
    streams.known.insert(key, core::ptr::from_ref(known) as usize);
    Some(known)
}

/// What a stream is known by; `None` without a context.
#[inline(always)]
fn key(member: Member, stream: CUstream) -> Option<u64> {
    if !is_default(stream) {
        return Some(stream as u64);
    }
    let context = match member.process.only_context.load(Ordering::Relaxed) {
        0 => current_context()?,
        only => only,
    };
    // Handles are addresses of something aligned; these are odd.
    Some(if stream == PER_THREAD { (context ^ thread().rotate_left(24)) | 1 } else { context | 1 })
}

#[cold]
fn current_context() -> Option<u64> {
    let mut context = null_mut();
    // SAFETY: a place for the context.
    let status = unsafe { real::cuCtxGetCurrent()?(&mut context) };
    (status == SUCCESS && !context.is_null()).then_some(context as u64)
}

fn is_default(stream: CUstream) -> bool {
    stream as usize <= PER_THREAD as usize
}

fn context_of(stream: CUstream) -> Option<u64> {
    let mut context = null_mut();
    // SAFETY: a stream of the caller's, and a place for its context.
    (unsafe { real::cuStreamGetCtx()?(stream, &mut context) } == SUCCESS).then_some(context as u64)
}

impl Streams {
    /// The number of contexts changed. The common program has one for all its life, and need not be asked about it each time.
    pub(super) fn contexts_changed(&self, member: Member, context: u64) {
        let first = self.context_changes.fetch_add(1, Ordering::Relaxed) == 0;
        member.process.only_context.store(if first { context } else { 0 }, Ordering::Relaxed);
    }

    /// Is any chunk open?
    #[inline]
    pub(super) fn any_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Some stream waits for what another does.
    #[inline]
    pub(super) fn depend(&self) {
        if !self.depend.load(Ordering::Relaxed) {
            self.depend.store(true, Ordering::Relaxed);
        }
    }

    /// Has another stream of the same context work that is not done, and may one of them wait for the other?
    pub(super) fn others_depend(&'static self, known: &'static Known) -> bool {
        let mut found = false;
        if !self.depend.load(Ordering::Relaxed) {
            return false;
        }
        self.each(|other| {
            let facts = other.facts();
            found |= !core::ptr::eq(other, known)
                && facts.context == known.facts().context
                && facts.metered.is_some_and(|(_, marks)| marks.queued() > 0 || marks.submitted() != marks.ended());
        });
        found
    }

    pub(super) fn chunk_opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn chunk_closed(&self) {
        let _ = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_sub(1)));
    }

    /// Whether nothing was submitted since this was last asked.
    pub(super) fn quiet_since_last_asked(&'static self) -> bool {
        let mut sum = 1u64;
        self.each(|known| {
            if let Some((_, marks)) = known.facts().metered {
                sum = sum.wrapping_add(u64::from(marks.submitted()));
            }
        });
        self.asked_at.swap(sum, Ordering::Relaxed) == sum
    }

    /// Every stream that is known now.
    pub(super) fn each(&'static self, mut what: impl FnMut(&'static Known)) {
        if self.main.key.load(Ordering::Acquire) != 0 {
            what(&self.main);
        }
        let mut at = self.first.load(Ordering::Acquire);
        // SAFETY: linked streams are never freed.
        while let Some(known) = unsafe { at.as_ref() } {
            if known.key.load(Ordering::Acquire) != 0 {
                what(known);
            }
            at = known.next.load(Ordering::Acquire);
        }
    }

    fn vacant(&'static self) -> Option<&'static Known> {
        if self.main.key.load(Ordering::Acquire) == 0 {
            return Some(&self.main);
        }
        let mut at = self.first.load(Ordering::Acquire);
        // SAFETY: linked streams are never freed.
        while let Some(known) = unsafe { at.as_ref() } {
            if known.key.load(Ordering::Acquire) == 0 {
                return Some(known);
            }
            at = known.next.load(Ordering::Acquire);
        }
        None
    }

    /// For one thread at a time.
    fn link(&self, known: Known) -> &'static Known {
        let known = Box::leak(Box::new(known));
        known.next.store(self.first.load(Ordering::Acquire), Ordering::Release);
        self.first.store(known, Ordering::Release);
        known
    }

    /// A stream is gone: its slot goes back, and its place is vacant.
    pub(super) fn forget(&self, member: Member, known: &'static Known, ended: Ended) {
        let _one_at_a_time = self.making.lock();
        self.vacate(member, known, ended);
    }

    fn vacate(&self, member: Member, known: &'static Known, ended: Ended) {
        let key = known.key.swap(0, Ordering::AcqRel);
        if key == 0 {
            return;
        }
        self.known.remove(key);
        if let Some((slot, marks)) = known.facts().metered {
            if marks.submitted() != marks.ended() {
                self.chunk_closed();
            }
            if ended == Ended::Context || known.facts().way == Way::Cpu {
                marks.write_off();
            }
            member.ledger().free_stream(slot);
        }
        known.events.lock().forget();
    }

    /// Default streams of threads come without a word and go without one: when slots run out, those with nothing to do give theirs
    /// back.
    fn give_back_idle_threads(&'static self, member: Member) {
        self.each(|known| {
            let facts = known.facts();
            let idle = facts.metered.is_some_and(|(_, m)| m.submitted() == m.ended() && m.queued() == 0);
            if facts.stream == PER_THREAD && idle {
                self.vacate(member, known, Ended::Stream);
            }
        });
    }
}

impl Known {
    fn new(facts: Facts) -> Known {
        Known {
            key: AtomicU64::new(0),
            began: AtomicU64::new(0),
            facts: UnsafeCell::new(MaybeUninit::new(facts)),
            untried: AtomicU32::new(1),
            next: AtomicPtr::new(null_mut()),
            crossing: Lock::default(),
            events: Lock::default(),
        }
    }

    #[inline]
    pub(super) fn facts(&self) -> &Facts {
        // SAFETY: written before anybody can find this stream, and only then.
        unsafe { (*self.facts.get()).assume_init_ref() }
    }

    /// Its handle.
    pub(super) fn handle(&self) -> CUstream {
        self.facts().stream
    }

    /// Its context.
    pub(super) fn context(&self) -> u64 {
        self.facts().context
    }

    /// Whether the calling thread, in `context`, means this stream by its handle.
    pub(super) fn can_be_reached(&self, context: u64) -> bool {
        let facts = self.facts();
        facts.context == context && (facts.stream != PER_THREAD || facts.thread == thread())
    }

    /// Work is about to be put into the stream.
    #[inline(always)]
    pub(super) fn enter(&'static self, member: Member, stream: CUstream, units: u32, hold: bool) {
        let facts = self.facts();
        if facts.way == Way::Free {
            return;
        }
        let Some((_, marks)) = &facts.metered else { return self.enter_unmetered(member, stream) };
        // The gate first: nothing is looked at ahead of an addition that others see.
        let is_open = facts.gate.is_open();
        let most = match facts.gate.chunk_units() {
            0 => self.untried.load(Ordering::Relaxed),
            units => units,
        };
        let before = marks.submit(units);
        let fill = before.wrapping_sub(marks.ended());
        if fill == 0 || fill >= most || (!is_open && self.has_passed()) {
            boundary::cross(member, self, stream, before, hold);
        }
    }

    #[cold]
    fn enter_unmetered(&'static self, member: Member, stream: CUstream) {
        if self.untried.fetch_add(1, Ordering::Relaxed).is_multiple_of(UNMETERED) {
            boundary::wait_only(member, self, stream);
        }
    }

    /// Whether the open chunk's wait has been passed, as far as the CPU can tell: then nothing may be added to it while the gate is
    /// closed.
    #[inline]
    fn has_passed(&self) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began & 1 != 0 || (began >> 1) as u32 != self.facts().gate.turn()
    }

    /// A chunk begins.
    pub(super) fn begins(&self) {
        let gate = self.facts().gate;
        let turn = u64::from(gate.turn());
        self.began.store((turn << 1) | u64::from(gate.is_open()), Ordering::Relaxed);
    }

    /// While nothing is known about costs, chunks grow as long as the GPU keeps up with them.
    pub(super) fn tries_more(&self, kept_up: bool) {
        let tried = self.untried.load(Ordering::Relaxed);
        let next = if kept_up { (tried * 2).min(MOST_UNTRIED) } else { tried };
        self.untried.store(next.max(1), Ordering::Relaxed);
    }

    /// Chunks are long while nobody else wants the card, as long as they can be.
    pub(super) fn has_the_card_to_itself(&self) -> bool {
        let hint = self.facts().gate.hint();
        hint.units > 1 && u64::from(hint.units) * u64::from(hint.cost_ns) > LONGEST_SHARED_NS
    }

    /// Whether the next launch would find the gate open, with nothing before it and nobody to wait for: then it need not ask.
    pub(super) fn has_a_free_way(&self) -> bool {
        let facts = self.facts();
        self.has_the_card_to_itself()
            && facts.gate.is_open()
            && facts.metered.is_some_and(|(_, marks)| marks.queued() == 0)
    }

    /// Whether work on the device is to be held at all now.
    pub(super) fn is_held(&self, member: Member) -> bool {
        member.gate().limits(self.facts().device).is_some_and(|limits| limits.gated && limits.enforcement.holds())
    }
}
