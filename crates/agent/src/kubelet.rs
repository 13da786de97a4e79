//! What the kubelet says on this machine: its checkpoint of slots, and the pod-resources API.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_core::id::PodKey;
use divvy_core::keys;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use divvy_proto::podresources::{AllocatableResourcesRequest, ListPodResourcesRequest};
use tonic::transport::Channel;

use crate::identity::{self, Entry, Listed};
use crate::socket;

/// Answers on the same machine come in milliseconds or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// The list grows with the pods of a node; tonic's own limit is 4 MiB.
const LARGEST: usize = 16 << 20;

/// The kubelet of this node.
#[derive(Clone)]
pub struct Kubelet {
    checkpoint: PathBuf,
    lister: PodResourcesListerClient<Channel>,
}

impl Kubelet {
    /// The kubelet with its device plugins in `plugins` and its pod-resources API at `socket`. Connects when first asked.
    pub fn new(plugins: &Path, socket: &Path) -> Kubelet {
        let lister = PodResourcesListerClient::new(socket::channel(socket.to_owned(), PATIENCE))
            .max_decoding_message_size(LARGEST);
        Kubelet { checkpoint: plugins.join("kubelet_internal_checkpoint"), lister }
    }

    /// Who holds which slots by the checkpoint; `None` where it cannot be read.
    pub fn checkpoint(&self) -> Option<Vec<Entry>> {
        let text = std::fs::read_to_string(&self.checkpoint).ok()?;
        identity::read_checkpoint(&text, keys::SLOT)
    }

    /// Who holds which slots by the API.
    pub async fn listed(&self) -> Result<Vec<Listed>, tonic::Status> {
        let reply = self.lister.clone().list(ListPodResourcesRequest {}).await?.into_inner();
        let mut listed = Vec::new();
        for pod in reply.pod_resources {
            for container in pod.containers {
                let ours = container.devices.into_iter().filter(|d| d.resource_name == keys::SLOT);
                let ids: BTreeSet<String> = ours.flat_map(|d| d.device_ids).collect();
                if !ids.is_empty() {
                    let pod = PodKey::new(pod.namespace.as_str(), pod.name.as_str());
                    listed.push(Listed { pod, container: container.name.into(), ids });
                }
            }
        }
        Ok(listed)
    }

    /// Every resource that some device plugin offers on this node.
    pub async fn plugin_resources(&self) -> Result<BTreeSet<String>, tonic::Status> {
        let reply = self.lister.clone().get_allocatable_resources(AllocatableResourcesRequest {}).await?.into_inner();
        Ok(reply.devices.into_iter().map(|d| d.resource_name).collect())
    }
}
