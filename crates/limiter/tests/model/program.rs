//! What tenants do on the modelled card.

use divvy_limiter::Ns;

use super::{MS, US};

/// What a tenant's program does: launches kernels, synchronises now and then, thinks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// GPU time of a kernel.
    pub(crate) kernel: Ns,
    /// Every so many kernels one takes `long` instead.
    pub(crate) every: u32,
    pub(crate) long: Ns,
    /// CPU time of a launch.
    pub(crate) launch: Ns,
    /// Launches between synchronisations; 0 for never.
    pub(crate) burst: u32,
    /// CPU time after each.
    pub(crate) think: Ns,
    /// When it works: from, and until.
    pub(crate) from: Ns,
    pub(crate) until: Ns,
    /// Works only in the first part of each such pair of spans, if not zero.
    pub(crate) on_off: (Ns, Ns),
    /// From this moment on, if not zero, kernels take this instead.
    pub(crate) turns_at: Ns,
    pub(crate) turns_to: Ns,
    /// Units a launch counts for: the nodes of a graph.
    pub(crate) units: u32,
    /// Launches go to so many streams, one after the other. The library keeps a program of several back on the CPU while its gate is
    /// closed.
    pub(crate) streams: u32,
    /// After so many launches, if not zero, as many follow that take the other time: the way forward, and the way back.
    pub(crate) phase: u32,
    pub(crate) other: Ns,
    /// The first so many launches after a synchronisation take this: a network is widest where it begins.
    pub(crate) head: u32,
    pub(crate) wide: Ns,
    /// CPU time of a boundary between two chunks.
    pub(crate) boundary: Ns,
    /// It does not call the driver to synchronise, but looks into memory until its kernels are done: nobody ends its last chunk.
    pub(crate) polls: bool,
}

impl Program {
    /// Big matrix multiplications: the GPU is the bottleneck.
    pub(crate) fn mm() -> Program {
        Program {
            kernel: 209 * US,
            every: 0,
            long: 0,
            launch: 5 * US,
            burst: 20,
            think: 30 * US,
            from: 0,
            until: Ns::MAX,
            on_off: (0, 0),
            turns_at: 0,
            turns_to: 0,
            units: 1,
            streams: 1,
            phase: 0,
            other: 0,
            head: 0,
            wide: 0,
            boundary: 0,
            polls: false,
        }
    }

    /// Small kernels: the CPU is the bottleneck.
    pub(crate) fn small() -> Program {
        Program { kernel: 4 * US, launch: 10 * US, burst: 200, think: 20 * US, ..Program::mm() }
    }

    /// A training step: mixed kernels, the GPU mostly busy, one synchronisation a step.
    pub(crate) fn train() -> Program {
        Program {
            kernel: 20 * US,
            every: 10,
            long: 150 * US,
            launch: 12 * US,
            burst: 700,
            think: 500 * US,
            ..Program::mm()
        }
    }

    /// A recurrent network in training: short kernels in several streams, the CPU hardly fast enough.
    pub(crate) fn lstm() -> Program {
        Program {
            kernel: 5 * US,
            phase: 1400,
            other: 12 * US,
            launch: 9 * US,
            burst: 4200,
            think: MS,
            streams: 4,
            boundary: 12 * US,
            ..Program::mm()
        }
    }

    /// The same, later, and in shorter bursts: two that are quite alike fall into step with each other.
    pub(crate) fn out_of_step(self) -> Program {
        Program { from: self.from + 17 * MS, burst: self.burst * 97 / 100, ..self }
    }

    pub(crate) fn kernels_of(kernel: Ns) -> Program {
        Program { kernel, ..Program::mm() }
    }
}
