//! Looks at the devices again and again: which are here, how they are, and who uses them without a grant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use divvy_core::device::Device;
use divvy_core::id::DeviceId;
use divvy_core::units::Bytes;
use divvy_service::Stop;
use tokio::sync::watch;

use crate::cgroup;
use crate::device::{Usage, links};
use crate::node::{Node, mark};
use crate::publish::NodeView;

/// What one look saw.
struct Look {
    devices: Vec<Vec<Device>>,
    driver: String,
    usage: Vec<Usage>,
}

/// Looks every `every`, and at once when the node object changed.
pub async fn run(
    node: Arc<Node>,
    every: Duration,
    sys: PathBuf,
    mut view: watch::Receiver<Option<NodeView>>,
    stop: Stop,
) -> anyhow::Result<()> {
    loop {
        let (looking, sys) = (node.clone(), sys.clone());
        let look = tokio::task::spawn_blocking(move || look(&looking, &sys)).await?;
        let cordoned = view.borrow_and_update().as_ref().map(|v| v.cordoned.clone()).unwrap_or_default();
        take(&node, look, &cordoned);
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            Ok(()) = view.changed() => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

fn look(node: &Node, sys: &std::path::Path) -> Look {
    let mut look = Look { devices: Vec::new(), driver: String::new(), usage: Vec::new() };
    for provider in &node.providers {
        match provider.discover() {
            Ok(found) => {
                if look.driver.is_empty() {
                    look.driver = found.driver;
                }
                look.devices.push(found.devices);
            }
            Err(trouble) => {
                tracing::warn!(%trouble, "cannot look at devices");
                look.devices.push(Vec::new());
            }
        }
        match provider.usage() {
            Ok(usage) => look.usage.extend(usage),
            Err(trouble) => tracing::debug!(%trouble, "cannot see who uses devices"),
        }
    }
    let mut flat: Vec<Device> = look.devices.iter().flatten().cloned().collect();
    links::complete(&mut flat, sys);
    let mut flat = flat.into_iter();
    for devices in &mut look.devices {
        for device in devices {
            if let Some(linked) = flat.next() {
                *device = linked;
            }
        }
    }
    look
}

fn take(node: &Node, mut look: Look, cordoned: &BTreeSet<DeviceId>) {
    let unhealthy = BTreeMap::new();
    for devices in &mut look.devices {
        mark(devices, &unhealthy, cordoned);
    }
    node.set_devices(look.devices, look.driver);
    node.set_foreign(foreign(&look.usage, |pid| is_ours(node, pid)));
}

/// Memory of processes that no grant covers.
fn foreign(usage: &[Usage], is_ours: impl Fn(u32) -> bool) -> BTreeMap<DeviceId, Bytes> {
    let strangers = |u: &Usage| u.processes.iter().filter(|p| !is_ours(p.pid)).map(|p| p.memory).sum::<Bytes>();
    usage.iter().map(|u| (u.device.clone(), strangers(u))).filter(|(_, held)| *held > Bytes::ZERO).collect()
}

/// Does the process run in a container of a pod that holds something here?
fn is_ours(node: &Node, pid: u32) -> bool {
    cgroup::of(pid).is_some_and(|place| node.holds(&place.pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Process;

    #[test]
    fn only_strangers_memory_is_foreign() {
        let process = |pid, gib| Process { pid, memory: Bytes::gib(gib) };
        let usage = [
            Usage {
                device: "G0".into(),
                memory: Bytes::gib(9),
                busy: 0,
                processes: vec![process(1, 2), process(2, 3)],
            },
            Usage { device: "G1".into(), memory: Bytes::gib(9), busy: 0, processes: vec![process(1, 4)] },
        ];
        assert_eq!(foreign(&usage, |pid| pid == 1), BTreeMap::from([("G0".into(), Bytes::gib(3))]));
    }
}
