//! The state of this process: one lock around all of it, the executor thread that plays the engine, the thread that calls the
//! program's functions.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use divvy_fakedriver::machine::{Machine, Seat};
use divvy_fakedriver::sys;

use crate::abi::{Answer, Error, TextureObject};
use crate::context::Context;
use crate::device::Device;
use crate::engine::{Engine, StreamId};
use crate::event::Events;
use crate::graph::Graphs;
use crate::handles::Handles;
use crate::kernel::Kernels;
use crate::memory::Memory;

/// Everything the driver knows in this process.
pub(crate) struct Process {
    pub(crate) machine: &'static Machine,
    pub(crate) seat: Seat,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Handles<Context>,
    pub(crate) engine: Engine,
    pub(crate) events: Events,
    pub(crate) memory: Memory,
    pub(crate) kernels: Kernels,
    pub(crate) graphs: Graphs,
    /// Multiprocessors of the partitions green contexts are made of.
    pub(crate) partitions: Handles<u32>,
    pub(crate) textures: Handles<TextureObject>,
    /// Multicast objects: their size and devices.
    pub(crate) multicasts: Handles<(u64, Vec<i32>)>,
    /// What a step found finished; kept to save allocations.
    pub(crate) finished: Vec<(StreamId, u64)>,
    next_handle: u64,
}

/// The lock on it.
pub(crate) type Locked = MutexGuard<'static, Process>;

static MACHINE: OnceLock<Machine> = OnceLock::new();
static PROCESS: OnceLock<Mutex<Process>> = OnceLock::new();
/// Points at a word that is 1 in the process that called `cuInit` and 0 in its forked children: the kernel wipes the page.
static OURS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
static CALLER: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// The machine, if `cuInit` found it.
pub(crate) fn machine() -> Option<&'static Machine> {
    MACHINE.get()
}

/// The machine, opened if it is not yet; a wrong description is told once.
pub(crate) fn look() -> Result<&'static Machine, Error> {
    static TOLD: Once = Once::new();
    if MACHINE.get().is_none() {
        match Machine::from_env() {
            Ok(machine) => drop(MACHINE.set(machine)),
            Err(why) => TOLD.call_once(|| eprintln!("fake driver: {why}")),
        }
    }
    MACHINE.get().ok_or(Error::SYSTEM_NOT_READY)
}

/// Locks the process for a call.
pub(crate) fn enter() -> Result<Locked, Error> {
    let process = PROCESS.get().ok_or(Error::NOT_INITIALIZED)?;
    if is_forked_child() {
        return Err(Error::NOT_INITIALIZED);
    }
    Ok(process.lock().unwrap_or_else(PoisonError::into_inner))
}

fn is_forked_child() -> bool {
    let word = OURS.load(Relaxed);
    // SAFETY: null, or a page that is never unmapped.
    word.is_null() || unsafe { &*word }.load(Relaxed) == 0
}

/// `cuInit`.
pub(crate) fn init() -> Answer {
    if PROCESS.get().is_some() {
        return if is_forked_child() { Err(Error::NOT_INITIALIZED) } else { Ok(()) };
    }
    static FIRST: Mutex<()> = Mutex::new(());
    let _first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    if PROCESS.get().is_some() {
        return Ok(());
    }
    let machine = look()?;
    let devices = Device::visible(machine);
    if devices.is_empty() {
        return Err(Error::NO_DEVICE);
    }
    let Some(seat) = machine.sit() else {
        eprintln!("fake driver: too many processes on the machine in {}", machine.dir.display());
        return Err(Error::SYSTEM_NOT_READY);
    };
    remember_whose();
    let process = Process {
        machine,
        seat,
        devices,
        contexts: Handles::default(),
        engine: Engine::default(),
        events: Events::default(),
        memory: Memory::new(machine.spec.backing),
        kernels: Kernels::default(),
        graphs: Graphs::default(),
        partitions: Handles::default(),
        textures: Handles::default(),
        multicasts: Handles::default(),
        finished: Vec::new(),
        next_handle: 0x5600_0000_1000,
    };
    let _ = PROCESS.set(Mutex::new(process));
    Ok(())
}

fn remember_whose() {
    // SAFETY: a fresh page, wiped in children by the kernel; it is never unmapped.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page != libc::MAP_FAILED {
            libc::madvise(page, 4096, libc::MADV_WIPEONFORK);
            let word = page.cast::<AtomicU32>();
            (*word).store(1, SeqCst);
            OURS.store(word, SeqCst);
        }
    }
}

impl Process {
    /// A handle nobody has.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// Starts the executor, once there is something to execute.
    pub(crate) fn start_executor(&self) {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let seat = self.seat;
            spawn("fake-gpu", move || execute(seat));
        });
    }
}

/// Threads of ours take no signals: those are the program's.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    // SAFETY: blocks signals for this thread while it spawns, since the new one inherits the mask, and restores it.
    unsafe {
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let spawned = std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(run);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
        if let Err(why) = spawned {
            eprintln!("fake driver: no thread for {name}: {why}");
        }
    }
}

/// The executor: plays the engine whenever something is due and no thread of the program does it anyway.
fn execute(seat: Seat) {
    sys::sharpen_timers();
    loop {
        let heard = seat.bell().load(SeqCst);
        let Ok(mut process) = enter() else { return };
        let now = sys::now();
        let others_wait = process.engine.waiters > 0;
        if process.step(now) && others_wait {
            seat.ring();
        }
        let mut rest = process.engine.rest(process.machine, now);
        if others_wait {
            (rest.until, rest.words) = (None, Vec::new());
        }
        process.engine.executor_until = rest.until;
        drop(process);
        rest.words.insert(0, (seat.bell().as_ptr(), heard));
        sys::futex_wait(&rest.words, rest.until);
    }
}

/// A wait shorter than this is spent spinning: a sleep would take as long.
const SPIN: u64 = 15_000;

/// Waits until `over` has an answer; plays the engine meanwhile.
pub(crate) fn wait<T>(mut process: Locked, mut over: impl FnMut(&mut Process) -> Option<T>) -> (Locked, T) {
    thread_local!(static SHARP: Once = const { Once::new() });
    let seat = process.seat;
    let mut waiting = false;
    loop {
        let heard = seat.bell().load(SeqCst);
        let now = sys::now();
        let progress = process.step(now);
        let answer = over(&mut process);
        if progress && process.engine.waiters > u32::from(waiting) {
            seat.ring();
        }
        if let Some(answer) = answer {
            if waiting {
                process.engine.waiters -= 1;
                // The executor slept on while we watched: it has to take over what is left.
                if process.engine.waiters == 0 {
                    process.engine.executor_until = None;
                    process.rouse(now);
                }
            } else {
                process.rouse(now);
            }
            return (process, answer);
        }
        if !waiting {
            waiting = true;
            process.engine.waiters += 1;
            SHARP.with(|once| once.call_once(sys::sharpen_timers));
        }
        let mut rest = process.engine.rest(process.machine, now);
        drop(process);
        match rest.until {
            Some(until) if until < now + SPIN => {
                while sys::now() < until && seat.bell().load(SeqCst) == heard {
                    std::hint::spin_loop();
                }
            }
            until => {
                rest.words.insert(0, (seat.bell().as_ptr(), heard));
                sys::futex_wait(&rest.words, until);
            }
        }
        process = match enter() {
            Ok(process) => process,
            // Forked in the middle of a wait: the child can only stand still, as with the real driver.
            Err(_) => loop {
                std::thread::park();
            },
        };
    }
}

/// Tells the thread that calls the program's functions that there is one to call.
pub(crate) fn wake_caller() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| spawn("fake-gpu-calls", make_calls));
    drop(CALLER.0.lock().unwrap_or_else(PoisonError::into_inner));
    CALLER.1.notify_one();
}

fn make_calls() {
    loop {
        let Ok(mut process) = enter() else { return };
        let Some((stream, function, data, callback_of)) = process.engine.calls.pop_front() else {
            let guard = CALLER.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(process);
            drop(CALLER.1.wait(guard));
            continue;
        };
        drop(process);
        match callback_of {
            // SAFETY: the program gave us the function with this signature.
            Some(handle) => unsafe {
                let callback: extern "C" fn(u64, u32, u64) =
                    std::mem::transmute::<u64, extern "C" fn(u64, u32, u64)>(function);
                callback(handle, 0, data);
            },
            // SAFETY: the program gave us the function with this signature.
            None => unsafe {
                let function: extern "C" fn(u64) = std::mem::transmute::<u64, extern "C" fn(u64)>(function);
                function(data);
            },
        }
        let Ok(mut process) = enter() else { return };
        let now = sys::now();
        process.complete(stream, now);
        process.step(now);
        process.engine.executor_until = None;
        process.rouse(now);
    }
}
