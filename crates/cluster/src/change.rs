//! Everything the control plane watches, as one closed list of what can change.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use divvy_api::budget::{QuotaObject, read_quota};
use divvy_api::convert::{self, InventoryProblem, PodSeen};
use divvy_api::policy::{ClusterPolicy, PolicyProblem};
use divvy_api::reader::PodReader;
use divvy_api::{policy, wire};
use divvy_core::id::{Namespace, NodeName, PodUid};
use divvy_core::labels::Labels;
use divvy_core::node::Node;
use divvy_core::pod::Pod;
use divvy_core::quota::Quota;
use divvy_core::snapshot::DisruptionBudget;
use divvy_core::volume::{Claim, ClaimKey, StorageCapacity, StorageClass, Volume};
use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::watch::{Seen, follow};

/// Something in the cluster changed.
#[derive(Clone, Debug)]
pub enum Change {
    /// A pod is like this now.
    Pod(Box<PodSeen>),
    /// A pod is gone, or has ended.
    PodGone(PodUid),
    /// A member of a gang ended well.
    Finished(Box<Pod>),
    /// A pod of a gang that ended well is no longer kept.
    FinishedGone(PodUid),
    /// A node is like this now. Where its inventory is unusable it has no devices, and the problem says why.
    Node(Box<Node>, Option<InventoryProblem>),
    /// A node is gone.
    NodeGone(NodeName),
    /// A namespace has these labels now.
    Namespace(Namespace, Labels),
    /// A namespace is gone.
    NamespaceGone(Namespace),
    /// A disruption budget is like this now.
    Budget(DisruptionBudget),
    /// A disruption budget is gone.
    BudgetGone(Namespace, Arc<str>),
    /// Something about storage.
    Storage(StorageChange),
    /// A quota is like this now; none where it cannot be followed.
    Quota(Namespace, Arc<str>, Option<Quota>),
    /// A quota is gone.
    QuotaGone(Namespace, Arc<str>),
    /// The cluster's policy is this now, of this generation; or it cannot be followed, and the one before it stays in force.
    Policy(i64, Result<Arc<ClusterPolicy>, PolicyProblem>),
    /// Everything of a kind has been told, in answer to this request for a list.
    Complete(Kind, u64),
}

/// Something about storage changed.
#[derive(Clone, Debug)]
pub enum StorageChange {
    /// A claim is like this now.
    Claim(Box<Claim>),
    /// A claim is gone.
    ClaimGone(ClaimKey),
    /// A volume is like this now.
    Volume(Box<Volume>),
    /// A volume is gone.
    VolumeGone(Arc<str>),
    /// A storage class is like this now.
    Class(StorageClass),
    /// A storage class is gone.
    ClassGone(Arc<str>),
    /// How many volumes of each driver a node can attach.
    Limits(NodeName, BTreeMap<Arc<str>, u32>),
    /// Does a driver say how much room it has?
    Driver(Arc<str>, bool),
    /// There is this much room, by the object's name.
    Capacity(String, StorageCapacity),
    /// An object about room is gone.
    CapacityGone(String),
}

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Pods.
    Pods,
    /// Pods of gangs that ended well.
    Finished,
    /// Nodes.
    Nodes,
    /// Namespaces.
    Namespaces,
    /// PodDisruptionBudgets.
    Budgets,
    /// PersistentVolumeClaims.
    Claims,
    /// PersistentVolumes.
    Volumes,
    /// StorageClasses.
    Classes,
    /// CSINodes.
    Limits,
    /// CSIDrivers.
    Drivers,
    /// CSIStorageCapacities.
    Capacities,
    /// The GpuPolicy.
    Policy,
    /// GpuQuotas.
    Quotas,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Kind::Pods,
        Kind::Finished,
        Kind::Nodes,
        Kind::Namespaces,
        Kind::Budgets,
        Kind::Claims,
        Kind::Volumes,
        Kind::Classes,
        Kind::Limits,
        Kind::Drivers,
        Kind::Capacities,
        Kind::Policy,
        Kind::Quotas,
    ];
}

/// What the watches need.
#[derive(Clone)]
pub struct Feed {
    /// The way to the API server.
    pub client: Client,
    /// How pods are read.
    pub reader: PodReader,
    /// Ask for fresh lists of pods and nodes by raising this number.
    pub relist: watch::Receiver<u64>,
}

/// One future per kind, to be supervised by name; each tells `to` what it sees until `to` is closed.
pub fn watches(feed: Feed, to: mpsc::Sender<Change>) -> Vec<(&'static str, impl Future<Output = ()> + Send)> {
    let Feed { client, reader, relist } = feed;
    // Only pods are listed anew on request: what binds write is on them.
    let (never, _) = watch::channel(0);
    let never = never.subscribe();
    let complete = |kind: Kind| move |n: u64| Change::Complete(kind, n);
    let mut all: Vec<(&'static str, futures::future::BoxFuture<'static, ()>)> = Vec::new();
    macro_rules! watch {
        ($name:literal, $kind:expr, $relist:expr, $object:ty, $applied:expr, $gone:expr) => {{
            let (applied, gone, complete) = ($applied, $gone, complete($kind));
            let turn = move |seen: Seen<$object>| match seen {
                Seen::Applied(object) => applied(object),
                Seen::Gone(object) => gone(object),
                Seen::Complete(n) => Some(complete(n)),
            };
            all.push(($name, Box::pin(follow::<$object, Change>(client.clone(), to.clone(), $relist, turn))));
        }};
    }
    use crate::watch::Gone;
    watch!(
        "watch pods",
        Kind::Pods,
        relist.clone(),
        wire::Pod,
        move |pod: wire::Pod| Some(Change::Pod(Box::new(reader.read(pod)))),
        |gone: Gone| Some(Change::PodGone(PodUid::from(gone.uid)))
    );
    watch!(
        "watch finished pods",
        Kind::Finished,
        never.clone(),
        wire::FinishedPod,
        |pod: wire::FinishedPod| {
            let seen = convert::pod(pod.0, |_| false);
            // Whoever was told to go and ended has not done its work, whatever its exit code.
            let gone = || Change::FinishedGone(seen.pod.uid.clone());
            Some(if seen.deleting { gone() } else { Change::Finished(Box::new(seen.pod)) })
        },
        |gone: Gone| Some(Change::FinishedGone(PodUid::from(gone.uid)))
    );
    watch!(
        "watch nodes",
        Kind::Nodes,
        relist,
        wire::Node,
        |node: wire::Node| {
            let (node, problem) = convert::node(node);
            Some(Change::Node(Box::new(node), problem))
        },
        |gone: Gone| Some(Change::NodeGone(NodeName::from(gone.name)))
    );
    watch!(
        "watch namespaces",
        Kind::Namespaces,
        never.clone(),
        wire::NamespaceObject,
        |object: wire::NamespaceObject| {
            let labels = object.metadata.labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
            Some(Change::Namespace(Namespace::from(object.metadata.name), labels))
        },
        |gone: Gone| Some(Change::NamespaceGone(Namespace::from(gone.name)))
    );
    watch!(
        "watch disruption budgets",
        Kind::Budgets,
        never.clone(),
        wire::DisruptionBudget,
        |budget: wire::DisruptionBudget| Some(Change::Budget(convert::budget(budget))),
        |gone: Gone| Some(Change::BudgetGone(Namespace::from(gone.namespace), gone.name.into()))
    );
    let storage = |change: StorageChange| Some(Change::Storage(change));
    watch!(
        "watch claims",
        Kind::Claims,
        never.clone(),
        wire::Claim,
        move |claim: wire::Claim| storage(StorageChange::Claim(Box::new(convert::claim(claim)))),
        move |gone: Gone| {
            let key = ClaimKey { namespace: Namespace::from(gone.namespace), name: gone.name.into() };
            storage(StorageChange::ClaimGone(key))
        }
    );
    watch!(
        "watch volumes",
        Kind::Volumes,
        never.clone(),
        wire::PersistentVolume,
        move |volume: wire::PersistentVolume| storage(StorageChange::Volume(Box::new(convert::volume(volume)))),
        move |gone: Gone| storage(StorageChange::VolumeGone(gone.name.into()))
    );
    watch!(
        "watch storage classes",
        Kind::Classes,
        never.clone(),
        wire::StorageClass,
        move |class: wire::StorageClass| storage(StorageChange::Class(convert::storage_class(class, false))),
        move |gone: Gone| storage(StorageChange::ClassGone(gone.name.into()))
    );
    watch!(
        "watch volume limits",
        Kind::Limits,
        never.clone(),
        wire::CsiNode,
        move |node: wire::CsiNode| {
            let limits = convert::volume_limits(&node);
            storage(StorageChange::Limits(NodeName::from(node.metadata.name), limits))
        },
        move |gone: Gone| storage(StorageChange::Limits(NodeName::from(gone.name), BTreeMap::new()))
    );
    watch!(
        "watch storage drivers",
        Kind::Drivers,
        never.clone(),
        wire::CsiDriverObject,
        move |driver: wire::CsiDriverObject| {
            storage(StorageChange::Driver(driver.metadata.name.into(), driver.spec.storage_capacity))
        },
        move |gone: Gone| storage(StorageChange::Driver(gone.name.into(), false))
    );
    watch!(
        "watch storage capacity",
        Kind::Capacities,
        never.clone(),
        wire::StorageCapacity,
        move |capacity: wire::StorageCapacity| {
            let name = format!("{}/{}", capacity.metadata.namespace, capacity.metadata.name);
            storage(StorageChange::Capacity(name, convert::capacity(capacity)))
        },
        move |gone: Gone| storage(StorageChange::CapacityGone(format!("{}/{}", gone.namespace, gone.name)))
    );
    watch!(
        "watch quotas",
        Kind::Quotas,
        never.clone(),
        QuotaObject,
        |object: QuotaObject| {
            let name = object.metadata.name.as_str();
            let quota = read_quota(name, &object.spec);
            if let Err(wrong) = &quota {
                tracing::error!(
                    namespace = object.metadata.namespace,
                    name,
                    wrong = wrong.join("; "),
                    "a quota cannot be followed"
                );
            }
            Some(Change::Quota(Namespace::from(object.metadata.namespace.as_str()), name.into(), quota.ok()))
        },
        |gone: Gone| Some(Change::QuotaGone(Namespace::from(gone.namespace), gone.name.into()))
    );
    watch!(
        "watch the policy",
        Kind::Policy,
        never.clone(),
        wire::PolicyObject,
        |object: wire::PolicyObject| {
            let ours = object.metadata.name == policy::NAME;
            let read = ClusterPolicy::read(&object.spec).map(Arc::new);
            ours.then_some(Change::Policy(object.metadata.generation, read))
        },
        |gone: Gone| (gone.name == policy::NAME).then(|| Change::Policy(0, Ok(Arc::default())))
    );
    all
}
