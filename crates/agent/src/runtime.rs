//! What the container runtime says: which containers run, and what has run in a pod's sandbox.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use divvy_core::ask::Role;
use divvy_core::id::{ContainerName, PodUid};
use divvy_core::keys;
use divvy_proto::cri::runtime_service_client::RuntimeServiceClient;
use divvy_proto::cri::{
    Container, ContainerFilter, ContainerState, ContainerStateValue, ContainerStatusRequest, ListContainersRequest,
    ListPodSandboxRequest, PodSandboxFilter, PodSandboxState,
};
use tonic::transport::Channel;

use crate::identity::{Member, Seen};
use crate::socket;

const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: usize = 16 << 20;

/// Containers that run, by pod.
pub type Running = BTreeMap<PodUid, BTreeSet<ContainerName>>;

/// The runtime behind a CRI socket.
#[derive(Clone)]
pub struct Runtime {
    client: RuntimeServiceClient<Channel>,
}

impl Runtime {
    /// The runtime at `socket`. Connects when first asked.
    pub fn new(socket: &Path) -> Runtime {
        let client = RuntimeServiceClient::new(socket::channel(socket.to_owned(), PATIENCE));
        Runtime { client: client.max_decoding_message_size(LARGEST) }
    }

    /// All containers that run, or are made and about to.
    pub async fn running(&self) -> Result<Running, tonic::Status> {
        let reply = self.client.clone().list_containers(ListContainersRequest { filter: None }).await?.into_inner();
        let mut running = Running::new();
        for container in reply.containers {
            if matches!(container.state(), ContainerState::ContainerExited) {
                continue;
            }
            if let (Some(uid), Some(name)) =
                (container.labels.get(keys::CRI_POD_UID), container.labels.get(keys::CRI_CONTAINER_NAME))
            {
                running.entry(uid.as_str().into()).or_default().insert(name.as_str().into());
            }
        }
        Ok(running)
    }

    /// Containers that run, by the runtime's id: pod and container name.
    pub async fn by_id(&self) -> Result<HashMap<String, (PodUid, ContainerName)>, tonic::Status> {
        let state = Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() });
        let filter = Some(ContainerFilter { state, ..ContainerFilter::default() });
        let reply = self.client.clone().list_containers(ListContainersRequest { filter }).await?.into_inner();
        let named = |c: Container| {
            let uid = c.labels.get(keys::CRI_POD_UID)?.as_str().into();
            let name = c.labels.get(keys::CRI_CONTAINER_NAME)?.as_str().into();
            Some((c.id, (uid, name)))
        };
        Ok(reply.containers.into_iter().filter_map(named).collect())
    }

    /// What has run in the pod's current sandbox.
    pub async fn seen(&self, pod: &PodUid, members: &[Member]) -> Result<Seen, tonic::Status> {
        let selector = HashMap::from([(keys::CRI_POD_UID.to_owned(), pod.to_string())]);
        let mut client = self.client.clone();
        let filter = Some(PodSandboxFilter { label_selector: selector.clone(), ..PodSandboxFilter::default() });
        let sandboxes = client.list_pod_sandbox(ListPodSandboxRequest { filter }).await?.into_inner().items;
        let ready = sandboxes.iter().filter(|s| matches!(s.state(), PodSandboxState::SandboxReady));
        // After a lost sandbox the kubelet makes a new one and runs the init containers again.
        let Some(current) = ready.max_by_key(|s| s.created_at) else { return Ok(Seen::default()) };
        let filter = Some(ContainerFilter {
            pod_sandbox_id: current.id.clone(),
            label_selector: selector,
            ..ContainerFilter::default()
        });
        let containers = client.list_containers(ListContainersRequest { filter }).await?.into_inner().containers;
        let mut seen = Seen::default();
        for container in containers {
            let Some(name) = container.labels.get(keys::CRI_CONTAINER_NAME) else { continue };
            let Some(member) = members.iter().find(|m| m.name.as_str() == name) else { continue };
            match member.role {
                Role::Main => seen.main_made = true,
                Role::Init if matches!(container.state(), ContainerState::ContainerExited) => {
                    let request = ContainerStatusRequest { container_id: container.id, verbose: false };
                    let status = client.container_status(request).await?.into_inner().status;
                    if status.is_some_and(|s| s.exit_code == 0) {
                        seen.done.insert(member.name.clone());
                    }
                }
                Role::Init | Role::Sidecar => {}
            }
        }
        Ok(seen)
    }
}
