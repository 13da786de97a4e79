//! A grant changes while it is held: every page says the new amounts, or every page says the old ones.

use std::collections::BTreeMap;
use std::io;

use divvy_core::device::Device;
use divvy_core::grant::Grant;
use divvy_core::id::{ContainerName, DeviceId, PodUid};
use divvy_core::ledger::Charge;
use divvy_core::units::{Bytes, Share};
use divvy_shm::{ContainerConfig, GateWriter};

use super::{Node, State};
use crate::home;
use crate::ledger::{Refusal, peak};
use crate::pods::PodView;

/// A page that is going to say something else.
struct Page {
    container: ContainerName,
    gate: GateWriter,
    before: ContainerConfig,
    next: ContainerConfig,
}

impl Page {
    fn write(&self, config: &ContainerConfig) -> Result<(), String> {
        self.gate.set_config(config).map_err(|e| format!("cannot change the pages of {}: {e}", self.container))
    }
}

impl Node {
    /// Changes what a pod holds, in the ledger, in the pages of its containers and in what an agent that is started anew finds. Where one
    /// of them cannot be changed none is, and the answer says why.
    pub fn resize(&self, pod: &PodView, grant: &Grant) -> Result<(), Refusal> {
        // Held until everything is written: nobody is to be let in by amounts that may be taken back.
        let mut state = self.state();
        let pages = self.pages(&state.devices, pod, grant).map_err(Refusal::broken)?;
        let State { devices, foreign, ledger, .. } = &mut *state;
        let before = ledger.holders().get(&pod.uid).cloned();
        let held = before.as_ref().filter(|holder| holder.left_behind.is_none());
        let judged = by_growth(devices, held.map(|holder| &holder.grant), grant);
        ledger.admit(&pod.uid, &pod.pod, grant, &judged, foreign)?;
        let written = pages.iter().try_for_each(|page| page.write(&page.next));
        let remembered = written.and_then(|()| match ledger.holders().get(&pod.uid) {
            Some(holder) => {
                self.home.remember(&pod.uid, holder).map_err(|e| format!("cannot write down what the pod holds: {e}"))
            }
            None => Ok(()),
        });
        if let Err(why) = remembered {
            for page in &pages {
                if let Err(error) = page.write(&page.before) {
                    tracing::error!(pod = %pod.pod, error, "a page says amounts that are not in force");
                }
            }
            ledger.put_back(&pod.uid, before);
            return Err(Refusal::broken(why));
        }
        drop(state);
        self.note_change();
        Ok(())
    }

    /// The pages of a pod's containers, with what they are going to say.
    fn pages(&self, devices: &[Device], pod: &PodView, grant: &Grant) -> Result<Vec<Page>, String> {
        let mut pages = Vec::new();
        for container in &grant.containers {
            let gate = self.open_page(&pod.uid, &container.name);
            let gate = gate.map_err(|e| format!("cannot open the pages of {}: {e}", container.name))?;
            // One that has not started takes its amounts when it starts.
            let Some(gate) = gate else { continue };
            let name = format!("{}/{}", pod.pod, container.name);
            let next = home::config(name, &container.slices, devices, self.style.context);
            let (_, before) = gate.config();
            pages.push(Page { container: container.name.clone(), gate, before, next });
        }
        Ok(pages)
    }

    fn open_page(&self, uid: &PodUid, container: &ContainerName) -> io::Result<Option<GateWriter>> {
        match self.home.gate(uid, container) {
            Ok(gate) => Ok(Some(gate)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The devices as a change from `old` to `new` is judged: by what is offered now, and only where an amount grows. What a pod holds was
/// promised to it, however little is offered by now; holding less of it is never wrong.
fn by_growth(devices: &[Device], old: Option<&Grant>, new: &Grant) -> Vec<Device> {
    let (held, wanted) = (old.map(peak).unwrap_or_default(), peak(new));
    let judged = |device: &Device| {
        let on_it = |of: &BTreeMap<DeviceId, Charge>| of.get(&device.id).copied().unwrap_or_default();
        let (was, is, mut device) = (on_it(&held), on_it(&wanted), device.clone());
        if is.memory <= was.memory {
            device.bookable_memory = Some(Bytes(u64::MAX));
        }
        if is.share <= was.share {
            device.bookable_share = Some(Share(u32::MAX));
        }
        if is.tasks <= was.tasks {
            device.max_tasks = None;
        }
        device
    };
    devices.iter().map(judged).collect()
}
