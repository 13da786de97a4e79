//! Processes on a device, and how busy they and it are.

use divvy_fakedriver::machine::{BUCKET, BUCKETS, Machine, Setting, Tenant, Unit};
use divvy_fakedriver::sys;

use crate::abi::{
    Answer, Error, ProcessDetail, ProcessUtilization, nvmlAccountingStats_t, nvmlProcessDetailList_t,
    nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, nvmlSample_t, nvmlUtilization_t, version_of,
};
use crate::call::{card, device, get, put, put_list};
use crate::physics::{percent, utilization};

/// "Not an instance" and "not known" in NVML's unsigned fields.
const NONE: u32 = u32::MAX;

/// The tenants of a device with the unit they are on: of a card in MIG mode, those of its instances.
fn tenants(machine: &Machine, unit: Unit) -> Vec<(Unit, Tenant)> {
    let on = |u: &Unit| *u == unit || (unit.instance_index().is_none() && u.card_index() == unit.card_index());
    let units = machine.units().into_iter().filter(on);
    units.flat_map(|u| machine.tenants(u).into_iter().map(move |t| (u, t))).collect()
}

fn instance_ids(unit: Unit) -> (u32, u32) {
    unit.instance_index().map_or((NONE, NONE), |i| (u32::try_from(i + 1).unwrap_or(NONE), 0))
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Answer {
    let (machine, unit) = self::device(device)?;
    let list: Vec<_> =
        tenants(machine, unit).into_iter().map(|(_, t)| nvmlProcessInfo_v1_t { pid: t.pid, used: t.used }).collect();
    put_list(infoCount, infos, &list)
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    let (machine, unit) = self::device(device)?;
    let list: Vec<_> = tenants(machine, unit)
        .into_iter()
        .map(|(u, t)| (instance_ids(u), t))
        .map(|((gpu_instance, compute_instance), t)| nvmlProcessInfo_v2_t {
            pid: t.pid,
            used: t.used,
            gpu_instance,
            compute_instance,
        })
        .collect();
    put_list(infoCount, infos, &list)
}

pub(crate) fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_t,
) -> Answer {
    let (machine, unit) = self::device(device)?;
    let list: Vec<_> = tenants(machine, unit)
        .into_iter()
        .map(|(u, t)| (instance_ids(u), t))
        .map(|((gpu_instance, compute_instance), t)| nvmlProcessInfo_t {
            pid: t.pid,
            used: t.used,
            gpu_instance,
            compute_instance,
        })
        .collect();
    put_list(infoCount, infos, &list)
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Answer {
    self::device(device)?;
    put_list(infoCount, infos, &[])
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    self::device(device)?;
    put_list(infoCount, infos, &[])
}

pub(crate) fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_t,
) -> Answer {
    self::device(device)?;
    put_list(infoCount, infos, &[])
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Answer {
    self::device(device)?;
    put_list(infoCount, infos, &[])
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_v2_t,
) -> Answer {
    self::device(device)?;
    put_list(infoCount, infos, &[])
}

pub(crate) fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: u64,
    infoCount: *mut u32,
    infos: *mut nvmlProcessInfo_t,
) -> Answer {
    self::device(device)?;
    put_list(infoCount, infos, &[])
}

pub(crate) fn nvmlDeviceGetRunningProcessDetailList(device: u64, plist: *mut nvmlProcessDetailList_t) -> Answer {
    let (machine, unit) = self::device(device)?;
    let mut asked = get(plist)?;
    if asked.version != version_of::<nvmlProcessDetailList_t>(1) {
        return Err(Error::VERSION_MISMATCH);
    }
    let compute = asked.mode == 0;
    let found = if compute { tenants(machine, unit) } else { Vec::new() };
    let list: Vec<_> = found
        .into_iter()
        .map(|(u, t)| (instance_ids(u), t))
        .map(|((gpu_instance, compute_instance), t)| ProcessDetail {
            pid: t.pid,
            used: t.used,
            gpu_instance,
            compute_instance,
            protected: 0,
        })
        .collect();
    let outcome = put_list(&raw mut asked.count, asked.processes, &list);
    put(plist, asked)?;
    outcome
}

pub(crate) fn nvmlDeviceGetUtilizationRates(device: u64, utilization: *mut nvmlUtilization_t) -> Answer {
    let (machine, unit) = self::device(device)?;
    // As the real one: not for cards in MIG mode.
    if unit.instance_index().is_some() || machine.card(unit).mig.is_some() {
        return Err(Error::NOT_SUPPORTED);
    }
    let gpu = self::utilization(machine, unit);
    put(utilization, nvmlUtilization_t { gpu, memory: gpu / 2 })
}

/// Busy samples newer than a wall-clock time in microseconds: tenant, sample time, percent of the bucket.
fn samples(machine: &Machine, unit: Unit, newer_than: u64) -> Vec<(u32, u64, u32)> {
    let (now, wall) = (sys::now(), sys::wall_clock());
    let to_wall = |at: u64| (at + wall.saturating_sub(now)) / 1000;
    let mut found = Vec::new();
    for (unit, tenant) in tenants(machine, unit) {
        for age in (1..BUCKETS as u64 - 1).rev() {
            let Some(at) = now.checked_sub(age * BUCKET) else { continue };
            let (busy, time) = (machine.tenant_busy_around(unit, tenant.seat, at), to_wall((at / BUCKET + 1) * BUCKET));
            if busy > 0 && time > newer_than {
                found.push((tenant.pid, time, percent(busy, BUCKET)));
            }
        }
    }
    found
}

pub(crate) fn nvmlDeviceGetProcessUtilization(
    device: u64,
    utilization: *mut nvmlProcessUtilizationSample_t,
    processSamplesCount: *mut u32,
    lastSeenTimeStamp: u64,
) -> Answer {
    let (machine, unit) = self::device(device)?;
    let list: Vec<_> = samples(machine, unit, lastSeenTimeStamp)
        .into_iter()
        .map(|(pid, time, sm)| nvmlProcessUtilizationSample_t { pid, time, sm, memory: sm / 2, encoder: 0, decoder: 0 })
        .collect();
    let room = get(processSamplesCount)? as usize;
    if list.is_empty() && room > 0 {
        put(processSamplesCount, 0)?;
        return Err(Error::NOT_FOUND);
    }
    // A first call without room is told how much is needed, even when nothing is there yet.
    if room == 0 {
        put(processSamplesCount, u32::try_from(list.len().max(100)).unwrap_or(100))?;
        return Err(Error::INSUFFICIENT_SIZE);
    }
    put_list(processSamplesCount, utilization, &list)
}

pub(crate) fn nvmlDeviceGetProcessesUtilizationInfo(
    device: u64,
    procesesUtilInfo: *mut nvmlProcessesUtilizationInfo_t,
) -> Answer {
    let (machine, unit) = self::device(device)?;
    let mut asked = get(procesesUtilInfo)?;
    if asked.version != version_of::<nvmlProcessesUtilizationInfo_t>(1) {
        return Err(Error::VERSION_MISMATCH);
    }
    let list: Vec<_> = samples(machine, unit, asked.last_seen)
        .into_iter()
        .map(|(pid, time, sm)| ProcessUtilization {
            time,
            pid,
            sm,
            memory: sm / 2,
            encoder: 0,
            decoder: 0,
            jpeg: 0,
            ofa: 0,
        })
        .collect();
    if list.is_empty() {
        return Err(Error::NOT_FOUND);
    }
    let outcome = put_list(&raw mut asked.count, asked.processes, &list);
    put(procesesUtilInfo, asked)?;
    outcome
}

pub(crate) fn nvmlDeviceGetSamples(
    device: u64,
    kind: u32,
    lastSeenTimeStamp: u64,
    sampleValType: *mut u32,
    sampleCount: *mut u32,
    samples: *mut nvmlSample_t,
) -> Answer {
    let (machine, unit) = self::device(device)?;
    const UNSIGNED_INT: u32 = 1;
    let (now, wall) = (sys::now(), sys::wall_clock());
    let value = |at: u64| -> Option<u64> {
        Some(match kind {
            0 => u64::from(crate::physics::power(machine, unit.card_index())),
            1 => u64::from(percent(machine.busy_around(unit, at), BUCKET)),
            2 => u64::from(percent(machine.busy_around(unit, at), BUCKET) / 2),
            3 | 4 | 7 | 8 => 0,
            5 => u64::from(crate::physics::clock(machine, unit.card_index(), 1)?),
            6 => u64::from(crate::physics::clock(machine, unit.card_index(), 2)?),
            _ => return None,
        })
    };
    let mut list = Vec::new();
    for age in (1..BUCKETS as u64 - 1).rev() {
        let Some(at) = now.checked_sub(age * BUCKET) else { continue };
        let time = ((at / BUCKET + 1) * BUCKET + wall.saturating_sub(now)) / 1000;
        if time > lastSeenTimeStamp {
            list.push(nvmlSample_t { time, value: value(at).ok_or(Error::INVALID_ARGUMENT)? });
        }
    }
    put(sampleValType, UNSIGNED_INT)?;
    if samples.is_null() {
        return put(sampleCount, u32::try_from(list.len()).unwrap_or(0));
    }
    if list.is_empty() {
        return Err(Error::NOT_FOUND);
    }
    let room = get(sampleCount)? as usize;
    let newest = &list[list.len().saturating_sub(room)..];
    put_list(sampleCount, samples, newest)
}

fn no_codec(device: u64, utilization: *mut u32, samplingPeriodUs: *mut u32) -> Answer {
    self::device(device)?;
    put(utilization, 0)?;
    put(samplingPeriodUs, 167_000)
}

pub(crate) fn nvmlDeviceGetEncoderUtilization(
    device: u64,
    utilization: *mut u32,
    samplingPeriodUs: *mut u32,
) -> Answer {
    no_codec(device, utilization, samplingPeriodUs)
}

pub(crate) fn nvmlDeviceGetDecoderUtilization(
    device: u64,
    utilization: *mut u32,
    samplingPeriodUs: *mut u32,
) -> Answer {
    no_codec(device, utilization, samplingPeriodUs)
}

pub(crate) fn nvmlDeviceGetJpgUtilization(device: u64, utilization: *mut u32, samplingPeriodUs: *mut u32) -> Answer {
    no_codec(device, utilization, samplingPeriodUs)
}

pub(crate) fn nvmlDeviceGetOfaUtilization(device: u64, utilization: *mut u32, samplingPeriodUs: *mut u32) -> Answer {
    no_codec(device, utilization, samplingPeriodUs)
}

pub(crate) fn nvmlDeviceGetAccountingMode(device: u64, mode: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(mode, machine.setting(card, Setting::Accounting).unwrap_or(0) as u32)
}

pub(crate) fn nvmlDeviceGetAccountingBufferSize(device: u64, bufferSize: *mut u32) -> Answer {
    card(device)?;
    put(bufferSize, 4000)
}

pub(crate) fn nvmlDeviceGetAccountingPids(device: u64, count: *mut u32, pids: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    let on = machine.setting(card, Setting::Accounting) == Some(1);
    let found = if on { tenants(machine, Unit::card(card)) } else { Vec::new() };
    put_list(count, pids, &found.into_iter().map(|(_, t)| t.pid).collect::<Vec<_>>())
}

pub(crate) fn nvmlDeviceGetAccountingStats(device: u64, pid: u32, stats: *mut nvmlAccountingStats_t) -> Answer {
    let (machine, card) = card(device)?;
    if machine.setting(card, Setting::Accounting) != Some(1) {
        return Err(Error::NOT_SUPPORTED);
    }
    let (_, tenant) =
        tenants(machine, Unit::card(card)).into_iter().find(|(_, t)| t.pid == pid).ok_or(Error::NOT_FOUND)?;
    let age = sys::wall_clock().saturating_sub(tenant.since).max(1);
    let answer = nvmlAccountingStats_t {
        gpu: percent(tenant.busy, age),
        memory: percent(tenant.busy, age) / 2,
        peak: tenant.peak,
        time: 0,
        start: tenant.since / 1000,
        running: 1,
        reserved: [0; 5],
    };
    put(stats, answer)
}
