//! Settings: they are remembered, for all processes of the machine.

use divvy_fakedriver::machine::{Machine, Setting};

use crate::abi::{Answer, Error, nvmlPowerValue_v2_t};
use crate::api::health::power_range;
use crate::call::{card, get, put};

/// Remembers a value of a card; only root may.
fn remember(device: u64, setting: Setting, value: Option<u64>) -> Answer {
    let (machine, card) = root_card(device)?;
    machine.set(card, setting, value);
    Ok(())
}

fn root_card(device: u64) -> Result<(&'static Machine, usize), Error> {
    let found = card(device)?;
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 { Err(Error::NO_PERMISSION) } else { Ok(found) }
}

fn switch(device: u64, setting: Setting, value: u32) -> Answer {
    card(device)?;
    if value > 1 { Err(Error::INVALID_ARGUMENT) } else { remember(device, setting, Some(value.into())) }
}

pub(crate) fn nvmlDeviceGetPersistenceMode(device: u64, mode: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(mode, machine.setting(card, Setting::Persistence).unwrap_or(1) as u32)
}

pub(crate) fn nvmlDeviceSetPersistenceMode(device: u64, mode: u32) -> Answer {
    switch(device, Setting::Persistence, mode)
}

pub(crate) fn nvmlDeviceGetComputeMode(device: u64, mode: *mut u32) -> Answer {
    let (machine, unit) = crate::call::device(device)?;
    let set = machine.setting(unit.card_index(), Setting::ComputeMode);
    put(mode, set.map_or(machine.card(unit).compute_mode.cast_unsigned(), |m| m as u32))
}

pub(crate) fn nvmlDeviceSetComputeMode(device: u64, mode: u32) -> Answer {
    card(device)?;
    if !matches!(mode, 0 | 2 | 3) {
        Err(Error::UNKNOWN)
    } else {
        remember(device, Setting::ComputeMode, Some(mode.into()))
    }
}

pub(crate) fn nvmlDeviceSetEccMode(device: u64, ecc: u32) -> Answer {
    switch(device, Setting::PendingEcc, ecc)
}

pub(crate) fn nvmlDeviceClearEccErrorCounts(device: u64, counterType: u32) -> Answer {
    let (machine, card) = root_card(device)?;
    if counterType > 1 {
        return Err(Error::INVALID_ARGUMENT);
    }
    machine.set(card, Setting::EccCorrected, None);
    machine.set(card, Setting::EccUncorrected, None);
    Ok(())
}

pub(crate) fn nvmlDeviceSetAccountingMode(device: u64, mode: u32) -> Answer {
    switch(device, Setting::Accounting, mode)
}

pub(crate) fn nvmlDeviceClearAccountingPids(device: u64) -> Answer {
    root_card(device).map(drop)
}

pub(crate) fn nvmlDeviceSetPowerManagementLimit(device: u64, limit: u32) -> Answer {
    let (machine, card) = card(device)?;
    let (low, high) = power_range(machine, card);
    if !(low..=high).contains(&limit) {
        Err(Error::INVALID_ARGUMENT)
    } else {
        remember(device, Setting::PowerLimit, Some(limit.into()))
    }
}

pub(crate) fn nvmlDeviceSetPowerManagementLimit_v2(device: u64, powerValue: *mut nvmlPowerValue_v2_t) -> Answer {
    nvmlDeviceSetPowerManagementLimit(device, get(powerValue)?.milliwatts)
}

pub(crate) fn nvmlDeviceSetGpuLockedClocks(device: u64, minGpuClockMHz: u32, maxGpuClockMHz: u32) -> Answer {
    card(device)?;
    if minGpuClockMHz > maxGpuClockMHz {
        return Err(Error::INVALID_ARGUMENT);
    }
    remember(device, Setting::LockedClocks, Some(u64::from(minGpuClockMHz) << 32 | u64::from(maxGpuClockMHz)))
}

pub(crate) fn nvmlDeviceResetGpuLockedClocks(device: u64) -> Answer {
    remember(device, Setting::LockedClocks, None)
}

pub(crate) fn nvmlDeviceSetMemoryLockedClocks(device: u64, minMemClockMHz: u32, maxMemClockMHz: u32) -> Answer {
    card(device)?;
    if minMemClockMHz > maxMemClockMHz {
        return Err(Error::INVALID_ARGUMENT);
    }
    remember(device, Setting::LockedMemoryClocks, Some(u64::from(minMemClockMHz) << 32 | u64::from(maxMemClockMHz)))
}

pub(crate) fn nvmlDeviceResetMemoryLockedClocks(device: u64) -> Answer {
    remember(device, Setting::LockedMemoryClocks, None)
}

pub(crate) fn nvmlDeviceSetApplicationsClocks(device: u64, memClockMHz: u32, graphicsClockMHz: u32) -> Answer {
    let (machine, card) = card(device)?;
    let model = machine.spec.cards[card].model;
    if memClockMHz != model.memory_clock || graphicsClockMHz > model.sm_clock {
        return Err(Error::NOT_FOUND);
    }
    remember(device, Setting::ApplicationClocks, Some(u64::from(memClockMHz) << 32 | u64::from(graphicsClockMHz)))
}

pub(crate) fn nvmlDeviceResetApplicationsClocks(device: u64) -> Answer {
    remember(device, Setting::ApplicationClocks, None)
}

pub(crate) fn nvmlDeviceGetAPIRestriction(device: u64, apiType: u32, isRestricted: *mut u32) -> Answer {
    card(device)?;
    if apiType > 1 { Err(Error::INVALID_ARGUMENT) } else { put(isRestricted, 1) }
}

pub(crate) fn nvmlDeviceSetMigMode(device: u64, mode: u32, activationStatus: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    if machine.spec.cards[card].model.mig.is_empty() {
        return Err(Error::NOT_SUPPORTED);
    }
    put(activationStatus, 0)?;
    // It becomes pending: cards are not reset here.
    switch(device, Setting::PendingMig, mode)
}
