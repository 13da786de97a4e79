use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use divvy_core::keys;
use divvy_proto::cri::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, PodSandboxConfig, PodSandboxMetadata,
};
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use divvy_proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use divvy_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use divvy_service::Tasks;
use futures::{Stream, StreamExt};
use prost::Message;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;

use super::*;
use crate::socket;

/// A service with unary calls, large messages and streams, to stand for a runtime.
struct Echo;

#[tonic::async_trait]
impl DevicePlugin for Echo {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: tonic::Request<Empty>,
    ) -> Result<tonic::Response<DevicePluginOptions>, Status> {
        Err(Status::not_found("nothing here, 100 % certain"))
    }

    async fn list_and_watch(
        &self,
        _: tonic::Request<Empty>,
    ) -> Result<tonic::Response<Self::ListAndWatchStream>, Status> {
        let ticks = tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(Duration::from_millis(5)));
        Ok(tonic::Response::new(Box::pin(ticks.map(|_| Ok(ListAndWatchResponse::default())))))
    }

    async fn get_preferred_allocation(
        &self,
        _: tonic::Request<PreferredAllocationRequest>,
    ) -> Result<tonic::Response<PreferredAllocationResponse>, Status> {
        Ok(tonic::Response::new(PreferredAllocationResponse::default()))
    }

    async fn allocate(
        &self,
        request: tonic::Request<AllocateRequest>,
    ) -> Result<tonic::Response<AllocateResponse>, Status> {
        let length = request.get_ref().container_requests[0].devices_ids[0].len();
        let mut response = AllocateResponse::default();
        response.container_responses.resize_with(1, Default::default);
        response.container_responses[0].envs.insert("length".into(), "x".repeat(length));
        Ok(tonic::Response::new(response))
    }

    async fn pre_start_container(
        &self,
        _: tonic::Request<PreStartContainerRequest>,
    ) -> Result<tonic::Response<PreStartContainerResponse>, Status> {
        Ok(tonic::Response::new(PreStartContainerResponse {}))
    }
}

fn args(dir: &Path) -> Args {
    Args {
        listen: dir.join("shim.sock"),
        upstream: dir.join("runtime.sock"),
        agent: dir.join("desk.sock"),
        exempt: vec!["kube-system".into()],
    }
}

fn runtime(path: &Path) -> tokio::task::JoinHandle<()> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        tonic::transport::Server::builder()
            .add_service(DevicePluginServer::new(Echo).max_decoding_message_size(LARGEST))
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await
            .unwrap();
    })
}

#[tokio::test]
async fn calls_streams_errors_and_large_messages_pass_and_a_restarted_runtime_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let args = args(dir.path());
    let tasks = Tasks::new();
    let shim = tokio::spawn(run(args.clone(), tasks.stop()));
    let channel = socket::channel(args.listen.clone(), Duration::from_secs(20));
    let mut client =
        DevicePluginClient::new(channel).max_decoding_message_size(LARGEST).max_encoding_message_size(LARGEST);
    while !args.listen.exists() {
        tokio::task::yield_now().await;
    }
    let away = client.pre_start_container(PreStartContainerRequest::default()).await.unwrap_err();
    assert_eq!(away.code(), tonic::Code::Unavailable, "{away}");
    for _ in 0..2 {
        let server = runtime(&args.upstream);
        let refused = client.get_device_plugin_options(Empty {}).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (tonic::Code::NotFound, "nothing here, 100 % certain"));
        let large = ContainerAllocateRequest { devices_ids: vec!["x".repeat(15 << 20)] };
        let reply = client.allocate(AllocateRequest { container_requests: vec![large] }).await.unwrap().into_inner();
        assert_eq!(reply.container_responses[0].envs["length"].len(), 15 << 20);
        let mut stream = client.list_and_watch(Empty {}).await.unwrap().into_inner();
        for _ in 0..3 {
            stream.message().await.unwrap().unwrap();
        }
        server.abort();
        let _ = server.await;
        drop(stream);
    }
    shim.abort();
}

fn create(namespace: &str, granted: bool) -> CreateContainerRequest {
    let annotations = if granted { HashMap::from([(keys::GRANT.to_owned(), "{}".to_owned())]) } else { HashMap::new() };
    CreateContainerRequest {
        pod_sandbox_id: "s".into(),
        config: Some(ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".into(), attempt: 0 }),
            ..ContainerConfig::default()
        }),
        sandbox_config: Some(PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "p".into(),
                uid: "u".into(),
                namespace: namespace.into(),
                attempt: 0,
            }),
            annotations,
            ..PodSandboxConfig::default()
        }),
    }
}

#[tokio::test]
async fn without_a_grant_a_container_sees_no_gpu_and_with_one_it_waits_for_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let args = args(dir.path());
    let edited = |request: CreateContainerRequest| {
        let args = args.clone();
        async move { edit(&args, request.encode_to_vec()).await.map_err(|Refused(why)| why) }
    };
    let plain = edited(create("default", false)).await.unwrap();
    let config = CreateContainerRequest::decode(plain.as_slice()).unwrap().config.unwrap();
    assert_eq!(config.envs[0].value, b"void");
    let system = create("kube-system", false);
    assert_eq!(edited(system.clone()).await.unwrap(), system.encode_to_vec());
    let away = edited(create("default", true)).await.unwrap_err();
    assert!(away.contains("agent does not answer"), "{away}");
}

#[test]
fn messages_survive_headers() {
    assert_eq!(percent("naïve 100 %\n"), "na%C3%AFve 100 %25%0A");
}
