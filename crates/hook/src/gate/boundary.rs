//! Ending a chunk and beginning the next, both in one call to the driver.

use core::sync::atomic::{AtomicBool, Ordering};

use super::hold;
use super::stream::{Known, Way};
use crate::cuda::real;
use crate::cuda::types::{CUresult, CUstream, CUstreamBatchMemOpParams, NOT_SUPPORTED, SUCCESS};
use crate::hooks::stream::relaxed;
use crate::process::Member;

/// The driver said that streams cannot do this here. Everything goes through the gate on the CPU from then on.
static STREAMS_CANNOT: AtomicBool = AtomicBool::new(false);

/// Before a launch that was counted, and before which `before` units had been submitted: ends the open chunk, if there is one, and
/// begins another.
#[cold]
pub(super) fn cross(member: Member, known: &'static Known, stream: CUstream, before: u32, hold: bool) {
    let facts = known.facts();
    let Some((_, marks)) = &facts.metered else { return };
    let _one_at_a_time = known.crossing.lock();
    let fill = before.wrapping_sub(marks.ended());
    if fill > u32::MAX / 2 {
        return; // another thread ended the chunk after our launch was counted
    }
    let hold = hold && known.is_held(member);
    let Some((gate, completion)) = gpu(facts.way) else {
        hold::cross(member, known, stream, before, hold);
        return;
    };
    known.tries_more(marks.queued() <= fill);
    known.begins();
    let mut operations = [CUstreamBatchMemOpParams::NONE; 2];
    let mut count = 0;
    if fill > 0 {
        operations[count] = CUstreamBatchMemOpParams::write(completion, before);
        count += 1;
    }
    // A stream that waits for the gate leaves the card to other programs. One that waits for a stream that waits for the gate does
    // not: the card gives their program its slice of time all the while. Such streams are kept back before they are on the card.
    let kept_back = hold && !known.has_the_card_to_itself() && member.process.streams.others_depend(known);
    if hold && !kept_back && !(fill == 0 && known.has_a_free_way()) {
        operations[count] = CUstreamBatchMemOpParams::wait_equal(gate, divvy_shm::gate::OPEN);
        count += 1;
    }
    if put(member, stream, &mut operations[..count]) == SUCCESS && fill > 0 {
        marks.end(before);
    }
    if fill == 0 {
        member.process.streams.chunk_opened();
    }
    if kept_back {
        hold::keep_back(member, known);
        known.begins();
    }
}

/// Ends the open chunk, if there is one: nothing follows for now.
pub(super) fn close(member: Member, known: &'static Known) {
    let facts = known.facts();
    let Some((_, marks)) = &facts.metered else { return };
    if marks.submitted() == marks.ended() {
        return;
    }
    let _one_at_a_time = known.crossing.lock();
    let submitted = marks.submitted();
    if submitted == marks.ended() {
        return;
    }
    match gpu(facts.way) {
        Some((_, completion)) => {
            let mut operation = [CUstreamBatchMemOpParams::write(completion, submitted)];
            if put(member, facts.stream, &mut operation) != SUCCESS {
                return;
            }
            marks.end(submitted);
        }
        None => hold::close(known, submitted),
    }
    member.process.streams.chunk_closed();
}

/// A wait for the gate, for a stream that is not metered.
#[cold]
pub(super) fn wait_only(member: Member, known: &'static Known, stream: CUstream) {
    if !known.is_held(member) {
        return;
    }
    match gpu(known.facts().way) {
        Some((gate, _)) => {
            put(member, stream, &mut [CUstreamBatchMemOpParams::wait_equal(gate, divvy_shm::gate::OPEN)]);
        }
        None => hold::wait(member, known),
    }
}

fn gpu(way: Way) -> Option<(u64, u64)> {
    match way {
        Way::Gpu { gate, completion } if !STREAMS_CANNOT.load(Ordering::Relaxed) => Some((gate, completion)),
        _ => None,
    }
}

fn put(member: Member, stream: CUstream, operations: &mut [CUstreamBatchMemOpParams]) -> CUresult {
    let Some(put) = real::cuStreamBatchMemOp_v2() else {
        STREAMS_CANNOT.store(true, Ordering::Relaxed);
        return NOT_SUPPORTED;
    };
    if operations.is_empty() {
        return SUCCESS;
    }
    let mut status = SUCCESS;
    relaxed(member, || {
        // SAFETY: the program's own stream, and as many operations as said, on words the driver knows.
        status = unsafe { put(stream, operations.len() as u32, operations.as_mut_ptr(), 0) };
    });
    if status == NOT_SUPPORTED {
        STREAMS_CANNOT.store(true, Ordering::Relaxed);
    }
    status
}
