//! The binary contract between divvy-agent and libdivvy.so: two shared files and a socket per container.
//!
//! The agent makes a directory per container on a tmpfs and has it mounted at [`place::IN_CONTAINER`]:
//!
//! | File | In the container | Holds | Written by |
//! |---|---|---|---|
//! | [`gate`](mod@gate) | read-only | what the container was granted; one gate word per device, which the GPU itself waits on; hints; booked time | arbiter, keeper |
//! | [`ledger`](mod@ledger) | read-write, **untrusted** | processes, memory they hold, streams and how far they got | the library, the GPU, and the agent for what only it can know |
//! | `agent.sock` | connect | [`frame`]s: who a process is, whom it may see, what went wrong | both |
//!
//! They are files and not memfds so that they outlive the agent: new processes attach while it is away, and the keeper finds them
//! by path. Every word in them is an atomic, so that a torn or hostile value is a wrong number and never undefined behaviour. A
//! tenant can truncate the file it may write; the agent therefore maps it [guarded](map::Guarded).
//!
//! The first 64 bytes of both files ([`header::Header`]) never change their meaning. A reader accepts any layout up to its own and
//! ignores what it does not know.
//!
//! The library is built without the standard library: everything it needs is here without the feature `std`, and whatever makes
//! and maps files is the agent's, with it.
#![cfg_attr(not(feature = "std"), no_std)]
#![expect(
    unsafe_code,
    reason = "shared memory and a signal handler are what this crate is for; what it offers is safe to call"
)]

extern crate alloc;

pub mod clock;
pub mod config;
pub mod frame;
pub mod gate;
pub mod header;
pub mod ledger;
#[cfg(feature = "std")]
pub mod map;
pub mod place;
mod shared;
mod text;

pub use config::{ContainerConfig, DeviceConfig, Enforcement};
pub use gate::GatePage;
#[cfg(feature = "std")]
pub use gate::{GateReader, GateWriter};
pub use ledger::Ledger;
#[cfg(feature = "std")]
pub use ledger::LedgerFile;
pub use shared::Shared;

/// Most devices one container can hold.
pub const MAX_DEVICES: usize = 16;
/// Most processes of one container that use the GPU at once.
pub const MAX_PROCESSES: usize = 1024;
/// Most streams per container and device that are metered one by one at once.
pub const MAX_STREAMS: usize = 1024;
