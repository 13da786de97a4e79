//! What single calls cost, in nanoseconds of this thread's processor time (a loaded host does not blur it).

use super::Tenant;

fn spent() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

const TIMES: u64 = 20_000;

pub(crate) fn run(tenant: &Tenant) -> Result<String, String> {
    let mut told = Vec::new();
    let stream = tenant.stream;
    let synchronize = tenant.symbol("cuStreamSynchronize");
    let mut measure = |name: &str, once: &mut dyn FnMut() -> u32| -> Result<(), String> {
        let (start, mut worst) = (spent(), 0);
        (0..TIMES).for_each(|_| worst = worst.max(once()));
        told.push(format!("{name}={}", (spent() - start) / TIMES));
        worst = worst.max(synchronize(&[stream]));
        if worst == 0 { Ok(()) } else { Err(format!("error {worst}")) }
    };
    let launch = tenant.symbol("cuLaunchKernel");
    let shape = |function: &str| [tenant.functions[function], 1, 1, 1, 1, 1, 1, 0, stream, 0, 0];
    let (long, none) = (shape("spin_us_100"), shape("spin_ns_0"));
    measure("launch", &mut || launch(&long))?;
    measure("launch+sync", &mut || launch(&none) | synchronize(&[stream]))?;
    let (alloc, free) = (tenant.symbol("cuMemAlloc_v2"), tenant.symbol("cuMemFree_v2"));
    let mut at = 0u64;
    let place = &raw mut at;
    // SAFETY: the place outlives the calls, and the driver has written it when it is read.
    let got = || unsafe { place.read_volatile() };
    measure("alloc+free-4MiB", &mut || alloc(&[place as u64, 4 << 20]) | free(&[got()]))?;
    measure("alloc+free-256B", &mut || alloc(&[place as u64, 256]) | free(&[got()]))?;
    let (alloc, free) = (tenant.symbol("cuMemAllocAsync"), tenant.symbol("cuMemFreeAsync"));
    measure("allocasync+freeasync", &mut || alloc(&[place as u64, 4 << 20, stream]) | free(&[got(), stream]))?;
    let info = tenant.symbol("cuMemGetInfo_v2");
    measure("meminfo", &mut || info(&[place as u64, 0]))?;
    let (record, event) = (tenant.symbol("cuEventRecord"), tenant.ask("cuEventCreate", &[2])?);
    measure("eventrecord", &mut || record(&[event, stream]))?;
    let (write, word) = (tenant.symbol("cuStreamWriteValue32_v2"), tenant.ask("cuMemHostAlloc", &[4096, 2])?);
    measure("writevalue", &mut || write(&[stream, word, 1, 0]))?;
    Ok(told.join(" "))
}
