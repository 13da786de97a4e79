//! Clocks, power, temperature, errors: what a card tells of its health.

use divvy_fakedriver::machine::{Machine, Setting};

use crate::abi::{
    Answer, Error, nvmlEccErrorCounts_t, nvmlMarginTemperature_t, nvmlRowRemapperHistogramValues_t, nvmlTemperature_t,
    nvmlViolationTime_t, version_of,
};
use crate::call::{card, device, get, put, put_list};
use crate::physics;

pub(crate) fn nvmlDeviceGetTemperature(device: u64, sensorType: u32, temp: *mut u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    if sensorType != 0 {
        Err(Error::INVALID_ARGUMENT)
    } else {
        put(temp, physics::temperature(machine, unit.card_index()))
    }
}

pub(crate) fn nvmlDeviceGetTemperatureV(device: u64, temperature: *mut nvmlTemperature_t) -> Answer {
    let (machine, card) = card(device)?;
    let asked = get(temperature)?;
    if asked.version != version_of::<nvmlTemperature_t>(1) {
        return Err(Error::VERSION_MISMATCH);
    }
    put(temperature, nvmlTemperature_t { temperature: physics::temperature(machine, card).cast_signed(), ..asked })
}

pub(crate) fn nvmlDeviceGetMarginTemperature(device: u64, marginTempInfo: *mut nvmlMarginTemperature_t) -> Answer {
    let (machine, card) = card(device)?;
    let asked = get(marginTempInfo)?;
    if asked.version != version_of::<nvmlMarginTemperature_t>(1) {
        return Err(Error::VERSION_MISMATCH);
    }
    put(
        marginTempInfo,
        nvmlMarginTemperature_t { margin: 87 - physics::temperature(machine, card).cast_signed(), ..asked },
    )
}

pub(crate) fn nvmlDeviceGetTemperatureThreshold(device: u64, thresholdType: u32, temp: *mut u32) -> Answer {
    card(device)?;
    match thresholdType {
        0 => put(temp, 92),
        1 => put(temp, 89),
        2 => put(temp, 95),
        3 => put(temp, 87),
        4..=7 => Err(Error::NOT_SUPPORTED),
        _ => Err(Error::INVALID_ARGUMENT),
    }
}

pub(crate) fn nvmlDeviceGetFanSpeed(device: u64, _speed: *mut u32) -> Answer {
    // Data centre cards have no fan.
    card(device)?;
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn nvmlDeviceGetNumFans(device: u64, numFans: *mut u32) -> Answer {
    card(device)?;
    put(numFans, 0)
}

pub(crate) fn nvmlDeviceGetPowerUsage(device: u64, power: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(power, physics::power(machine, card))
}

pub(crate) fn nvmlDeviceGetTotalEnergyConsumption(device: u64, energy: *mut u64) -> Answer {
    let (machine, card) = card(device)?;
    put(energy, physics::energy(machine, card))
}

pub(crate) fn nvmlDeviceGetPowerManagementMode(device: u64, mode: *mut u32) -> Answer {
    card(device)?;
    put(mode, 1)
}

pub(crate) fn nvmlDeviceGetPowerManagementLimit(device: u64, limit: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(limit, physics::power_limit(machine, card))
}

pub(crate) fn nvmlDeviceGetEnforcedPowerLimit(device: u64, limit: *mut u32) -> Answer {
    nvmlDeviceGetPowerManagementLimit(device, limit)
}

pub(crate) fn nvmlDeviceGetPowerManagementDefaultLimit(device: u64, defaultLimit: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(defaultLimit, machine.spec.cards[card].model.power * 1000)
}

/// The limits somebody may set, milliwatts.
pub(crate) fn power_range(machine: &Machine, card: usize) -> (u32, u32) {
    let full = machine.spec.cards[card].model.power * 1000;
    (full / 7 * 2, full)
}

pub(crate) fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: u64,
    minLimit: *mut u32,
    maxLimit: *mut u32,
) -> Answer {
    let (machine, card) = card(device)?;
    let (low, high) = power_range(machine, card);
    put(minLimit, low)?;
    put(maxLimit, high)
}

pub(crate) fn nvmlDeviceGetPowerSource(device: u64, powerSource: *mut u32) -> Answer {
    card(device)?;
    put(powerSource, 0)
}

pub(crate) fn nvmlDeviceGetPerformanceState(device: u64, pState: *mut u32) -> Answer {
    card(device)?;
    put(pState, 0)
}

pub(crate) fn nvmlDeviceGetPowerState(device: u64, pState: *mut u32) -> Answer {
    nvmlDeviceGetPerformanceState(device, pState)
}

pub(crate) fn nvmlDeviceGetClockInfo(device: u64, kind: u32, clock: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(clock, physics::clock(machine, card, kind).ok_or(Error::INVALID_ARGUMENT)?)
}

pub(crate) fn nvmlDeviceGetMaxClockInfo(device: u64, kind: u32, clock: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(clock, physics::max_clock(machine, card, kind).ok_or(Error::INVALID_ARGUMENT)?)
}

pub(crate) fn nvmlDeviceGetClock(device: u64, clockType: u32, clockId: u32, clockMHz: *mut u32) -> Answer {
    match clockId {
        0 => nvmlDeviceGetClockInfo(device, clockType, clockMHz),
        1 | 2 => nvmlDeviceGetApplicationsClock(device, clockType, clockMHz),
        3 => nvmlDeviceGetMaxClockInfo(device, clockType, clockMHz),
        _ => Err(Error::INVALID_ARGUMENT),
    }
}

pub(crate) fn nvmlDeviceGetApplicationsClock(device: u64, clockType: u32, clockMHz: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    let top = physics::max_clock(machine, card, clockType).ok_or(Error::INVALID_ARGUMENT)?;
    let set = machine
        .setting(card, Setting::ApplicationClocks)
        .map(|v| if clockType == 2 { (v >> 32) as u32 } else { v as u32 });
    put(clockMHz, set.unwrap_or(top))
}

pub(crate) fn nvmlDeviceGetDefaultApplicationsClock(device: u64, clockType: u32, clockMHz: *mut u32) -> Answer {
    nvmlDeviceGetMaxClockInfo(device, clockType, clockMHz)
}

pub(crate) fn nvmlDeviceGetMaxCustomerBoostClock(device: u64, clockType: u32, clockMHz: *mut u32) -> Answer {
    nvmlDeviceGetMaxClockInfo(device, clockType, clockMHz)
}

pub(crate) fn nvmlDeviceGetSupportedMemoryClocks(device: u64, count: *mut u32, clocksMHz: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put_list(count, clocksMHz, &[machine.spec.cards[card].model.memory_clock])
}

pub(crate) fn nvmlDeviceGetSupportedGraphicsClocks(
    device: u64,
    memoryClockMHz: u32,
    count: *mut u32,
    clocksMHz: *mut u32,
) -> Answer {
    let (machine, card) = card(device)?;
    let model = machine.spec.cards[card].model;
    if memoryClockMHz != model.memory_clock {
        return Err(Error::NOT_FOUND);
    }
    let clocks: Vec<u32> = (0..).map(|step| model.sm_clock - 15 * step).take_while(|&c| c >= 345).collect();
    put_list(count, clocksMHz, &clocks)
}

pub(crate) fn nvmlDeviceGetCurrentClocksEventReasons(device: u64, clocksEventReasons: *mut u64) -> Answer {
    let (machine, card) = card(device)?;
    const IDLE: u64 = 1;
    put(clocksEventReasons, if physics::card_utilization(machine, card) == 0 { IDLE } else { 0 })
}

pub(crate) fn nvmlDeviceGetCurrentClocksThrottleReasons(device: u64, clocksThrottleReasons: *mut u64) -> Answer {
    nvmlDeviceGetCurrentClocksEventReasons(device, clocksThrottleReasons)
}

pub(crate) fn nvmlDeviceGetSupportedClocksEventReasons(device: u64, supportedClocksEventReasons: *mut u64) -> Answer {
    card(device)?;
    put(supportedClocksEventReasons, 0x1ff)
}

pub(crate) fn nvmlDeviceGetSupportedClocksThrottleReasons(
    device: u64,
    supportedClocksThrottleReasons: *mut u64,
) -> Answer {
    nvmlDeviceGetSupportedClocksEventReasons(device, supportedClocksThrottleReasons)
}

pub(crate) fn nvmlDeviceGetAutoBoostedClocksEnabled(
    device: u64,
    _isEnabled: *mut u32,
    _defaultIsEnabled: *mut u32,
) -> Answer {
    card(device)?;
    Err(Error::NOT_SUPPORTED)
}

pub(crate) fn nvmlDeviceGetAdaptiveClockInfoStatus(device: u64, adaptiveClockStatus: *mut u32) -> Answer {
    card(device)?;
    put(adaptiveClockStatus, 1)
}

pub(crate) fn nvmlDeviceGetViolationStatus(
    device: u64,
    perfPolicyType: u32,
    violTime: *mut nvmlViolationTime_t,
) -> Answer {
    card(device)?;
    if perfPolicyType > 11 {
        return Err(Error::INVALID_ARGUMENT);
    }
    put(violTime, nvmlViolationTime_t { reference: divvy_fakedriver::sys::wall_clock() / 1000, violation: 0 })
}

/// ECC is on, or what it was set to before the last reset; resets do not happen here.
pub(crate) fn ecc_pending(machine: &Machine, card: usize) -> u32 {
    machine.setting(card, Setting::PendingEcc).unwrap_or(1) as u32
}

pub(crate) fn nvmlDeviceGetEccMode(device: u64, current: *mut u32, pending: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(current, 1)?;
    put(pending, ecc_pending(machine, card))
}

pub(crate) fn nvmlDeviceGetDefaultEccMode(device: u64, defaultMode: *mut u32) -> Answer {
    card(device)?;
    put(defaultMode, 1)
}

/// ECC errors since boot: 0 corrected, 1 uncorrected.
pub(crate) fn ecc_errors(machine: &Machine, card: usize, kind: u32) -> u64 {
    let setting = if kind == 0 { Setting::EccCorrected } else { Setting::EccUncorrected };
    machine.setting(card, setting).unwrap_or(0)
}

pub(crate) fn nvmlDeviceGetTotalEccErrors(
    device: u64,
    errorType: u32,
    counterType: u32,
    eccCounts: *mut u64,
) -> Answer {
    let (machine, card) = card(device)?;
    if errorType > 1 || counterType > 1 {
        Err(Error::INVALID_ARGUMENT)
    } else {
        put(eccCounts, ecc_errors(machine, card, errorType))
    }
}

pub(crate) fn nvmlDeviceGetDetailedEccErrors(
    device: u64,
    errorType: u32,
    counterType: u32,
    eccCounts: *mut nvmlEccErrorCounts_t,
) -> Answer {
    let (machine, card) = card(device)?;
    if errorType > 1 || counterType > 1 {
        return Err(Error::INVALID_ARGUMENT);
    }
    put(eccCounts, nvmlEccErrorCounts_t { l1: 0, l2: 0, memory: ecc_errors(machine, card, errorType), registers: 0 })
}

pub(crate) fn nvmlDeviceGetMemoryErrorCounter(
    device: u64,
    errorType: u32,
    counterType: u32,
    locationType: u32,
    count: *mut u64,
) -> Answer {
    let (machine, card) = card(device)?;
    if errorType > 1 || counterType > 1 || locationType > 7 {
        return Err(Error::INVALID_ARGUMENT);
    }
    const DEVICE_MEMORY: u32 = 2;
    put(count, if locationType == DEVICE_MEMORY { ecc_errors(machine, card, errorType) } else { 0 })
}

pub(crate) fn nvmlDeviceGetRemappedRows(
    device: u64,
    corrRows: *mut u32,
    uncRows: *mut u32,
    isPending: *mut u32,
    failureOccurred: *mut u32,
) -> Answer {
    card(device)?;
    put(corrRows, 0)?;
    put(uncRows, 0)?;
    put(isPending, 0)?;
    put(failureOccurred, 0)
}

pub(crate) fn nvmlDeviceGetRowRemapperHistogram(device: u64, values: *mut nvmlRowRemapperHistogramValues_t) -> Answer {
    card(device)?;
    put(values, nvmlRowRemapperHistogramValues_t { max: 3072, high: 0, partial: 0, low: 0, none: 0 })
}
