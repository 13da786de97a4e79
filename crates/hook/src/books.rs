//! Keeping the books: every byte is charged to the container before the driver is asked for it, and credited when it is given back
//! or refused.

use core::sync::atomic::{AtomicU64, Ordering};

use divvy_shm::frame::EventKind;
pub(crate) use divvy_shm::ledger::Kind;

use crate::cuda::types::{CUresult, OUT_OF_MEMORY, SYSTEM_NOT_READY};
use crate::device::Place;
use crate::hooks::report::LastSeen;
use crate::liveness;
use crate::map::Map;
use crate::process::{Member, Standing, standing};

/// What a process holds. Nothing when all zero.
pub(crate) struct Books {
    /// Memory by its address.
    pub(crate) blocks: Map<Block>,
    /// Host memory pinned through the driver.
    host: AtomicU64,
    /// What the driver last said about each card.
    pub(crate) last_seen: [LastSeen; divvy_shm::MAX_DEVICES],
}

/// A block of memory that was given out.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    /// Its size as charged.
    pub(crate) bytes: u64,
    /// The context it goes with, 0 if with none.
    pub(crate) context: u64,
    /// Where it is charged.
    pub(crate) place: Charged,
}

/// Where memory is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// On a device of the container.
    Device(u8, Kind),
    /// On the host.
    Host,
}

/// A charge that was made and is not yet a block: credited if the driver refuses.
#[must_use]
pub(crate) struct Charge {
    member: Member,
    device: usize,
    kind: Kind,
    bytes: u64,
}

/// Whether there is anything to account for, and where.
pub(crate) enum Account {
    /// A device of the container.
    Of(Member, usize, u64),
    /// Nothing to do: outside a container, or the driver will refuse by itself.
    None,
    /// Not to be had at all.
    Refused(CUresult),
}

/// The account of the calling thread's current device.
#[inline]
pub(crate) fn current() -> Account {
    match standing() {
        Standing::Member(member) => match member.current() {
            Some((context, Place::Granted(device))) => Account::Of(member, device, context),
            Some((_, Place::Foreign)) => Account::Refused(OUT_OF_MEMORY),
            None => Account::None,
        },
        Standing::Outside => Account::None,
        Standing::Broken => Account::Refused(SYSTEM_NOT_READY),
    }
}

/// The account of a device by the driver's number.
pub(crate) fn of_device(ordinal: i32) -> Account {
    match standing() {
        Standing::Member(member) => match member.place(ordinal) {
            Some(Place::Granted(device)) => Account::Of(member, device, 0),
            Some(Place::Foreign) => Account::Refused(OUT_OF_MEMORY),
            None => Account::None,
        },
        Standing::Outside => Account::None,
        Standing::Broken => Account::Refused(SYSTEM_NOT_READY),
    }
}

impl Charge {
    /// Charges `bytes`, or says with which status to refuse. On pressure everything is given back first that can be.
    #[inline]
    pub(crate) fn make(member: Member, device: usize, kind: Kind, bytes: u64) -> Result<Charge, CUresult> {
        let Some(id) = member.id() else { return Err(OUT_OF_MEMORY) };
        member.introduce();
        let Some(limits) = member.gate().limits(device) else { return Err(OUT_OF_MEMORY) };
        member.process.books.last_seen[device].forget();
        let charge = Charge { member, device, kind, bytes };
        if !limits.enforcement.holds() {
            member.ledger().charge_unchecked(id, device, kind, bytes);
            return Ok(charge);
        }
        match member.ledger().charge(id, device, kind, bytes, limits.memory) {
            Ok(()) => Ok(charge),
            Err(_) => charge.press(limits.memory),
        }
    }

    /// There is no room: make some, and try once more.
    #[cold]
    fn press(self, limit: u64) -> Result<Charge, CUresult> {
        let Some(id) = self.member.id() else { return Err(OUT_OF_MEMORY) };
        liveness::reap_the_dead(self.member.ledger(), liveness::SHORT_OF_MEMORY_NS);
        crate::hooks::pool::give_back(self.member, self.device);
        match self.member.ledger().charge(id, self.device, self.kind, self.bytes, limit) {
            Ok(()) => Ok(self),
            Err(over) => {
                self.member.ledger().add_refused(id, self.device);
                self.member.tell(EventKind::Refused, self.device, self.bytes, over.used);
                Err(OUT_OF_MEMORY)
            }
        }
    }

    /// The driver refused, or less was taken.
    pub(crate) fn cancel(self) {
        credit(self.member, self.device, self.kind, self.bytes);
    }

    /// The driver gave it: a block at an address.
    pub(crate) fn hold(self, address: u64, context: u64) {
        let block = Block { bytes: self.bytes, context, place: Charged::Device(self.device as u8, self.kind) };
        if let Some(stale) = self.member.blocks().insert(address, block) {
            // Somebody freed it behind our back, or the driver could not have given the address again.
            settle(self.member, stale);
        }
    }

    /// The driver gave it, and it is remembered elsewhere.
    pub(crate) fn keep(self) -> u64 {
        self.bytes
    }
}

/// Takes a charge back.
pub(crate) fn credit(member: Member, device: usize, kind: Kind, bytes: u64) {
    if let Some(id) = member.id() {
        member.process.books.last_seen[device].forget();
        member.ledger().credit(id, device, kind, bytes);
    }
}

/// A block is gone.
pub(crate) fn settle(member: Member, block: Block) {
    match block.place {
        Charged::Device(device, kind) => credit(member, usize::from(device), kind, block.bytes),
        Charged::Host => host_credit(member, block.bytes),
    }
}

/// Host memory was pinned: shown, not limited.
pub(crate) fn host_charge(member: Member, bytes: u64) {
    let now = member.process.books.host.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if let Some(id) = member.id() {
        member.ledger().set_host_bytes(id, 0, now);
    }
}

/// Host memory was given back.
pub(crate) fn host_credit(member: Member, bytes: u64) {
    let less = |held: u64| Some(held.saturating_sub(bytes));
    let before =
        member.process.books.host.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or_else(|held| held);
    if let Some(id) = member.id() {
        member.ledger().set_host_bytes(id, 0, before.saturating_sub(bytes));
    }
}
