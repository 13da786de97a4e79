//! Where pods come and go, full nodes are the better ones: whole devices and whole nodes come free together. Of CPU and devices
//! what the mix will run out of first is kept together.

/// What a full turnover makes of all of a [`LARGE`] node's CPU being left, and of all its devices: where CPU is plentiful, and where it
/// is scarce.
const CPU: (f64, f64) = (0.2, 1.5);
const DEVICES: (f64, f64) = (2.0, 0.2);
/// The same of its devices for pods without any: those do least harm where no devices are left.
const DEVICES_FOR_OTHERS: f64 = 6.0;
/// CPU is plentiful where the mix asks for so much of the cluster's CPU while it asks for all its devices, and scarce where it asks for
/// so much.
const CPU_PER_DEVICES: (f64, f64) = (0.8, 1.0);
/// A large node, in thousandths of a core and of a device.
const LARGE: (f32, f32) = (128_000.0, 8_000.0);

/// What the mix asks for, and how much of that the cluster has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// CPU, by all pods of all nodes.
    pub(super) cpu: (f64, u64),
    /// CPU, by pods with devices of nodes with devices: theirs cannot be had elsewhere, however much there is.
    pub(super) cpu_beside_devices: (f64, u64),
    /// Devices.
    pub(super) devices: (f64, u64),
}

impl Asked {
    /// How much of the CPU is asked for while all devices are.
    fn cpu_per_devices(&self) -> f64 {
        let part = |(asked, of): (f64, u64)| asked / of.max(1) as f64;
        part(self.cpu).max(part(self.cpu_beside_devices)) / part(self.devices)
    }
}

/// What full nodes are preferred by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pack {
    /// Per thousandth of a core that is left.
    cpu: f32,
    /// Per thousandth of a device that is left.
    devices: f32,
    /// The same, for pods without devices.
    devices_for_others: f32,
}

impl Pack {
    /// For so much turnover; nothing is packed where nobody asks for devices.
    pub(super) fn of(turnover: f64, asked: &Asked) -> Pack {
        if asked.devices.0 <= 0.0 {
            return Pack::default();
        }
        let (plenty, scarcity) = CPU_PER_DEVICES;
        let scarce = ((asked.cpu_per_devices() - plenty) / (scarcity - plenty)).clamp(0.0, 1.0);
        let between =
            |(plentiful, scarcest): (f64, f64)| (turnover * (plentiful + (scarcest - plentiful) * scarce)) as f32;
        Pack {
            cpu: between(CPU) / LARGE.0,
            devices: between(DEVICES) / LARGE.1,
            devices_for_others: (turnover * DEVICES_FOR_OTHERS) as f32 / LARGE.1,
        }
    }

    /// What it costs to leave so much on a node.
    pub(super) fn loss(&self, has_devices: bool, cpu: u64, devices: f32) -> f32 {
        let per_device = if has_devices { self.devices } else { self.devices_for_others };
        self.cpu * cpu as f32 + per_device * devices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So much of the CPU is asked for while all devices are; every node has devices.
    fn asked(cpu: f64) -> Asked {
        Asked { cpu: (cpu * 1000.0, 1000), cpu_beside_devices: (0.0, 1000), devices: (8.0, 8) }
    }

    #[test]
    fn nothing_is_packed_while_a_cluster_fills_up_or_nobody_asks_for_devices() {
        assert_eq!(Pack::of(0.0, &asked(1.0)), Pack::default());
        assert_eq!(Pack::of(1.0, &Asked { devices: (0.0, 8), ..asked(1.0) }), Pack::default());
    }

    #[test]
    fn cpu_of_nodes_without_devices_does_not_make_it_plentiful_beside_them() {
        let elsewhere = Asked { cpu: (1000.0, 100_000), cpu_beside_devices: (1000.0, 1000), devices: (8.0, 8) };
        assert_eq!(Pack::of(1.0, &elsewhere), Pack::of(1.0, &asked(1.0)));
    }

    #[test]
    fn what_runs_out_first_is_kept_together() {
        // One node has half its CPU left, the other half its devices.
        let prefers_devices_left = |cpu| {
            let pack = Pack::of(1.0, &asked(cpu));
            pack.loss(true, 0, LARGE.1 / 2.0) < pack.loss(true, LARGE.0 as u64 / 2, 0.0)
        };
        assert!(prefers_devices_left(1.2));
        assert!(!prefers_devices_left(0.6));
    }

    #[test]
    fn pods_without_devices_go_where_none_are_left() {
        let pack = Pack::of(1.0, &asked(1.0));
        assert!(pack.loss(false, 64_000, 0.0) < pack.loss(false, 0, LARGE.1));
        assert!(pack.loss(true, 64_000, 0.0) > pack.loss(true, 0, LARGE.1));
    }
}
