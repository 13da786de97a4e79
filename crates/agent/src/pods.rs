//! The pods of this node, as the API server last told: what the ledger and the device plugin need of them and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use divvy_core::ask::{GpuAsk, Role};
use divvy_core::grant::{Grant, held};
use divvy_core::id::{PodKey, PodUid};
use divvy_core::keys;
use divvy_service::Stop;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::identity::{Member, Seen};

/// What we keep of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Its name.
    pub pod: PodKey,
    /// Its identity.
    pub uid: PodUid,
    /// It ran to its end (Succeeded or Failed).
    pub ended: bool,
    /// It runs.
    pub running: bool,
    /// Its containers, init containers first.
    pub members: Vec<Member>,
    /// What it was granted first; `Err` says what is wrong with the annotation.
    pub grant: Option<Result<Grant, String>>,
    /// What was admitted later, and is to be had instead.
    pub change: Option<Change>,
    /// What it asked for, where the annotation can be read.
    pub ask: Option<GpuAsk>,
    /// What its status says of containers that have run. Late: the runtime knows first.
    pub seen: Seen,
    /// What its status says is wrong with its devices.
    pub devices_bad: Option<String>,
    /// The pod as it was written (metadata and spec), for a pod with a grant; null for others.
    pub manifest: Arc<Value>,
}

/// Amounts that were admitted after the pod was bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// As it was written.
    pub text: String,
    /// As it was read.
    pub grant: Result<Grant, String>,
}

impl PodView {
    /// Trims a pod. `None` for one without identity, which the API server does not send.
    pub fn of(pod: &Pod) -> Option<PodView> {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref()?;
        let empty = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&empty);
        let read = |key: &str| annotations.get(key).map(String::as_str);
        let status = pod.status.as_ref();
        let held = read(keys::GRANT).map(|grant| held(grant, read(keys::GRANT_ADMITTED)));
        let change = held.as_ref().and_then(|held| held.as_ref().ok()).and_then(|held| {
            let text = read(keys::GRANT_ADMITTED)?.to_owned();
            let grant = held.admitted.as_ref().map(|admitted| admitted.grant.clone());
            Some(Change { text, grant: grant.ok_or_else(|| held.ignored.clone().unwrap_or_default()) })
        });
        let early = spec.init_containers.iter().flatten().map(|c| member(c, true));
        let main = spec.containers.iter().map(|c| member(c, false));
        Some(PodView {
            pod: PodKey::new(meta.namespace.as_deref()?, meta.name.as_deref()?),
            uid: meta.uid.as_deref()?.into(),
            ended: matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")),
            running: status.and_then(|s| s.phase.as_deref()) == Some("Running"),
            members: early.chain(main).collect(),
            grant: held.map(|held| held.and_then(|held| held.granted.check().map(|()| held.granted))),
            change,
            ask: read(keys::ASK).and_then(|text| serde_json::from_str(text).ok()),
            seen: seen(pod),
            devices_bad: devices_bad(pod),
            manifest: Arc::new(if annotations.contains_key(keys::GRANT) { manifest(pod) } else { Value::Null }),
        })
    }

    /// What it is to have: the amounts that were admitted last, or the grant itself.
    pub fn wanted(&self) -> Option<&Result<Grant, String>> {
        match (&self.grant, &self.change) {
            (Some(Ok(_)), Some(Change { grant: admitted @ Ok(_), .. })) => Some(admitted),
            (grant, _) => grant.as_ref(),
        }
    }

    /// An annotation of a pod with a grant.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.manifest.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }

    /// A label of a pod with a grant.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.manifest.get("metadata")?.get("labels")?.get(key)?.as_str()
    }
}

fn manifest(pod: &Pod) -> Value {
    let mut metadata = pod.metadata.clone();
    metadata.managed_fields = None;
    json!({"kind": "Pod", "metadata": metadata, "spec": pod.spec})
}

fn member(container: &Container, early: bool) -> Member {
    let role = match (early, container.restart_policy.as_deref()) {
        (false, _) => Role::Main,
        (true, Some("Always")) => Role::Sidecar,
        (true, _) => Role::Init,
    };
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let slots = limits.and_then(|l| l.get(keys::SLOT)).and_then(|q| q.0.parse().ok()).unwrap_or(0);
    Member { name: container.name.as_str().into(), role, slots }
}

fn devices_bad(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let told = conditions.iter().find(|c| c.type_ == keys::CONDITION_DEVICES && c.status == "False")?;
    Some(told.message.clone().unwrap_or_default())
}

fn seen(pod: &Pod) -> Seen {
    let Some(status) = &pod.status else { return Seen::default() };
    let ended_well = |s: &&k8s_openapi::api::core::v1::ContainerStatus| {
        s.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0)
    };
    let early = status.init_container_statuses.iter().flatten().filter(ended_well);
    Seen {
        done: early.map(|s| s.name.as_str().into()).collect(),
        main_made: status
            .container_statuses
            .iter()
            .flatten()
            .any(|s| s.container_id.as_ref().is_some_and(|id| !id.is_empty())),
    }
}

#[derive(Default)]
struct Store {
    pods: BTreeMap<PodUid, Arc<PodView>>,
    complete: bool,
}

/// The pods of this node.
#[derive(Clone)]
pub struct Pods {
    store: Arc<Mutex<Store>>,
    version: Arc<watch::Sender<u64>>,
}

impl Default for Pods {
    fn default() -> Pods {
        Pods { store: Arc::default(), version: Arc::new(watch::Sender::new(0)) }
    }
}

impl Pods {
    /// The pod with this uid.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<PodView>> {
        self.read(|s| s.pods.get(uid).cloned())
    }

    /// The pod of this name that has not ended.
    pub fn named(&self, key: &PodKey) -> Option<Arc<PodView>> {
        self.read(|s| s.pods.values().find(|p| p.pod == *key && !p.ended).cloned())
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<PodView>> {
        self.read(|s| s.pods.values().cloned().collect())
    }

    /// Uids of pods that have not ended; `None` until the API server has told all of them once.
    pub fn bound(&self) -> Option<BTreeSet<PodUid>> {
        self.read(|s| s.complete.then(|| s.pods.values().filter(|p| !p.ended).map(|p| p.uid.clone()).collect()))
    }

    /// Changes with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until `find` finds something: the kubelet may know a pod a moment before we do.
    pub async fn wait<T>(&self, patience: Duration, find: impl Fn(&Pods) -> Option<T>) -> Option<T> {
        let mut changes = self.changes();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = find(self) {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, waiting).await.ok().flatten()
    }

    fn read<T>(&self, f: impl FnOnce(&Store) -> T) -> T {
        f(&self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, f: impl FnOnce(&mut Store)) {
        f(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner));
        self.version.send_modify(|v| *v += 1);
    }

    /// Puts a pod as if the API server had told it.
    pub fn put(&self, view: PodView) {
        self.write(|s| {
            s.pods.insert(view.uid.clone(), Arc::new(view));
        });
    }

    /// Says that the API server has told all pods once.
    pub fn complete(&self) {
        self.write(|s| s.complete = true);
    }

    /// Follows the API server until asked to stop. Losing it changes nothing: the node goes on with what it knows.
    pub async fn follow(self, client: Client, node: String, stop: Stop) -> anyhow::Result<()> {
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let events = watcher(Api::<Pod>::all(client), config).default_backoff();
        let mut fresh: Option<BTreeMap<PodUid, Arc<PodView>>> = None;
        let mut events = events.into_stream().boxed();
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = stop.requested() => return Ok(()),
            };
            match event {
                Ok(Some(watcher::Event::Init)) => fresh = Some(BTreeMap::new()),
                Ok(Some(watcher::Event::InitApply(pod))) => {
                    if let (Some(fresh), Some(view)) = (&mut fresh, PodView::of(&pod)) {
                        fresh.insert(view.uid.clone(), Arc::new(view));
                    }
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    let pods = fresh.take().unwrap_or_default();
                    self.write(|s| *s = Store { pods, complete: true });
                }
                Ok(Some(watcher::Event::Apply(pod))) => {
                    if let Some(view) = PodView::of(&pod) {
                        self.put(view);
                    }
                }
                Ok(Some(watcher::Event::Delete(pod))) => {
                    if let Some(uid) = &pod.metadata.uid {
                        self.write(|s| {
                            s.pods.remove(uid.as_str());
                        });
                    }
                }
                Ok(None) => anyhow::bail!("the watch of this node's pods ended"),
                Err(error) => tracing::warn!(%error, "cannot hear of this node's pods; trying again"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: serde_json::Value) -> PodView {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {
                "initContainers": [
                    {"name": "prepare", "resources": {"limits": {keys::SLOT: "1"}}},
                    {"name": "proxy", "restartPolicy": "Always"}],
                "containers": [{"name": "main", "resources": {"limits": {keys::SLOT: "2"}}}]},
            "status": {"phase": "Pending",
                "initContainerStatuses": [{"name": "prepare", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0}}}],
                "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0}]}
        }))
        .unwrap();
        PodView::of(&pod).unwrap()
    }

    #[test]
    fn a_pod_is_trimmed_to_its_containers_slots_and_history() {
        let view = pod(json!({}));
        let members: Vec<_> = view.members.iter().map(|m| (m.name.as_str(), m.role, m.slots)).collect();
        assert_eq!(members, [("prepare", Role::Init, 1), ("proxy", Role::Sidecar, 0), ("main", Role::Main, 2)]);
        assert!(view.seen.done.contains("prepare") && !view.seen.main_made);
        assert_eq!(view.grant, None);
    }

    #[test]
    fn a_grant_that_makes_no_sense_is_an_error_that_says_why() {
        let error = |text: &str| pod(json!({keys::GRANT: text})).grant.unwrap().unwrap_err();
        assert!(error("garbage").contains("cannot be read"));
        assert!(error(r#"{"v":99,"at":0,"policy":"","containers":[]}"#).contains("version 99"));
        let over = r#"{"v":1,"at":0,"policy":"","containers":[{"name":"c","slices":[
            {"device":"G","memory":2,"memoryLimit":1,"share":0,"shareLimit":0,"isolation":"intercept"}]}]}"#;
        assert!(error(over).contains("books more on G for c"));
    }

    fn amounts(memory: u64, device: &str, isolation: &str) -> String {
        let slice = json!({"device": device, "memory": memory, "memoryLimit": 9, "share": 0, "shareLimit": 0, "isolation": isolation});
        json!({"v": 1, "at": 0, "policy": "", "containers": [{"name": "c", "slices": [slice]}]}).to_string()
    }

    #[test]
    fn amounts_that_were_admitted_later_take_the_grants_place_and_a_wish_does_not() {
        let wanted = |key: &str, change: &str| {
            let view = pod(json!({keys::GRANT: amounts(1, "G", "intercept"), key: change}));
            view.wanted().unwrap().clone().unwrap().containers[0].slices[0].memory.0
        };
        assert_eq!(wanted(keys::GRANT_ADMITTED, &amounts(5, "G", "intercept")), 5);
        assert_eq!(wanted(keys::GRANT_OVERRIDE, &amounts(5, "G", "intercept")), 1);
        assert_eq!(wanted(keys::GRANT_ADMITTED, "nonsense"), 1);
        let nothing = pod(json!({keys::GRANT_ADMITTED: amounts(5, "G", "intercept")}));
        assert_eq!(nothing.wanted(), None, "a change of nothing is nothing");
    }

    #[test]
    fn a_change_of_more_than_amounts_is_followed_neither_before_the_first_start_nor_after() {
        for (change, what) in [(amounts(5, "H", "intercept"), "device"), (amounts(5, "G", "none"), "isolation")] {
            let view = pod(json!({keys::GRANT: amounts(1, "G", "intercept"), keys::GRANT_ADMITTED: change}));
            assert_eq!(view.wanted(), view.grant.as_ref());
            let why = view.change.unwrap().grant.unwrap_err();
            assert!(why.contains(what), "{why}");
        }
    }
}
