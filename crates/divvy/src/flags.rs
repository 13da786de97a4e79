//! Flags every service has.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use divvy_service::tls::Certificate;
use divvy_service::{Health, Tasks, http, telemetry};
use kube::Client;
use prometheus_client::registry::Registry;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Common {
    /// The kubeconfig to use; without it what kubectl would use, or the pod's service account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics are answered
    #[arg(long, default_value = "0.0.0.0:8080")]
    ops_listen: SocketAddr,
    /// The namespace Divvy is installed in
    #[arg(long, env = "DIVVY_NAMESPACE", default_value = "divvy-system")]
    pub(crate) namespace: String,
}

/// A service in the making: its tasks, its health, its metrics.
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) tasks: Tasks,
    pub(crate) health: Health,
    pub(crate) registry: Registry,
    ops_listen: SocketAddr,
}

impl Common {
    /// Starts logging and connects.
    pub(crate) async fn service(&self) -> anyhow::Result<Service> {
        telemetry::init();
        let client = divvy_cluster::client::connect(self.kubeconfig.as_deref()).await.context("could not connect")?;
        Ok(Service {
            client,
            tasks: Tasks::new(),
            health: Health::new(),
            registry: Registry::default(),
            ops_listen: self.ops_listen,
        })
    }
}

impl Service {
    /// The certificate in two files, which is followed when somebody renews it.
    pub(crate) fn certificate(
        &mut self,
        name: &'static str,
        chain: PathBuf,
        key: PathBuf,
    ) -> anyhow::Result<Certificate> {
        let certificate = Certificate::from_files(&chain, &key)?;
        let stop = self.tasks.stop();
        self.tasks.add(name, certificate.clone().follow(chain, key, stop));
        Ok(certificate)
    }

    /// Answers probes and runs until the end.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let listener = http::bind(self.ops_listen)?;
        let routes = divvy_service::health::routes(self.health, Arc::new(self.registry));
        let stop = self.tasks.stop();
        tracing::info!(address = %self.ops_listen, "probes and metrics are answered");
        self.tasks.add("ops", http::serve(listener, routes, None, stop));
        self.tasks.run().await
    }
}

/// Runs a service on its own runtime. Two threads: one decides, one talks.
pub(crate) fn block_on(service: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(service)
}
