//! Stream-ordered memory. A pool is charged with what it holds of the card, which is more than what it has given out: freed blocks
//! stay with the pool until it is trimmed or a stream is waited for.
//!
//! The common case asks the driver nothing: as long as what is given out stays below what the pool is charged with, a block comes
//! out of what is already paid for. Only when a pool must grow, or blocks went back and somebody waited, is it asked what it holds.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Out, graph, stream};
use crate::books::{self, Account, Block, Charge, Charged, Kind};
use crate::cuda::real;
use crate::cuda::types::{
    CUdevice, CUmemLocation, CUmemPoolProps_v1, CUresult, CUstream, LOCATION_DEVICE, POOL_RESERVED_NOW, SUCCESS,
};
use crate::device::Place;
use crate::gate::{self, Wait};
use crate::lock::Lock;
use crate::map::{Keep, Map};
use crate::process::{Member, of_container};

/// The pools of a process. None when all zero.
pub(crate) struct Pools {
    known: Map<Pool>,
    /// The pool each device allocates from when none is named; 0 when it has to be asked for.
    current: [AtomicU64; divvy_shm::MAX_DEVICES],
    /// Blocks went back since the pools were last asked.
    returned: AtomicBool,
    /// What a pool holds is asked and booked by one thread at a time: an old answer must not follow a new one.
    asking: Lock<()>,
}

#[derive(Clone, Copy)]
struct Pool {
    device: u8,
    /// Memory of the host: counted there.
    on_host: bool,
    /// Destroyed by the program, and alive until its last block comes back.
    condemned: bool,
    /// What the program has.
    given_out: u64,
    /// What is in the ledger for it: always at least as much there as here.
    charged: u64,
    /// What threads are charging this moment.
    promised: u64,
    /// What was given out of what was charged already since the pool was last asked: it may have had to grow all the same, for
    /// blocks that are too small, or not yet free.
    unverified: u64,
}

impl Pool {
    fn new(device: usize, on_host: bool) -> Pool {
        Pool { device: device as u8, on_host, condemned: false, given_out: 0, charged: 0, promised: 0, unverified: 0 }
    }

    /// What is missing for the pool to hold `bytes`, promised from now on.
    fn promise(&mut self, bytes: u64) -> u64 {
        let missing = bytes.saturating_sub(self.charged.saturating_add(self.promised));
        self.promised += missing;
        missing
    }
}

/// So much may be unverified while the container uses less than half of its limit.
const UNVERIFIED: u64 = 32 << 20;

/// Memory from the current pool of the stream's device.
///
/// # Safety
/// `out` is null or where the driver puts the address.
pub(crate) unsafe fn alloc(out: *mut u64, bytes: u64, stream: CUstream, go: impl Fn() -> CUresult) -> CUresult {
    let (member, device) = match of_stream(stream) {
        Account::Of(member, device, _) => (member, device),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let Some(pool) = current(member, device) else { return go() };
    // SAFETY: by contract.
    unsafe { take(member, device, pool, out, bytes, stream, go) }
}

/// Memory from a pool by name.
///
/// # Safety
/// `out` is null or where the driver puts the address.
pub(crate) unsafe fn alloc_from(
    out: *mut u64,
    bytes: u64,
    pool: *mut c_void,
    stream: CUstream,
    go: impl Fn() -> CUresult,
) -> CUresult {
    let (member, device) = match of_stream(stream) {
        Account::Of(member, device, _) => (member, device),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    // SAFETY: by contract.
    unsafe { take(member, device, pool as u64, out, bytes, stream, go) }
}

unsafe fn take(
    member: Member,
    device: usize,
    pool: u64,
    out: *mut u64,
    bytes: u64,
    stream: CUstream,
    go: impl Fn() -> CUresult,
) -> CUresult {
    if stream::captures(member, stream) {
        return go(); // a node of a graph, which pays when it is launched
    }
    let pools = &member.process.pools;
    let (missing, seen) = pools.known.change_or_insert(pool, Pool::new(device, false), |pool| {
        pool.given_out = pool.given_out.saturating_add(bytes);
        let missing = pool.promise(pool.given_out);
        pool.unverified = pool.unverified.saturating_add(bytes - missing.min(bytes));
        (missing, *pool)
    });
    let take_back = || {
        pools.known.change(pool, |p| {
            p.given_out = p.given_out.saturating_sub(bytes);
            (Keep::Yes, ())
        });
    };
    // A pool that another thread has just grown over the limit is not grown once more, whatever is booked for it.
    let over = missing == 0 && member.ledger().used(device) > limit(member, device);
    let charged = if over { charge(member, &seen, 0) } else { keep_promise(member, pool, &seen, missing) };
    if let Err(status) = charged {
        take_back();
        return status;
    }
    let status = go();
    // SAFETY: null, or the driver has just written it.
    let address = unsafe { Out::from(out).get() };
    if status != SUCCESS || address == 0 {
        take_back();
        pools.returned.store(true, Ordering::Relaxed); // what was charged for it is put right by the next to look
        return status;
    }
    let block = Block { bytes, context: pool, place: Charged::Device(seen.device, Kind::Pool) };
    if let Some(stale) = member.blocks().insert(address, block) {
        match stale.place {
            Charged::Device(_, Kind::Pool) => returned(member, stale.context, stale.bytes),
            _ => books::settle(member, stale),
        }
    }
    if (missing > 0 || doubtful(member, &seen)) && !seen.on_host && over_after_growing(member, pool, &seen) {
        // The pool had to take more from the card than was asked for, and that is over the limit.
        member.blocks().remove(address);
        if let Some(free) = real::cuMemFreeAsync() {
            // SAFETY: the driver has just given it, on this stream.
            unsafe { free(address, stream) };
        }
        returned(member, pool, bytes);
        give_back(member, device);
        // SAFETY: the caller's own place.
        unsafe { Out::from(out).set(0) };
        return crate::cuda::types::OUT_OF_MEMORY;
    }
    status
}

/// Charges what was promised; the pool is told either way.
fn keep_promise(member: Member, handle: u64, pool: &Pool, promised: u64) -> Result<(), CUresult> {
    if promised == 0 {
        return Ok(());
    }
    let charged = charge(member, pool, promised);
    member.process.pools.known.change(handle, |pool| {
        pool.promised = pool.promised.saturating_sub(promised);
        if charged.is_ok() {
            pool.charged = pool.charged.saturating_add(promised);
        }
        (Keep::Yes, ())
    });
    charged
}

/// Whether a pool has to be asked, although nothing had to be charged.
fn doubtful(member: Member, pool: &Pool) -> bool {
    let device = usize::from(pool.device);
    pool.unverified > UNVERIFIED || member.ledger().used(device) > limit(member, device) / 2
}

fn limit(member: Member, device: usize) -> u64 {
    member.gate().limits(device).map_or(u64::MAX, |l| l.memory)
}

/// Asks what a pool holds after it may have grown, and charges the rest. Whether that is too much.
fn over_after_growing(member: Member, handle: u64, seen: &Pool) -> bool {
    let more = {
        let _one_at_a_time = member.process.pools.asking.lock();
        let Some(holds) = reserved(handle) else { return false };
        let grown = member.process.pools.known.change(handle, |pool| {
            pool.unverified = 0;
            (Keep::Yes, pool.promise(holds.max(pool.given_out)))
        });
        grown.unwrap_or(0)
    };
    if keep_promise(member, handle, seen, more).is_ok() {
        return false;
    }
    // Held all the same until the pool is trimmed, which comes next.
    if let Some(id) = member.id() {
        member.ledger().charge_unchecked(id, usize::from(seen.device), Kind::Pool, more);
        member.process.pools.known.change(handle, |pool| {
            pool.charged = pool.charged.saturating_add(more);
            (Keep::Yes, ())
        });
    }
    true
}

fn charge(member: Member, pool: &Pool, bytes: u64) -> Result<(), CUresult> {
    if pool.on_host {
        books::host_charge(member, bytes);
        return Ok(());
    }
    Charge::make(member, usize::from(pool.device), Kind::Pool, bytes).map(|charge| {
        charge.keep();
    })
}

fn uncharge(member: Member, pool: &Pool, bytes: u64) {
    if pool.on_host {
        books::host_credit(member, bytes);
    } else {
        books::credit(member, usize::from(pool.device), Kind::Pool, bytes);
    }
}

/// A block went back to its pool, which keeps it for now.
pub(crate) fn returned(member: Member, handle: u64, bytes: u64) {
    let pools = &member.process.pools;
    let over = pools.known.change(handle, |pool| {
        pool.given_out = pool.given_out.saturating_sub(bytes);
        let last = pool.condemned && pool.given_out == 0;
        (if last { Keep::No } else { Keep::Yes }, last.then_some(*pool))
    });
    if let Some(Some(pool)) = over {
        uncharge(member, &pool, pool.charged);
    }
    pools.returned.store(true, Ordering::Relaxed);
}

/// Asks the pools what they hold, if anything went back since they were last asked.
pub(crate) fn look_again(member: Member) {
    if member.process.pools.returned.load(Ordering::Relaxed)
        && member.process.pools.returned.swap(false, Ordering::Relaxed)
    {
        look(member);
    }
}

/// The same, where nobody looked whether this is a container.
#[inline]
pub(crate) fn look_again_after_waiting() {
    if let Some(member) = of_container() {
        look_again(member);
    }
}

fn look(member: Member) {
    each(member, |handle, _| put_right(member, handle));
}

/// Calls `f` for every pool, outside the locks of the map.
fn each(member: Member, mut f: impl FnMut(u64, &Pool)) {
    const MOST: usize = 64;
    let mut list = [const { None }; MOST];
    let mut count = 0;
    member.process.pools.known.each(|handle, pool| {
        if count < MOST && !pool.condemned {
            list[count] = Some((handle, *pool));
            count += 1;
        }
    });
    for (handle, pool) in list.iter().flatten() {
        f(*handle, pool);
    }
}

/// Charges a pool with what it holds now.
fn put_right(member: Member, handle: u64) {
    let _one_at_a_time = member.process.pools.asking.lock();
    let Some(holds) = reserved(handle) else { return };
    // More first in the ledger and then here, less first here and then in the ledger.
    let more = member.process.pools.known.change(handle, |pool| {
        let target = holds.max(pool.given_out.saturating_sub(pool.promised));
        (Keep::Yes, (target.saturating_sub(pool.charged), *pool))
    });
    let Some((more, seen)) = more else { return };
    if more > 0 {
        match member.id() {
            _ if seen.on_host => books::host_charge(member, more),
            Some(id) => member.ledger().charge_unchecked(id, usize::from(seen.device), Kind::Pool, more),
            None => return,
        }
    }
    let less = member.process.pools.known.change(handle, |pool| {
        pool.unverified = 0;
        let charged = pool.charged.saturating_add(more);
        pool.charged = charged.min(holds.max(pool.given_out.saturating_sub(pool.promised)));
        (Keep::Yes, charged - pool.charged)
    });
    uncharge(member, &seen, less.unwrap_or(0));
}

/// What a pool holds of the card.
fn reserved(handle: u64) -> Option<u64> {
    let mut bytes = 0u64;
    // SAFETY: this attribute is a 64-bit number.
    let asked =
        unsafe { real::cuMemPoolGetAttribute()?(handle as *mut c_void, POOL_RESERVED_NOW, (&raw mut bytes).cast()) };
    (asked == SUCCESS).then_some(bytes)
}

/// There is no room on a device: gives back what pools and graphs hold and do not use.
#[cold]
pub(crate) fn give_back(member: Member, device: usize) {
    stream::relaxed(member, || {
        let pending = member.process.pools.returned.load(Ordering::Relaxed) && !stream::any_capture(member);
        if let Some(wait) = real::cuCtxSynchronize().filter(|_| pending) {
            gate::before_sync(Wait::Context);
            // SAFETY: takes no arguments. Without it blocks that were freed in a stream cannot be trimmed.
            unsafe { wait() };
        }
        each(member, |handle, pool| {
            if usize::from(pool.device) == device {
                if let Some(trim) = real::cuMemPoolTrimTo() {
                    // SAFETY: a pool the driver knows.
                    unsafe { trim(handle as *mut c_void, 0) };
                }
                put_right(member, handle);
            }
        });
        graph::trim(member, device);
    });
}

/// A pool is made.
///
/// # Safety
/// `out` is null or where the driver puts the pool; `properties` is null or its description.
pub(crate) unsafe fn create(
    out: *const *mut c_void,
    properties: *const CUmemPoolProps_v1,
    go: impl Fn() -> CUresult,
) -> CUresult {
    // SAFETY: by contract.
    let Some(location) = (unsafe { properties.as_ref() }).map(|p| p.location) else { return go() };
    let on_host = location.kind != LOCATION_DEVICE;
    let (member, device) = match if on_host { books::current() } else { books::of_device(location.id) } {
        Account::Of(member, device, _) => (member, device),
        Account::None => return go(),
        Account::Refused(status) => return status,
    };
    let status = go();
    // SAFETY: null, or the driver has just written it.
    if let (Some(pool), SUCCESS) = (unsafe { out.as_ref() }, status) {
        let fresh = Pool::new(device, on_host);
        if let Some(stale) = member.process.pools.known.insert(*pool as u64, fresh) {
            uncharge(member, &stale, stale.charged);
        }
    }
    status
}

/// A pool goes; its last blocks may come back later.
pub(crate) fn destroy(pool: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    let Some(member) = of_container().filter(|_| status == SUCCESS) else { return status };
    let change = member.process.pools.known.change(pool as u64, |p| {
        let before = *p;
        p.condemned = true;
        p.charged = p.charged.min(p.given_out);
        (if p.given_out == 0 { Keep::No } else { Keep::Yes }, before)
    });
    if let Some(before) = change {
        uncharge(member, &before, before.charged.saturating_sub(before.given_out));
        for current in &member.process.pools.current {
            let _ = current.compare_exchange(pool as u64, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    status
}

/// A pool gives back what it does not use.
pub(crate) fn trim(pool: *mut c_void, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if let Some(member) = of_container().filter(|_| status == SUCCESS) {
        put_right(member, pool as u64);
    }
    status
}

/// A device allocates from another pool from now on.
pub(crate) fn set_current(ordinal: CUdevice, go: impl Fn() -> CUresult) -> CUresult {
    let status = go();
    if let Account::Of(member, device, _) = books::of_device(ordinal) {
        member.process.pools.current[device].store(0, Ordering::Relaxed);
    }
    status
}

/// The same, by location.
///
/// # Safety
/// `location` is null or a location.
pub(crate) unsafe fn set_current_at(location: *const CUmemLocation, go: impl Fn() -> CUresult) -> CUresult {
    // SAFETY: by contract.
    match unsafe { location.as_ref() } {
        Some(at) if at.kind == LOCATION_DEVICE => set_current(at.id, go),
        _ => go(),
    }
}

/// The pool that a device allocates from when none is named.
fn current(member: Member, device: usize) -> Option<u64> {
    let kept = &member.process.pools.current[device];
    match kept.load(Ordering::Relaxed) {
        0 => {
            let mut pool = core::ptr::null_mut();
            // SAFETY: a place for the pool.
            if unsafe { real::cuDeviceGetMemPool()?(&mut pool, member.ordinal(device)?) } != SUCCESS {
                return None;
            }
            kept.store(pool as u64, Ordering::Relaxed);
            Some(pool as u64)
        }
        pool => Some(pool),
    }
}

/// The account of the device a stream belongs to.
fn of_stream(stream: CUstream) -> Account {
    let account = books::current();
    let Account::Of(member, ..) = account else { return account };
    if (stream as usize) <= 2 || member.gate().devices() <= 1 {
        return account;
    }
    match member.stream_place(stream) {
        Some(Place::Granted(device)) => Account::Of(member, device, 0),
        _ => account,
    }
}
