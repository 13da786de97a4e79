//! MIG: instances as devices, GPU instances and compute instances.

use divvy_fakedriver::machine::{Machine, Setting, Unit};
use divvy_fakedriver::spec::MigProfile;

use crate::abi::{
    Answer, Error, chars, nvmlComputeInstanceInfo_t, nvmlDeviceAttributes_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t, version_of,
};
use crate::call::{card, device, get, handle, instance, instance_handle, put, put_list};

pub(crate) fn nvmlDeviceGetMigMode(device: u64, currentMode: *mut u32, pendingMode: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    let card_spec = &machine.spec.cards[card];
    if card_spec.model.mig.is_empty() {
        return Err(Error::NOT_SUPPORTED);
    }
    let current = u32::from(card_spec.mig.is_some());
    put(currentMode, current)?;
    put(pendingMode, machine.setting(card, Setting::PendingMig).map_or(current, |m| m as u32))
}

pub(crate) fn nvmlDeviceGetMaxMigDeviceCount(device: u64, count: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(count, if machine.spec.cards[card].model.mig.is_empty() { 0 } else { 7 })
}

pub(crate) fn nvmlDeviceIsMigDeviceHandle(device: u64, isMigDevice: *mut u32) -> Answer {
    let (_, unit) = self::device(device)?;
    put(isMigDevice, unit.instance_index().is_some().into())
}

pub(crate) fn nvmlDeviceGetMigDeviceHandleByIndex(device: u64, index: u32, migDevice: *mut u64) -> Answer {
    let (machine, card) = card(device)?;
    let Some(instances) = &machine.spec.cards[card].mig else { return Err(Error::NOT_FOUND) };
    if index >= 7 {
        return Err(Error::INVALID_ARGUMENT);
    }
    if index as usize >= instances.len() {
        return Err(Error::NOT_FOUND);
    }
    put(migDevice, handle(Unit::instance(card, index as usize)))
}

pub(crate) fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migDevice: u64, device: *mut u64) -> Answer {
    let (_, unit) = self::device(migDevice)?;
    if unit.instance_index().is_none() {
        return Err(Error::INVALID_ARGUMENT);
    }
    put(device, handle(Unit::card(unit.card_index())))
}

pub(crate) fn nvmlDeviceGetGpuInstanceId(device: u64, id: *mut u32) -> Answer {
    let (_, unit) = self::device(device)?;
    let index = unit.instance_index().ok_or(Error::INVALID_ARGUMENT)?;
    put(id, u32::try_from(index + 1).unwrap_or(0))
}

pub(crate) fn nvmlDeviceGetComputeInstanceId(device: u64, id: *mut u32) -> Answer {
    let (_, unit) = self::device(device)?;
    if unit.instance_index().is_none() { Err(Error::INVALID_ARGUMENT) } else { put(id, 0) }
}

pub(crate) fn nvmlDeviceGetAttributes(device: u64, attributes: *mut nvmlDeviceAttributes_t) -> Answer {
    nvmlDeviceGetAttributes_v2(device, attributes)
}

pub(crate) fn nvmlDeviceGetAttributes_v2(device: u64, attributes: *mut nvmlDeviceAttributes_t) -> Answer {
    let (machine, unit) = self::device(device)?;
    let profile = machine.instance(unit).ok_or(Error::NOT_SUPPORTED)?.profile;
    let answer = nvmlDeviceAttributes_t {
        multiprocessors: profile.sms,
        copy_engines: profile.slices,
        decoders: profile.slices,
        encoders: 0,
        jpegs: profile.slices,
        ofas: 0,
        gpu_slices: profile.slices,
        compute_slices: profile.slices,
        memory_mib: profile.memory,
    };
    put(attributes, answer)
}

/// The profile NVML calls by a position: 0 is 1 slice, 1 is 2, 2 is 3, 3 is 4, 4 is 7, 9 is 1 with double memory.
fn by_position(machine: &Machine, card: usize, position: u32) -> Result<&'static MigProfile, Error> {
    let profiles = machine.spec.cards[card].model.mig;
    let plain = |slices: u32| profiles.iter().find(|p| p.slices == slices);
    let found = match position {
        0 => plain(1),
        1 => plain(2),
        2 => plain(3),
        3 => plain(4),
        4 => plain(7),
        9 => profiles.iter().find(|p| p.slices == 1 && p.memory_slices == 2),
        5..=8 | 10..=20 => None,
        _ => return Err(Error::INVALID_ARGUMENT),
    };
    found.ok_or(Error::NOT_SUPPORTED)
}

fn capacity(profile: &MigProfile) -> u32 {
    (7 / profile.slices).min(8 / profile.memory_slices)
}

pub(crate) fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: u64,
    profile: u32,
    info: *mut nvmlGpuInstanceProfileInfo_t,
) -> Answer {
    let (machine, card) = card(device)?;
    let found = by_position(machine, card, profile)?;
    let answer = nvmlGpuInstanceProfileInfo_t {
        id: found.id,
        p2p: 0,
        slices: found.slices,
        instances: capacity(found),
        multiprocessors: found.sms,
        copy_engines: found.slices,
        decoders: found.slices,
        encoders: 0,
        jpegs: found.slices,
        ofas: 0,
        memory_mib: found.memory,
    };
    put(info, answer)
}

pub(crate) fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: u64,
    profile: u32,
    info: *mut nvmlGpuInstanceProfileInfo_v2_t,
) -> Answer {
    let (machine, card) = card(device)?;
    let found = by_position(machine, card, profile)?;
    let version = get(info)?.version;
    if version != version_of::<nvmlGpuInstanceProfileInfo_v2_t>(2) {
        return Err(Error::VERSION_MISMATCH);
    }
    let answer = nvmlGpuInstanceProfileInfo_v2_t {
        version,
        id: found.id,
        p2p: 0,
        slices: found.slices,
        instances: capacity(found),
        multiprocessors: found.sms,
        copy_engines: found.slices,
        decoders: found.slices,
        encoders: 0,
        jpegs: found.slices,
        ofas: 0,
        memory_mib: found.memory,
        name: chars(&format!("MIG {}", found.name)),
    };
    put(info, answer)
}

fn instances_of(machine: &Machine, card: usize, profile: u32) -> Vec<Unit> {
    let of_card = machine.units().into_iter().filter(|u| u.card_index() == card);
    of_card.filter(|&u| machine.instance(u).is_some_and(|i| i.profile.id == profile)).collect()
}

pub(crate) fn nvmlDeviceGetGpuInstances(
    device: u64,
    profileId: u32,
    gpuInstances: *mut u64,
    count: *mut u32,
) -> Answer {
    let (machine, card) = card(device)?;
    if machine.spec.cards[card].mig.is_none() {
        return Err(Error::NOT_SUPPORTED);
    }
    let list: Vec<u64> = instances_of(machine, card, profileId).into_iter().map(|u| instance_handle(u, 1)).collect();
    put(count, 0)?;
    put(count, u32::try_from(list.len()).unwrap_or(0))?;
    put_list(count, gpuInstances, &list)
}

pub(crate) fn nvmlDeviceGetGpuInstanceById(device: u64, id: u32, gpuInstance: *mut u64) -> Answer {
    let (machine, card) = card(device)?;
    let Some(instances) = &machine.spec.cards[card].mig else { return Err(Error::NOT_SUPPORTED) };
    let index = (id as usize).checked_sub(1).filter(|&i| i < instances.len()).ok_or(Error::NOT_FOUND)?;
    put(gpuInstance, instance_handle(Unit::instance(card, index), 1))
}

pub(crate) fn nvmlDeviceGetGpuInstanceRemainingCapacity(device: u64, profileId: u32, count: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    let spec = &machine.spec.cards[card];
    let profile = spec.model.mig.iter().find(|p| p.id == profileId).ok_or(Error::NOT_SUPPORTED)?;
    let taken = spec.mig.iter().flatten().fold((0, 0), |t, i| (t.0 + i.profile.slices, t.1 + i.profile.memory_slices));
    put(count, ((7 - taken.0) / profile.slices).min((8 - taken.1) / profile.memory_slices))
}

fn placement(machine: &Machine, unit: Unit) -> nvmlGpuInstancePlacement_t {
    let before = machine.card(unit).mig.iter().flatten().take(unit.instance_index().unwrap_or(0));
    let start = before.map(|i| i.profile.memory_slices).sum();
    nvmlGpuInstancePlacement_t { start, size: machine.instance(unit).map_or(0, |i| i.profile.memory_slices) }
}

pub(crate) fn nvmlGpuInstanceGetInfo(gpuInstance: u64, info: *mut nvmlGpuInstanceInfo_t) -> Answer {
    let (machine, unit) = instance(gpuInstance, 1)?;
    let profile = machine.instance(unit).map_or(0, |i| i.profile.id);
    let id = u32::try_from(unit.instance_index().unwrap_or(0) + 1).unwrap_or(0);
    put(
        info,
        nvmlGpuInstanceInfo_t {
            device: handle(Unit::card(unit.card_index())),
            id,
            profile,
            placement: placement(machine, unit),
        },
    )
}

pub(crate) fn nvmlGpuInstanceGetComputeInstances(
    gpuInstance: u64,
    profileId: u32,
    computeInstances: *mut u64,
    count: *mut u32,
) -> Answer {
    let (machine, unit) = instance(gpuInstance, 1)?;
    let whole = machine.instance(unit).map_or(0, |i| compute_profile(i.profile));
    let list = if profileId == whole { vec![instance_handle(unit, 2)] } else { Vec::new() };
    put(count, u32::try_from(list.len()).unwrap_or(0))?;
    put_list(count, computeInstances, &list)
}

pub(crate) fn nvmlGpuInstanceGetComputeInstanceById(gpuInstance: u64, id: u32, computeInstance: *mut u64) -> Answer {
    let (_, unit) = instance(gpuInstance, 1)?;
    if id != 0 { Err(Error::NOT_FOUND) } else { put(computeInstance, instance_handle(unit, 2)) }
}

/// The compute instance profile that covers a whole GPU instance.
fn compute_profile(profile: &MigProfile) -> u32 {
    match profile.slices {
        7 => 4,
        slices => slices - 1,
    }
}

pub(crate) fn nvmlComputeInstanceGetInfo_v2(computeInstance: u64, info: *mut nvmlComputeInstanceInfo_t) -> Answer {
    let (machine, unit) = instance(computeInstance, 2)?;
    let profile = machine.instance(unit).map_or(0, |i| compute_profile(i.profile));
    let answer = nvmlComputeInstanceInfo_t {
        device: handle(Unit::card(unit.card_index())),
        gpu_instance: instance_handle(unit, 1),
        id: 0,
        profile,
        placement: nvmlGpuInstancePlacement_t {
            start: 0,
            size: machine.instance(unit).map_or(0, |i| i.profile.slices),
        },
    };
    put(info, answer)
}
