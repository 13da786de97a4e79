//! Capture: a stream that makes nodes instead of doing things, and takes other streams along when they wait for it.

use std::cell::Cell;

use super::{Graph, Graphs, PLAIN_EDGE};
use crate::abi::{Answer, CUgraphEdgeData, Error};
use crate::engine::StreamId;
use crate::handles::Handles;
use crate::op::Op;
use crate::process::Process;

/// Which calls elsewhere would spoil a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unsafe calls of any thread.
    Global,
    /// Unsafe calls of the thread that captures.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    pub(crate) fn of(number: u32) -> Result<Self, Error> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed].get(number as usize).copied().ok_or(Error::INVALID_VALUE)
    }
}

pub(crate) struct Capture {
    pub(crate) graph: u64,
    pub(crate) mode: Mode,
    thread: std::thread::ThreadId,
    pub(crate) origin: StreamId,
    /// What the next node of each stream comes after.
    pub(crate) streams: Handles<Vec<(u64, CUgraphEdgeData)>>,
    pub(crate) invalid: bool,
    /// The graph was the program's before.
    borrowed: bool,
}

thread_local! {
    /// How strict this thread is with itself about other threads' captures.
    static STRICTNESS: Cell<u32> = const { Cell::new(0) };
}

/// `cuThreadExchangeStreamCaptureMode`.
pub(crate) fn exchange_strictness(mode: u32) -> Result<u32, Error> {
    Mode::of(mode)?;
    Ok(STRICTNESS.replace(mode))
}

impl Graphs {
    pub(crate) fn has_captures(&self) -> bool {
        !self.captures.is_empty()
    }

    pub(crate) fn capture_of(&self, stream: StreamId) -> Option<(u64, &Capture)> {
        let id = *self.capturing.get(&stream)?;
        Some((id, self.captures.get(&id)?))
    }

    pub(crate) fn capture_mut(&mut self, stream: StreamId) -> Option<&mut Capture> {
        self.captures.get_mut(self.capturing.get(&stream)?)
    }
}

impl Process {
    pub(crate) fn begin_capture(
        &mut self,
        stream: StreamId,
        mode: u32,
        into: Option<(u64, Vec<(u64, CUgraphEdgeData)>)>,
    ) -> Answer {
        let mode = Mode::of(mode)?;
        if self.legacy_stream_of(stream) == stream {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.graphs.capture_of(stream).is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        let borrowed = into.is_some();
        let (graph, after) = match into {
            Some((graph, after)) => {
                self.graphs.graph(graph)?;
                (graph, after)
            }
            None => {
                let graph = self.handle();
                self.graphs.graphs.insert(graph, Graph::default());
                (graph, Vec::new())
            }
        };
        let id = self.handle();
        let streams = Handles::from_iter([(stream, after)]);
        let thread = std::thread::current().id();
        let capture = Capture { graph, mode, thread, origin: stream, streams, invalid: false, borrowed };
        self.graphs.captures.insert(id, capture);
        self.graphs.capturing.insert(stream, id);
        Ok(())
    }

    /// Ends a capture; answers the graph.
    pub(crate) fn end_capture(&mut self, stream: StreamId) -> Result<u64, Error> {
        let (id, capture) = self.graphs.capture_of(stream).ok_or(Error::ILLEGAL_STATE)?;
        if capture.origin != stream {
            self.graphs.capture_mut(stream).ok_or(Error::ILLEGAL_STATE)?.invalid = true;
            return Err(Error::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
            return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
        }
        let graph = capture.graph;
        let ends = &capture.streams[&stream];
        let joined = |node: u64| ends.iter().any(|(end, _)| self.graphs.reaches(graph, node, *end));
        let unjoined = capture.streams.values().flatten().any(|(node, _)| !joined(*node));
        let (invalid, borrowed) = (capture.invalid, capture.borrowed);
        self.graphs.captures.remove(&id);
        self.graphs.capturing.retain(|_, c| *c != id);
        let outcome = if invalid {
            Err(Error::STREAM_CAPTURE_INVALIDATED)
        } else if unjoined {
            Err(Error::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(graph)
        };
        if outcome.is_err() && !borrowed {
            let _ = self.graphs.destroy(graph);
        }
        outcome
    }

    /// Makes a node of an operation on a capturing stream.
    pub(crate) fn capture(&mut self, stream: StreamId, op: Op) -> Answer {
        let (id, capture) = self.graphs.capture_of(stream).ok_or(Error::ILLEGAL_STATE)?;
        if capture.invalid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        let (graph, after) = (capture.graph, capture.streams[&stream].clone());
        match op {
            Op::Record(event) => {
                let event = self.events.get(event).ok_or(Error::INVALID_HANDLE)?;
                event.captured = Some((id, after));
                return Ok(());
            }
            Op::Await(event) => return self.join_captured(stream, event),
            _ => {}
        }
        let node = self.handle();
        self.graphs.add(node, graph, op, &after)?;
        if let Some(capture) = self.graphs.capture_mut(stream) {
            capture.streams.insert(stream, vec![(node, PLAIN_EDGE)]);
        }
        Ok(())
    }

    /// A stream waits for an event. If that was recorded in a capture, the stream becomes part of it; answers whether it was.
    pub(crate) fn await_captured(&mut self, stream: StreamId, event: u64) -> Result<bool, Error> {
        let captured = self.events.get(event).ok_or(Error::INVALID_HANDLE)?.captured.clone();
        let live = captured.filter(|(id, _)| self.graphs.captures.contains_key(id));
        if live.is_none() && self.graphs.capture_of(stream).is_none() {
            return Ok(false);
        }
        self.join_captured(stream, event)?;
        Ok(true)
    }

    fn join_captured(&mut self, stream: StreamId, event: u64) -> Answer {
        let own = self.graphs.capture_of(stream).map(|(id, _)| id);
        let captured = self.events.get(event).ok_or(Error::INVALID_HANDLE)?.captured.clone();
        let Some((id, nodes)) = captured.filter(|(id, _)| self.graphs.captures.contains_key(id)) else {
            // Waiting for work outside of the capture.
            self.invalidate(stream);
            return Err(Error::STREAM_CAPTURE_ISOLATION);
        };
        if own.is_some_and(|own| own != id) {
            self.invalidate(stream);
            return Err(Error::STREAM_CAPTURE_MERGE);
        }
        if self.legacy_stream_of(stream) == stream {
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        self.graphs.capturing.insert(stream, id);
        if let Some(capture) = self.graphs.captures.get_mut(&id) {
            let after = capture.streams.entry(stream).or_default();
            for node in nodes {
                if !after.iter().any(|(n, _)| *n == node.0) {
                    after.push(node);
                }
            }
        }
        Ok(())
    }

    /// Spoils the capture of a stream.
    pub(crate) fn invalidate(&mut self, stream: StreamId) {
        if let Some(capture) = self.graphs.capture_mut(stream) {
            capture.invalid = true;
        }
    }

    /// A call that must not happen during a capture that is strict about it: it fails and spoils the capture.
    pub(crate) fn unsafe_in_capture(&mut self) -> Answer {
        if !self.graphs.has_captures() || STRICTNESS.get() == 2 {
            return Ok(());
        }
        let me = std::thread::current().id();
        let strict_globally = STRICTNESS.get() == 0;
        let mut spoiled = false;
        for capture in self.graphs.captures.values_mut() {
            let hit = match capture.mode {
                Mode::Global => strict_globally || capture.thread == me,
                Mode::ThreadLocal => capture.thread == me,
                Mode::Relaxed => false,
            };
            if hit {
                capture.invalid = true;
                spoiled = true;
            }
        }
        if spoiled { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// The legacy stream would wait for capturing streams: that cannot be.
    pub(crate) fn guard_legacy(&mut self, stream: StreamId) -> Answer {
        if self.legacy_stream_of(stream) != stream {
            return Ok(());
        }
        let context = self.engine.stream(stream).map_or(0, |s| s.context);
        let blocking: Vec<StreamId> = self
            .graphs
            .capturing
            .keys()
            .copied()
            .filter(|s| self.engine.stream(*s).is_some_and(|s| s.blocking && s.context == context))
            .collect();
        blocking.iter().for_each(|s| self.invalidate(*s));
        if blocking.is_empty() { Ok(()) } else { Err(Error::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Waiting for a stream that is being captured makes no sense, and spoils it.
    pub(crate) fn guard_wait(&mut self, stream: StreamId) -> Answer {
        if self.graphs.capture_of(stream).is_some() {
            self.invalidate(stream);
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.guard_legacy(stream)
    }

    /// Waiting for a whole context while one of its streams is being captured makes no sense either.
    pub(crate) fn guard_captures_of(&mut self, context: u64) -> Answer {
        let of_context = |s: &&StreamId| self.engine.stream(**s).is_some_and(|s| s.context == context);
        let streams: Vec<StreamId> = self.graphs.capturing.keys().filter(of_context).copied().collect();
        streams.iter().for_each(|s| self.invalidate(*s));
        if streams.is_empty() { Ok(()) } else { Err(Error::STREAM_CAPTURE_UNSUPPORTED) }
    }
}
