//! Which devices there are, and what they are.

use std::ffi::c_char;

use divvy_fakedriver::machine::{Machine, Unit};

use crate::abi::{Answer, Error, chars, nvmlPciInfo_t, nvmlPciInfoExt_t, nvmlUUID_t, version_of};
use crate::call::{card, device, device_even_lost, get, handle, machine, put, put_text, text};

pub(crate) fn nvmlDeviceGetCount(deviceCount: *mut u32) -> Answer {
    let machine = machine()?;
    let present = machine.reachable().into_iter().filter(|&c| !machine.is_lost(c)).count();
    put(deviceCount, u32::try_from(present).unwrap_or(0))
}

pub(crate) fn nvmlDeviceGetCount_v2(deviceCount: *mut u32) -> Answer {
    let machine = machine()?;
    put(deviceCount, u32::try_from(machine.reachable().len()).unwrap_or(0))
}

/// Gives a card's handle, or says that it is lost.
fn give(machine: &Machine, found: Option<usize>, missing: Error, place: *mut u64) -> Answer {
    let card = found.filter(|card| machine.reachable().contains(card)).ok_or(missing)?;
    if place.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    if machine.is_lost(card) {
        return Err(Error::GPU_IS_LOST);
    }
    put(place, handle(Unit::card(card)))
}

pub(crate) fn nvmlDeviceGetHandleByIndex(index: u32, device: *mut u64) -> Answer {
    nvmlDeviceGetHandleByIndex_v2(index, device)
}

pub(crate) fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut u64) -> Answer {
    let machine = machine()?;
    give(machine, machine.reachable().get(index as usize).copied(), Error::INVALID_ARGUMENT, device)
}

pub(crate) fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut u64) -> Answer {
    let (machine, wanted) = (machine()?, text(serial)?);
    give(machine, machine.spec.cards.iter().position(|c| c.serial == wanted), Error::NOT_FOUND, device)
}

pub(crate) fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut u64) -> Answer {
    let wanted = text(uuid)?;
    by_uuid(&wanted, device)
}

fn by_uuid(wanted: &str, device: *mut u64) -> Answer {
    let machine = machine()?;
    let instance = machine.units().into_iter().find(|&u| machine.instance(u).is_some_and(|i| i.uuid == wanted));
    if let Some(unit) = instance {
        return put(device, handle(unit));
    }
    give(machine, machine.spec.cards.iter().position(|c| c.uuid == wanted), Error::NOT_FOUND, device)
}

pub(crate) fn nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_t, device: *mut u64) -> Answer {
    let asked = get(uuid)?;
    const ASCII: u32 = 1;
    if asked.version != version_of::<nvmlUUID_t>(1) {
        return Err(Error::VERSION_MISMATCH);
    }
    if asked.kind == ASCII {
        let end = asked.value.iter().position(|&b| b == 0).unwrap_or(asked.value.len());
        return by_uuid(&String::from_utf8_lossy(&asked.value[..end]), device);
    }
    let hex: String = asked.value[..16].iter().map(|b| format!("{b:02x}")).collect();
    let machine = machine()?;
    let plain = |uuid: &str| uuid[4..].replace('-', "");
    give(machine, machine.spec.cards.iter().position(|c| plain(&c.uuid) == hex), Error::NOT_FOUND, device)
}

pub(crate) fn nvmlDeviceGetHandleByPciBusId(pciBusId: *const c_char, device: *mut u64) -> Answer {
    nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device)
}

pub(crate) fn nvmlDeviceGetHandleByPciBusId_v2(pciBusId: *const c_char, device: *mut u64) -> Answer {
    let (machine, wanted) = (machine()?, text(pciBusId)?.to_ascii_uppercase());
    let short = |id: &str| id.trim_start_matches('0').to_owned();
    let fits = |c: &divvy_fakedriver::spec::Card| {
        short(&c.bus_id()) == short(&wanted) || c.bus_id().ends_with(&format!(":{wanted}"))
    };
    give(machine, machine.spec.cards.iter().position(fits), Error::NOT_FOUND, device)
}

pub(crate) fn nvmlDeviceGetIndex(device: u64, index: *mut u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    let place = |card: usize| machine.reachable().iter().position(|&c| c == card).unwrap_or(card);
    let number = unit.instance_index().unwrap_or_else(|| place(unit.card_index()));
    put(index, u32::try_from(number).unwrap_or(0))
}

pub(crate) fn nvmlDeviceGetMinorNumber(device: u64, minorNumber: *mut u32) -> Answer {
    let (_, card) = card(device)?;
    put(minorNumber, u32::try_from(card).unwrap_or(0))
}

pub(crate) fn nvmlDeviceGetModuleId(device: u64, moduleId: *mut u32) -> Answer {
    let (_, card) = card(device)?;
    put(moduleId, u32::try_from(card + 1).unwrap_or(0))
}

pub(crate) fn nvmlDeviceGetName(device: u64, name: *mut c_char, length: u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    let model = machine.card(unit).model.name;
    match machine.instance(unit) {
        Some(instance) => put_text(name, length, &format!("{model} MIG {}", instance.profile.name)),
        None => put_text(name, length, model),
    }
}

pub(crate) fn nvmlDeviceGetUUID(device: u64, uuid: *mut c_char, length: u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    put_text(uuid, length, machine.instance(unit).map_or(&machine.card(unit).uuid, |i| &i.uuid))
}

pub(crate) fn nvmlDeviceGetSerial(device: u64, serial: *mut c_char, length: u32) -> Answer {
    let (machine, card) = card(device)?;
    put_text(serial, length, &machine.spec.cards[card].serial)
}

fn pci(machine: &Machine, unit: Unit) -> nvmlPciInfo_t {
    let card = machine.card(unit);
    let (domain, bus, device) = card.pci;
    nvmlPciInfo_t {
        bus_id_legacy: chars(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
        domain,
        bus,
        device,
        device_id: card.model.pci_id,
        subsystem: 0x18be_10de,
        bus_id: chars(&card.bus_id()),
    }
}

/// The PCI address of a card, for other topics.
pub(crate) fn pci_of(machine: &Machine, card: usize) -> nvmlPciInfo_t {
    pci(machine, Unit::card(card))
}

pub(crate) fn nvmlDeviceGetPciInfo(device: u64, pci: *mut nvmlPciInfo_t) -> Answer {
    nvmlDeviceGetPciInfo_v3(device, pci)
}

pub(crate) fn nvmlDeviceGetPciInfo_v2(device: u64, pci: *mut nvmlPciInfo_t) -> Answer {
    nvmlDeviceGetPciInfo_v3(device, pci)
}

pub(crate) fn nvmlDeviceGetPciInfo_v3(device: u64, pci: *mut nvmlPciInfo_t) -> Answer {
    // Known without the card: it answers for one that fell off the bus too.
    let (machine, unit) = device_even_lost(device)?;
    put(pci, self::pci(machine, unit))
}

pub(crate) fn nvmlDeviceGetPciInfoExt(device: u64, pci: *mut nvmlPciInfoExt_t) -> Answer {
    let (machine, unit) = device_even_lost(device)?;
    let version = get(pci)?.version;
    if version != version_of::<nvmlPciInfoExt_t>(1) {
        return Err(Error::VERSION_MISMATCH);
    }
    let base = self::pci(machine, unit);
    let answer = nvmlPciInfoExt_t {
        version,
        domain: base.domain,
        bus: base.bus,
        device: base.device,
        device_id: base.device_id,
        subsystem: base.subsystem,
        base_class: 3,
        sub_class: 2,
        bus_id: base.bus_id,
    };
    put(pci, answer)
}

pub(crate) fn nvmlDeviceGetBrand(device: u64, brand: *mut u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    const TESLA: u32 = 2;
    const NVIDIA: u32 = 14;
    put(brand, if machine.card(unit).model.architecture < 7 { TESLA } else { NVIDIA })
}

pub(crate) fn nvmlDeviceGetArchitecture(device: u64, arch: *mut u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    put(arch, machine.card(unit).model.architecture)
}

pub(crate) fn nvmlDeviceGetCudaComputeCapability(device: u64, major: *mut i32, minor: *mut i32) -> Answer {
    let (machine, unit) = self::device(device)?;
    let capability = machine.card(unit).model.capability;
    put(major, capability.0)?;
    put(minor, capability.1)
}

pub(crate) fn nvmlDeviceGetNumGpuCores(device: u64, numCores: *mut u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    let per_sm = if machine.card(unit).model.architecture == 7 { 64 } else { 128 };
    put(numCores, machine.sms(unit) * per_sm)
}

pub(crate) fn nvmlDeviceGetMemoryBusWidth(device: u64, busWidth: *mut u32) -> Answer {
    let (machine, unit) = self::device(device)?;
    put(busWidth, machine.card(unit).model.bus_width.cast_unsigned())
}

pub(crate) fn nvmlDeviceGetBoardId(device: u64, boardId: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(boardId, machine.spec.cards[card].pci.1 << 8)
}

pub(crate) fn nvmlDeviceGetBoardPartNumber(device: u64, partNumber: *mut c_char, length: u32) -> Answer {
    card(device)?;
    put_text(partNumber, length, "699-2G520-0280-000")
}

pub(crate) fn nvmlDeviceGetVbiosVersion(device: u64, version: *mut c_char, length: u32) -> Answer {
    card(device)?;
    put_text(version, length, "96.00.D9.00.01")
}

pub(crate) fn nvmlDeviceGetInforomImageVersion(device: u64, version: *mut c_char, length: u32) -> Answer {
    card(device)?;
    put_text(version, length, "G520.0280.00.04")
}

pub(crate) fn nvmlDeviceGetInforomVersion(device: u64, object: u32, version: *mut c_char, length: u32) -> Answer {
    card(device)?;
    put_text(
        version,
        length,
        ["2.1", "7.16", "N/A", "N/A"].get(object as usize).copied().ok_or(Error::INVALID_ARGUMENT)?,
    )
}

pub(crate) fn nvmlDeviceGetMultiGpuBoard(device: u64, multiGpuBool: *mut u32) -> Answer {
    card(device)?;
    put(multiGpuBool, 0)
}

pub(crate) fn nvmlDeviceGetDisplayMode(device: u64, display: *mut u32) -> Answer {
    self::device(device)?;
    put(display, 0)
}

pub(crate) fn nvmlDeviceGetDisplayActive(device: u64, isActive: *mut u32) -> Answer {
    self::device(device)?;
    put(isActive, 0)
}

pub(crate) fn nvmlDeviceGetBusType(device: u64, bus: *mut u32) -> Answer {
    self::device(device)?;
    const PCIE: u32 = 2;
    put(bus, PCIE)
}

pub(crate) fn nvmlDeviceGetGspFirmwareMode(device: u64, isEnabled: *mut u32, defaultMode: *mut u32) -> Answer {
    card(device)?;
    put(isEnabled, 1)?;
    put(defaultMode, 1)
}

pub(crate) fn nvmlDeviceGetGspFirmwareVersion(device: u64, version: *mut c_char) -> Answer {
    let (machine, _) = card(device)?;
    put_text(version, 64, &machine.spec.driver)
}

pub(crate) fn nvmlDeviceGetCurrPcieLinkGeneration(device: u64, currLinkGen: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(currLinkGen, machine.spec.cards[card].model.pcie)
}

pub(crate) fn nvmlDeviceGetMaxPcieLinkGeneration(device: u64, maxLinkGen: *mut u32) -> Answer {
    nvmlDeviceGetCurrPcieLinkGeneration(device, maxLinkGen)
}

pub(crate) fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: u64, maxLinkGenDevice: *mut u32) -> Answer {
    nvmlDeviceGetCurrPcieLinkGeneration(device, maxLinkGenDevice)
}

pub(crate) fn nvmlDeviceGetCurrPcieLinkWidth(device: u64, currLinkWidth: *mut u32) -> Answer {
    card(device)?;
    put(currLinkWidth, 16)
}

pub(crate) fn nvmlDeviceGetMaxPcieLinkWidth(device: u64, maxLinkWidth: *mut u32) -> Answer {
    card(device)?;
    put(maxLinkWidth, 16)
}

pub(crate) fn nvmlDeviceGetPcieReplayCounter(device: u64, value: *mut u32) -> Answer {
    card(device)?;
    put(value, 0)
}

pub(crate) fn nvmlDeviceGetPcieThroughput(device: u64, counter: u32, value: *mut u32) -> Answer {
    card(device)?;
    if counter > 1 { Err(Error::INVALID_ARGUMENT) } else { put(value, 0) }
}

pub(crate) fn nvmlDeviceGetPcieLinkMaxSpeed(device: u64, maxSpeed: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(maxSpeed, [0, 2500, 5000, 8000, 16_000, 32_000][machine.spec.cards[card].model.pcie.min(5) as usize])
}

pub(crate) fn nvmlDeviceGetVirtualizationMode(device: u64, pVirtualMode: *mut u32) -> Answer {
    card(device)?;
    put(pVirtualMode, 0)
}

pub(crate) fn nvmlDeviceGetIrqNum(device: u64, irqNum: *mut u32) -> Answer {
    let (_, card) = card(device)?;
    put(irqNum, 100 + u32::try_from(card).unwrap_or(0))
}
