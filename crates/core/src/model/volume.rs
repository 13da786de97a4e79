//! Volumes, as far as they bear on where a pod can run.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::id::{Namespace, NodeName};
use crate::model::labels::{Labels, Requirement, Selector};
use crate::model::node::NodeTerm;
use crate::model::units::Bytes;

/// One volume of a pod that matters for placing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeUse {
    /// A claim, by name (that of a generic ephemeral volume is the pod's name, a dash and the volume's).
    Claim(Arc<str>),
    /// A disk of a cloud or a storage network, named in the pod itself: not to be written from two pods on one node.
    Disk(Disk),
    /// A CSI volume made for this pod alone: counts against the driver's limit.
    Inline(Arc<str>),
}

/// A disk named in a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// The kind of disk, in Kubernetes' words (`gcePersistentDisk`, `awsElasticBlockStore`, `rbd`, `iscsi`).
    pub kind: Arc<str>,
    /// What names it.
    pub id: Arc<str>,
    /// Only read.
    #[serde(default)]
    pub read_only: bool,
}

impl Disk {
    /// May the two not be on one node? Amazon's disks may not even be read twice.
    pub fn conflicts(&self, other: &Disk) -> bool {
        let read_twice = self.read_only && other.read_only && &*self.kind != "awsElasticBlockStore";
        self.kind == other.kind && self.id == other.id && !read_twice
    }
}

/// A claim's name in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimKey {
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Its name.
    pub key: ClaimKey,
    /// The volume it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Arc<str>>,
    /// Its storage class; empty means none.
    #[serde(default)]
    pub class: Arc<str>,
    /// How it wants to be used (`ReadWriteOnce`, ...).
    #[serde(default)]
    pub modes: BTreeSet<Arc<str>>,
    /// As a raw device rather than a file system.
    #[serde(default)]
    pub block: bool,
    /// How much it asks for.
    #[serde(default)]
    pub request: Bytes,
    /// Which volumes it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Provisioning was already asked for on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_node: Option<NodeName>,
    /// It is being deleted.
    #[serde(default)]
    pub terminating: bool,
    /// It has lost its volume.
    #[serde(default)]
    pub lost: bool,
}

impl Claim {
    /// Only one pod in the whole cluster may use it.
    pub fn is_for_one_pod(&self) -> bool {
        self.modes.contains("ReadWriteOncePod")
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels; those for zone and region bind it to nodes of the same.
    #[serde(default)]
    pub labels: Labels,
    /// Nodes from which it can be reached; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeTerm>>,
    /// Its size.
    #[serde(default)]
    pub capacity: Bytes,
    /// Its storage class; empty means none.
    #[serde(default)]
    pub class: Arc<str>,
    /// How it can be used.
    #[serde(default)]
    pub modes: BTreeSet<Arc<str>>,
    /// As a raw device rather than a file system.
    #[serde(default)]
    pub block: bool,
    /// The claim it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimKey>,
    /// Nobody may have it now (released, failed, being deleted).
    #[serde(default)]
    pub unavailable: bool,
    /// The driver that attaches it, and the driver's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<(Arc<str>, Arc<str>)>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Its name.
    pub name: Arc<str>,
    /// Volumes are bound only once the first pod that uses them has a node.
    pub wait_for_first_consumer: bool,
    /// Who makes volumes; absent where they are made by hand (`kubernetes.io/no-provisioner`).
    pub provisioner: Option<Arc<str>>,
    /// Where volumes can be made: any one of these terms; empty means anywhere.
    pub topologies: Vec<Vec<Requirement>>,
    /// The driver says how much room it has where (`CSIDriver.spec.storageCapacity`).
    pub tracks_capacity: bool,
}

/// How much room a driver has in one part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageCapacity {
    /// For which storage class.
    pub class: Arc<str>,
    /// For which nodes; absent means none.
    pub nodes: Option<Selector>,
    /// The largest volume that can be made there.
    pub largest: Bytes,
}

/// What must be done about a pod's claims when it is bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VolumeStep {
    /// Bind this claim to this volume.
    Bind {
        /// The claim.
        claim: ClaimKey,
        /// The volume.
        volume: Arc<str>,
    },
    /// Have a volume made for this claim where the pod runs (the annotation that names the selected node).
    Provision {
        /// The claim.
        claim: ClaimKey,
        /// The node.
        node: NodeName,
    },
}
