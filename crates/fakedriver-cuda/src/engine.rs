//! Streams, and the simulation that plays what is queued in them.
//!
//! Nothing here is a clock that ticks. The state is brought up to date ("stepped") whenever somebody looks: a thread that
//! submits, waits or queries, or the executor thread, which sleeps until the next thing is due. Everything happens at its
//! *ideal* time: a kernel ends when its time is over, and the next one in the stream begins there, even if the thread that
//! notices comes later. So simulated GPU time equals wall time on a busy host too.
//!
//! - A kernel needs the unit's turn (shared between processes, see `divvy_fakedriver::machine`) and room on it: as many
//!   multiprocessors as it has blocks. Kernels of one process run side by side while there is room.
//! - Transfers between host and device run beside, on copy engines of their own.
//! - A stream that waits for a value in memory occupies nothing. The word is watched by a futex and polled.

use std::collections::VecDeque;

use divvy_fakedriver::machine::{Machine, Unit};
use divvy_fakedriver::sys::{self, Awaited};

use crate::abi::Error;
use crate::handles::Handles;
use crate::process::Process;

mod unit;

pub(crate) use unit::{UnitSim, Wish};

/// The handle of a stream.
pub(crate) type StreamId = u64;

/// A place in a stream's history: the n-th thing submitted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) stream: StreamId,
    pub(crate) number: u64,
}

/// What is done when a piece of work is over.
pub(crate) type Effect = Box<dyn FnOnce(&mut Process) -> Result<(), Error> + Send>;

/// How a word is compared while a stream waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    AtLeast,
    Equal,
    And,
    Nor,
}

/// A piece of work.
pub(crate) enum Work {
    /// Runs on the unit for `time`, on `width` multiprocessors.
    Kernel { time: u64, width: u32, effect: Option<Effect> },
    /// Runs on a copy engine for `time`.
    Transfer { time: u64, effect: Option<Effect> },
    /// Takes no time.
    Instant(Effect),
    /// Marks an event as reached. The second number tells this record from later ones of the same event.
    Record(u64, u64),
    /// Holds the stream until a word in memory is right.
    Wait { address: u64, wide: bool, value: u64, until: Until },
    /// A function of the program's.
    Call { function: u64, data: u64, callback_of: Option<StreamId> },
    /// Only its dependencies matter.
    Nothing,
}

struct Command {
    submitted: u64,
    after: Vec<Mark>,
    work: Work,
}

/// How far the first command of a stream's queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// Not begun.
    Fresh,
    /// On the unit, running or in line.
    OnUnit,
    /// On a copy engine until then.
    Copying(u64),
    /// Watching a word since then.
    Watching(u64),
    /// In a function of the program's.
    Calling,
}

pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) unit: Unit,
    /// Whether it waits for the legacy stream and the legacy stream for it.
    pub(crate) blocking: bool,
    pub(crate) priority: i32,
    pub(crate) flags: u32,
    /// Things submitted to it and things done, ever.
    pub(crate) submitted: u64,
    pub(crate) done: u64,
    /// When the last thing was done.
    done_at: u64,
    queue: VecDeque<Command>,
    head: Head,
    dying: bool,
}

/// All streams of the process, and the units they run on.
#[derive(Default)]
pub(crate) struct Engine {
    streams: Handles<Stream>,
    /// Streams with something in their queue.
    active: Vec<StreamId>,
    units: Vec<UnitSim>,
    /// Functions of the program's to be called, for the thread that does it.
    pub(crate) calls: VecDeque<(StreamId, u64, u64, Option<StreamId>)>,
    /// Until when the executor sleeps; `None` means until its bell rings.
    pub(crate) executor_until: Option<u64>,
    /// Threads of the program that wait and step the engine themselves meanwhile.
    pub(crate) waiters: u32,
}

/// How a sleeper should sleep: until when, and on which words besides the bell.
pub(crate) struct Rest {
    pub(crate) until: Option<u64>,
    pub(crate) words: Vec<Awaited>,
}

// SAFETY: the addresses are only compared and given to the kernel.
unsafe impl Send for Rest {}

/// When to look at a word again that may have changed without a wake-up: after an eighth of the time waited so far, within
/// bounds; rarely once nothing happened for long.
fn poll_interval(waited: u64) -> u64 {
    if waited > 100_000_000 { 1_000_000 } else { (waited / 8).clamp(20_000, 200_000) }
}

/// Busy time is booked at least this often.
const BOOKING: u64 = 50_000_000;

impl Engine {
    pub(crate) fn add_stream(
        &mut self,
        id: StreamId,
        context: u64,
        unit: Unit,
        blocking: bool,
        priority: i32,
        flags: u32,
    ) {
        let stream = Stream {
            context,
            unit,
            blocking,
            priority,
            flags,
            submitted: 0,
            done: 0,
            done_at: 0,
            queue: VecDeque::new(),
            head: Head::Fresh,
            dying: false,
        };
        self.streams.insert(id, stream);
    }

    pub(crate) fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(&id).filter(|s| !s.dying)
    }

    /// Forgets a stream once what is queued in it is done.
    pub(crate) fn remove_stream(&mut self, id: StreamId) {
        match self.streams.get_mut(&id) {
            Some(stream) if !stream.queue.is_empty() => stream.dying = true,
            _ => drop(self.streams.remove(&id)),
        }
    }

    /// Drops all streams of a context with everything queued in them.
    pub(crate) fn drop_context(&mut self, context: u64) {
        self.abort(context);
        self.streams.retain(|_, s| s.context != context);
    }

    /// Throws away everything queued in the streams of a context: it is broken.
    pub(crate) fn abort(&mut self, context: u64) {
        for (id, stream) in self.streams.iter_mut().filter(|(_, s)| s.context == context) {
            stream.queue.clear();
            stream.done = stream.submitted;
            stream.head = Head::Fresh;
            self.units.iter_mut().for_each(|u| u.forget(*id));
        }
        let streams = &self.streams;
        self.active.retain(|id| streams.get(id).is_some_and(|s| !s.queue.is_empty()));
    }

    pub(crate) fn set_priority(&mut self, id: StreamId, priority: i32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.priority = priority;
        }
    }

    pub(crate) fn is_idle(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|s| s.queue.is_empty())
    }

    /// The last thing submitted to a stream.
    pub(crate) fn mark(&self, id: StreamId) -> Mark {
        Mark { stream: id, number: self.streams.get(&id).map_or(0, |s| s.submitted) }
    }

    pub(crate) fn is_done(&self, mark: Mark) -> bool {
        self.streams.get(&mark.stream).is_none_or(|s| s.done >= mark.number)
    }

    /// The last things submitted to each stream of a context that still has work.
    pub(crate) fn marks_of(&self, context: u64) -> Vec<Mark> {
        let mine = self.active.iter().filter(|id| self.streams[*id].context == context);
        mine.map(|&id| self.mark(id)).collect()
    }

    /// The streams of a context.
    pub(crate) fn streams_of(&self, context: u64) -> Vec<StreamId> {
        self.streams.iter().filter(|(_, s)| s.context == context && !s.dying).map(|(id, _)| *id).collect()
    }

    /// What the legacy default stream's rule makes a command wait for.
    fn implied(&self, id: StreamId, legacy: StreamId) -> Vec<Mark> {
        let Some(stream) = self.streams.get(&id) else { return Vec::new() };
        let waits = |other: &Stream| other.context == stream.context && other.blocking;
        if id == legacy {
            let others = self.active.iter().filter(|&&o| o != id && waits(&self.streams[&o]));
            others.map(|&o| self.mark(o)).collect()
        } else if stream.blocking && !self.is_idle(legacy) {
            vec![self.mark(legacy)]
        } else {
            Vec::new()
        }
    }

    /// Puts work in a stream's queue. True if it is the first there, so that somebody should step.
    pub(crate) fn push(&mut self, id: StreamId, legacy: StreamId, work: Work, mut after: Vec<Mark>, now: u64) -> bool {
        after.extend(self.implied(id, legacy));
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        stream.submitted += 1;
        stream.queue.push_back(Command { submitted: now, after, work });
        let first = stream.queue.len() == 1;
        if first {
            self.active.push(id);
        }
        first
    }

    fn unit_sim(&mut self, unit: Unit) -> &mut UnitSim {
        let at = self.units.iter().position(|u| u.unit == unit).unwrap_or_else(|| {
            self.units.push(UnitSim::new(unit));
            self.units.len() - 1
        });
        &mut self.units[at]
    }

    /// When the next thing is due, as far as it is known.
    fn next_due(&self, machine: &Machine) -> Option<u64> {
        let copies = self.active.iter().filter_map(|id| match self.streams[id].head {
            Head::Copying(end) => Some(end),
            _ => None,
        });
        copies.chain(self.units.iter().filter_map(|u| u.next_due(machine))).min()
    }

    /// Whether time alone, or the program's own functions, will bring something on.
    pub(crate) fn can_progress(&self) -> bool {
        let moves = |id: &StreamId| matches!(self.streams[id].head, Head::OnUnit | Head::Copying(_) | Head::Calling);
        self.active.iter().any(moves)
    }

    /// How to sleep until there is something to do.
    pub(crate) fn rest(&self, machine: &Machine, now: u64) -> Rest {
        let mut until = self.next_due(machine);
        let mut words = Vec::new();
        let mut sooner = |t: u64| until = Some(until.map_or(t, |u| u.min(t)));
        if self.units.iter().any(UnitSim::is_running) {
            sooner(now + BOOKING);
        }
        for id in &self.active {
            let stream = &self.streams[id];
            if let (Head::Watching(since), Some(Work::Wait { address, wide, .. })) =
                (stream.head, stream.queue.front().map(|c| &c.work))
            {
                sooner(now + poll_interval(now.saturating_sub(since)));
                for half in 0..=u64::from(*wide) {
                    let at = (address + 4 * half) as *const u32;
                    // SAFETY: the address was checked when the wait was submitted, and its memory cannot go while it is watched.
                    words.push((at, unsafe { at.read_volatile() }));
                }
            }
        }
        Rest { until, words }
    }
}

fn is_right(address: u64, wide: bool, value: u64, until: Until) -> bool {
    // SAFETY: the address was checked when the wait was submitted; the word may change under us, hence volatile.
    let (found, difference) = unsafe {
        if wide {
            let found = (address as *const u64).read_volatile();
            (found, found.wrapping_sub(value).cast_signed())
        } else {
            let found = (address as *const u32).read_volatile();
            (u64::from(found), i64::from(found.wrapping_sub(value as u32).cast_signed()))
        }
    };
    let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
    match until {
        Until::AtLeast => difference >= 0,
        Until::Equal => found == value & mask,
        Until::And => found & value & mask != 0,
        Until::Nor => (found | value) & mask != mask,
    }
}

impl Process {
    /// Brings everything up to now. True if anything got done.
    pub(crate) fn step(&mut self, now: u64) -> bool {
        let mut progress = false;
        let (machine, seat) = (self.machine, self.seat);
        self.engine.units.iter_mut().for_each(|u| u.notice_loss(machine, &seat));
        loop {
            progress |= self.settle(now);
            self.engine.units.iter_mut().for_each(|u| u.begin_or_ask(machine, &seat));
            let Some(due) = self.engine.next_due(machine).filter(|&t| t <= now) else { break };
            for unit in &mut self.engine.units {
                for (stream, at) in unit.advance(machine, &seat, due) {
                    self.finished.push((stream, at));
                }
            }
            for &id in &self.engine.active {
                if let Head::Copying(end) = self.engine.streams[&id].head
                    && end <= due
                {
                    self.finished.push((id, end));
                }
            }
            progress |= !self.finished.is_empty();
            for (stream, at) in std::mem::take(&mut self.finished) {
                self.complete(stream, at);
            }
        }
        self.engine.units.iter_mut().for_each(|u| u.rest(machine, &seat, now));
        progress
    }

    /// Begins what can begin and ends what takes no time, until nothing moves.
    fn settle(&mut self, now: u64) -> bool {
        let mut progress = false;
        loop {
            let mut moved = false;
            let mut index = 0;
            while index < self.engine.active.len() {
                let id = self.engine.active[index];
                if self.try_begin(id, now) {
                    moved = true;
                    // A completed head may have emptied the stream and removed it from the list.
                    if self.engine.active.get(index) != Some(&id) {
                        continue;
                    }
                } else {
                    index += 1;
                }
            }
            progress |= moved;
            if !moved {
                return progress;
            }
        }
    }

    /// Tries to begin the first command of a stream; true if it was done at once.
    fn try_begin(&mut self, id: StreamId, now: u64) -> bool {
        let engine = &mut self.engine;
        let Some(stream) = engine.streams.get(&id) else { return false };
        let Some(command) = stream.queue.front() else { return false };
        let ready = match stream.head {
            Head::Fresh => {
                let mut ready = command.submitted.max(stream.done_at);
                for mark in &command.after {
                    if !engine.is_done(*mark) {
                        return false;
                    }
                    if let Some(other) = engine.streams.get(&mark.stream).filter(|s| s.done == mark.number) {
                        ready = ready.max(other.done_at);
                    }
                }
                ready
            }
            Head::Watching(_) => now,
            _ => return false,
        };
        let (unit, priority, context) = (stream.unit, stream.priority, stream.context);
        match &command.work {
            Work::Kernel { time, width, .. } => {
                let wish = Wish { stream: id, ready, time: *time, width: *width, priority };
                engine.unit_sim(unit).line_up(wish);
                self.set_head(id, Head::OnUnit);
                false
            }
            Work::Transfer { time, .. } => {
                let end = ready + time;
                self.set_head(id, Head::Copying(end));
                false
            }
            Work::Wait { address, wide, value, until } => {
                let (address, wide, value, until) = (*address, *wide, *value, *until);
                if !self.memory.is_watchable(address, if wide { 8 } else { 4 }) {
                    self.break_context(context, Error::ILLEGAL_ADDRESS);
                    return true;
                }
                if is_right(address, wide, value, until) {
                    self.complete(id, ready);
                    return true;
                }
                let head = &mut self.engine.streams.get_mut(&id).expect("it was there above").head;
                if *head == Head::Fresh {
                    *head = Head::Watching(now);
                }
                false
            }
            Work::Call { function, data, callback_of } => {
                let call = (id, *function, *data, *callback_of);
                engine.calls.push_back(call);
                self.set_head(id, Head::Calling);
                crate::process::wake_caller();
                false
            }
            Work::Instant(_) | Work::Record(..) | Work::Nothing => {
                self.complete(id, ready);
                true
            }
        }
    }

    fn set_head(&mut self, id: StreamId, head: Head) {
        if let Some(stream) = self.engine.streams.get_mut(&id) {
            stream.head = head;
        }
    }

    /// Ends the first command of a stream at its ideal time, with what follows from it.
    pub(crate) fn complete(&mut self, id: StreamId, at: u64) {
        let Some(stream) = self.engine.streams.get_mut(&id) else { return };
        let Some(command) = stream.queue.pop_front() else { return };
        stream.head = Head::Fresh;
        stream.done_at = stream.done_at.max(at);
        let (context, unit, empty, dying) = (stream.context, stream.unit, stream.queue.is_empty(), stream.dying);
        let outcome = match command.work {
            Work::Kernel { effect, .. } => {
                self.seat.account(unit).kernels.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                effect.map_or(Ok(()), |run| run(self))
            }
            Work::Transfer { effect, .. } => effect.map_or(Ok(()), |run| run(self)),
            Work::Instant(run) => run(self),
            Work::Record(event, number) => {
                self.events.reached(event, number, at);
                Ok(())
            }
            Work::Wait { .. } | Work::Call { .. } | Work::Nothing => Ok(()),
        };
        // Only now: who sees the mark as done must see what the work did.
        if let Some(stream) = self.engine.streams.get_mut(&id) {
            stream.done += 1;
        }
        if empty {
            self.engine.active.retain(|&a| a != id);
            if dying {
                self.engine.streams.remove(&id);
            }
        }
        if let Err(error) = outcome {
            self.break_context(context, error);
        }
    }

    /// Submits work to a stream and lets it begin if it can. What has been submitted wakes the executor if it would sleep too long.
    pub(crate) fn submit(&mut self, id: StreamId, work: Work, after: Vec<Mark>) {
        let now = sys::now();
        let legacy = self.legacy_stream_of(id);
        if self.engine.push(id, legacy, work, after, now) {
            self.step(now);
            self.rouse(now);
        }
    }

    /// Wakes the executor if something is due before it would wake by itself, or a waiting thread may have got what it waits for.
    pub(crate) fn rouse(&mut self, now: u64) {
        if self.engine.active.is_empty() && self.engine.waiters == 0 {
            return;
        }
        let until = self.engine.rest(self.machine, now).until;
        let earlier = match (until, self.engine.executor_until) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(new), Some(old)) => new < old,
        };
        if earlier || self.engine.waiters > 0 {
            self.engine.executor_until = until;
            self.seat.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_as_the_driver_says() {
        let narrow = |found: u32, value: u32, until| is_right(&raw const found as u64, false, value.into(), until);
        assert!(narrow(5, 5, Until::Equal) && !narrow(5, 4, Until::Equal));
        assert!(narrow(6, 5, Until::AtLeast) && !narrow(4, 5, Until::AtLeast));
        assert!(narrow(2, u32::MAX, Until::AtLeast), "counted round: 2 comes after -1");
        assert!(narrow(6, 4, Until::And) && !narrow(6, 1, Until::And));
        assert!(narrow(6, 1, Until::Nor) && !narrow(u32::MAX - 1, 1, Until::Nor));
        let wide = |found: u64, value: u64, until| is_right(&raw const found as u64, true, value, until);
        assert!(wide(1 << 40, 1 << 39, Until::AtLeast) && !wide(1 << 40, 0, Until::Equal));
    }

    #[test]
    fn a_word_is_looked_at_often_at_first_and_rarely_later() {
        let after: Vec<u64> = [0, 400_000, 10_000_000, 200_000_000].into_iter().map(poll_interval).collect();
        assert_eq!(after, [20_000, 50_000, 200_000, 1_000_000]);
    }
}
