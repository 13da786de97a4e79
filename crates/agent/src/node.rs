//! The node as the agent knows it, and the one decision it makes: may this container start, and with what.
//!
//! ```text
//! pods (API server) --+
//! devices (vendors) --+--> Node::prepare(pod, container) --> edits, or why not
//! foreign (driver)  --+        ledger, pages, library
//! ```

mod resize;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use divvy_api::policy::Offer;
use divvy_core::ask::Role;
use divvy_core::device::{Device, Health, Isolation};
use divvy_core::grant::{Grant, Slice};
use divvy_core::id::{ContainerName, DeviceId, PodUid};
use divvy_core::time::Time;
use divvy_core::units::Bytes;
use tokio::sync::watch;

use crate::device::{Part, Provider};
use crate::edits::{self, ContainerEdits, Mount};
use crate::hold::Place;
use crate::home::{self, Home};
use crate::inventory::{Facts, Style};
use crate::ledger::{Ledger, Refusal};
use crate::library::Shelf;
use crate::offer::Offers;
use crate::pods::{PodView, Pods};
use crate::promise::{self, Ground};
use crate::runtime::Running;
use divvy_dialects::Emulation;

/// The kubelet can be ahead of our watch by a moment; after that something is wrong, and it will ask again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a container may not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum No {
    /// The API server has not told us of the pod.
    #[error("pod {0} is not known to this node's agent yet")]
    UnknownPod(String),
    /// It was never granted anything.
    #[error("{0} has no grant: it was not bound by Divvy's scheduler, or asks for slots by hand")]
    NoGrant(String),
    /// What it was granted cannot be read.
    #[error("the grant of {0} {1}")]
    BadGrant(String, String),
    /// The grant does not fit the devices.
    #[error("the grant of {0} is refused: {1}")]
    Refused(String, Refusal),
    /// Something on the node is broken.
    #[error("{0}")]
    Broken(String),
}

/// What changes while the agent runs.
#[derive(Default)]
struct State {
    /// The devices were looked at once.
    explored: bool,
    /// The devices as their vendors tell of them.
    found: Vec<Device>,
    /// The devices with what may be promised of them.
    devices: Vec<Device>,
    /// How much may be promised; absent while nobody knows.
    offers: Option<Offers>,
    /// Which provider has which device, by its place in the list of providers.
    provider_of: BTreeMap<DeviceId, usize>,
    foreign: BTreeMap<DeviceId, Bytes>,
    driver: String,
    ledger: Ledger,
    refused: BTreeMap<PodUid, String>,
    evict: BTreeMap<PodUid, String>,
    /// Resources that other device plugins offer here.
    taken: BTreeSet<String>,
    /// This agent was told to stop.
    leaving: bool,
}

impl State {
    /// The devices as a grant that was decided `at` is judged.
    fn judged(&self, at: u64) -> Vec<Device> {
        self.offered(|offers| offers.at(Time(at)))
    }

    fn offered(&self, by: impl Fn(&Offers) -> Offer) -> Vec<Device> {
        let mut devices = self.found.clone();
        if let Some(offers) = &self.offers {
            by(offers).write(&mut devices);
        }
        devices
    }
}

/// The node.
pub struct Node {
    /// Its name.
    pub name: String,
    /// How it presents itself.
    pub style: Style,
    /// Its pods.
    pub pods: Pods,
    /// Its vendors.
    pub providers: Vec<Box<dyn Provider>>,
    home: Home,
    shelf: Option<Shelf>,
    cdi: PathBuf,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Node {
    /// A node that remembers what its home says, and knows no devices yet.
    pub fn new(
        name: String,
        style: Style,
        pods: Pods,
        providers: Vec<Box<dyn Provider>>,
        home: Home,
        shelf: Option<Shelf>,
        cdi: PathBuf,
    ) -> std::io::Result<Node> {
        let mut state = State { offers: home.offers(), ..State::default() };
        for (uid, holder) in home.remembered()? {
            state.ledger.restore(uid, holder);
        }
        let changed = watch::Sender::new(0);
        Ok(Node { name, style, pods, providers, home, shelf, cdi, state: Mutex::new(state), changed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held left values that were each written whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes when what the node would advertise changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn note_change(&self) {
        self.changed.send_modify(|v| *v += 1);
    }

    /// Where the agent keeps its things.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Were the devices looked at? Before that, nothing is known about them, not even that there are none.
    pub fn is_explored(&self) -> bool {
        self.state().explored
    }

    /// Does the pod hold something here?
    pub fn holds(&self, uid: &PodUid) -> bool {
        self.state().ledger.holders().contains_key(uid)
    }

    /// The devices as last seen.
    pub fn devices(&self) -> Vec<Device> {
        self.state().devices.clone()
    }

    /// Grants that were refused for good.
    pub fn refused(&self) -> BTreeMap<PodUid, String> {
        self.state().refused.clone()
    }

    /// Pods that are to be evicted, with the reason: the controller, which may, does it.
    pub fn evict(&self) -> BTreeMap<PodUid, String> {
        self.state().evict.clone()
    }

    /// These pods are to be evicted, and no others.
    pub fn set_evict(&self, evict: BTreeMap<PodUid, String>) {
        let mut state = self.state();
        if state.evict != evict {
            state.evict = evict;
            drop(state);
            self.note_change();
        }
    }

    /// Memory held by processes without a grant.
    pub fn foreign(&self) -> BTreeMap<DeviceId, Bytes> {
        self.state().foreign.clone()
    }

    /// Resources that other device plugins offer here: theirs to count.
    pub fn taken(&self) -> BTreeSet<String> {
        self.state().taken.clone()
    }

    /// Takes a new look at what other device plugins offer.
    pub fn set_taken(&self, taken: BTreeSet<String>) {
        let mut state = self.state();
        if state.taken != taken {
            state.taken = taken;
            drop(state);
            self.note_change();
        }
    }

    /// Was this agent told to stop?
    pub fn is_leaving(&self) -> bool {
        self.state().leaving
    }

    /// Notes that this agent was told to stop.
    pub fn leave(&self) {
        self.state().leaving = true;
        self.note_change();
    }

    /// A copy of the ledger.
    pub fn ledger(&self) -> Ledger {
        self.state().ledger.clone()
    }

    /// The driver's version.
    pub fn driver(&self) -> String {
        self.state().driver.clone()
    }

    /// Takes a new look at the devices: per provider, in the providers' order.
    pub fn set_devices(&self, per_provider: Vec<Vec<Device>>, driver: String) {
        let mut state = self.state();
        let provider_of = per_provider
            .iter()
            .enumerate()
            .flat_map(|(at, devices)| devices.iter().map(move |d| (d.id.clone(), at)))
            .collect();
        let devices: Vec<Device> = per_provider.into_iter().flatten().collect();
        if state.explored && state.found == devices && state.driver == driver {
            return;
        }
        state.explored = true;
        state.driver = driver;
        state.found = devices;
        state.devices = state.offered(|offers| offers.now);
        state.provider_of = provider_of;
        drop(state);
        self.note_change();
    }

    /// Is it known how much of the devices may be promised? Before that, nothing is offered and no grant is judged.
    pub fn has_offer(&self) -> bool {
        self.state().offers.is_some()
    }

    /// Offers so much of the devices from now on.
    pub fn set_offer(&self, offer: Offer) {
        let mut state = self.state();
        let offers = match &state.offers {
            None => Offers::first(offer),
            Some(offers) if offers.now == offer => return,
            Some(offers) => offers.clone().next(offer, crate::settle::now()),
        };
        // Before anybody can read of it: an agent that is started anew judges by what this one offered.
        if let Err(error) = self.home.remember_offers(&offers) {
            tracing::error!(%error, "cannot write down how much of the devices may be promised");
        }
        tracing::info!(
            memory = offer.memory.0,
            share = offer.share.0,
            most = offer.tasks,
            "this much is offered of devices"
        );
        state.offers = Some(offers);
        state.devices = state.offered(|offers| offers.now);
        drop(state);
        self.note_change();
    }

    /// Offers the devices as they are, unless something else is offered already.
    pub fn offer_if_silent(&self) {
        if !self.has_offer() {
            self.set_offer(Offer::default());
        }
    }

    /// Takes a new look at processes without a grant.
    pub fn set_foreign(&self, foreign: BTreeMap<DeviceId, Bytes>) {
        let mut state = self.state();
        if state.foreign != foreign {
            state.foreign = foreign;
            drop(state);
            self.note_change();
        }
    }

    /// The decision. Everything a container gets, or why it may not start.
    pub async fn prepare(
        self: &Arc<Self>,
        uid: &PodUid,
        container: &ContainerName,
        slots: &[String],
    ) -> Result<ContainerEdits, No> {
        let pod =
            self.pods.wait(PATIENCE, |pods| pods.get(uid)).await.ok_or_else(|| No::UnknownPod(uid.to_string()))?;
        self.explored_soon().await?;
        let name = format!("{}/{container}", pod.pod);
        let grant = match pod.wanted() {
            None => return Err(No::NoGrant(name)),
            Some(Err(why)) => return Err(No::BadGrant(name, why.clone())),
            Some(Ok(grant)) => self.in_force(&pod, grant),
        };
        let Some(part) = grant.containers.iter().find(|c| c.name == *container) else { return Err(No::NoGrant(name)) };
        if !slots.is_empty() && slots.len() != part.slices.len() {
            let why = format!("has {} devices for {} slots", part.slices.len(), slots.len());
            return Err(No::BadGrant(name, why));
        }
        self.admit(&pod, &grant).map_err(|refusal| No::Refused(name.clone(), refusal))?;
        let slices = part.slices.clone();
        let (node, uid, container, slots) = (self.clone(), uid.clone(), container.clone(), slots.to_vec());
        let made = tokio::task::spawn_blocking(move || node.dress(&pod, &uid, &container, &slices, &slots));
        let made =
            made.await.unwrap_or_else(|e| Err(format!("preparing the container panicked: {e}"))).map_err(No::Broken);
        // Somebody new is to be held to its share.
        self.note_change();
        made
    }

    /// Waits a moment for the first look at the devices and the policy: before them, no grant can be judged.
    async fn explored_soon(&self) -> Result<(), No> {
        let mut changes = self.changes();
        let is_known = || self.is_explored() && self.has_offer();
        let known = async { while !is_known() && changes.changed().await.is_ok() {} };
        let missing = || match self.is_explored() {
            false => "this agent has not looked at the node's devices yet",
            true => "this agent has not read yet how much of the node's devices may be promised (GpuPolicy)",
        };
        tokio::time::timeout(PATIENCE, known).await.map_err(|_| No::Broken(missing().into()))
    }

    /// What counts for a pod that starts: what it holds already, for changes of that are judged apart ([`crate::resize`]).
    fn in_force(&self, pod: &PodView, wanted: &Grant) -> Grant {
        let state = self.state();
        let held = state.ledger.holders().get(&pod.uid).filter(|holder| holder.left_behind.is_none());
        held.map_or_else(|| wanted.clone(), |holder| holder.grant.clone())
    }

    fn admit(&self, pod: &PodView, grant: &Grant) -> Result<(), Refusal> {
        let mut state = self.state();
        let judged = state.judged(grant.at);
        let State { foreign, ledger, refused, .. } = &mut *state;
        let before = ledger.holders().get(&pod.uid).cloned();
        let outcome = ledger.admit(&pod.uid, &pod.pod, grant, &judged, foreign);
        match &outcome {
            Ok(()) => {
                let now = ledger.holders().get(&pod.uid).cloned();
                if before != now
                    && let Some(holder) = now
                    && let Err(e) = self.home.remember(&pod.uid, &holder)
                {
                    // An agent that is started anew must find what containers were started with.
                    ledger.put_back(&pod.uid, before);
                    return Err(Refusal::broken(format!("cannot write down what the pod holds: {e}")));
                }
                if refused.remove(&pod.uid).is_some() {
                    drop(state);
                    self.note_change();
                }
            }
            Err(refusal) if refusal.passing => {}
            Err(refusal) => {
                if refused.insert(pod.uid.clone(), refusal.to_string()).is_none() {
                    drop(state);
                    self.note_change();
                }
            }
        }
        outcome
    }

    /// Makes pages and edits. May block: vendors and the disk are asked.
    fn dress(
        &self,
        pod: &PodView,
        uid: &PodUid,
        container: &ContainerName,
        slices: &[Slice],
        slots: &[String],
    ) -> Result<ContainerEdits, String> {
        let (devices, provider_of) = {
            let state = self.state();
            (state.devices.clone(), state.provider_of.clone())
        };
        let shelf = self.shelf.as_ref();
        if shelf.is_none() && slices.iter().any(edits::is_intercepted) {
            return Err(
                "this agent has no libdivvy.so to give, and without it no device is given: set --library".into()
            );
        }
        let mut by_provider: BTreeMap<usize, Vec<Part<'_>>> = BTreeMap::new();
        for slice in slices {
            let device = devices.iter().find(|d| d.id == slice.device);
            let (Some(device), Some(at)) = (device, provider_of.get(&slice.device)) else {
                return Err(format!("{} is not on this node any more", slice.device));
            };
            by_provider.entry(*at).or_default().push(Part { device, slice });
        }
        let mut vendors = Vec::new();
        for (at, parts) in by_provider {
            vendors.push(self.providers[at].edits(&parts).map_err(|e| e.to_string())?);
        }
        let config = home::config(format!("{}/{container}", pod.pod), slices, &devices, self.style.context);
        let pages = self
            .home
            .prepare(uid, container, &config, shelf, slots)
            .map_err(|e| format!("cannot make the container's pages: {e}"))?;
        let promised = promise::for_container(&self.emulation(pod, devices), container);
        let driver: Vec<Mount> = vendors.iter().flat_map(|v| v.mounts.clone()).collect();
        let ground = Ground { own: &pages.own, library: &pages.library, driver: &driver };
        let (promised, writes) = promise::plan(&promised, &ground, |path| path.exists());
        promise::write(&writes).map_err(|e| format!("cannot write what the container was promised: {e}"))?;
        Ok(edits::edits(slices, vendors, promised, &pages))
    }

    /// What users of the pod's dialect are to find.
    fn emulation(&self, pod: &PodView, devices: Vec<Device>) -> Emulation {
        let Some(Ok(wanted)) = pod.wanted() else { return Emulation::default() };
        let grant = &self.in_force(pod, wanted);
        let (pods, foreign) = (BTreeMap::new(), BTreeMap::new());
        let facts = Facts {
            devices: &devices,
            driver: &self.state().driver.clone(),
            memory_unit: self.style.memory_unit,
            refused: &pods,
            evict: &pods,
            foreign: &foreign,
        };
        let others = self.pods.all();
        let ports = promise::ports(others.iter().map(AsRef::as_ref).filter(|other| other.uid != pod.uid));
        promise::of(pod, grant, &self.name, &facts.inventory(0), &ports)
    }

    /// Annotations that read differently now that every container of the pod has been given its devices.
    pub fn started(&self, uid: &PodUid) -> Option<(Arc<PodView>, BTreeMap<String, String>)> {
        let pod = self.pods.get(uid)?;
        let Some(Ok(grant)) = &pod.grant else { return None };
        if !grant.containers.iter().all(|c| self.home.is_prepared(uid, &c.name)) {
            return None;
        }
        let mut started = self.emulation(&pod, self.devices()).started;
        started.retain(|key, value| pod.annotation(key) != Some(value));
        promise::stamp(&mut started, crate::settle::now());
        (!started.is_empty()).then_some((pod, started))
    }

    /// Writes a container's CDI specs.
    pub fn write_specs(&self, uid: &PodUid, slots: &[String], edits: &ContainerEdits) -> std::io::Result<()> {
        edits::cdi::write(&self.cdi, uid.as_str(), slots, edits)
    }

    /// Brings the ledger in line with what the API server and the runtime say now, and sweeps up after pods that are gone.
    pub fn settle(&self, running: &Running) {
        let Some(bound) = self.pods.bound() else { return };
        let mut state = self.state();
        let adopted = adopt_strangers(&mut state.ledger, &self.pods, running);
        let released = state.ledger.settle(&bound, running);
        let refused_before = state.refused.len();
        state.refused.retain(|uid, _| bound.contains(uid));
        let changed = state.refused.len() != refused_before;
        let holders = state.ledger.holders().clone();
        drop(state);
        for uid in adopted {
            if let Some(holder) = holders.get(&uid)
                && let Err(e) = self.home.remember(&uid, holder)
            {
                tracing::error!(pod = %holder.pod, error = %e, "cannot write down what a pod holds");
            }
        }
        for uid in &released {
            self.sweep_pod(uid);
        }
        if changed {
            self.note_change();
        }
    }

    /// The pods that hold nothing any more, by what the API server and the runtime say now.
    pub fn leaving(&self, running: &Running) -> BTreeSet<PodUid> {
        self.pods.bound().map(|bound| self.state().ledger.leaving(&bound, running)).unwrap_or_default()
    }

    fn sweep_pod(&self, uid: &PodUid) {
        match self.home.forget(uid) {
            Ok(slots) => {
                for slot in slots {
                    // The id may belong to another pod by now; its spec then names other pages.
                    if let Err(e) = edits::cdi::remove_of(&self.cdi, &slot, uid.as_str()) {
                        tracing::warn!(slot, error = %e, "cannot remove a CDI spec");
                    }
                }
                tracing::info!(%uid, "swept up after a pod");
            }
            Err(e) => tracing::warn!(%uid, error = %e, "cannot sweep up after a pod"),
        }
    }

    /// Every container with pages of every pod that holds something here.
    pub fn places(&self) -> Vec<Place> {
        let holders: Vec<(PodUid, Vec<ContainerName>)> = {
            let state = self.state();
            let first = |grant: &Grant| {
                let init = grant.containers.iter().filter(|container| container.role == Role::Init);
                init.map(|container| container.name.clone()).collect()
            };
            state.ledger.holders().iter().map(|(uid, holder)| (uid.clone(), first(&holder.grant))).collect()
        };
        let of = |(pod, first): &(PodUid, Vec<ContainerName>)| -> Vec<Place> {
            let place = |(name, dir)| Place { pod: pod.clone(), is_init: first.contains(&name), name, dir };
            self.home.containers_of(pod).into_iter().map(place).collect()
        };
        holders.iter().flat_map(of).collect()
    }

    /// Slots by which containers of pods that are gone from the API server still go.
    pub fn leaving_slots(&self) -> BTreeSet<String> {
        let ledger = self.ledger();
        let leaving = ledger.holders().iter().filter(|(_, holder)| holder.left_behind.is_some());
        leaving.flat_map(|(uid, _)| self.home.slots(uid)).collect()
    }

    /// Removes what nobody needs any more: folders of pods that hold nothing, versions of the library that no container has.
    pub fn sweep(&self) {
        let Some(bound) = self.pods.bound() else { return };
        let holders: BTreeSet<PodUid> = self.state().ledger.holders().keys().cloned().collect();
        for uid in self.home.pods().unwrap_or_default() {
            if !bound.contains(&uid) && !holders.contains(&uid) {
                self.sweep_pod(&uid);
            }
        }
        let Some(shelf) = &self.shelf else { return };
        match self.home.libraries().and_then(|used| shelf.sweep(&used)) {
            Ok(gone) if !gone.is_empty() => tracing::info!(?gone, "removed libraries that no container uses"),
            Ok(_) => {}
            Err(e) => tracing::warn!(error = %e, "cannot sweep old libraries"),
        }
    }
}

/// Containers that run with a grant and are not in the ledger were started by an agent whose notes are lost: they count.
fn adopt_strangers(ledger: &mut Ledger, pods: &Pods, running: &Running) -> Vec<PodUid> {
    let mut strangers: Vec<Arc<PodView>> = pods
        .all()
        .into_iter()
        .filter(|pod| !ledger.holders().contains_key(&pod.uid))
        .filter(|pod| {
            let Some(Ok(grant)) = pod.wanted() else { return false };
            let running = running.get(&pod.uid);
            running.is_some_and(|names| grant.containers.iter().any(|c| names.contains(&c.name)))
        })
        .collect();
    let decided = |pod: &PodView| match pod.wanted() {
        Some(Ok(grant)) => grant.at,
        _ => u64::MAX,
    };
    strangers.sort_by_key(|pod| decided(pod));
    for pod in &strangers {
        if let Some(Ok(grant)) = pod.wanted() {
            ledger.adopt(&pod.uid, &pod.pod, grant);
        }
    }
    strangers.into_iter().map(|pod| pod.uid.clone()).collect()
}

/// Marks what the node knows about its devices besides what their vendors say.
pub fn mark(devices: &mut [Device], unhealthy: &BTreeMap<DeviceId, String>, cordoned: &BTreeSet<DeviceId>) {
    for device in devices {
        if let Some(reason) = unhealthy.get(&device.id) {
            device.health = Health::Unhealthy { reason: reason.clone() };
        }
        device.cordoned |= cordoned.contains(&device.id);
        if device.isolation.is_empty() {
            device.isolation.push(Isolation::None);
        }
    }
}
