//! The Kubernetes objects the control plane watches, cut down to what it reads.
//!
//! These live only between the socket and the core: an event is parsed into one of them, turned into the core's own value, and
//! dropped. Parts that the core needs whole (affinity, tolerations, topology spread, volume sources) keep Kubernetes' own types.

mod meta;
mod node;
mod pod;
mod storage;

pub use meta::{Meta, Owner};
pub use node::{Condition, Node, NodeSpec, NodeStatus, Taint};
pub use pod::{
    Container, ContainerStatus, FinishedPod, Gate, Pod, PodCondition, PodSpec, PodStatus, Port, Resources, Volume,
};
pub use storage::{
    Claim, ClaimSpec, ClaimStatus, CsiDriver, CsiDriverDetails, CsiDriverObject, CsiLimit, CsiNode, CsiNodeSpec,
    DisruptionBudget, DisruptionBudgetSpec, DisruptionBudgetStatus, NamespaceObject, PersistentVolume, PriorityClass,
    ResourceQuota, ResourceQuotaSpec, StorageCapacity, StorageClass,
};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::policy::GpuPolicySpec;

/// A kind of object the control plane can list and watch across the cluster.
pub trait Watched: DeserializeOwned + Clone + Send + Sync + 'static {
    /// The path of its cluster-wide list.
    const PATH: &'static str;
    /// Restricts what is listed and watched, in the API's field-selector words.
    const FIELDS: Option<&'static str> = None;
    /// The same, in the words of label selectors.
    const LABELS: Option<&'static str> = None;
    /// The API server need not know this kind (a custom resource that is not installed): then there are none.
    const OPTIONAL: bool = false;

    /// Its metadata.
    fn meta(&self) -> &Meta;
}

/// The GpuPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PolicyObject {
    /// Its metadata.
    pub metadata: Meta,
    /// What it says.
    pub spec: GpuPolicySpec,
}

impl Watched for PolicyObject {
    const PATH: &'static str = divvy_core::keys::POLICY_PATH;
    const OPTIONAL: bool = true;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Watched for FinishedPod {
    const PATH: &'static str = Pod::PATH;
    const FIELDS: Option<&'static str> = Some("status.phase=Succeeded");
    const LABELS: Option<&'static str> = Some(divvy_core::keys::GANG_MEMBER);

    fn meta(&self) -> &Meta {
        &self.0.metadata
    }
}

macro_rules! watched {
    ($($kind:ty: $path:literal $(where $fields:literal)?;)*) => {$(
        impl Watched for $kind {
            const PATH: &'static str = $path;
            $(const FIELDS: Option<&'static str> = Some($fields);)?
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        }
    )*};
}

watched! {
    // Pods that ended hold nothing: the server leaves them out, and reports one that ends as deleted.
    Pod: "/api/v1/pods" where "status.phase!=Succeeded,status.phase!=Failed";
    Node: "/api/v1/nodes";
    NamespaceObject: "/api/v1/namespaces";
    Claim: "/api/v1/persistentvolumeclaims";
    PersistentVolume: "/api/v1/persistentvolumes";
    StorageClass: "/apis/storage.k8s.io/v1/storageclasses";
    CsiDriverObject: "/apis/storage.k8s.io/v1/csidrivers";
    StorageCapacity: "/apis/storage.k8s.io/v1/csistoragecapacities";
    CsiNode: "/apis/storage.k8s.io/v1/csinodes";
    PriorityClass: "/apis/scheduling.k8s.io/v1/priorityclasses";
    ResourceQuota: "/api/v1/resourcequotas";
    DisruptionBudget: "/apis/policy/v1/poddisruptionbudgets";
}
