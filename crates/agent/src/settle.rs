//! Keeps the ledger in line with the API server and the runtime, and everything that follows from the ledger: who is held to its
//! share, which slots are offered, what the journal says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_core::id::{ContainerName, PodUid};
use divvy_core::time::Time;
use divvy_service::Stop;
use divvy_service::health::Condition;

use crate::events::Events;
use crate::hold::Hold;
use crate::journal::Journal;
use crate::kubelet::Kubelet;
use crate::node::Node;
use crate::plugin::slots::Slots;
use crate::runtime::{Running, Runtime};
use crate::usage;

/// At least so often, for the runtime tells nobody when a container ends.
const LOOK: Duration = Duration::from_secs(5);
/// Changes come in bursts, a look goes over everything that is held, and containers that start want the cores too.
const GATHER: Duration = Duration::from_millis(100);

/// What is kept in line.
pub struct Settle {
    /// The node and its ledger.
    pub node: Arc<Node>,
    /// Who is held to its share.
    pub hold: Arc<Hold>,
    /// What was held and used.
    pub journal: Arc<Journal>,
    /// Which containers run.
    pub runtime: Runtime,
    /// Who holds which slots.
    pub kubelet: Kubelet,
    /// The slots that are offered.
    pub slots: Slots,
    /// Where pods' users are warned.
    pub events: Events,
    /// Set once the devices were looked at.
    pub ready: Condition,
}

impl Settle {
    /// Again and again, and at once when pods or devices change.
    pub async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let this = Arc::new(self);
        let (mut pods, mut devices) = (this.node.pods.changes(), this.node.changes());
        let mut swept: Option<Instant> = None;
        let mut warned = BTreeSet::new();
        loop {
            // Marked before anything is read: what changes from here on is looked at once more.
            pods.mark_unchanged();
            devices.mark_unchanged();
            let running = match this.runtime.running().await {
                Ok(running) => Some(running),
                // What cannot be seen is not given back.
                Err(error) => {
                    tracing::warn!(%error, "the container runtime does not answer");
                    None
                }
            };
            let sweep = swept.is_none_or(|at| at.elapsed() >= LOOK);
            if sweep {
                swept = Some(Instant::now());
            }
            let settled = this.clone();
            tokio::task::spawn_blocking(move || settled.once(running.as_ref(), sweep)).await?;
            warn_of_unprotected(&this.node, &this.events, &mut warned);
            this.update_slots().await;
            this.ready.set(this.node.is_explored());
            let due = async {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    Ok(()) = pods.changed() => tokio::time::sleep(GATHER).await,
                    Ok(()) = devices.changed() => tokio::time::sleep(GATHER).await,
                }
            };
            tokio::select! {
                () = due => {}
                () = stop.requested() => return Ok(()),
            }
        }
    }

    fn once(&self, running: Option<&Running>, sweep: bool) {
        if let Some(running) = running {
            self.write_down(Some(&self.node.leaving(running)));
            self.node.settle(running);
            if sweep {
                self.node.sweep();
                self.node.home().tell_of_room();
            }
        }
        self.hold.update(&self.node.places());
        if self.node.is_explored() {
            self.write_down(None);
        }
    }

    /// Writes down what is held and used. Before pods are swept up (`leaving`), what they used last is written too.
    fn write_down(&self, leaving: Option<&BTreeSet<PodUid>>) {
        let is_given = |uid: &PodUid, name: &ContainerName| self.node.home().is_prepared(uid, name);
        let accounts = self.hold.accounts().all();
        let samples = usage::samples(&self.node.ledger(), &self.node.devices(), &accounts, is_given);
        let written = match leaving {
            Some(leaving) => self.journal.freshen(now(), &samples, |uid| leaving.contains(uid)),
            None => self.journal.observe(now(), &samples),
        };
        if let Err(error) = written {
            tracing::error!(%error, "cannot write the journal");
        }
    }

    async fn update_slots(&self) {
        if !self.node.is_explored() {
            return;
        }
        let bound = self.node.pods.bound();
        let is_here = |uid: &PodUid| bound.as_ref().is_none_or(|bound| bound.contains(uid)) || self.node.holds(uid);
        let held: BTreeSet<String> = match self.kubelet.checkpoint() {
            // The kubelet keeps lines of pods that are gone until it needs their ids.
            Some(entries) => entries.into_iter().filter(|e| is_here(&e.pod)).flat_map(|e| e.ids).collect(),
            None => self.kubelet.listed().await.into_iter().flatten().flat_map(|l| l.ids).collect(),
        };
        let devices = self.node.devices();
        let closed = devices.iter().filter(|d| !d.is_open()).count();
        self.slots.update(devices.len(), closed, &held);
        self.slots.set_leaving(self.node.leaving_slots());
    }
}

/// Warns once of each pod that an earlier version gave a part of a card without isolation. It keeps running; its card takes no
/// further tenant.
fn warn_of_unprotected(node: &Node, events: &Events, warned: &mut BTreeSet<PodUid>) {
    let ledger = node.ledger();
    warned.retain(|uid| ledger.holders().contains_key(uid));
    for (uid, holder) in ledger.holders() {
        let devices: BTreeSet<&str> = holder.grant.unprotected().map(|(_, slice)| slice.device.as_str()).collect();
        let Some(pod) = node.pods.get(uid).filter(|_| !devices.is_empty()) else { continue };
        if warned.insert(uid.clone()) {
            let devices = devices.into_iter().collect::<Vec<_>>().join(", ");
            tracing::warn!(pod = %pod.pod, devices, "a pod holds a part of a device without isolation");
            let note = format!(
                "nothing holds this pod to its part of {devices}: it was granted with isolation `none` by an earlier version of Divvy. \
                 The device takes no further pods. Delete the pod and create it again without the annotation, or with whole devices"
            );
            events.warn_pod(&pod, "Unprotected", &note);
        }
    }
}

/// The time.
pub fn now() -> Time {
    Time(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default())
}
