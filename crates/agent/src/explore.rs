//! Looks at the devices again and again: which are here, how they are, and who uses them without a grant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use divvy_core::device::{Device, DeviceKind};
use divvy_core::id::DeviceId;
use divvy_core::units::Bytes;
use divvy_service::Stop;
use tokio::sync::watch;

use crate::cgroup;
use crate::device::{Seen, Sign, Usage, links};
use crate::health::{Health, Policy};
use crate::home;
use crate::node::{Node, mark};
use crate::publish::NodeView;
use crate::ward::{Told, Ward};

/// How long the first look waits to hear who else offers cards; a busy kubelet answers late.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one look saw.
struct Look {
    devices: Vec<Vec<Device>>,
    driver: String,
    usage: Vec<Usage>,
    signs: Vec<Sign>,
}

/// What looking needs to know, and whom to tell.
pub struct Explorer {
    /// The node.
    pub node: Arc<Node>,
    /// What errors mean.
    pub policy: Policy,
    /// Where sysfs is.
    pub sys: PathBuf,
    /// Where what is known about sick devices outlives this process.
    pub notes: PathBuf,
    /// Who hears of turns.
    pub ward: Ward,
    /// Who uses the devices, for metrics.
    pub usage: watch::Sender<Vec<Usage>>,
    /// Who else offers cards on this node.
    pub owners: watch::Receiver<Option<String>>,
}

impl Explorer {
    /// Looks every `every`, and at once when the node object changed.
    pub async fn run(
        self,
        every: Duration,
        mut view: watch::Receiver<Option<NodeView>>,
        stop: Stop,
    ) -> anyhow::Result<()> {
        let mut health = read_notes(&self.notes);
        let mut last: Vec<Vec<Device>> = Vec::new();
        let mut told = Told::new();
        let mut owners = self.owners.clone();
        // A card that somebody else gives out is not offered, not even for a moment.
        let _ = tokio::time::timeout(PATIENCE, owners.changed()).await;
        loop {
            let (node, sys, before) = (self.node.clone(), self.sys.clone(), std::mem::take(&mut last));
            let look = tokio::task::spawn_blocking(move || look(&node, &sys, before)).await?;
            last.clone_from(&look.devices);
            let known = health.clone();
            let signs = absences(&health, &look);
            let turns = health.see(&[look.signs.as_slice(), &signs].concat(), &self.policy);
            if health != known {
                write_notes(&self.notes, &health);
            }
            let cordoned = view.borrow_and_update().as_ref().map(|v| v.cordoned.clone()).unwrap_or_default();
            let owner = owners.borrow_and_update().clone();
            self.take(look, &health, &cordoned, owner.as_deref());
            self.ward.tell(&self.node, &turns, &health, &self.policy, &mut told);
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                Ok(()) = view.changed() => {}
                Ok(()) = owners.changed() => {}
                () = stop.requested() => return Ok(()),
            }
        }
    }

    fn take(&self, mut look: Look, health: &Health, cordoned: &BTreeSet<DeviceId>, owner: Option<&str>) {
        let mut unhealthy = health.unhealthy();
        if let Some(owner) = owner {
            let cards = look.devices.iter().flatten().filter(|d| d.kind == DeviceKind::Gpu);
            unhealthy.extend(cards.map(|d| (d.id.clone(), owner.to_owned())));
        }
        for devices in &mut look.devices {
            mark(devices, &unhealthy, cordoned);
        }
        self.node.set_devices(look.devices, look.driver);
        self.node.set_foreign(foreign(&look.usage, |pid| is_ours(&self.node, pid)));
        self.usage.send_replace(look.usage);
    }
}

/// Sick devices that are not there at all are silent: an agent that starts while one is lost does not know it otherwise.
fn absences(health: &Health, look: &Look) -> Vec<Sign> {
    let is_there = |id: &DeviceId| look.devices.iter().flatten().any(|device| device.id == *id);
    let absent = health.unhealthy().into_keys().filter(|id| !is_there(id));
    absent.map(|device| Sign { device, seen: Seen::Silence("it is not there".into()) }).collect()
}

fn read_notes(path: &Path) -> Health {
    std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn write_notes(path: &Path, health: &Health) {
    let written = serde_json::to_vec(health).map_err(std::io::Error::from).and_then(|text| home::write(path, &text));
    if let Err(error) = written {
        tracing::warn!(%error, "cannot write down which devices are sick");
    }
}

/// One look; a provider that cannot answer leaves its devices as they were.
fn look(node: &Node, sys: &Path, before: Vec<Vec<Device>>) -> Look {
    let mut look = Look { devices: Vec::new(), driver: String::new(), usage: Vec::new(), signs: Vec::new() };
    for (at, provider) in node.providers.iter().enumerate() {
        match provider.discover() {
            Ok(found) => {
                if look.driver.is_empty() {
                    look.driver = found.driver;
                }
                look.devices.push(found.devices);
            }
            Err(trouble) => {
                tracing::warn!(%trouble, "cannot look at devices");
                look.devices.push(before.get(at).cloned().unwrap_or_default());
            }
        }
        match provider.signs() {
            Ok(signs) => look.signs.extend(signs),
            Err(trouble) => tracing::warn!(%trouble, "cannot see how devices are"),
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
                periods: Vec::new(),
                processes: vec![process(1, 2), process(2, 3)],
            },
            Usage {
                device: "G1".into(),
                memory: Bytes::gib(9),
                busy: 0,
                periods: Vec::new(),
                processes: vec![process(1, 4)],
            },
        ];
        assert_eq!(foreign(&usage, |pid| pid == 1), BTreeMap::from([("G0".into(), Bytes::gib(3))]));
    }
}
