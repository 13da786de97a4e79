//! Serving and registering, again after each restart of the kubelet: it empties the folder and makes its socket anew.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use divvy_core::keys;
use divvy_proto::deviceplugin::RegisterRequest;
use divvy_proto::deviceplugin::device_plugin_server::DevicePluginServer;
use divvy_proto::deviceplugin::registration_client::RegistrationClient;
use divvy_service::Stop;
use tokio::net::UnixListener;

use super::Plugin;
use crate::nonsense::Socket;
use crate::socket;

/// The version of the interface.
const VERSION: &str = "v1beta1";
/// Our socket's name in the kubelet's folder.
const ENDPOINT: &str = "divvy.sock";
/// How often we look whether the kubelet was restarted. A look is two calls to stat.
const LOOK: Duration = Duration::from_millis(500);

/// Serves until asked to stop.
pub async fn run(plugin: Plugin, plugins: PathBuf, stop: Stop) -> anyhow::Result<()> {
    while !stop.is_requested() {
        let own = plugins.join(ENDPOINT);
        let kubelet = plugins.join("kubelet.sock");
        tokio::select! {
            served = serve_once(&plugin, &own, &kubelet) => served?,
            () = stop.requested() => {}
        }
    }
    Ok(())
}

/// Serves until the kubelet was restarted.
async fn serve_once(plugin: &Plugin, own: &Path, kubelet: &Path) -> anyhow::Result<()> {
    // The kubelet's folder comes with the kubelet; until then there is nothing to do.
    while !kubelet.exists() {
        tokio::time::sleep(LOOK).await;
    }
    let _ = std::fs::remove_file(own);
    let listener = UnixListener::bind(own).with_context(|| format!("could not listen on {}", own.display()))?;
    let (ours, theirs) = (inode(own), inode(kubelet));
    let replaced = async {
        while inode(own) == ours && inode(kubelet) == theirs {
            tokio::time::sleep(LOOK).await;
        }
    };
    let callers = socket::http2(listener, plugin.nonsense.clone(), Socket::Plugin);
    let server = tonic::transport::Server::builder()
        .add_service(DevicePluginServer::new(plugin.clone()))
        .serve_with_incoming_shutdown(callers, replaced);
    let registration = async {
        let mut refused = 0u32;
        while let Err(error) = register(plugin, kubelet).await {
            // Said once: a kubelet that is starting refuses for seconds, a stopped one for hours.
            if refused == 0 {
                tracing::warn!(%error, "the kubelet does not take our registration yet; trying until it does");
            }
            refused += 1;
            tokio::time::sleep(LOOK * refused.min(4)).await;
        }
        tracing::info!(resource = keys::SLOT, "registered with the kubelet");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = server => {
            served.context("the device plugin's server failed")?;
            tracing::info!("the kubelet was restarted");
            plugin.listened.set(false);
            Ok(())
        }
        () = registration => Ok(()),
    }
}

async fn register(plugin: &Plugin, kubelet: &Path) -> Result<(), tonic::Status> {
    let mut client = RegistrationClient::new(socket::channel(kubelet.to_owned(), Duration::from_secs(10)));
    let request = RegisterRequest {
        version: VERSION.into(),
        endpoint: ENDPOINT.into(),
        resource_name: keys::SLOT.into(),
        options: Some(plugin.options()),
    };
    client.register(request).await?;
    Ok(())
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|m| m.ino())
}
