//! The way to the API server.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or does not name a cluster.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Neither inside a cluster nor with a kubeconfig.
    #[error("no cluster: neither a kubeconfig (KUBECONFIG, ~/.kube/config) nor a service account was found")]
    Nowhere(#[from] kube::config::InferConfigError),
    /// The client cannot be made of it.
    #[error("no client can be made of the configuration")]
    Client(#[from] kube::Error),
}

/// Connects: with this kubeconfig, else as kubectl would, else as the pod's service account.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_in(kubeconfig, None).await
}

/// Connects in one of the kubeconfig's contexts; without one in its current context.
pub async fn connect_in(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ConnectError> {
    // The TLS library wants one cryptography provider per process; whoever comes second finds it there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = match (kubeconfig, context) {
        (Some(path), _) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
        (None, Some(_)) => Config::from_kubeconfig(&options).await?,
        (None, None) => Config::infer().await?,
    };
    Ok(Client::try_from(config)?)
}
