//! Faults somebody asked for: XIDs, cards that fall off the bus, calls that fail or are slow. And settings NVML remembers.

use std::sync::atomic::Ordering::SeqCst;

use super::Machine;
use super::layout::{Setting, XIDS};
use crate::spec::duration;
use crate::sys;

/// An XID that a card reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Its place in the card's history, from 1.
    pub number: u64,
    /// The code.
    pub code: u64,
}

/// What a call runs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Wait this long first, nanoseconds.
    pub delay: u64,
    /// Then answer this instead of doing anything, if not 0.
    pub answer: u32,
}

/// A wish for faults: which calls, which fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inject {
    /// The exported symbol, or a prefix that ends in `*`.
    pub symbol: String,
    /// The first call that is hit, from 1.
    pub from: u64,
    /// How many calls are hit.
    pub times: u64,
    /// Only in this process (0: in all), by the pid of its own namespace.
    pub pid: u32,
    /// What happens to it.
    pub fault: Fault,
}

impl Inject {
    /// Reads `cuMemAlloc_v2 fail=2`, `cuMemAlloc_v2 fail=2 from=3 times=1`, `cuLaunchKernel slow=1ms pid=77`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let symbol = words.next().ok_or("name a symbol, as in \"cuMemAlloc_v2 fail=2 from=3\"")?;
        let mut wish =
            Self { symbol: symbol.to_owned(), from: 1, times: u64::MAX, pid: 0, fault: Fault { delay: 0, answer: 0 } };
        let number = |value: &str| value.parse::<u64>().map_err(|_| format!("\"{value}\" is no number"));
        for word in words {
            match word.split_once('=') {
                Some(("fail", v)) => wish.fault.answer = u32::try_from(number(v)?).map_err(|e| e.to_string())?,
                Some(("slow", v)) => wish.fault.delay = duration(v)?,
                Some(("from", v)) => wish.from = number(v)?.max(1),
                Some(("times", v)) => wish.times = number(v)?,
                Some(("pid", v)) => wish.pid = u32::try_from(number(v)?).map_err(|e| e.to_string())?,
                _ => return Err(format!("\"{word}\": write fail=CODE, slow=TIME, from=N, times=N or pid=N")),
            }
        }
        if wish.fault == (Fault { delay: 0, answer: 0 }) {
            return Err(format!("\"{text}\" does nothing: add fail=CODE or slow=TIME"));
        }
        Ok(wish)
    }
}

impl Machine {
    /// A card reports an XID.
    pub fn report_xid(&self, card: usize, code: u64) {
        let cell = &self.layout.cards[card];
        let place = &cell.xid[(cell.xid_count.load(SeqCst) as usize) % XIDS];
        place.code.store(code, SeqCst);
        place.at.store(sys::now(), SeqCst);
        cell.xid_count.fetch_add(1, SeqCst);
    }

    /// How many XIDs a card has reported.
    #[must_use]
    pub fn xid_count(&self, card: usize) -> u64 {
        self.layout.cards[card].xid_count.load(SeqCst)
    }

    /// The first XID of a card after the first `seen`.
    #[must_use]
    pub fn xid_after(&self, card: usize, seen: u64) -> Option<Xid> {
        let cell = &self.layout.cards[card];
        let count = cell.xid_count.load(SeqCst);
        let next = seen.max(count.saturating_sub(XIDS as u64));
        (next < count).then(|| Xid { number: next + 1, code: cell.xid[(next as usize) % XIDS].code.load(SeqCst) })
    }

    /// Takes a card off the bus, or puts it back.
    pub fn lose(&self, card: usize, lost: bool) {
        self.layout.cards[card].lost.store(lost.into(), SeqCst);
    }

    /// Whether a card fell off the bus.
    #[must_use]
    pub fn is_lost(&self, card: usize) -> bool {
        self.layout.cards[card].lost.load(SeqCst) == 1
    }

    /// What somebody set.
    #[must_use]
    pub fn setting(&self, card: usize, setting: Setting) -> Option<u64> {
        self.layout.cards[card].settings[setting as usize].load(SeqCst).checked_sub(1)
    }

    /// Remembers what somebody set; `None` forgets.
    pub fn set(&self, card: usize, setting: Setting, value: Option<u64>) {
        self.layout.cards[card].settings[setting as usize].store(value.map_or(0, |v| v + 1), SeqCst);
    }

    /// Arms a fault. False when too many are armed already.
    pub fn inject(&self, wish: &Inject) -> bool {
        let free = self.layout.injection.iter().find(|cell| cell.set.load(SeqCst) == 0);
        let Some(cell) = free else { return false };
        cell.symbol.write(&wish.symbol);
        cell.answer.store(wish.fault.answer, SeqCst);
        cell.delay.store(wish.fault.delay, SeqCst);
        cell.from.store(wish.from, SeqCst);
        cell.times.store(wish.times, SeqCst);
        cell.pid.store(wish.pid, SeqCst);
        cell.calls.store(0, SeqCst);
        cell.set.store(1, SeqCst);
        self.layout.injections.fetch_add(1, SeqCst);
        true
    }

    /// Disarms all faults.
    pub fn clear_injections(&self) {
        self.layout.injections.store(0, SeqCst);
        self.layout.injection.iter().for_each(|cell| cell.set.store(0, SeqCst));
    }

    /// What this call of a symbol runs into. One load while nothing is armed.
    #[inline]
    #[must_use]
    pub fn fault(&self, symbol: &str) -> Option<Fault> {
        if self.layout.injections.load(std::sync::atomic::Ordering::Relaxed) == 0 { None } else { self.armed(symbol) }
    }

    #[cold]
    fn armed(&self, symbol: &str) -> Option<Fault> {
        self.layout.injection.iter().filter(|cell| cell.set.load(SeqCst) == 1).find_map(|cell| {
            let (wish, pid) = (cell.symbol.read(), cell.pid.load(SeqCst));
            let named = wish.strip_suffix('*').map_or(wish == symbol, |prefix| symbol.starts_with(prefix));
            if !named || (pid != 0 && pid != std::process::id()) {
                return None;
            }
            let call = cell.calls.fetch_add(1, SeqCst) + 1;
            let from = cell.from.load(SeqCst);
            let hit = call >= from && call - from < cell.times.load(SeqCst);
            hit.then(|| Fault { delay: cell.delay.load(SeqCst), answer: cell.answer.load(SeqCst) })
        })
    }
}
