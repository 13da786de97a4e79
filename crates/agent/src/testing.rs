//! Small values for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use divvy_core::ask::Role;
use divvy_core::device::{DeviceKind, Isolation, MemoryUnit};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::id::{DeviceId, PodKey};
use divvy_core::units::{Bytes, Share};

use crate::device::Settings;
use crate::home::Home;
use crate::identity::Seen;
use crate::inventory::{Advertise, Style};
use crate::node::Node;
use crate::pods::{PodView, Pods};

pub(crate) fn slice(device: &DeviceId, memory: Bytes, share: u32) -> Slice {
    Slice {
        device: device.clone(),
        kind: DeviceKind::Gpu,
        memory,
        memory_limit: memory,
        share: Share(share),
        share_limit: Share(share.max(1)),
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    }
}

pub(crate) fn container(name: &str, role: Role, slices: Vec<Slice>) -> ContainerGrant {
    ContainerGrant { name: name.into(), role, slices }
}

pub(crate) fn grant(containers: Vec<ContainerGrant>) -> Grant {
    Grant { v: Grant::VERSION, at: 0, policy: "frag".into(), containers, claim: None }
}

pub(crate) fn settings() -> Settings {
    Settings {
        nvml: None,
        host_root: "/".into(),
        driver_root: "/".into(),
        fake_driver: None,
        fake_state: None,
        gpus: None,
        cnmon: PathBuf::from("/nonexistent/cnmon"),
        cambricon_dev: "/dev".into(),
        rdma: PathBuf::from("/nonexistent/infiniband"),
        providers: Vec::new(),
    }
}

pub(crate) fn pod() -> PodView {
    PodView {
        pod: PodKey::new("default", "pod"),
        uid: "0f3b1c7e-1111-4222-8333-444455556666".into(),
        ended: false,
        running: false,
        members: Vec::new(),
        grant: None,
        change: None,
        ask: None,
        seen: Seen::default(),
        devices_bad: None,
        manifest: Arc::default(),
    }
}

/// A node in a folder, without devices.
pub(crate) fn node(dir: &Path) -> Arc<Node> {
    let home = Home::open(&dir.join("run")).unwrap();
    let style =
        Style { advertise: Advertise::Native, memory_unit: MemoryUnit::GiB, slots_per_device: 1, context: Bytes::ZERO };
    let node = Node::new("n".into(), style, Pods::default(), Vec::new(), home, None, dir.join("cdi")).unwrap();
    node.offer_if_silent();
    Arc::new(node)
}
