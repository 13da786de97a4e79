//! `GpuPolicy`: how a platform team wants its cluster run, as one object.
//!
//! The object is called `default` and is live: services follow it and act on the next decision. Every field may be left out. What
//! the core and the dialects read of it they read by the same names, so that a policy tried in the simulator works here.

pub mod spec;

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::budget::Price;
use divvy_core::device::{Device, DeviceKind, Isolation};
use divvy_core::policy::Policy;
use divvy_core::units::Share;
use divvy_dialects::DialectConfig;
use serde::{Deserialize, Serialize};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    /// How much of each may be promised.
    offer: Offer,
    /// The same on nodes of which the policy speaks by name.
    by_node: BTreeMap<String, Offer>,
    /// Only nodes that somebody opted in by a label are used.
    pub only_opted_in: bool,
}

impl Devices {
    /// How much of each device of a node may be promised.
    pub fn offer(&self, node: &str) -> Offer {
        self.by_node.get(node).copied().unwrap_or(self.offer)
    }

    fn read(spec: &spec::Devices, tasks: Option<u32>) -> Devices {
        let or_as_it_is = |thousandths: Option<u32>| thousandths.map_or(Share::WHOLE, Share);
        let (memory, share) = (or_as_it_is(spec.memory_oversubscription), or_as_it_is(spec.share_oversubscription));
        let offer = Offer { memory, share, tasks };
        let of_node = |node: &spec::NodeDevices| Offer {
            memory: node.memory_oversubscription.map_or(memory, Share),
            share: node.share_oversubscription.map_or(share, Share),
            tasks: node.max_tasks.or(tasks),
        };
        let by_node = spec.by_node.iter().flatten().map(|(name, node)| (name.clone(), of_node(node))).collect();
        Devices { offer, by_node, only_opted_in: spec.only_opted_in_nodes.unwrap_or(false) }
    }
}

/// How much of each device of a node may be promised. A hardware partition is as large as it is, and one container's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// Memory, in thousandths of what a device has.
    pub memory: Share,
    /// Time, in thousandths of what a device has.
    pub share: Share,
    /// Most containers on one device, where the policy sets a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer { memory: Share::WHOLE, share: Share::WHOLE, tasks: None }
    }
}

impl Offer {
    /// Writes into a node's devices what its agent offers, where their vendor does not say otherwise. It is always written, also where a
    /// device is promised once: the agent judges what it is asked for, so that others must go by what it says.
    pub fn write(&self, devices: &mut [Device]) {
        for device in shared(devices) {
            device.bookable_memory.get_or_insert(device.memory.thousandths(self.memory));
            device.bookable_share.get_or_insert(self.share);
            device.max_tasks = fewer(device.max_tasks, self.tasks);
        }
    }

    /// Lowers what an agent offers to what the policy allows, of which it may not have heard yet. Never raises it: what the agent does not
    /// offer it refuses.
    pub fn lower(&self, devices: &mut [Device]) {
        for device in shared(devices) {
            let (memory, share) = (device.memory.thousandths(self.memory), self.share);
            if memory < device.bookable_memory() {
                device.bookable_memory = Some(memory);
            }
            if share < device.bookable_share() {
                device.bookable_share = Some(share);
            }
            device.max_tasks = fewer(device.max_tasks, self.tasks);
        }
    }

    /// Whatever either allows.
    pub fn or_more(self, other: Offer) -> Offer {
        Offer {
            memory: self.memory.max(other.memory),
            share: self.share.max(other.share),
            tasks: self.tasks.zip(other.tasks).map(|(one, other)| one.max(other)),
        }
    }
}

fn shared(devices: &mut [Device]) -> impl Iterator<Item = &mut Device> {
    let shared =
        |device: &&mut Device| device.kind != DeviceKind::Nic && device.isolation.first() != Some(&Isolation::Mig);
    devices.iter_mut().filter(shared)
}

fn fewer(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    [one, other].into_iter().flatten().min()
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
        let mut scheduling: Policy = serde_json::from_value(json).map_err(|e| problem("", e))?;
        // It is said of devices, where a node may have its own.
        let devices = Devices::read(&devices, scheduling.max_tasks.take());
        Ok(ClusterPolicy { dialects, prices: prices.collect(), scheduling, devices })
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
