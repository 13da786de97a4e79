//! A CUDA program driven from outside: reads commands from its standard input, one a line, and answers each with a line.
//!
//! It reaches the driver as programs do, by `dlopen("libcuda.so.1")`, so it runs on the fake driver, under a preloaded library,
//! or on a real card (with kernels of PTX). An answer is `ok` with values, or `error N` with the driver's code.
//!
//! ```text
//! ctx 0                      a context on device 0            ok
//! alloc 1073741824           cuMemAlloc                       ok 7f0000000000
//! free 7f0000000000          cuMemFree                        ok
//! info                       cuMemGetInfo                     ok FREE TOTAL
//! launch spin_us_200 100     launches on the stream           ok
//! sync                       cuCtxSynchronize                 ok MICROSECONDS
//! query                      cuStreamQuery                    ok, or error 600
//! spin spin_us_200 64 2000   batches of 64 launches, two in flight, for 2000 ms: ok KERNELS
//! gate PATH                  maps a file's first page, shared, and registers it
//! gate-read-only PATH        the same, mapped and registered read-only
//! wait WORD VALUE            the stream waits until word WORD of the page is VALUE
//! write WORD VALUE           the stream writes a word of the page
//! batch WORD A WORD B        waits for one and writes the other in one cuStreamBatchMemOp
//! cost                       nanoseconds of processor time that calls cost: ok launch=187 ...
//! stress 8 500 1             8 threads of 500 operations of all kinds, by seed 1: ok KERNELS CALLS
//! call SYMBOL HEX...         calls any symbol with integer arguments
//! quit
//! ```
#![expect(unsafe_code, reason = "calls C functions by name")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

#[path = "tenant/cost.rs"]
mod cost;
#[path = "tenant/stress.rs"]
mod stress;

struct Tenant {
    library: *mut c_void,
    context: u64,
    stream: u64,
    module: u64,
    functions: HashMap<String, u64>,
    page: u64,
}

// SAFETY: the handle of a library may be used by any thread, and the driver's functions too.
unsafe impl Sync for Tenant {}

type Outcome = Result<String, String>;

impl Tenant {
    /// The function of a symbol, whichever library answers for it.
    fn symbol(&self, symbol: &str) -> impl Fn(&[u64]) -> u32 + use<> {
        let name = CString::new(symbol).expect("no NUL in a command");
        // SAFETY: dlsym with a valid handle and name.
        let at = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!at.is_null(), "no {symbol}");
        type Call = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;
        // SAFETY: all functions called here take integers and pointers only; more arguments than wanted do no harm in the C ABI.
        let function = unsafe { std::mem::transmute::<*mut c_void, Call>(at) };
        move |args| {
            let mut a = [0u64; 11];
            a[..args.len()].copy_from_slice(args);
            function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10])
        }
    }

    fn call(&self, symbol: &str, args: &[u64]) -> u32 {
        self.symbol(symbol)(args)
    }

    fn check(&self, symbol: &str, args: &[u64]) -> Result<(), String> {
        match self.call(symbol, args) {
            0 => Ok(()),
            code => Err(format!("error {code}")),
        }
    }

    /// Calls a function whose first argument is a place for its answer.
    fn ask(&self, symbol: &str, args: &[u64]) -> Result<u64, String> {
        let mut answer = 0u64;
        let mut all = vec![&raw mut answer as u64];
        all.extend(args);
        self.check(symbol, &all)?;
        Ok(answer)
    }

    fn function(&mut self, name: &str) -> Result<u64, String> {
        if let Some(&known) = self.functions.get(name) {
            return Ok(known);
        }
        let ptx = CString::new(format!(
            ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry {name}() {{ ret; }}\n"
        ))
        .expect("no NUL in a name");
        self.module = self.ask("cuModuleLoadData", &[ptx.as_ptr() as u64])?;
        let name_c = CString::new(name).expect("no NUL in a name");
        let function = self.ask("cuModuleGetFunction", &[self.module, name_c.as_ptr() as u64])?;
        self.functions.insert(name.to_owned(), function);
        Ok(function)
    }

    fn launch(&self, function: u64) -> Result<(), String> {
        self.check("cuLaunchKernel", &[function, 1024, 1, 1, 128, 1, 1, 0, self.stream, 0, 0])
    }

    fn obey(&mut self, words: &[&str]) -> Outcome {
        let number = |w: &str| w.parse::<u64>().map_err(|_| format!("bad number {w}"));
        let hex = |w: &str| u64::from_str_radix(w, 16).map_err(|_| format!("bad address {w}"));
        match words {
            ["init"] => self.check("cuInit", &[0]).map(|()| String::new()),
            ["ctx", device] => {
                self.check("cuInit", &[0])?;
                self.context = self.ask("cuDevicePrimaryCtxRetain", &[number(device)?])?;
                self.check("cuCtxSetCurrent", &[self.context])?;
                self.stream = self.ask("cuStreamCreate", &[1])?;
                Ok(String::new())
            }
            ["alloc", bytes] => Ok(format!("{:x}", self.ask("cuMemAlloc_v2", &[number(bytes)?])?)),
            ["free", at] => self.check("cuMemFree_v2", &[hex(at)?]).map(|()| String::new()),
            ["info"] => {
                let (mut free, mut total) = (0u64, 0u64);
                self.check("cuMemGetInfo_v2", &[&raw mut free as u64, &raw mut total as u64])?;
                Ok(format!("{free} {total}"))
            }
            ["launch", name, count] => {
                let function = self.function(name)?;
                (0..number(count)?).try_for_each(|_| self.launch(function))?;
                Ok(String::new())
            }
            ["sync"] => {
                let start = Instant::now();
                self.check("cuCtxSynchronize", &[])?;
                Ok(start.elapsed().as_micros().to_string())
            }
            ["query"] => self.check("cuStreamQuery", &[self.stream]).map(|()| String::new()),
            ["spin", name, depth, millis] => {
                let (function, depth) = (self.function(name)?, number(depth)?);
                let end = Instant::now() + Duration::from_millis(number(millis)?);
                let events = [self.ask("cuEventCreate", &[2])?, self.ask("cuEventCreate", &[2])?];
                let mut batches = 0;
                while Instant::now() < end {
                    (0..depth).try_for_each(|_| self.launch(function))?;
                    self.check("cuEventRecord", &[events[batches % 2], self.stream])?;
                    batches += 1;
                    // One batch runs while the next is submitted: the card never waits for us.
                    self.check("cuEventSynchronize", &[events[batches % 2]])?;
                }
                self.check("cuStreamSynchronize", &[self.stream])?;
                Ok((batches as u64 * depth).to_string())
            }
            [how @ ("gate" | "gate-read-only"), path] => {
                let read_only = *how == "gate-read-only";
                self.page = map(path, read_only)?;
                let flags = if read_only { 2 | 8 } else { 2 };
                self.check("cuMemHostRegister_v2", &[self.page, 4096, flags]).map(|()| String::new())
            }
            ["wait", word, value] => self
                .check("cuStreamWaitValue32_v2", &[self.stream, self.page + 4 * number(word)?, number(value)?, 1])
                .map(|()| String::new()),
            ["write", word, value] => self
                .check("cuStreamWriteValue32_v2", &[self.stream, self.page + 4 * number(word)?, number(value)?, 0])
                .map(|()| String::new()),
            ["batch", wait, a, write, b] => {
                let mut operations = [[0u64; 6]; 2];
                operations[0][..4].copy_from_slice(&[1, self.page + 4 * number(wait)?, number(a)?, 1]);
                operations[1][..4].copy_from_slice(&[2, self.page + 4 * number(write)?, number(b)?, 0]);
                self.check("cuStreamBatchMemOp_v2", &[self.stream, 2, operations.as_ptr() as u64, 0])
                    .map(|()| String::new())
            }
            ["cost"] => {
                self.function("spin_us_100")?;
                self.function("spin_ns_0")?;
                cost::run(self)
            }
            ["stress", threads, operations, seed] => {
                self.function("spin_us_20")?;
                stress::run(self, number(threads)?, number(operations)?, number(seed)?)
            }
            ["call", symbol, args @ ..] => {
                let args = args.iter().map(|a| hex(a)).collect::<Result<Vec<_>, _>>()?;
                self.check(symbol, &args).map(|()| String::new())
            }
            _ => Err(format!("what is {words:?}?")),
        }
    }
}

/// Maps the first page of a file, shared.
fn map(path: &str, read_only: bool) -> Result<u64, String> {
    use std::os::fd::AsRawFd;
    let file = std::fs::OpenOptions::new().read(true).write(!read_only).open(path).map_err(|e| e.to_string())?;
    let rights = if read_only { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error().to_string()) } else { Ok(at as u64) }
}

fn main() {
    // SAFETY: loads the driver, whichever the loader finds.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "no libcuda.so.1: set LD_LIBRARY_PATH");
    let mut tenant = Tenant { library, context: 0, stream: 0, module: 0, functions: HashMap::new(), page: 0 };
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words == ["quit"] {
            return;
        }
        let answer = match tenant.obey(&words) {
            Ok(values) => format!("ok {values}"),
            Err(why) => why,
        };
        let _ = writeln!(out, "{}", answer.trim_end());
        let _ = out.flush();
    }
}
