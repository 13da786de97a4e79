//! The cards we can pretend to be. Figures from the vendor's public data sheets and, for the H200, from the card itself.

/// A model of card.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// How a spec calls it.
    pub short: &'static str,
    /// What NVML and the driver call it.
    pub name: &'static str,
    /// Memory as NVML counts it, in MiB.
    pub memory: u64,
    /// Of which the driver keeps for itself, in MiB.
    pub reserved: u64,
    /// Multiprocessors.
    pub sms: u32,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Threads a multiprocessor holds.
    pub threads_per_sm: i32,
    /// NVML's architecture number: 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell.
    pub architecture: u32,
    /// Highest multiprocessor clock, MHz.
    pub sm_clock: u32,
    /// Memory clock, MHz.
    pub memory_clock: u32,
    /// Memory bus width, bits.
    pub bus_width: i32,
    /// L2 cache, MiB.
    pub l2: i32,
    /// Power limit, watts.
    pub power: u32,
    /// BAR1, MiB.
    pub bar1: u64,
    /// NVLinks.
    pub nvlinks: u32,
    /// NVLink version.
    pub nvlink_version: u32,
    /// PCI device and vendor.
    pub pci_id: u32,
    /// PCIe generation.
    pub pcie: u32,
    /// MIG profiles.
    pub mig: &'static [MigProfile],
}

/// A MIG profile: a GPU instance with one compute instance over all of it.
#[derive(Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// `1g.18gb`
    pub name: &'static str,
    /// NVML's GPU instance profile number.
    pub id: u32,
    /// Compute slices of 7.
    pub slices: u32,
    /// Memory slices of 8.
    pub memory_slices: u32,
    /// Memory, MiB.
    pub memory: u64,
    /// Multiprocessors.
    pub sms: u32,
}

impl Model {
    /// The model a spec means.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|m| m.short.eq_ignore_ascii_case(name))
    }

    pub(super) fn names() -> String {
        MODELS.iter().map(|m| m.short).collect::<Vec<_>>().join(", ")
    }
}

const fn mig(name: &'static str, id: u32, slices: u32, memory_slices: u32, memory: u64, sms: u32) -> MigProfile {
    MigProfile { name, id, slices, memory_slices, memory, sms }
}

/// All models.
pub const MODELS: &[Model] = &[
    Model {
        short: "H200",
        name: "NVIDIA H200",
        memory: 143_771,
        reserved: 614,
        sms: 132,
        capability: (9, 0),
        threads_per_sm: 2048,
        architecture: 9,
        sm_clock: 1980,
        memory_clock: 3201,
        bus_width: 6016,
        l2: 60,
        power: 700,
        bar1: 262_144,
        nvlinks: 18,
        nvlink_version: 4,
        pci_id: 0x2335_10de,
        pcie: 5,
        mig: &[
            mig("1g.18gb", 0, 1, 1, 16_384, 16),
            mig("1g.35gb", 9, 1, 2, 33_280, 26),
            mig("2g.35gb", 1, 2, 2, 33_280, 32),
            mig("3g.71gb", 2, 3, 4, 71_168, 60),
            mig("4g.71gb", 3, 4, 4, 71_168, 64),
            mig("7g.141gb", 4, 7, 8, 143_360, 132),
        ],
    },
    Model {
        short: "H100",
        name: "NVIDIA H100 80GB HBM3",
        memory: 81_559,
        reserved: 593,
        sms: 132,
        capability: (9, 0),
        threads_per_sm: 2048,
        architecture: 9,
        sm_clock: 1980,
        memory_clock: 2619,
        bus_width: 5120,
        l2: 50,
        power: 700,
        bar1: 131_072,
        nvlinks: 18,
        nvlink_version: 4,
        pci_id: 0x2330_10de,
        pcie: 5,
        mig: &[
            mig("1g.10gb", 0, 1, 1, 9_984, 16),
            mig("1g.20gb", 9, 1, 2, 20_096, 26),
            mig("2g.20gb", 1, 2, 2, 20_096, 32),
            mig("3g.40gb", 2, 3, 4, 40_448, 60),
            mig("4g.40gb", 3, 4, 4, 40_448, 64),
            mig("7g.80gb", 4, 7, 8, 81_152, 132),
        ],
    },
    Model {
        short: "A100",
        name: "NVIDIA A100-SXM4-80GB",
        memory: 81_920,
        reserved: 629,
        sms: 108,
        capability: (8, 0),
        threads_per_sm: 2048,
        architecture: 7,
        sm_clock: 1410,
        memory_clock: 1593,
        bus_width: 5120,
        l2: 40,
        power: 400,
        bar1: 131_072,
        nvlinks: 12,
        nvlink_version: 3,
        pci_id: 0x20b2_10de,
        pcie: 4,
        mig: &[
            mig("1g.10gb", 19, 1, 1, 9_728, 14),
            mig("1g.20gb", 15, 1, 2, 19_968, 14),
            mig("2g.20gb", 14, 2, 2, 19_968, 28),
            mig("3g.40gb", 9, 3, 4, 40_192, 42),
            mig("4g.40gb", 5, 4, 4, 40_192, 56),
            mig("7g.80gb", 0, 7, 8, 81_152, 98),
        ],
    },
    Model {
        short: "L40S",
        name: "NVIDIA L40S",
        memory: 46_068,
        reserved: 588,
        sms: 142,
        capability: (8, 9),
        threads_per_sm: 1536,
        architecture: 8,
        sm_clock: 2520,
        memory_clock: 9001,
        bus_width: 384,
        l2: 96,
        power: 350,
        bar1: 65_536,
        nvlinks: 0,
        nvlink_version: 0,
        pci_id: 0x26b9_10de,
        pcie: 4,
        mig: &[],
    },
    Model {
        short: "L4",
        name: "NVIDIA L4",
        memory: 23_034,
        reserved: 433,
        sms: 58,
        capability: (8, 9),
        threads_per_sm: 1536,
        architecture: 8,
        sm_clock: 2040,
        memory_clock: 6251,
        bus_width: 192,
        l2: 48,
        power: 72,
        bar1: 32_768,
        nvlinks: 0,
        nvlink_version: 0,
        pci_id: 0x27b8_10de,
        pcie: 4,
        mig: &[],
    },
    Model {
        short: "T4",
        name: "Tesla T4",
        memory: 15_360,
        reserved: 429,
        sms: 40,
        capability: (7, 5),
        threads_per_sm: 1024,
        architecture: 6,
        sm_clock: 1590,
        memory_clock: 5001,
        bus_width: 256,
        l2: 4,
        power: 70,
        bar1: 256,
        nvlinks: 0,
        nvlink_version: 0,
        pci_id: 0x1eb8_10de,
        pcie: 3,
        mig: &[],
    },
    Model {
        short: "GTX1080",
        name: "NVIDIA GeForce GTX 1080",
        memory: 8_192,
        reserved: 75,
        sms: 20,
        capability: (6, 1),
        threads_per_sm: 2048,
        architecture: 4,
        sm_clock: 1911,
        memory_clock: 5005,
        bus_width: 256,
        l2: 2,
        power: 180,
        bar1: 256,
        nvlinks: 0,
        nvlink_version: 0,
        pci_id: 0x1b80_10de,
        pcie: 3,
        mig: &[],
    },
];
