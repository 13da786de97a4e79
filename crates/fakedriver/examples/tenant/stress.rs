//! Many threads that use one context in all ways at once.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::Tenant;

static CALLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn called(_data: u64) {
    CALLED.fetch_add(1, SeqCst);
}

/// A small generator, so that a seed tells the whole story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Runs threads of so many operations each; answers kernels launched and functions called, as it counted them itself.
pub(crate) fn run(tenant: &Tenant, threads: u64, operations: u64, seed: u64) -> Result<String, String> {
    let function = tenant.functions["spin_us_20"];
    let events: Vec<u64> = (0..threads).map(|_| tenant.ask("cuEventCreate", &[2])).collect::<Result<_, _>>()?;
    let before = CALLED.load(SeqCst);
    let counts: Vec<Result<(u64, u64), String>> = std::thread::scope(|scope| {
        let work = |number| {
            let events = &events;
            scope.spawn(move || one(tenant, function, events, number, operations, seed))
        };
        let running: Vec<_> = (0..threads).map(work).collect();
        running.into_iter().map(|t| t.join().unwrap_or(Err("a thread panicked".into()))).collect()
    });
    tenant.check("cuCtxSynchronize", &[])?;
    let (mut launched, mut calls) = (0, 0);
    for count in counts {
        let (l, c) = count?;
        (launched, calls) = (launched + l, calls + c);
    }
    let seen = CALLED.load(SeqCst) - before;
    if seen != calls {
        return Err(format!("{seen} of {calls} functions were called"));
    }
    Ok(format!("{launched} {calls}"))
}

fn one(
    tenant: &Tenant,
    function: u64,
    events: &[u64],
    number: u64,
    operations: u64,
    seed: u64,
) -> Result<(u64, u64), String> {
    tenant.check("cuCtxSetCurrent", &[tenant.context])?;
    let stream = tenant.ask("cuStreamCreate", &[number % 2])?;
    let pinned = tenant.ask("cuMemHostAlloc", &[1 << 20, 2])?;
    let device = tenant.ask("cuMemAlloc_v2", &[1 << 20])?;
    let mut dice = Dice(seed * 1000 + number);
    let (mut launched, mut calls) = (0, 0);
    for _ in 0..operations {
        match dice.roll(14) {
            0..=2 => {
                tenant.check("cuLaunchKernel", &[function, 1 + dice.roll(200), 1, 1, 32, 1, 1, 0, stream, 0, 0])?;
                launched += 1;
            }
            3 => {
                tenant.check("cuLaunchKernel_ptsz", &[function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0])?;
                launched += 1;
            }
            4 => tenant.check("cuEventRecord", &[events[number as usize], stream])?,
            5 => {
                let other = dice.roll(events.len() as u64) as usize;
                tenant.check("cuStreamWaitEvent", &[stream, events[other], 0])?;
            }
            6 => tenant.check("cuMemcpyAsync", &[device, pinned, 1 + dice.roll(1 << 19), stream])?,
            7 => {
                let at = tenant.ask("cuMemAllocAsync", &[1 + dice.roll(1 << 22), stream])?;
                tenant.check("cuMemsetD8Async", &[at, 7, 1, stream])?;
                tenant.check("cuMemFreeAsync", &[at, stream])?;
            }
            8 => {
                tenant.check("cuLaunchHostFunc", &[stream, called as *const () as u64, 0])?;
                calls += 1;
            }
            9 => tenant.check("cuStreamWriteValue32_v2", &[stream, pinned + 4 * dice.roll(1000), 5, 0])?,
            10 => drop(tenant.call("cuEventQuery", &[events[number as usize]])),
            11 => {
                let at = tenant.ask("cuMemAlloc_v2", &[1 + dice.roll(1 << 21)])?;
                tenant.check("cuMemFree_v2", &[at])?;
            }
            12 => {
                tenant.check("cuLaunchKernel", &[function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0])?;
                launched += 1;
            }
            _ => tenant.check("cuStreamSynchronize", &[stream])?,
        }
    }
    tenant.check("cuStreamSynchronize", &[stream])?;
    tenant.check("cuStreamDestroy_v2", &[stream])?;
    tenant.check("cuMemFreeHost", &[pinned])?;
    tenant.check("cuMemFree_v2", &[device])?;
    Ok((launched, calls))
}
