//! Names and identities. Each is its own type, so that a device id cannot be passed where a pod's uid is meant.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

text_id! {
    /// A pod's uid: the only identity of a pod that outlives its name.
    PodUid;
    /// A node's name.
    NodeName;
    /// A namespace's name.
    Namespace;
    /// A device's identity across restarts and renumbering: for a GPU its UUID (`GPU-...` or `MIG-...`).
    DeviceId;
    /// A device's model as discovery reports it, spaces turned into dashes (`NVIDIA-H200`).
    Model;
    /// A container's name within its pod.
    ContainerName;
    /// The uid of a ResourceClaim. Carried by asks and grants for DRA; nothing reads it yet.
    ClaimUid;
}

/// A pod's name within its cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// The pod's namespace.
    pub namespace: Namespace,
    /// The pod's name.
    pub name: Arc<str>,
}

impl PodKey {
    /// The key of pod `name` in `namespace`.
    pub fn new(namespace: impl Into<Namespace>, name: impl Into<Arc<str>>) -> PodKey {
        PodKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A gang's name within its namespace: gangs of two namespaces never meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangKey {
    /// The members' namespace.
    pub namespace: Namespace,
    /// The gang's name.
    pub name: Arc<str>,
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
