//! The kubelet's device plugin. The kubelet counts one resource of ours; its ids mean nothing by themselves.
//!
//! `Allocate` hands out a CDI name per id and no device: it is not told for whom it is asked. `PreStartContainer` comes right
//! before each start and restart; the ids then say who is about to start ([`crate::identity`]), the node decides
//! ([`Node::prepare`]), and the spec behind the name is written. Without an agent, a grant or a fit there is no start.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;

use divvy_core::id::{ContainerName, PodUid};
use divvy_proto::deviceplugin::device_plugin_server::DevicePlugin;
use divvy_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse, ContainerPreferredAllocationResponse,
    Device, DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};
use divvy_service::health::Condition;
use futures::Stream;
use tonic::{Request, Response, Status};

use crate::edits::{NO_DEVICES, VISIBLE_DEVICES, cdi};
use crate::events::Events;
use crate::identity::{self, Owner};
use crate::kubelet::Kubelet;
use crate::node::{No, Node};
use crate::nonsense::Nonsense;
use crate::patches::{Change, Patches};
use crate::runtime::Runtime;

pub mod serve;
pub mod slots;

use slots::Slots;

/// How edits reach the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Carrier {
    /// By CDI specs, written in PreStartContainer.
    Cdi,
    /// By the CRI shim between kubelet and runtime.
    CriShim,
}

/// What answers the kubelet.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) node: Arc<Node>,
    pub(crate) kubelet: Kubelet,
    pub(crate) runtime: Runtime,
    pub(crate) events: Events,
    pub(crate) patches: Patches,
    pub(crate) slots: Slots,
    pub(crate) carrier: Carrier,
    pub(crate) nonsense: Nonsense,
    /// The kubelet follows the list of slots.
    pub(crate) listened: Condition,
}

impl Plugin {
    /// What we tell the kubelet about ourselves.
    pub(crate) fn options(&self) -> DevicePluginOptions {
        DevicePluginOptions {
            pre_start_required: self.carrier == Carrier::Cdi,
            get_preferred_allocation_available: true,
        }
    }

    /// Who is about to start with these ids.
    async fn identify(&self, ids: &BTreeSet<String>) -> Result<(PodUid, ContainerName), Status> {
        let owner = match self.kubelet.checkpoint() {
            Some(entries) => identity::owner(ids, Some(&entries), &[]),
            None => identity::owner(ids, None, &self.kubelet.listed().await?),
        };
        let owner = owner.map_err(|e| Status::failed_precondition(e.to_string()))?;
        let patience = std::time::Duration::from_secs(2);
        let pod = match &owner {
            Owner::Exact(uid, _) => self.node.pods.wait(patience, |pods| pods.get(uid)).await,
            Owner::Named(key, _) => self.node.pods.wait(patience, |pods| pods.named(key)).await,
        };
        let pod = pod.ok_or_else(|| Status::unavailable("the pod is not known to this node's agent yet"))?;
        let candidates = match &owner {
            Owner::Exact(_, names) | Owner::Named(_, names) => names,
        };
        let has_init = pod.members.iter().any(|m| m.role == divvy_core::ask::Role::Init && m.slots > 0);
        let is_plain = !has_init && candidates.len() == 1;
        let seen = if is_plain {
            pod.seen.clone()
        } else {
            // The runtime knows first; the API server's word is what is left without it.
            self.runtime.seen(&pod.uid, &pod.members).await.unwrap_or_else(|_| pod.seen.clone())
        };
        let name = identity::which(&owner, &pod.members, ids.len(), &seen)
            .map_err(|e| Status::failed_precondition(format!("{}: {e}", pod.pod)))?;
        Ok((pod.uid.clone(), name))
    }

    async fn pre_start(&self, ids: BTreeSet<String>) -> Result<(), Status> {
        let known = self.identify(&ids).await;
        let (uid, container) = known.inspect_err(|status| {
            tracing::warn!(?ids, reason = status.message(), "nobody knows yet who is about to start");
        })?;
        let slots: Vec<String> = ids.into_iter().collect();
        let edits = match self.node.prepare(&uid, &container, &slots).await {
            Ok(edits) => edits,
            Err(no) => {
                if let (No::Refused(..), Some(pod)) = (&no, self.node.pods.get(&uid)) {
                    self.events.refused(&pod, &no.to_string());
                }
                tracing::warn!(%uid, %container, reason = %no, "a container may not start");
                return Err(Status::failed_precondition(no.to_string()));
            }
        };
        let (node, owner) = (self.node.clone(), uid.clone());
        let written = tokio::task::spawn_blocking(move || node.write_specs(&owner, &slots, &edits)).await;
        written
            .map_err(|e| Status::internal(format!("writing the CDI spec panicked: {e}")))?
            .map_err(|e| Status::internal(format!("cannot write the CDI spec: {e}")))?;
        tracing::info!(%uid, %container, "a container may start");
        if let Some((pod, annotations)) = self.node.started(&uid) {
            self.patches.change(&pod.pod, &uid, Change::Annotations(annotations));
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(self.options()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let updates = self.slots.subscribe();
        let this = self.clone();
        let stream = futures::stream::unfold((updates, true), move |(mut updates, first)| {
            let this = this.clone();
            async move {
                if !first {
                    // Asked for the next: the last was taken.
                    this.listened.set(true);
                    updates.changed().await.ok()?;
                }
                let as_device = |slot: &slots::Slot| Device {
                    id: slot.id.clone(),
                    health: if slot.healthy { "Healthy" } else { "Unhealthy" }.into(),
                };
                let reply =
                    ListAndWatchResponse { devices: updates.borrow_and_update().iter().map(as_device).collect() };
                Some((Ok(reply), (updates, false)))
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    /// Any id will do; those that a container on its way out still goes by come last.
    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let leaving = self.slots.leaving();
        let choose = |r: divvy_proto::deviceplugin::ContainerPreferredAllocationRequest| {
            let size = usize::try_from(r.allocation_size).unwrap_or(0);
            let chosen = slots::prefer(&r.available_device_ids, &r.must_include_device_ids, size, &leaving);
            ContainerPreferredAllocationResponse { device_ids: chosen }
        };
        let container_responses = request.into_inner().container_requests.into_iter().map(choose).collect();
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let answer = |ids: Vec<String>| ContainerAllocateResponse {
            envs: HashMap::from([(VISIBLE_DEVICES.to_owned(), NO_DEVICES.to_owned())]),
            annotations: HashMap::new(),
            cdi_devices: match self.carrier {
                Carrier::Cdi => ids.iter().map(|id| CdiDevice { name: cdi::name(id) }).collect(),
                Carrier::CriShim => Vec::new(),
            },
        };
        let requests = request.into_inner().container_requests;
        let container_responses = requests.into_iter().map(|r| answer(r.devices_ids)).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.pre_start(request.into_inner().devices_ids.into_iter().collect()).await?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
