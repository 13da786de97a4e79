//! What is given out under the names that 4paradigm's and HAMi's schedulers gave it, for people who have them on their dashboards.
//!
//! The loop copies the books into a [`Table`] in one pass over nodes and pods every few seconds; a scrape writes the last one down. Only
//! the replica that decides has one: their schedulers ran once, and their dashboards add up everything that is scraped.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use divvy_core::ask::Role;
use divvy_core::device::DeviceKind;
use divvy_core::grant::ContainerGrant;
use divvy_core::keys;
use divvy_core::quota::What;
use divvy_core::snapshot::{NodeState, PodState, Snapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::MetricType;

const MIB: u64 = 1 << 20;
/// What their exporters say in every series.
const ZONE: &str = "vGPU";

/// One card.
#[derive(Clone, Debug, PartialEq)]
struct Card {
    node: Arc<str>,
    uuid: Arc<str>,
    index: u32,
    /// As it is registered on the node.
    kind: String,
    /// Memory that may be promised, and what is.
    memory: u64,
    used_memory: u64,
    /// Time that may be promised, and what is, in thousandths.
    share: u32,
    used_share: u32,
    containers: u32,
}

/// What one container holds of one card.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    namespace: Arc<str>,
    pod: Arc<str>,
    node: Arc<str>,
    /// Its place among the pod's containers that hold devices.
    container: usize,
    uuid: Arc<str>,
    memory: u64,
    share: u32,
    /// Memory of the whole card that may be promised.
    of_memory: u64,
}

/// One amount that a quota is about, in HAMi's units.
#[derive(Clone, Debug, PartialEq)]
struct Allowance {
    namespace: Arc<str>,
    resource: &'static str,
    used: u64,
    limit: u64,
}

/// Everything there is to show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    cards: Vec<Card>,
    parts: Vec<Part>,
    allowances: Vec<Allowance>,
}

impl Table {
    /// What the books say now.
    pub fn of(snapshot: &Snapshot) -> Table {
        let mut table = Table { allowances: allowances(snapshot), ..Table::default() };
        for (_, state) in snapshot.nodes().filter(|(_, state)| !state.books().is_empty()) {
            let node: Arc<str> = state.node().name.as_str().into();
            let first = table.cards.len();
            table.cards.extend(cards(state, &node));
            for pod in state.pods().iter().filter_map(|ix| snapshot.pod_at(*ix)) {
                parts(pod, &table.cards[first..], &mut table.parts);
            }
        }
        table
    }
}

fn cards<'a>(state: &'a NodeState, node: &'a Arc<str>) -> impl Iterator<Item = Card> + 'a {
    let devices = state.node().inventory.devices.iter().zip(state.books());
    devices.filter(|(device, _)| device.kind != DeviceKind::Nic).map(|(device, book)| Card {
        node: node.clone(),
        uuid: device.id.as_str().into(),
        index: device.index,
        kind: device.registered_type(),
        memory: device.bookable_memory().0,
        used_memory: book.used_memory.0,
        share: device.bookable_share().0,
        used_share: book.used_share.0,
        containers: book.tasks,
    })
}

fn parts(state: &PodState, cards: &[Card], into: &mut Vec<Part>) {
    // A grant that its node refused holds nothing.
    let Some(bound) = state.pod().bound().filter(|_| !state.charges().is_empty()) else { return };
    let Some(grant) = &bound.grant else { return };
    let holds = |container: &ContainerGrant| !(container.role == Role::Init && bound.init_done);
    for (place, container) in grant.containers.iter().enumerate().filter(|(_, container)| holds(container)) {
        let first = into.len();
        for slice in &container.slices {
            // Several partitions of one card are one holding: two series of the same labels would be none.
            if let Some(part) = into[first..].iter_mut().find(|part| *part.uuid == *slice.device.as_str()) {
                part.memory += slice.memory.0;
                part.share += slice.share.0;
            } else if let Some(card) = cards.iter().find(|card| *card.uuid == *slice.device.as_str()) {
                into.push(Part {
                    namespace: state.pod().key.namespace.as_str().into(),
                    pod: state.pod().key.name.clone(),
                    node: card.node.clone(),
                    container: place,
                    uuid: card.uuid.clone(),
                    memory: slice.memory.0,
                    share: slice.share.0,
                    of_memory: card.memory,
                });
            }
        }
    }
}

/// Memory in MiB and time in hundredths, where a quota limits them whatever the model; the smallest of several limits.
fn allowances(snapshot: &Snapshot) -> Vec<Allowance> {
    let mut all = Vec::new();
    for (namespace, quotas) in &snapshot.surroundings().quotas.0 {
        let limits = || quotas.iter().flat_map(|quota| &quota.limits).filter(|limit| limit.model.is_none());
        for (what, resource, unit) in [(What::Memory, keys::VGPU_MEMORY, MIB), (What::Share, keys::VGPU_CORES, 10)] {
            if let Some(limit) = limits().filter_map(|limit| limit.nominal.get(what)).min() {
                let used = snapshot.holdings().get(namespace).map_or(0, |held| held.sum(None, what));
                let namespace = namespace.as_str().into();
                all.push(Allowance { namespace, resource, used: used / unit, limit: limit / unit });
            }
        }
    }
    all
}

/// Labels, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let mut all = self.0.iter();
        all.try_for_each(|(name, value)| (*name, value.as_str()).encode(encoder.encode_label()))?;
        ("zone", ZONE).encode(encoder.encode_label())
    }
}

fn labels<const N: usize>(pairs: [(&'static str, &dyn ToString); N]) -> Labels {
    Labels(pairs.into_iter().map(|(name, value)| (name, value.to_string())).collect())
}

/// A gauge with a series for each of `all`.
fn gauge<T>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: &[T],
    labels: impl Fn(&T) -> Labels,
    value: impl Fn(&T) -> f64,
) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    all.iter().try_for_each(|one| metric.encode_family(&labels(one))?.encode_gauge(&value(one)))
}

fn percent(thousandths: u32) -> f64 {
    f64::from(thousandths) / 10.0
}

fn part_of(some: u64, all: u64) -> f64 {
    some as f64 / all.max(1) as f64
}

/// 4paradigm's, which HAMi keeps behind a switch.
fn vgpu(encoder: &mut DescriptorEncoder<'_>, table: &Table) -> fmt::Result {
    let (cards, parts) = (&table.cards, &table.parts);
    let of_card = |c: &Card| labels([("nodeid", &c.node), ("deviceuuid", &c.uuid), ("deviceidx", &c.index)]);
    let with_cores = |c: &Card| and(of_card(c), [("devicecores", &(c.used_share / 10))]);
    let overview = |c: &Card| {
        and(
            with_cores(c),
            [("sharedcontainers", &c.containers), ("devicememorylimit", &(c.memory / MIB)), ("devicetype", &c.kind)],
        )
    };
    let of_part = |p: &Part| {
        labels([
            ("podnamespace", &p.namespace),
            ("nodename", &p.node),
            ("podname", &p.pod),
            ("containeridx", &p.container),
            ("deviceuuid", &p.uuid),
        ])
    };
    let part_with_cores = |p: &Part| and(of_part(p), [("deviceusedcore", &(p.share / 10))]);
    let held = |c: &Card| c.used_memory as f64;
    gauge(encoder, "GPUDeviceMemoryLimit", "Memory of a card that may be given out", cards, of_card, |c| {
        c.memory as f64
    })?;
    gauge(encoder, "GPUDeviceCoreLimit", "Time of a card that may be given out, in percent", cards, of_card, |c| {
        percent(c.share)
    })?;
    gauge(encoder, "GPUDeviceMemoryAllocated", "Memory of a card that is given out", cards, with_cores, held)?;
    gauge(encoder, "GPUDeviceSharedNum", "Containers that share a card", cards, of_card, |c| f64::from(c.containers))?;
    gauge(encoder, "GPUDeviceCoreAllocated", "Time of a card that is given out, in percent", cards, of_card, |c| {
        percent(c.used_share)
    })?;
    gauge(encoder, "nodeGPUOverview", "Memory of a card that is given out; the rest in labels", cards, overview, held)?;
    gauge(encoder, "nodeGPUMemoryPercentage", "Part of a card's memory that is given out", cards, of_card, |c| {
        part_of(c.used_memory, c.memory)
    })?;
    gauge(encoder, "vGPUPodsDeviceAllocated", "Memory given to a container", parts, part_with_cores, |p| {
        p.memory as f64
    })?;
    gauge(encoder, "vGPUMemoryPercentage", "Part of a card's memory given to a container", parts, of_part, |p| {
        part_of(p.memory, p.of_memory)
    })?;
    gauge(encoder, "vGPUCorePercentage", "Time of a card given to a container, in percent", parts, of_part, |p| {
        percent(p.share)
    })
}

/// HAMi's. What is called a ratio is in percent, but for a card's memory.
fn hami(encoder: &mut DescriptorEncoder<'_>, table: &Table) -> fmt::Result {
    let (cards, parts, allowances) = (&table.cards, &table.parts, &table.allowances);
    let bare = |c: &Card| labels([("node", &c.node), ("device_uuid", &c.uuid), ("device_index", &c.index)]);
    let of_card = |c: &Card| and(bare(c), [("device_type", &c.kind)]);
    let with_cores = |c: &Card| and(bare(c), [("device_cores", &(c.share / 10)), ("device_type", &c.kind)]);
    let overview = |c: &Card| {
        and(
            bare(c),
            [("device_cores", &(c.share / 10)), ("device_memory_limit", &(c.memory / MIB)), ("device_type", &c.kind)],
        )
    };
    let of_part = |p: &Part| {
        labels([
            ("namespace", &p.namespace),
            ("node", &p.node),
            ("pod", &p.pod),
            ("container_index", &p.container),
            ("device_uuid", &p.uuid),
        ])
    };
    let of_quota = |a: &Allowance| labels([("namespace", &a.namespace), ("quota_name", &a.resource)]);
    let with_limit = |a: &Allowance| and(of_quota(a), [("limit", &a.limit)]);
    let held = |c: &Card| c.used_memory as f64;
    gauge(encoder, "hami_gpu_memory_limit_bytes", "Memory of a card that may be given out", cards, of_card, |c| {
        c.memory as f64
    })?;
    gauge(
        encoder,
        "hami_gpu_core_limit_ratio",
        "Time of a card that may be given out, in percent",
        cards,
        of_card,
        |c| percent(c.share),
    )?;
    gauge(encoder, "hami_gpu_memory_allocated_bytes", "Memory of a card that is given out", cards, with_cores, held)?;
    gauge(encoder, "hami_gpu_shared_count", "Containers that share a card", cards, of_card, |c| {
        f64::from(c.containers)
    })?;
    gauge(
        encoder,
        "hami_gpu_core_allocated_ratio",
        "Time of a card that is given out, in percent",
        cards,
        of_card,
        |c| percent(c.used_share),
    )?;
    gauge(
        encoder,
        "hami_node_gpu_overview",
        "Memory of a card that is given out; the rest in labels",
        cards,
        overview,
        held,
    )?;
    gauge(
        encoder,
        "hami_node_gpu_memory_allocated_ratio",
        "Part of a card's memory that is given out",
        cards,
        bare,
        |c| part_of(c.used_memory, c.memory),
    )?;
    gauge(encoder, "hami_vgpu_memory_allocated_bytes", "Memory given to a container", parts, of_part, |p| {
        p.memory as f64
    })?;
    gauge(encoder, "hami_vgpu_core_allocated_ratio", "Time given to a container, in percent", parts, of_part, |p| {
        percent(p.share)
    })?;
    gauge(encoder, "hami_resource_quota_used", "What a namespace holds of its quota", allowances, with_limit, |a| {
        a.used as f64
    })?;
    gauge(encoder, "hami_resource_quota_limit", "What a namespace's quota allows", allowances, of_quota, |a| {
        a.limit as f64
    })
}

fn and<const N: usize>(mut first: Labels, more: [(&'static str, &dyn ToString); N]) -> Labels {
    first.0.extend(labels(more).0);
    first
}

/// The table that is shown. Clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Emulated(Arc<Mutex<Arc<Table>>>);

impl Emulated {
    /// Shows this from now on.
    pub fn show(&self, table: Table) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}

impl Collector for Emulated {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Written without the lock: a slow scrape holds nobody up.
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        vgpu(&mut encoder, &table)?;
        hami(&mut encoder, &table)
    }
}

#[cfg(test)]
mod tests;
