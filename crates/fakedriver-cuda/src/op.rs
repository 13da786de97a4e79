//! Operations: whatever a stream can be asked to do. A stream that is being captured gets a node instead, a graph is made of
//! them, and a graph launch does them one after the other.

use divvy_fakedriver::machine::Unit;

use crate::abi::{Answer, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1, CUstreamBatchMemOpParams, Error};
use crate::engine::{StreamId, Until, Work};
use crate::memory::{Kind, On, Place};
use crate::process::Process;

#[derive(Clone)]
pub(crate) enum Op {
    Kernel(Launch),
    Copy(CUDA_MEMCPY3D_v2),
    Fill(CUDA_MEMSET_NODE_PARAMS_v1),
    Host {
        function: u64,
        data: u64,
    },
    Record(u64),
    Await(u64),
    Words(Vec<CUstreamBatchMemOpParams>),
    /// An allocation of a graph.
    Allocate {
        unit: Unit,
        address: u64,
        bytes: u64,
    },
    Free(u64),
    Child(u64),
    Conditional {
        handle: u64,
        kind: u32,
        bodies: Vec<u64>,
    },
    Empty,
}

/// A kernel launch.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
    /// As the caller gave them; only looked at when the launch is made.
    pub(crate) params: u64,
    pub(crate) extra: u64,
    /// How long it runs, known once its arguments were looked at.
    pub(crate) time: u64,
}

impl Launch {
    /// Looks at the arguments, which may be gone when the launch is done.
    pub(crate) fn look(mut self, process: &Process, unit: Unit) -> Result<Self, Error> {
        let function = process.kernels.get(self.function)?;
        let threads = self.block.iter().fold(1u64, |n, &d| n.saturating_mul(d.into()));
        let blocks = self.blocks();
        let too_much = threads > 1024 || self.block[2] > 64 || self.grid[1] > 65_535 || self.grid[2] > 65_535;
        if threads == 0 || blocks == 0 || too_much {
            return Err(Error::INVALID_VALUE);
        }
        let optin = crate::device::attribute(process.machine, unit, 97).unwrap_or(0).max(49_152);
        let allowed = function.attributes.get(&8).copied().unwrap_or(49_152).clamp(49_152, optin);
        if i64::from(self.shared) > i64::from(allowed) {
            return Err(Error::INVALID_VALUE);
        }
        let sms = process.machine.sms(unit);
        if self.cooperative && blocks > u64::from(sms) * 32 {
            return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        self.time = function.time(self.params as *mut *mut core::ffi::c_void, blocks, sms, process.machine.spec.kernel);
        Ok(self)
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().fold(1u64, |n, &d| n.saturating_mul(d.into()))
    }
}

/// A copy in one row.
pub(crate) fn row_copy(to: u64, from: u64, bytes: usize) -> CUDA_MEMCPY3D_v2 {
    const UNIFIED: u32 = 4;
    // SAFETY: all-zero is a valid value of a structure of numbers.
    let nothing: CUDA_MEMCPY3D_v2 = unsafe { std::mem::zeroed() };
    CUDA_MEMCPY3D_v2 {
        src_kind: UNIFIED,
        src_device: from,
        dst_kind: UNIFIED,
        dst_device: to,
        width: bytes,
        height: 1,
        depth: 1,
        ..nothing
    }
}

/// One side of a copy: where it begins, and how far its rows and layers are apart.
struct Side {
    place: Place,
    row: u64,
    layer: u64,
    on_host: bool,
}

impl Process {
    /// What one side of a copy means.
    #[expect(clippy::too_many_arguments, reason = "one side of a structure of the driver's")]
    fn side(
        &self,
        kind: u32,
        host: u64,
        device: u64,
        array: u64,
        at: [usize; 3],
        pitch: usize,
        height: usize,
        extent: [usize; 3],
    ) -> Result<Side, Error> {
        let (base, row, rows) = match kind {
            3 => {
                let array = self.memory.arrays.get(&array).ok_or(Error::INVALID_VALUE)?;
                (array.base, array.row(), array.rows())
            }
            1 | 2 | 4 => {
                let base = if kind == 1 { host } else { device };
                let row = if pitch == 0 { extent[0] } else { pitch };
                (base, row as u64, (if height == 0 { extent[1] } else { height }) as u64)
            }
            _ => return Err(Error::INVALID_VALUE),
        };
        if base == 0 || (pitch != 0 && pitch < extent[0] && extent[1] > 1) {
            return Err(Error::INVALID_VALUE);
        }
        let first = base + at[0] as u64 + at[1] as u64 * row + at[2] as u64 * row * rows;
        let span = (extent[2] as u64 - 1) * row * rows + (extent[1] as u64 - 1) * row + extent[0] as u64;
        let known = self.memory.find_range(first, span);
        if known.is_none() && (matches!(kind, 2 | 3) || self.memory.find(first).is_some()) {
            return Err(Error::INVALID_VALUE);
        }
        let on_host = known.is_none_or(|r| r.is_host());
        Ok(Side { place: self.memory.place(first), row, layer: row * rows, on_host })
    }

    fn sides(&self, c: &CUDA_MEMCPY3D_v2) -> Result<(Side, Side), Error> {
        let extent = [c.width, c.height, c.depth];
        let from = self.side(
            c.src_kind,
            c.src_host,
            c.src_device,
            c.src_array,
            [c.src_x, c.src_y, c.src_z],
            c.src_pitch,
            c.src_height,
            extent,
        )?;
        let to = self.side(
            c.dst_kind,
            c.dst_host,
            c.dst_device,
            c.dst_array,
            [c.dst_x, c.dst_y, c.dst_z],
            c.dst_pitch,
            c.dst_height,
            extent,
        )?;
        Ok((to, from))
    }

    /// Whether a copy touches memory of the program's that is not pinned, and so may not wait.
    pub(crate) fn touches_pageable(&self, copy: &CUDA_MEMCPY3D_v2) -> bool {
        let pageable = |kind: u32, host: u64, device: u64| match kind {
            1 => self.memory.find(host).is_none(),
            4 => self.memory.find(device).is_none(),
            _ => false,
        };
        pageable(copy.src_kind, copy.src_host, copy.src_device)
            || pageable(copy.dst_kind, copy.dst_host, copy.dst_device)
    }

    fn copy_work(&self, copy: &CUDA_MEMCPY3D_v2, stream: StreamId) -> Result<Work, Error> {
        if copy.width == 0 || copy.height == 0 || copy.depth == 0 {
            return Ok(Work::Nothing);
        }
        let (to, from) = self.sides(copy)?;
        let (width, height, depth) = (copy.width as u64, copy.height as u64, copy.depth as u64);
        let crosses = to.on_host || from.on_host;
        let time = transfer_time(width * height * depth, crosses);
        let effect = Box::new(move |p: &mut Process| {
            for layer in 0..depth {
                for row in 0..height {
                    let target = to.place.plus(layer * to.layer + row * to.row);
                    p.memory.copy(target, from.place.plus(layer * from.layer + row * from.row), width);
                }
            }
            Ok(())
        });
        Ok(if crosses {
            Work::Transfer { time, effect: Some(effect) }
        } else {
            Work::Kernel { time, width: self.whole(stream), effect: Some(effect) }
        })
    }

    /// All multiprocessors of a stream's unit.
    fn whole(&self, stream: StreamId) -> u32 {
        self.engine.stream(stream).map_or(1, |s| self.machine.sms(s.unit))
    }

    fn fill_work(&self, fill: &CUDA_MEMSET_NODE_PARAMS_v1, stream: StreamId) -> Result<Work, Error> {
        let CUDA_MEMSET_NODE_PARAMS_v1 { target, pitch, value, element, width, height } = *fill;
        let (element, width, rows, pitch) = (u64::from(element), width as u64, height as u64, pitch as u64);
        if !matches!(element, 1 | 2 | 4) {
            return Err(Error::INVALID_VALUE);
        }
        let bytes = element * width;
        if bytes == 0 || rows == 0 {
            return Ok(Work::Nothing);
        }
        let span = (rows - 1) * pitch + bytes;
        let known = self.memory.find_range(target, span).is_some();
        if !known || !target.is_multiple_of(element) || (rows > 1 && pitch < bytes) {
            return Err(Error::INVALID_VALUE);
        }
        let place = self.memory.place(target);
        let effect = Box::new(move |p: &mut Process| {
            (0..rows).for_each(|row| p.memory.fill(place.plus(row * pitch), value, element, width));
            Ok(())
        });
        let time = transfer_time(bytes * rows / 2, false);
        Ok(Work::Kernel { time, width: self.whole(stream), effect: Some(effect) })
    }

    /// The works of a batch of memory operations.
    fn word_works(&self, operations: &[CUstreamBatchMemOpParams]) -> Result<Vec<Work>, Error> {
        operations.iter().map(|op| self.word_work(op)).collect()
    }

    fn word_work(&self, op: &CUstreamBatchMemOpParams) -> Result<Work, Error> {
        const FLUSH: u32 = 1 << 30;
        let (address, wide, flags) = (op.address, matches!(op.operation, 4 | 5), op.more_flags);
        let value = if wide { op.value } else { op.value & 0xffff_ffff };
        let size = if wide { 8 } else { 4 };
        if matches!(op.operation, 3 | 6) {
            return Ok(Work::Nothing);
        }
        if !address.is_multiple_of(size) || !self.memory.is_watchable(address, size) {
            return Err(Error::INVALID_VALUE);
        }
        match op.operation {
            1 | 4 => {
                let until = match flags & !FLUSH {
                    0 => Until::AtLeast,
                    1 => Until::Equal,
                    2 => Until::And,
                    3 => Until::Nor,
                    _ => return Err(Error::INVALID_VALUE),
                };
                Ok(Work::Wait { address, wide, value, until })
            }
            2 | 5 if flags & !1 == 0 => {
                Ok(Work::Instant(Box::new(move |p: &mut Process| p.memory.write_word(address, wide, value))))
            }
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// Does an operation in a stream, or makes it a node if the stream is being captured.
    pub(crate) fn enqueue(&mut self, stream: StreamId, op: Op) -> Answer {
        if self.graphs.has_captures() {
            if self.graphs.capture_of(stream).is_some() {
                return self.capture(stream, op);
            }
            self.guard_legacy(stream)?;
        }
        self.perform(stream, &op)
    }

    /// Does an operation in a stream.
    pub(crate) fn perform(&mut self, stream: StreamId, op: &Op) -> Answer {
        let (context, unit) = self.engine.stream(stream).map(|s| (s.context, s.unit)).ok_or(Error::INVALID_HANDLE)?;
        match op {
            Op::Kernel(launch) => {
                let sms = self.machine.sms(unit);
                let limit = self.contexts.get(&context).and_then(|c| c.green).map_or(sms, |(count, _)| count.min(sms));
                let width = u32::try_from(launch.blocks().min(limit.into())).unwrap_or(1);
                self.submit(stream, Work::Kernel { time: launch.time, width, effect: None }, Vec::new());
            }
            Op::Copy(copy) => {
                let work = self.copy_work(copy, stream)?;
                self.submit(stream, work, Vec::new());
            }
            Op::Fill(fill) => {
                let work = self.fill_work(fill, stream)?;
                self.submit(stream, work, Vec::new());
            }
            Op::Host { function, data } => {
                let work = Work::Call { function: *function, data: *data, callback_of: None };
                self.submit(stream, work, Vec::new());
            }
            Op::Record(event) => {
                let mut mark = self.engine.mark(stream);
                mark.number += 1;
                let number = self.events.record(*event, mark);
                self.submit(stream, Work::Record(*event, number), Vec::new());
            }
            Op::Await(event) => {
                let event = self.events.get(*event).ok_or(Error::INVALID_HANDLE)?;
                if let Some([records, reached]) = event.shared() {
                    // Recorded in whatever process: the stream watches the word that counts what was reached.
                    let value = u64::from(records.load(std::sync::atomic::Ordering::SeqCst));
                    let (address, until) = (reached.as_ptr() as u64, Until::AtLeast);
                    self.submit(stream, Work::Wait { address, wide: false, value, until }, Vec::new());
                } else if let Some(mark) = event.mark.filter(|_| !event.is_reached()) {
                    self.submit(stream, Work::Nothing, vec![mark]);
                }
            }
            Op::Words(operations) => {
                for work in self.word_works(operations)? {
                    self.submit(stream, work, Vec::new());
                }
            }
            Op::Allocate { unit, address, bytes } => {
                let (machine, seat) = (self.machine, self.seat);
                let on = On { machine, seat: &seat, unit: *unit, context };
                self.memory.allocate_for_graph(&on, *address, *bytes)?;
            }
            Op::Free(address) => self.perform_free(stream, *address)?,
            Op::Child(graph) => {
                for op in self.graphs.ordered_ops(*graph) {
                    self.perform(stream, &op)?;
                }
            }
            Op::Conditional { handle, kind, bodies } => {
                const SWITCH: u32 = 2;
                let value = self.graphs.condition(*handle);
                // Nothing that runs here can change the value: a loop runs once.
                let chosen = if *kind == SWITCH { value as usize } else { usize::from(value == 0) };
                if let Some(body) = bodies.get(chosen) {
                    self.perform(stream, &Op::Child(*body))?;
                }
            }
            Op::Empty => self.submit(stream, Work::Nothing, Vec::new()),
        }
        Ok(())
    }

    fn perform_free(&mut self, stream: StreamId, address: u64) -> Answer {
        let region = *self.memory.find(address).filter(|r| r.base == address).ok_or(Error::INVALID_VALUE)?;
        let work: Work = match region.kind {
            Kind::Pooled { .. } => {
                self.memory.free_to_pool(address, stream)?;
                Work::Instant(Box::new(move |p: &mut Process| {
                    p.memory.settle_free(address, stream);
                    Ok(())
                }))
            }
            Kind::Graph => Work::Instant(Box::new(move |p: &mut Process| p.memory.free_graph_allocation(address))),
            Kind::Linear => Work::Instant(Box::new(move |p: &mut Process| {
                let (machine, seat) = (p.machine, p.seat);
                p.memory.free(machine, &seat, address)
            })),
            Kind::Managed { .. } => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_VALUE),
        };
        self.submit(stream, work, Vec::new());
        Ok(())
    }
}

/// Nanoseconds a copy takes: 55 GB/s to and from the host, 4,800 GB/s read and written on the card.
fn transfer_time(bytes: u64, crosses: bool) -> u64 {
    if crosses { bytes / 55 } else { bytes * 2 / 4800 }
}
