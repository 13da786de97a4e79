//! How devices are joined with each other and with the host.

use divvy_fakedriver::machine::{Machine, Unit};

use crate::abi::{Answer, Error, nvmlGpuFabricInfo_t, nvmlPciInfo_t};
use crate::api::device::pci_of;
use crate::call::{card, get, handle, machine, put};

pub(crate) fn nvmlDeviceGetTopologyCommonAncestor(device1: u64, device2: u64, pathInfo: *mut u32) -> Answer {
    let ((machine, a), (_, b)) = (card(device1)?, card(device2)?);
    if a == b {
        return Err(Error::NOT_SUPPORTED);
    }
    put(pathInfo, machine.spec.common_ancestor(a, b))
}

pub(crate) fn nvmlDeviceGetTopologyNearestGpus(
    device: u64,
    level: u32,
    count: *mut u32,
    deviceArray: *mut u64,
) -> Answer {
    let (machine, own) = card(device)?;
    let near: Vec<u64> = (0..machine.spec.cards.len())
        .filter(|&c| c != own && machine.spec.common_ancestor(own, c) == level)
        .map(|c| handle(Unit::card(c)))
        .collect();
    let room = get(count)? as usize;
    put(count, u32::try_from(near.len()).unwrap_or(0))?;
    if deviceArray.is_null() {
        return Ok(());
    }
    for (i, h) in near.iter().take(room).enumerate() {
        // SAFETY: the caller has room for that many.
        put(unsafe { deviceArray.add(i) }, *h)?;
    }
    Ok(())
}

pub(crate) fn nvmlSystemGetTopologyGpuSet(_cpuNumber: u32, count: *mut u32, deviceArray: *mut u64) -> Answer {
    let machine = machine()?;
    let room = get(count)? as usize;
    let all = machine.spec.cards.len();
    put(count, u32::try_from(all).unwrap_or(0))?;
    if deviceArray.is_null() {
        return Ok(());
    }
    for c in 0..all.min(room) {
        // SAFETY: the caller has room for that many.
        put(unsafe { deviceArray.add(c) }, handle(Unit::card(c)))?;
    }
    Ok(())
}

pub(crate) fn nvmlDeviceOnSameBoard(device1: u64, device2: u64, onSameBoard: *mut i32) -> Answer {
    let ((_, a), (_, b)) = (card(device1)?, card(device2)?);
    put(onSameBoard, (a == b).into())
}

pub(crate) fn nvmlDeviceGetP2PStatus(device1: u64, device2: u64, p2pIndex: u32, p2pStatus: *mut u32) -> Answer {
    let ((machine, a), (_, b)) = (card(device1)?, card(device2)?);
    const NVLINK: u32 = 2;
    const OK: u32 = 0;
    const NOT_SUPPORTED: u32 = 5;
    let able = p2pIndex != NVLINK || machine.spec.links_between(a, b) > 0;
    if p2pIndex > 5 { Err(Error::INVALID_ARGUMENT) } else { put(p2pStatus, if able { OK } else { NOT_SUPPORTED }) }
}

/// The links of a card: how many, and the card at the far end of each (none where they end in switches).
fn link(machine: &Machine, card: usize, link: u32) -> Result<Option<usize>, Error> {
    let model = machine.spec.cards[card].model;
    if link >= model.nvlinks {
        return Err(Error::NOT_SUPPORTED);
    }
    match machine.spec.nvlink {
        divvy_fakedriver::spec::NvLink::Pairs => Ok(Some(card ^ 1).filter(|&p| p < machine.spec.cards.len())),
        _ => Ok(None),
    }
}

/// Whether a card's links are up: they need somebody at the far end.
fn is_up(machine: &Machine, card: usize) -> bool {
    (0..machine.spec.cards.len()).any(|other| machine.spec.links_between(card, other) > 0)
}

pub(crate) fn nvmlDeviceGetNvLinkState(device: u64, link: u32, isActive: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    self::link(machine, card, link)?;
    put(isActive, is_up(machine, card).into())
}

pub(crate) fn nvmlDeviceGetNvLinkVersion(device: u64, link: u32, version: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    self::link(machine, card, link)?;
    put(version, [0, 1, 2, 5, 6][machine.spec.cards[card].model.nvlink_version.min(4) as usize])
}

pub(crate) fn nvmlDeviceGetNvLinkCapability(device: u64, link: u32, capability: u32, capResult: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    self::link(machine, card, link)?;
    if capability > 5 { Err(Error::INVALID_ARGUMENT) } else { put(capResult, is_up(machine, card).into()) }
}

pub(crate) fn nvmlDeviceGetNvLinkRemotePciInfo(device: u64, link: u32, pci: *mut nvmlPciInfo_t) -> Answer {
    nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci)
}

pub(crate) fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: u64, link: u32, pci: *mut nvmlPciInfo_t) -> Answer {
    let (machine, card) = card(device)?;
    let remote = self::link(machine, card, link)?;
    if !is_up(machine, card) {
        return Err(Error::NOT_SUPPORTED);
    }
    match remote {
        Some(other) => put(pci, pci_of(machine, other)),
        None => {
            // A switch: its address is of a bus behind the cards.
            let mut far = pci_of(machine, card);
            let bus = 0xc0 + link / 5;
            (far.bus, far.device_id, far.subsystem) = (bus, 0x22a3_10de, 0);
            far.bus_id_legacy = crate::abi::chars(&format!("{:04X}:{bus:02X}:00.0", far.domain));
            far.bus_id = crate::abi::chars(&format!("{:08X}:{bus:02X}:00.0", far.domain));
            put(pci, far)
        }
    }
}

pub(crate) fn nvmlDeviceGetNvLinkRemoteDeviceType(device: u64, link: u32, pNvLinkDeviceType: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    const GPU: u32 = 0;
    const SWITCH: u32 = 2;
    const UNKNOWN: u32 = 255;
    let kind = match self::link(machine, card, link)? {
        _ if !is_up(machine, card) => UNKNOWN,
        Some(_) => GPU,
        None => SWITCH,
    };
    put(pNvLinkDeviceType, kind)
}

pub(crate) fn nvmlDeviceGetNvLinkErrorCounter(device: u64, link: u32, counter: u32, counterValue: *mut u64) -> Answer {
    let (machine, card) = card(device)?;
    self::link(machine, card, link)?;
    if counter > 4 { Err(Error::INVALID_ARGUMENT) } else { put(counterValue, 0) }
}

pub(crate) fn nvmlDeviceGetGpuFabricInfo(device: u64, gpuFabricInfo: *mut nvmlGpuFabricInfo_t) -> Answer {
    let (machine, card) = card(device)?;
    if machine.spec.cards[card].model.nvlinks == 0 {
        return Err(Error::NOT_SUPPORTED);
    }
    const COMPLETED: u32 = 3;
    put(gpuFabricInfo, nvmlGpuFabricInfo_t { cluster: [0; 16], status: 0, clique: 0, state: COMPLETED })
}

/// The processors of a NUMA node, as the host says; all of them where it does not.
fn cpus_of(node: u32) -> Vec<u64> {
    let read = |path: String| std::fs::read_to_string(path).ok();
    let list = read(format!("/sys/devices/system/node/node{node}/cpulist"))
        .or_else(|| read("/sys/devices/system/cpu/online".into()));
    let mut words = vec![0u64; 16];
    for part in list.unwrap_or_default().trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<usize>(), to.parse::<usize>()) {
            (from..=to).filter(|c| c / 64 < 16).for_each(|c| words[c / 64] |= 1 << (c % 64));
        }
    }
    words
}

fn put_words(place: *mut u64, count: u32, words: &[u64]) -> Answer {
    if place.is_null() || count == 0 {
        return Err(Error::INVALID_ARGUMENT);
    }
    for i in 0..count as usize {
        // SAFETY: the caller has room for `count` words.
        put(unsafe { place.add(i) }, words.get(i).copied().unwrap_or(0))?;
    }
    Ok(())
}

pub(crate) fn nvmlDeviceGetCpuAffinity(device: u64, cpuSetSize: u32, cpuSet: *mut u64) -> Answer {
    let (machine, card) = card(device)?;
    put_words(cpuSet, cpuSetSize, &cpus_of(machine.spec.cards[card].numa))
}

pub(crate) fn nvmlDeviceGetCpuAffinityWithinScope(
    device: u64,
    cpuSetSize: u32,
    cpuSet: *mut u64,
    _scope: u32,
) -> Answer {
    nvmlDeviceGetCpuAffinity(device, cpuSetSize, cpuSet)
}

pub(crate) fn nvmlDeviceGetMemoryAffinity(device: u64, nodeSetSize: u32, nodeSet: *mut u64, _scope: u32) -> Answer {
    let (machine, card) = card(device)?;
    put_words(nodeSet, nodeSetSize, &[1 << machine.spec.cards[card].numa])
}

pub(crate) fn nvmlDeviceGetNumaNodeId(device: u64, node: *mut u32) -> Answer {
    let (machine, card) = card(device)?;
    put(node, machine.spec.cards[card].numa)
}
