//! libdivvy.so: holds a container to its grant by intercepting the CUDA driver API and NVML.
//!
//! It is preloaded into every process of a container, most of which never see a GPU, so it does nothing until a hooked function
//! is called: no constructor, no thread, no file. The ways in are the exported symbols themselves, [`dlsym`](mod@dlsym) and
//! [`cuGetProcAddress`](route); all of them end in a function generated from the table of the driver's symbols, which calls one
//! of the [`hooks`] with the arguments it asked for.
//!
//! - `hooks.tsv` and `build.rs`: which symbol is hooked by what, and the code made from it.
//! - [`elf`], [`loader`], [`names`]: finding the real functions without the loader's help.
//! - [`hooks`]: memory, launches, streams, graphs; [`nvml`]: the view of the card.
//! - [`gate`]: what happens to work between the program and the driver.
//!
//! The shipped build (`cargo build -p divvy-hook --profile hook`) is `no_std`: it needs libc.so.6 and nothing else, and runs on
//! every glibc since 2.17. Other builds link the standard library, for tests; the code uses `core`, `alloc` and `libc` alone.
#![cfg_attr(panic = "abort", no_std)]
#![cfg_attr(test, allow(dead_code, reason = "exports have no callers in the test program"))]
#![expect(unsafe_code, reason = "the whole crate is a boundary to C")]

extern crate alloc;

mod agent;
mod books;
mod cuda;
mod device;
mod dlsym;
mod elf;
mod files;
mod gate;
mod hooks;
mod liveness;
mod loader;
mod lock;
mod map;
mod names;
mod nvml;
mod policy;
mod process;
mod route;
#[cfg(panic = "abort")]
mod runtime;
mod say;
mod trace;
