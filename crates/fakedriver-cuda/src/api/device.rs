//! Devices.

use std::ffi::c_char;

use crate::abi::{Answer, CUdevprop_v1, CUuuid, Error};
use crate::call::{put, put_text, text};
use crate::device::{attribute, uuid_bytes};
use crate::process::{Locked, enter};
use divvy_fakedriver::machine::Unit;

/// Locks the process and checks a device number.
pub(crate) fn on_device(dev: i32) -> Result<(Locked, usize, Unit), Error> {
    let process = enter()?;
    let index = usize::try_from(dev).map_err(|_| Error::INVALID_DEVICE)?;
    let unit = process.devices.get(index).ok_or(Error::INVALID_DEVICE)?.unit;
    Ok((process, index, unit))
}

pub(crate) fn cuDeviceGetCount(count: *mut i32) -> Answer {
    let process = enter()?;
    put(count, i32::try_from(process.devices.len()).unwrap_or(0))
}

pub(crate) fn cuDeviceGet(device: *mut i32, ordinal: i32) -> Answer {
    let process = enter()?;
    if device.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    if usize::try_from(ordinal).map_or(true, |i| i >= process.devices.len()) {
        return Err(Error::INVALID_DEVICE);
    }
    put(device, ordinal)
}

pub(crate) fn cuDeviceGetName(name: *mut c_char, len: i32, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    let mut full = process.machine.card(unit).model.name.to_owned();
    if let Some(instance) = process.machine.instance(unit) {
        full = format!("{full} MIG {}", instance.profile.name);
    }
    put_text(name, usize::try_from(len).unwrap_or(0), &full)
}

pub(crate) fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    put(uuid, CUuuid { bytes: uuid_bytes(process.machine, unit, false) })
}

pub(crate) fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    put(uuid, CUuuid { bytes: uuid_bytes(process.machine, unit, true) })
}

pub(crate) fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    put(bytes, process.machine.usable(unit) as usize)
}

pub(crate) fn cuDeviceTotalMem(bytes: *mut u32, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    put(bytes, u32::try_from(process.machine.usable(unit)).unwrap_or(u32::MAX))
}

pub(crate) fn cuDeviceGetAttribute(pi: *mut i32, attrib: u32, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    let value = attribute(process.machine, unit, attrib).ok_or(Error::INVALID_VALUE)?;
    put(pi, value)
}

pub(crate) fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    let capability = process.machine.card(unit).model.capability;
    put(major, capability.0)?;
    put(minor, capability.1)
}

pub(crate) fn cuDeviceGetProperties(prop: *mut CUdevprop_v1, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    let of = |number| attribute(process.machine, unit, number).unwrap_or(0);
    let answer = CUdevprop_v1 {
        threads: of(1),
        block: [of(2), of(3), of(4)],
        grid: [of(5), of(6), of(7)],
        shared: of(8),
        constant: of(9),
        width: of(10),
        pitch: of(11),
        registers: of(12),
        clock: of(13),
        texture_align: of(14),
    };
    put(prop, answer)
}

pub(crate) fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: i32, dev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    let (domain, bus, device) = process.machine.card(unit).pci;
    put_text(pciBusId, usize::try_from(len).unwrap_or(0), &format!("{domain:04X}:{bus:02X}:{device:02X}.0"))
}

pub(crate) fn cuDeviceGetByPCIBusId(dev: *mut i32, pciBusId: *const c_char) -> Answer {
    let process = enter()?;
    let wanted = text(pciBusId).ok_or(Error::INVALID_VALUE)?.to_ascii_uppercase();
    let fits = |unit: Unit| {
        let (domain, bus, device) = process.machine.card(unit).pci;
        [
            format!("{domain:04X}:{bus:02X}:{device:02X}.0"),
            format!("{domain:04X}:{bus:02X}:{device:02X}"),
            format!("{bus:02X}:{device:02X}.0"),
            format!("{domain:08X}:{bus:02X}:{device:02X}.0"),
        ]
        .contains(&wanted)
    };
    let index = process.devices.iter().position(|d| fits(d.unit)).ok_or(Error::INVALID_DEVICE)?;
    put(dev, i32::try_from(index).unwrap_or(0))
}

pub(crate) fn cuDeviceCanAccessPeer(canAccessPeer: *mut i32, dev: i32, peerDev: i32) -> Answer {
    let (process, _, unit) = on_device(dev)?;
    let peer = usize::try_from(peerDev).ok().and_then(|i| process.devices.get(i)).ok_or(Error::INVALID_DEVICE)?.unit;
    let able = unit != peer && unit.instance_index().is_none() && peer.instance_index().is_none();
    put(canAccessPeer, able.into())
}

pub(crate) fn cuDeviceGetP2PAttribute(value: *mut i32, attrib: u32, srcDevice: i32, dstDevice: i32) -> Answer {
    let (process, _, unit) = on_device(srcDevice)?;
    let peer = usize::try_from(dstDevice).ok().and_then(|i| process.devices.get(i)).ok_or(Error::INVALID_DEVICE)?.unit;
    if unit == peer {
        return Err(Error::INVALID_DEVICE);
    }
    let linked = process.machine.spec.links_between(unit.card_index(), peer.card_index()) > 0;
    match attrib {
        1 => put(value, i32::from(!linked)),
        2 | 4 => put(value, 1),
        3 => put(value, linked.into()),
        5 => put(value, 0),
        _ => Err(Error::INVALID_VALUE),
    }
}

pub(crate) fn cuDeviceGetExecAffinitySupport(pi: *mut i32, kind: u32, dev: i32) -> Answer {
    drop(on_device(dev)?);
    if kind != 0 {
        return Err(Error::INVALID_VALUE);
    }
    // Only with MPS.
    put(pi, 0)
}

pub(crate) fn cuDeviceGetTexture1DLinearMaxWidth(
    maxWidthInElements: *mut usize,
    _format: u32,
    numChannels: u32,
    dev: i32,
) -> Answer {
    drop(on_device(dev)?);
    if !matches!(numChannels, 1 | 2 | 4) {
        return Err(Error::INVALID_VALUE);
    }
    put(maxWidthInElements, 1 << 30)
}
