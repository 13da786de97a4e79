//! What a container was granted, as plain values: what the agent writes into the gate file and the library reads from it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::MAX_DEVICES;

/// The grant of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Who it is, for people and logs (`namespace/pod/container`). Identity is the cgroup, never this.
    pub name: String,
    /// The gate file is mounted writable because a card of this container refuses read-only registration; the library then runs
    /// the watchdog that opens gates when the arbiter is gone.
    pub gate_writable: bool,
    /// Its devices in the order in which it sees them.
    pub devices: Vec<DeviceConfig>,
}

/// The grant on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The identity as NVML spells it (`GPU-...`, `MIG-...`).
    pub id: String,
    /// The identity as the driver's `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// The device's number in the vendor's enumeration on the node.
    pub node_index: u32,
    /// Memory that is guaranteed, in bytes.
    pub memory_request: u64,
    /// Memory that may be used, in bytes.
    pub memory_limit: u64,
    /// Thousandths of the device's time that are guaranteed.
    pub share_request: u32,
    /// Thousandths of the device's time that may be used.
    pub share_limit: u32,
    /// Launches pass a gate.
    pub gated: bool,
    /// The container has the card to itself: metered, not gated, and shown whole.
    pub whole_card: bool,
    /// What happens at a limit.
    pub enforcement: Enforcement,
    /// What a context of the driver takes on this card, as far as the agent has seen: booked when one is made, in bytes.
    pub context_bytes: u64,
}

/// What happens at a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Enforcement {
    /// It is held.
    #[default]
    Enforce = 0,
    /// It is reported and not held.
    Audit = 1,
    /// Nothing is intercepted beyond counting.
    Off = 2,
    /// It is held, and functions of the driver that could allocate or launch and that nobody knows are refused.
    Strict = 3,
}

impl Enforcement {
    /// Is a limit held?
    #[must_use]
    pub fn holds(self) -> bool {
        matches!(self, Enforcement::Enforce | Enforcement::Strict)
    }

    pub(crate) fn from_raw(raw: u32) -> Enforcement {
        match raw {
            1 => Enforcement::Audit,
            2 => Enforcement::Off,
            3 => Enforcement::Strict,
            // An unknown mode of a newer agent is held rather than let go.
            _ => Enforcement::Enforce,
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<String>);

impl core::fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0.join("; "))
    }
}

impl core::error::Error for ConfigFaults {}

impl ContainerConfig {
    /// Every mistake at once.
    pub fn check(&self) -> Result<(), ConfigFaults> {
        let mut faults = Vec::new();
        if self.devices.len() > MAX_DEVICES {
            faults.push(format!("{} devices, but a container holds at most {MAX_DEVICES}", self.devices.len()));
        }
        for (i, device) in self.devices.iter().enumerate() {
            let (request, limit) = (device.share_request, device.share_limit);
            if limit > 1000 {
                faults.push(format!("device {i}: share limit {limit} is more than 1000 thousandths"));
            }
            if request > limit {
                faults.push(format!("device {i}: share request {request} is above its limit {limit}"));
            }
            if device.memory_request > device.memory_limit {
                faults.push(format!(
                    "device {i}: memory request {} is above its limit {}",
                    device.memory_request, device.memory_limit
                ));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(ConfigFaults(faults)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_are_named_at_once() {
        let bad = DeviceConfig { share_request: 1200, share_limit: 1100, memory_request: 2, ..Default::default() };
        let config = ContainerConfig { devices: vec![bad; 17], ..Default::default() };
        let faults = config.check().unwrap_err();
        assert_eq!(faults.0.len(), 1 + 17 * 3);
        assert!(faults.to_string().contains("device 16: share request 1200 is above its limit 1100"), "{faults}");
    }
}
