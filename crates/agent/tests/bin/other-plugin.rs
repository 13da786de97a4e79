//! Another vendor's device plugin, for tests of what happens beside one: it offers two devices of a resource and gives them to
//! whoever asks.
//!
//! `other-plugin /var/lib/kubelet/device-plugins nvidia.com/gpu`

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context;
use divvy_proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use divvy_proto::deviceplugin::registration_client::RegistrationClient;
use divvy_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest,
};
use futures::{Stream, StreamExt};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

struct Other;

#[tonic::async_trait]
impl DevicePlugin for Other {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let device = |n: u32| Device { id: format!("other-{n}"), health: "Healthy".into() };
        let all = ListAndWatchResponse { devices: (0..2).map(device).collect() };
        Ok(Response::new(Box::pin(futures::stream::iter([Ok(all)]).chain(futures::stream::pending()))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Ok(Response::new(PreferredAllocationResponse::default()))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let answer = |_| ContainerAllocateResponse::default();
        let container_responses = request.into_inner().container_requests.into_iter().map(answer).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().context("the kubelet's folder of device plugins is missing")?);
    let resource = words.next().context("the resource's name is missing")?;
    let own = folder.join("other.sock");
    let _ = std::fs::remove_file(&own);
    let callers = UnixListenerStream::new(UnixListener::bind(&own)?);
    let server = tonic::transport::Server::builder().add_service(DevicePluginServer::new(Other));
    let registration = async {
        let channel = divvy_agent::socket::channel(folder.join("kubelet.sock"), Duration::from_secs(10));
        let request = RegisterRequest {
            version: "v1beta1".into(),
            endpoint: "other.sock".into(),
            resource_name: resource,
            options: Some(DevicePluginOptions::default()),
        };
        RegistrationClient::new(channel).register(request).await.context("the kubelet does not take the registration")
    };
    let serve = async { server.serve_with_incoming(callers).await.context("cannot serve") };
    tokio::try_join!(serve, registration)?;
    Ok(())
}
