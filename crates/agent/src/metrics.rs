//! What Prometheus is shown: the devices, and every container with a grant from the moment its pod is bound. With a switch also under
//! the names that users of the emulated systems have on their dashboards ([`emulated`]).
//!
//! The families are values ([`Family`]), made anew for each scrape: a pod that is gone leaves no series behind.

use std::fmt;
use std::sync::Arc;

use divvy_core::device::{Device, Health};
use divvy_core::grant::Slice;
use divvy_core::id::ContainerName;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::MetricType;

use crate::arbiter::Account;
use crate::device::Usage;
use crate::hold;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::node::Node;
use crate::nonsense::Nonsense;
use crate::pods::PodView;
use crate::usage::Accounts;

pub mod emulated;

/// One metric with all its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// It only grows.
    pub counts: bool,
    /// Its series.
    pub series: Vec<Series>,
}

/// One series: labels and value.
pub type Series = (Labels, f64);

/// Labels, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels(pub Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|(name, value)| (*name, value.as_str()).encode(encoder.encode_label()))
    }
}

use prometheus_client::encoding::EncodeLabel;

/// A container's part of a device.
pub struct Part<'a> {
    /// Its pod.
    pub pod: &'a PodView,
    /// Its name.
    pub container: &'a ContainerName,
    /// Its place among the pod's containers with a grant.
    pub container_index: usize,
    /// The slice's place among its container's.
    pub index: usize,
    /// What it was granted.
    pub slice: &'a Slice,
    /// What it did.
    pub account: Account,
}

/// Everything there is to show.
pub struct Facts<'a> {
    /// This node.
    pub node: &'a str,
    /// The devices.
    pub devices: &'a [Device],
    /// Who uses them.
    pub usage: &'a [Usage],
    /// What is booked on them.
    pub ledger: &'a Ledger,
    /// Pods with a grant.
    pub pods: &'a [Arc<PodView>],
    /// What containers did.
    pub accounts: &'a Accounts,
    /// Seconds since 1970.
    pub now: f64,
}

impl Facts<'_> {
    /// Every slice of every container that has not ended.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        for pod in self.pods.iter().filter(|p| !p.ended) {
            let held = self.ledger.holders().get(&pod.uid).map(|holder| &holder.grant);
            let Some(grant) = held.or_else(|| pod.wanted()?.as_ref().ok()) else { continue };
            for (container_index, container) in grant.containers.iter().enumerate() {
                for (index, slice) in container.slices.iter().enumerate() {
                    let key = (hold::account(&pod.uid, &container.name), slice.device.to_string());
                    let account = self.accounts.get(&key).cloned().unwrap_or_default();
                    parts.push(Part { pod, container: &container.name, container_index, index, slice, account });
                }
            }
        }
        parts
    }

    /// The families under our own names.
    pub fn families(&self) -> Vec<Family> {
        let mut all = self.of_devices();
        all.extend(self.of_containers());
        all
    }

    fn of_devices(&self) -> Vec<Family> {
        let held = self.ledger.held();
        let labels = |d: &Device| {
            let text = |value: &dyn ToString| value.to_string();
            Labels(vec![("device", text(&d.id)), ("index", text(&d.index)), ("model", text(&d.model))])
        };
        let family = |name, help, value: &dyn Fn(&Device) -> Option<f64>| Family {
            name,
            help,
            counts: false,
            series: self.devices.iter().filter_map(|d| Some((labels(d), value(d)?))).collect(),
        };
        let usage = |d: &Device| self.usage.iter().find(|u| u.device == d.id);
        let booked = |d: &Device| held.get(&d.id).copied().unwrap_or_default();
        let yes = |is: bool| Some(if is { 1.0 } else { 0.0 });
        vec![
            family("divvy_device_memory_bytes", "Memory of the device", &|d| Some(d.memory.0 as f64)),
            family("divvy_device_memory_bookable_bytes", "Memory that may be promised", &|d| {
                Some(d.bookable_memory().0 as f64)
            }),
            family("divvy_device_memory_booked_bytes", "Memory promised to containers", &|d| {
                Some(booked(d).memory.0 as f64)
            }),
            family("divvy_device_memory_used_bytes", "Memory in use, by anybody", &|d| Some(usage(d)?.memory.0 as f64)),
            family("divvy_device_share_booked_ratio", "Time promised to containers, as a part of the device's", &|d| {
                Some(f64::from(booked(d).share.0) / 1000.0)
            }),
            family("divvy_device_busy_ratio", "How busy the device is, by its vendor's count", &|d| {
                Some(f64::from(usage(d)?.busy) / 1000.0)
            }),
            family("divvy_device_containers", "Containers that hold a part of the device", &|d| {
                Some(f64::from(booked(d).tasks))
            }),
            family("divvy_device_healthy", "1 while the device is fit for work", &|d| yes(d.health == Health::Healthy)),
            family("divvy_device_cordoned", "1 while a person has taken the device out of service", &|d| {
                yes(d.cordoned)
            }),
        ]
    }

    fn of_containers(&self) -> Vec<Family> {
        let parts = self.parts();
        let labels = |p: &Part<'_>| {
            Labels(vec![
                ("namespace", p.pod.pod.namespace.to_string()),
                ("pod", p.pod.pod.name.to_string()),
                ("container", p.container.to_string()),
                ("device", p.slice.device.to_string()),
            ])
        };
        let family = |name, help, counts, value: &dyn Fn(&Part<'_>) -> f64| Family {
            name,
            help,
            counts,
            series: parts.iter().map(|p| (labels(p), value(p))).collect(),
        };
        let seconds = |ns: u64| ns as f64 / 1e9;
        vec![
            family("divvy_container_memory_granted_bytes", "Memory guaranteed to the container", false, &|p| {
                p.slice.memory.0 as f64
            }),
            family("divvy_container_memory_limit_bytes", "Memory the container may use", false, &|p| {
                p.slice.memory_limit.0 as f64
            }),
            family("divvy_container_memory_used_bytes", "Memory the container uses", false, &|p| {
                p.account.memory as f64
            }),
            family("divvy_container_share_granted_ratio", "Time guaranteed to the container", false, &|p| {
                f64::from(p.slice.share.0) / 1000.0
            }),
            family("divvy_container_share_limit_ratio", "Time the container may use", false, &|p| {
                f64::from(p.slice.share_limit.0) / 1000.0
            }),
            family("divvy_container_busy_ratio", "Time the container used over the last second", false, &|p| {
                f64::from(p.account.utilisation) / 1000.0
            }),
            family("divvy_container_busy_seconds", "The device's time that its work took", true, &|p| {
                seconds(p.account.busy_ns)
            }),
            family("divvy_container_throttled_seconds", "Time it had work and waited for its turn", true, &|p| {
                seconds(p.account.throttled_ns)
            }),
            family("divvy_container_refused_allocations", "Allocations refused above its limit", true, &|p| {
                p.account.refused as f64
            }),
        ]
    }
}

/// Asks everybody at each scrape.
pub struct Scrape {
    /// The node.
    pub node: Arc<Node>,
    /// What containers did.
    pub accounts: crate::arbiter::Accounts,
    /// Who uses the devices.
    pub usage: tokio::sync::watch::Receiver<Vec<Usage>>,
    /// The journal.
    pub journal: Arc<Journal>,
    /// Who was turned away at which socket.
    pub nonsense: Nonsense,
    /// Also under the names of the emulated systems.
    pub emulate: bool,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("emulate", &self.emulate).finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (devices, ledger, accounts) = (self.node.devices(), self.node.ledger(), self.accounts.all());
        let usage = self.usage.borrow().clone();
        let pods = self.node.pods.all();
        let now = jiff::Timestamp::now().as_second() as f64;
        let facts = Facts {
            node: &self.node.name,
            devices: &devices,
            usage: &usage,
            ledger: &ledger,
            pods: &pods,
            accounts: &accounts,
            now,
        };
        let mut families = facts.families();
        if self.emulate {
            families.extend(emulated::families(&facts));
        }
        let (lost, bytes) = self.journal.size();
        families.extend(own(self.node.refused().len(), lost, bytes, self.node.home().set_aside().len()));
        families.push(Family {
            name: "divvy_agent_nonsense",
            help: "Visitors turned away: what they said made no sense or was too much, or they are in no container",
            counts: true,
            series: self
                .nonsense
                .counts()
                .map(|(socket, n)| (Labels(vec![("socket", socket.to_owned())]), n as f64))
                .collect(),
        });
        families.iter().try_for_each(|family| write(&mut encoder, family))
    }
}

/// What the agent says about itself.
fn own(refused: usize, lost: u64, bytes: u64, aside: usize) -> Vec<Family> {
    let one = |name, help, counts, value| Family { name, help, counts, series: vec![(Labels(Vec::new()), value)] };
    vec![
        one("divvy_agent_refused_grants", "Grants that would over-commit a device", false, refused as f64),
        one("divvy_agent_journal_bytes", "Size of the usage journal", false, bytes as f64),
        one("divvy_agent_journal_lost_records", "Records dropped because nobody read them", true, lost as f64),
        one("divvy_agent_set_aside", "Folders of pods that are gone which could not be removed", false, aside as f64),
    ]
}

fn write(encoder: &mut DescriptorEncoder<'_>, family: &Family) -> Result<(), fmt::Error> {
    if family.series.is_empty() {
        return Ok(());
    }
    let kind = if family.counts { MetricType::Counter } else { MetricType::Gauge };
    let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
    for (labels, value) in &family.series {
        let mut series = metric.encode_family(labels)?;
        match family.counts {
            true => series.encode_counter::<Labels, f64, f64>(value, None)?,
            false => series.encode_gauge(value)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
