//! What a pod holds. Written once, as an annotation of the Binding itself, so that the node's name and the grant arrive in one write.

mod held;

use serde::{Deserialize, Serialize};

use crate::model::ask::Role;
use crate::model::device::{DeviceKind, Isolation};
use crate::model::id::{ClaimUid, ContainerName, DeviceId};
use crate::model::units::{Bytes, Share};

pub use held::{Admitted, Held, admission, held, resized, wished};

/// Everything a pod was granted on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Layout version of the annotation.
    pub v: u32,
    /// When it was decided, in milliseconds since the epoch. Among grants that contradict each other a node takes the one it saw
    /// first; this breaks ties after a restart.
    pub at: u64,
    /// The policy that decided.
    pub policy: String,
    /// Per container, in the ask's order.
    pub containers: Vec<ContainerGrant>,
    /// The DRA claim behind it. Unused for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimUid>,
}

impl Grant {
    /// The layout this code writes.
    pub const VERSION: u32 = 1;
}

/// What one container holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerGrant {
    /// The container's name.
    pub name: ContainerName,
    /// When it runs.
    #[serde(default)]
    pub role: Role,
    /// Its slices, in the order in which the container sees the devices.
    pub slices: Vec<Slice>,
}

/// A part of one device, in absolute amounts: no percentages and no units of somebody's node are left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// The device.
    pub device: DeviceId,
    /// Its kind.
    #[serde(default)]
    pub kind: DeviceKind,
    /// Memory that is booked and guaranteed.
    pub memory: Bytes,
    /// Memory the container may use. At least `memory`.
    pub memory_limit: Bytes,
    /// Time that is booked and guaranteed.
    pub share: Share,
    /// Time the container may use when others are idle. At least `share`.
    pub share_limit: Share,
    /// Nobody else on the device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// What holds the container to this.
    pub isolation: Isolation,
    /// A hardware partition to make or use, in the vendor's words (`1g.18gb@4`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

impl Slice {
    /// Nothing holds the container to its part of a card that others may use too. No such slice is granted; earlier versions granted
    /// them. A NIC has no parts: everybody who holds it may use all of it.
    pub fn is_unprotected(&self) -> bool {
        self.isolation == Isolation::None && !self.exclusive && self.kind != DeviceKind::Nic
    }

    /// Are its amounts its own to choose? A device that is held alone, a hardware partition and a NIC are as large as they are.
    pub fn is_resizable(&self) -> bool {
        !self.exclusive && self.partition.is_none() && self.kind != DeviceKind::Nic
    }

    /// Nothing else may be booked on the device. An unprotected slice takes no further company, whatever its grant says.
    pub fn is_alone(&self) -> bool {
        self.exclusive || self.is_unprotected()
    }
}

impl Grant {
    /// What is wrong with a grant that can be read: no container starts by such a one, though it counts.
    pub fn check(&self) -> Result<(), String> {
        if self.v > Grant::VERSION {
            return Err(format!("has version {}, and this program knows up to {}", self.v, Grant::VERSION));
        }
        for container in &self.containers {
            for slice in &container.slices {
                if slice.memory > slice.memory_limit || slice.share > slice.share_limit {
                    return Err(format!("books more on {} for {} than it allows to use", slice.device, container.name));
                }
            }
        }
        Ok(())
    }

    /// The slices that nothing holds to their part of a shared card, with their containers.
    pub fn unprotected(&self) -> impl Iterator<Item = (&ContainerName, &Slice)> {
        let slices = self.containers.iter().flat_map(|c| c.slices.iter().map(move |slice| (&c.name, slice)));
        slices.filter(|(_, slice)| slice.is_unprotected())
    }
}
