//! The scheduler shell: standalone, and as an HTTP extender of kube-scheduler.
//!
//! ```text
//! watches ──Change──> World::apply ─┐                     ┌─> Effect ──> Effects::carry_out ─┐
//!                                   ├─ World::decide ─────┤     (many at once)               │
//! clock ────────────> World::tick ──┘  (core: plan, audit)└─ explanations, events            │
//!                            ▲                                                               │
//!                            └──────────────── World::done <─────── outcome ─────────────────┘
//! ```
//!
//! [`World`] is everything the scheduler knows, and is not async: it is told what changed and what became of its effects, and says
//! what to do next. [`run`](mod@run) carries that out. Nothing is written down but grants, and what
//! namespaces have used ([`memory`]): a restart lists pods and is whole again.
//!
//! **One bind, one write.** A pod is booked in memory, then bound with its grant in the Binding itself, on the version the decision was
//! made on. If the pod changed, nothing happens and it is looked at again; if the answer is lost, the pod is looked at before anything
//! else is decided about it.
//!
//! **Nobody is asked twice for nothing.** A pod that fits nowhere sleeps in a line with its like. A change wakes the first of a line
//! only if a node that changed would take it now; when it was placed, the next is woken.
#![forbid(unsafe_code)]

pub mod extender;
pub mod memory;
pub mod metrics;
pub mod run;
pub mod world;

pub use run::{Options, Scheduler};
pub use world::World;
