//! `divvy-agent cri-shim`: between kubelet and container runtime, KubeGPU's way. Bytes pass as they are; only `CreateContainer` is
//! looked at, and edited by appending.
//!
//! The shim starts before the kubelet and outlives the agent. It holds no state and decides nothing: what a container gets it asks
//! the agent ([`desk`]); when the agent is away, containers with a grant do not start, and all others do, without a GPU.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use divvy_core::keys;
use divvy_proto::cri::CreateContainerRequest;
use divvy_service::Tasks;
use prost::Message;

use crate::edits::{ContainerEdits, cri};

pub mod desk;
mod proxy;

/// Where the shim stands.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where the kubelet finds the shim (its containerRuntimeEndpoint)
    #[arg(long, env = "DIVVY_SHIM_LISTEN", default_value = "/run/divvy/cri.sock")]
    pub listen: PathBuf,
    /// The container runtime behind it
    #[arg(long, env = "DIVVY_SHIM_UPSTREAM", default_value = "/run/containerd/containerd.sock")]
    pub upstream: PathBuf,
    /// Where the agent answers
    #[arg(long, env = "DIVVY_SHIM_AGENT", default_value = "/run/divvy/desk.sock")]
    pub agent: PathBuf,
    /// Namespaces whose containers are left alone: Divvy's own, and those of the driver's tools
    #[arg(
        long,
        env = "DIVVY_SHIM_EXEMPT",
        value_delimiter = ',',
        default_value = "kube-system,divvy-system,gpu-operator"
    )]
    pub exempt: Vec<String>,
}

/// Runs until told to stop.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut tasks = Tasks::new();
    let stop = tasks.stop();
    if let Some(folder) = args.listen.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot use {}", folder.display()))?;
    }
    tasks.add("proxy", proxy::run(args, stop));
    tasks.run().await
}

/// Why a container is not created.
struct Refused(String);

/// The bytes of the request as the runtime should get them.
async fn edit(args: &Args, mut message: Vec<u8>) -> Result<Vec<u8>, Refused> {
    let request = CreateContainerRequest::decode(message.as_slice())
        .map_err(|e| Refused(format!("Divvy's shim cannot read this CreateContainer: {e}")))?;
    let sandbox = request.sandbox_config.unwrap_or_default();
    let pod = sandbox.metadata.unwrap_or_default();
    let container = request.config.and_then(|c| c.metadata).unwrap_or_default().name;
    if args.exempt.contains(&pod.namespace) {
        return Ok(message);
    }
    let edits = if sandbox.annotations.contains_key(keys::GRANT) {
        desk::ask(&args.agent, &pod.uid, &container, Duration::from_secs(10)).await.map_err(Refused)?
    } else {
        // No grant, no GPU: also where NVIDIA's runtime is the default, and whatever the image says.
        ContainerEdits::closed()
    };
    message.extend(cri::delta(&edits));
    Ok(message)
}
