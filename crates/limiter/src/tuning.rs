//! The few constants of the arbiter, each with its reason. Measured on an H200.

use crate::Ns;

const US: Ns = 1_000;
const MS: Ns = 1_000_000;

/// Times that shape turns. The default is what the arbiter uses; tests vary it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Work per chunk while somebody else wants the card or a limit is near: 0.6 % of it goes to the boundary.
    pub chunk: Ns,
    /// Work per chunk while alone: the boundary costs nothing measurable, and the card can still be taken back within this time.
    pub sparse_chunk: Ns,
    /// Shortest turn of an entitled owner that has work; long against a chunk.
    pub turn: Ns,
    /// Shortest turn of a guest once its host has work again.
    pub guest_turn: Ns,
    /// How far ahead in virtual time an owner gets before it is preempted.
    pub lead: Ns,
    /// How long an owner has had nothing in closed chunks before it counts as drained.
    pub drain: Ns,
    /// The same for an owner that gets less than its share because of guests: it is about to come back.
    pub anticipation: Ns,
    /// How old a chunk that is still being filled must be to be worth a turn.
    pub ripe: Ns,
    /// How long after its last work a tenant is still taken to want the card.
    pub hold: Ns,
    /// Virtual time an idle tenant keeps to its credit.
    pub credit: Ns,
    /// Who is idle for less than this only pauses, and keeps all it was owed: a program that synchronises is away for some hundred
    /// microseconds, and a turn of its neighbour's long kernels is worth more than any credit.
    pub pause: Ns,
    /// GPU time beyond its share for which a tenant can be made to wait afterwards.
    pub debt: Ns,
    /// Duty cycle of a limit.
    pub period: Ns,
    /// An owner whose queue does not move for this long, or four chunks, is taken to be stuck (a long kernel, an event from
    /// elsewhere) and others run beside it.
    pub stuck: Ns,
    /// Time between looks while several want the card.
    pub tick: Ns,
    /// Time between looks while a lone tenant with a limit runs.
    pub limited_tick: Ns,
    /// Time between looks while one tenant has it to itself.
    pub alone_tick: Ns,
    /// Time between looks while nobody works.
    pub idle_tick: Ns,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            chunk: 500 * US,
            sparse_chunk: 20 * MS,
            turn: 5 * MS,
            guest_turn: 300 * US,
            lead: 5 * MS,
            drain: 30 * US,
            anticipation: 1_000 * US,
            ripe: 200 * US,
            hold: 200 * US,
            credit: 20 * MS,
            pause: 50 * MS,
            debt: 1_000 * MS,
            period: 50 * MS,
            stuck: 4 * MS,
            tick: 25 * US,
            limited_tick: 100 * US,
            alone_tick: 2 * MS,
            idle_tick: 20 * MS,
        }
    }
}
