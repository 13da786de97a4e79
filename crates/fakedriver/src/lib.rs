//! The simulated machine behind the fake NVIDIA driver.
//!
//! There is no daemon. A machine is a directory with one file in it, mapped by every process that loads `libcuda.so.1` or
//! `libnvidia-ml.so.1` of ours: who holds how much memory of which card, whose turn it is to run, how long each ran, what
//! faults somebody asked for. A process owns one slot of the file for as long as it lives; the kernel tells when it died
//! (a record lock on one byte), so SIGKILL frees what it held, and pid namespaces do not matter.
//!
//! - [`spec`]: what the machine looks like, read from a line such as `2xH200`.
//! - [`machine`]: the file: slots, memory, turns, busy time, faults.
//! - [`install`]: where programs find the libraries.
//! - [`sys`]: clock, futex, locks.
//!
//! The two libraries are `crates/fakedriver-cuda` and `crates/fakedriver-nvml`; `docs/design/fake-driver.md` is the manual.
#![expect(unsafe_code, reason = "the machine is a mapping shared between processes, and futexes")]

pub mod install;
pub mod machine;
pub mod spec;
pub mod sys;
