//! The devices this process may use, and their attributes.

use divvy_fakedriver::machine::{Machine, Setting, Unit};

use crate::context::ContextId;

/// One device, as CUDA numbers them.
pub(crate) struct Device {
    pub(crate) unit: Unit,
    /// The primary context and how often it is retained.
    pub(crate) primary: Option<ContextId>,
    pub(crate) retained: u32,
    /// Flags the primary context has or will have.
    pub(crate) primary_flags: u32,
    /// The pool that `cuMemAllocAsync` uses, and the one it used at first.
    pub(crate) pool: Option<u64>,
    pub(crate) default_pool: Option<u64>,
}

impl Device {
    fn new(unit: Unit) -> Self {
        Self { unit, primary: None, retained: 0, primary_flags: 0, pool: None, default_pool: None }
    }

    /// The devices `CUDA_VISIBLE_DEVICES` leaves: indices or UUID prefixes, up to the first that means nothing.
    pub(crate) fn visible(machine: &Machine) -> Vec<Self> {
        let cards: Vec<Unit> =
            machine.reachable().into_iter().map(Unit::card).filter(|&u| machine.card(u).mig.is_none()).collect();
        // Without a choice CUDA shows whole cards, and a MIG instance only where there is nothing else.
        let instances = || machine.units().into_iter().filter(|&u| machine.is_reachable(u)).take(1).collect();
        let by_default = if cards.is_empty() { instances() } else { cards };
        let Ok(wanted) = std::env::var("CUDA_VISIBLE_DEVICES") else {
            return by_default.into_iter().map(Self::new).collect();
        };
        let mut chosen: Vec<Unit> = Vec::new();
        for word in wanted.split(',').map(str::trim) {
            let found = match word.parse::<usize>() {
                Ok(index) => by_default.get(index).copied(),
                Err(_) => by_uuid(machine, word),
            };
            match found {
                Some(unit) if !chosen.contains(&unit) => chosen.push(unit),
                // A device named twice leaves none, one that does not exist ends the list.
                Some(_) => return Vec::new(),
                None => break,
            }
        }
        chosen.into_iter().map(Self::new).collect()
    }
}

fn by_uuid(machine: &Machine, word: &str) -> Option<Unit> {
    let name = |u: &Unit| machine.instance(*u).map_or(machine.card(*u).uuid.clone(), |i| i.uuid.clone());
    let reachable = machine.units().into_iter().filter(|&u| machine.is_reachable(u));
    let mut fits = reachable.filter(|u| word.len() > 4 && name(u).starts_with(word));
    let first = fits.next()?;
    fits.next().is_none().then_some(first)
}

/// The sixteen bytes of a device's UUID.
pub(crate) fn uuid_bytes(machine: &Machine, unit: Unit, of_instance: bool) -> [u8; 16] {
    let text = match machine.instance(unit) {
        Some(instance) if of_instance => &instance.uuid,
        _ => &machine.card(unit).uuid,
    };
    let hex: String = text.chars().skip(4).filter(char::is_ascii_hexdigit).collect();
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = hex.get(2 * i..2 * i + 2).and_then(|h| u8::from_str_radix(h, 16).ok()).unwrap_or(0);
    }
    bytes
}

/// A device attribute by its number in `cuda.h`; `None` for numbers that mean nothing.
pub(crate) fn attribute(machine: &Machine, unit: Unit, number: u32) -> Option<i32> {
    let card = machine.card(unit);
    let model = card.model;
    let (major, minor) = model.capability;
    let hopper = i32::from(major >= 9);
    let ampere = i32::from(major >= 8);
    let shared_per_sm = match (major, minor) {
        (9.., _) => 233_472,
        (8, 0) => 167_936,
        (8, _) => 102_400,
        _ => 65_536,
    };
    let shared_optin = if major >= 8 { shared_per_sm - 1024 } else { shared_per_sm };
    let whole = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    Some(match number {
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 49_152,
        9 => 65_536,
        10 => 32,
        11 => i32::MAX,
        12 => 65_536,
        13 => whole(model.sm_clock * 1000),
        14 => 512,
        15 => 1,
        16 => whole(machine.sms(unit)),
        17 | 18 => 0,
        19 => 1,
        20 => machine.setting(unit.card_index(), Setting::ComputeMode).map_or(card.compute_mode, |m| m as i32),
        21 | 22 => 131_072,
        23 => 65_536,
        24..=26 => 16_384,
        27 | 28 => 32_768,
        29 => 2048,
        30 => 512,
        31 | 32 => 1,
        33 => whole(card.pci.1),
        34 => whole(card.pci.2),
        35 => 0,
        36 => whole(model.memory_clock * 1000),
        37 => model.bus_width,
        38 => model.l2 << 20,
        39 => model.threads_per_sm,
        40 => 3,
        41 => 1,
        42 => 32_768,
        43 => 2048,
        44 => 1,
        45 | 46 => 32_768,
        47 | 48 => 8192,
        49 => 32_768,
        50 => whole(card.pci.0),
        51 => 32,
        52 | 53 => 32_768,
        54 => 2046,
        55 => 32_768,
        56 => 131_072,
        57 => 65_536,
        58..=60 => 16_384,
        61 => 32_768,
        62 => 2048,
        63 | 64 => 32_768,
        65 => 2048,
        66 | 67 => 32_768,
        68 => 2046,
        69 => 268_435_456,
        70 => 131_072,
        71 => 65_000,
        72 => 2_097_120,
        73 | 74 | 77 => 32_768,
        75 => major,
        76 => minor,
        78..=80 => 1,
        81 => shared_per_sm,
        82 => 65_536,
        83 => 1,
        84 => 0,
        85 => whole(unit.card_index() as u32),
        86 => 0,
        87 => {
            if major == 9 || (major, minor) == (8, 0) {
                2
            } else {
                64
            }
        }
        88 => 0,
        89..=91 => 1,
        // The first versions of stream waits and writes.
        92..=94 => 0,
        95 | 96 => 1,
        97 => shared_optin,
        98 => 0,
        99 => 1,
        100 | 101 => 0,
        102 | 103 => 1,
        104 | 105 => 0,
        106 => {
            if major >= 9 || (major, minor) == (8, 0) {
                32
            } else if major == 8 {
                24
            } else {
                16
            }
        }
        107 => ampere,
        108 => {
            if major >= 8 {
                (model.l2 << 20) / 8 * 5
            } else {
                0
            }
        }
        109 => {
            if major >= 8 {
                134_217_728
            } else {
                0
            }
        }
        110 => 1,
        111 => {
            if major >= 8 {
                1024
            } else {
                0
            }
        }
        112 | 113 => 1,
        114..=116 => 1,
        117 => 1,
        118 => 100,
        119 => 9,
        120 => hopper,
        121..=125 => 1,
        126 => {
            if major >= 9 {
                4
            } else {
                1
            }
        }
        127 => hopper,
        128 => hopper,
        129 => 1,
        130 => 0,
        131 => -1,
        132 => i32::from(hopper == 1 && model.nvlinks > 0),
        133 => 0,
        134 => whole(card.numa),
        135..=138 => 0,
        139 => model.pci_id.cast_signed(),
        140 => 0x18be_10de,
        141 | 142 => 1,
        143 => 0,
        144 | 145 => 1,
        146 | 147 => 0,
        _ => return None,
    })
}
