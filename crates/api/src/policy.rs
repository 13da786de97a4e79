//! `GpuPolicy`: how a platform team wants its cluster run, as one object.
//!
//! The object is called `default` and is live: services follow it and act on the next decision. Every field may be left out. What
//! the core and the dialects read of it they read by the same names, so that a policy tried in the simulator works here.

pub mod spec;

use std::sync::Arc;

use divvy_core::budget::Price;
use divvy_core::device::{Device, Inventory, Isolation};
use divvy_core::policy::Policy;
use divvy_core::units::{Bytes, Share};
use divvy_dialects::DialectConfig;
use serde_json::Value;

pub use spec::{GpuPolicy, GpuPolicySpec, GpuPolicyStatus};

/// The name of the one object that counts.
pub const NAME: &str = "default";

/// The policy as the services use it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterPolicy {
    /// For the scheduler.
    pub scheduling: Policy,
    /// For the webhook.
    pub dialects: DialectConfig,
    /// About devices.
    pub devices: Devices,
    /// What an hour of a whole device costs where a budget says nothing, by part of the model's name.
    pub prices: Vec<(Arc<str>, Price)>,
}

/// What is said about devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Memory that may be promised, in thousandths of what a device has.
    pub memory: Share,
    /// Time that may be promised, in thousandths of what a device has.
    pub share: Share,
    /// Only nodes that somebody opted in by a label are used.
    pub only_opted_in: bool,
}

impl Default for Devices {
    fn default() -> Devices {
        Devices { memory: Share::WHOLE, share: Share::WHOLE, only_opted_in: false }
    }
}

impl Devices {
    /// Promises as much of each device as the policy allows, where its agent does not say otherwise. A hardware partition is as large as
    /// it is, and one container's.
    pub fn oversubscribe(&self, inventory: &mut Inventory) {
        let shared = |device: &&mut Device| device.isolation.first() != Some(&Isolation::Mig);
        for device in inventory.devices.iter_mut().filter(shared) {
            if self.memory != Share::WHOLE && device.bookable_memory.is_none() {
                device.bookable_memory = Some(device.memory.thousandths(self.memory));
            }
            if self.share != Share::WHOLE && device.bookable_share.is_none() {
                device.bookable_share = Some(self.share);
            }
        }
    }

    /// The memory a device of this size may promise.
    pub fn bookable(&self, memory: Bytes) -> Bytes {
        memory.thousandths(self.memory)
    }
}

/// A policy that cannot be followed: what is wrong, in the reader's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the GpuPolicy cannot be followed: {0}")]
pub struct PolicyProblem(String);

impl ClusterPolicy {
    /// Reads a policy. One that cannot be followed changes nothing: the one before it stays in force.
    pub fn read(spec: &GpuPolicySpec) -> Result<ClusterPolicy, PolicyProblem> {
        let problem = |part: &str, e: serde_json::Error| PolicyProblem(format!("{part}{e}"));
        let mut json = serde_json::to_value(spec).map_err(|e| problem("", e))?;
        let mut take = |field: &str| json.as_object_mut().and_then(|fields| fields.remove(field));
        let dialects = take("dialects");
        take("devices");
        take("modelPrices");
        let devices = spec.devices.clone().unwrap_or_default();
        let prices = spec.model_prices.iter().flatten();
        let prices =
            prices.map(|(model, thousandths)| (Arc::from(model.as_str()), Price(thousandths.saturating_mul(1000))));
        let dialects: DialectConfig = match dialects {
            None | Some(Value::Null) => DialectConfig::default(),
            Some(value) => serde_json::from_value(value).map_err(|e| problem("dialects: ", e))?,
        };
        let slips = dialects.problems();
        if !slips.is_empty() {
            return Err(PolicyProblem(format!("dialects: {}", slips.join("; "))));
        }
        Ok(ClusterPolicy {
            dialects,
            prices: prices.collect(),
            scheduling: serde_json::from_value(json).map_err(|e| problem("", e))?,
            devices: Devices {
                memory: Share(devices.memory_oversubscription.unwrap_or(1000)),
                share: Share(devices.share_oversubscription.unwrap_or(1000)),
                only_opted_in: devices.only_opted_in_nodes.unwrap_or(false),
            },
        })
    }

    /// Which extended resources stand for devices: they are the ask's business, and no node is short of them. Our own slot is not
    /// among them: the kubelet counts it, and so must the scheduler.
    pub fn managed(&self) -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
        let names = crate::managed::names(&self.dialects);
        Arc::new(move |resource| crate::managed::is_managed(&names, resource))
    }
}

#[cfg(test)]
mod tests;
