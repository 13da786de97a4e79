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

/// Do these name the same model? Blanks, dashes, underscores and letter case are alike: drivers, labels and people write `Tesla T4`,
/// `Tesla-T4` and `tesla-t4` for the same card.
pub fn same_model(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim(), b.trim());
    a.len() == b.len() && starts_alike(a.as_bytes(), b.as_bytes())
}

/// Does this occur in a model's name, written in whichever way?
pub fn mentions(model: &str, part: &str) -> bool {
    let (model, part) = (model.as_bytes(), part.trim().as_bytes());
    (0..=model.len().saturating_sub(part.len())).any(|from| starts_alike(&model[from..], part))
}

/// Does this begin in the vendor's name that the vGPU systems write before a model when they register a card (`NVIDIA-Tesla-T4`,
/// `MLU-MLU370-X4`), and go on in the model's own?
pub fn mentions_with_vendor(model: &str, part: &str) -> bool {
    let vendor: &[u8] = if model.starts_with("MLU") { b"MLU-" } else { b"NVIDIA-" };
    let part = part.trim().as_bytes();
    let alike = |from: usize| {
        let (own, rest) = part.split_at(part.len().min(vendor.len() - from));
        starts_alike(&vendor[from..], own) && starts_alike(model.as_bytes(), rest)
    };
    !model.starts_with("NVIDIA") && (0..vendor.len()).any(alike)
}

fn starts_alike(name: &[u8], part: &[u8]) -> bool {
    let letter = |byte: &u8| if matches!(byte, b' ' | b'_') { b'-' } else { byte.to_ascii_lowercase() };
    name.len() >= part.len() && name.iter().zip(part).all(|(a, b)| letter(a) == letter(b))
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

/// Whose balance: a budget's name, with its namespace unless it is the cluster's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountKey {
    /// The namespace; absent for a budget that several namespaces share.
    pub namespace: Option<Namespace>,
    /// The budget's name.
    pub name: Arc<str>,
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_the_same_with_blanks_dashes_and_in_any_case() {
        for name in ["Tesla-T4", "Tesla T4", "tesla t4", "TESLA_T4", " Tesla T4 "] {
            assert!(same_model("Tesla-T4", name) && mentions("Tesla-T4", name), "{name}");
            assert!(same_model(name, "Tesla T4"), "{name}");
        }
        for name in ["TeslaT4", "T4", "Tesla-T40", ""] {
            assert!(!same_model("Tesla-T4", name), "{name}");
        }
        assert!(mentions("NVIDIA-A100-SXM4-40GB", "a100 sxm4"));
        assert!(!mentions("A10", "A100") && !mentions("", "A100"));
    }
}
