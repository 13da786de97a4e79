//! What every container of this node has and uses at this moment: what the journal writes down and `/metrics` shows.

use std::collections::BTreeMap;

use divvy_core::budget::HeldDevice;
use divvy_core::device::{Device, DeviceKind};
use divvy_core::grant::{Grant, Slice};
use divvy_core::id::{DeviceId, PodUid};
use divvy_core::time::Time;

use crate::arbiter::Account;
use crate::hold;
use crate::journal::{Counters, Sample};
use crate::ledger::Ledger;

/// Accounts of the arbiter, by container and device.
pub type Accounts = BTreeMap<(String, String), Account>;

/// Samples of all containers that were given their devices. `is_given` says whether a container was.
pub fn samples(
    ledger: &Ledger,
    devices: &[Device],
    accounts: &Accounts,
    is_given: impl Fn(&PodUid, &divvy_core::id::ContainerName) -> bool,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (uid, holder) in ledger.holders() {
        for container in holder.grant.containers.iter().filter(|c| is_given(uid, &c.name)) {
            for held in held(&container.slices, devices) {
                let account = accounts.get(&(hold::account(uid, &container.name), held.device.to_string()));
                let account = account.cloned().unwrap_or_default();
                samples.push(Sample {
                    pod: holder.pod.clone(),
                    uid: uid.clone(),
                    container: container.name.clone(),
                    held,
                    granted: since(&holder.grant),
                    counters: counters(&account),
                    used: account.memory,
                });
            }
        }
    }
    samples
}

/// What an account counts.
pub fn counters(account: &Account) -> Counters {
    let millis = |ns: u64| ns / 1_000_000;
    Counters { busy: millis(account.busy_ns), throttled: millis(account.throttled_ns), refused: account.refused }
}

fn since(grant: &Grant) -> Time {
    Time(grant.at)
}

/// What slices come to, device by device: two slices of one device are one holding. NICs cost nothing and are left out.
fn held(slices: &[Slice], devices: &[Device]) -> Vec<HeldDevice> {
    let mut held: BTreeMap<DeviceId, HeldDevice> = BTreeMap::new();
    for slice in slices.iter().filter(|s| s.kind != DeviceKind::Nic) {
        let device = devices.iter().find(|d| d.id == slice.device);
        let one = held.entry(slice.device.clone()).or_insert_with(|| HeldDevice {
            device: slice.device.clone(),
            model: device.map(|d| d.model.clone()).unwrap_or_else(|| "".into()),
            share: Default::default(),
            memory: Default::default(),
            of_share: device.map(Device::bookable_share).unwrap_or_default(),
            of_memory: device.map(Device::bookable_memory).unwrap_or_default(),
            alone: false,
        });
        one.share.0 = one.share.0.saturating_add(slice.share.0);
        one.memory.0 = one.memory.0.saturating_add(slice.memory.0);
        one.alone |= slice.exclusive;
    }
    held.into_values().collect()
}

#[cfg(test)]
mod tests {
    use divvy_core::ask::Role;
    use divvy_core::id::PodKey;
    use divvy_core::units::{Bytes, Share};

    use super::*;
    use crate::testing;

    #[test]
    fn a_container_with_two_devices_has_two_samples_and_one_that_never_started_none() {
        let slice = |device: &str, gib| testing::slice(&device.into(), Bytes::gib(gib), 300);
        let grant = testing::grant(vec![
            testing::container("both", Role::Main, vec![slice("G0", 1), slice("G1", 2)]),
            testing::container("not-yet", Role::Main, vec![slice("G0", 1)]),
        ]);
        let mut ledger = Ledger::default();
        ledger.adopt(&"u".into(), &PodKey::new("ns", "p"), &grant);
        let devices = ["G0", "G1"].map(|id| Device::gpu(id, 0, "T4", Bytes::gib(16)));
        let account =
            Account { busy_ns: 2_500_000, throttled_ns: 1_000_000, refused: 3, memory: 9, ..Account::default() };
        let accounts = BTreeMap::from([(("u/both".to_owned(), "G1".to_owned()), account)]);
        let samples = samples(&ledger, &devices, &accounts, |_, name| name.as_str() == "both");
        let told: Vec<_> = samples.iter().map(|s| (s.held.device.as_str(), s.held.memory, s.counters.busy)).collect();
        assert_eq!(told, [("G0", Bytes::gib(1), 0), ("G1", Bytes::gib(2), 2)]);
        assert_eq!((samples[1].counters.refused, samples[1].used), (3, 9));
        assert_eq!((samples[1].held.of_share, samples[1].held.of_memory), (Share::WHOLE, Bytes::gib(16)));
    }
}
