//! `divvy webhook`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use divvy_api::policy::ClusterPolicy;
use divvy_cluster::policy::follow_policy;
use divvy_webhook::registration::Reach;
use divvy_webhook::serve;
use divvy_webhook::settings::{PlacedBy, Settings};
use tokio::sync::watch;

use crate::flags::{Common, Service};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) webhook: WebhookFlags,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WebhookFlags {
    /// Where the API server's reviews are answered
    #[arg(long, default_value = "0.0.0.0:9443")]
    webhook_listen: SocketAddr,
    /// The Service through which the API server reaches us
    #[arg(long, default_value = "divvy-webhook")]
    webhook_service: String,
    /// The Service's port
    #[arg(long, default_value_t = 443)]
    webhook_service_port: u16,
    /// A URL through which the API server reaches us instead, without a path (`https://127.0.0.1:9443`)
    #[arg(long)]
    webhook_url: Option<String>,
    /// Further names and addresses for the certificate
    #[arg(long = "webhook-name")]
    webhook_names: Vec<String>,
    /// A certificate kept by somebody else (cert-manager's tls.crt); without it we make our own
    #[arg(long, requires = "webhook_key")]
    webhook_certificate: Option<PathBuf>,
    /// Its key (tls.key)
    #[arg(long, requires = "webhook_certificate")]
    webhook_key: Option<PathBuf>,
    /// Have the API server hide all devices from pods that ask for none, whatever their image says (Kubernetes 1.36, and
    /// deploy/blind-plain-pods.yaml)
    #[arg(long)]
    blind_plain_pods: bool,
    /// The name of a kube-scheduler that places pods with our extender's help; without it our own scheduler does
    #[arg(long)]
    kube_scheduler: Option<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut service = args.common.service().await?;
    add(&mut service, &args.common, &args.webhook).await?;
    service.run().await
}

/// Adds the webhook's tasks.
pub(crate) async fn add(service: &mut Service, common: &Common, flags: &WebhookFlags) -> anyhow::Result<()> {
    let settings = settings(service, flags);
    let namespace = &common.namespace;
    let reach = match &flags.webhook_url {
        Some(url) => Reach::Url(url.trim_end_matches('/').to_owned()),
        None => Reach::Service {
            namespace: namespace.clone(),
            name: flags.webhook_service.clone(),
            port: flags.webhook_service_port,
        },
    };
    let service_name = &flags.webhook_service;
    let mut names = vec![
        format!("{service_name}.{namespace}.svc"),
        format!("{service_name}.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    names.extend(flags.webhook_names.iter().cloned());
    let options = serve::Options {
        listen: flags.webhook_listen,
        reach,
        secret: (namespace.clone(), format!("{service_name}-authority")),
        names,
        files: flags.webhook_certificate.clone().zip(flags.webhook_key.clone()),
        blind_plain_pods: flags.blind_plain_pods,
    };
    let address = serve::add(
        &mut service.tasks,
        service.client.clone(),
        options,
        settings,
        &mut service.registry,
        &service.health,
    )
    .await?;
    tracing::info!(%address, "reviews are answered");
    Ok(())
}

/// What admission is told, kept at the policy in force.
fn settings(service: &mut Service, flags: &WebhookFlags) -> watch::Receiver<Arc<Settings>> {
    let placed_by = match &flags.kube_scheduler {
        Some(name) => PlacedBy::KubeScheduler { name: name.clone() },
        None => PlacedBy::Divvy,
    };
    let read = move |policy: &ClusterPolicy| {
        let (dialects, class) = (policy.dialects.clone(), policy.scheduling.class);
        Arc::new(Settings { dialects, class, placed_by: placed_by.clone(), ..Settings::default() })
    };
    let (to, mut policy) = watch::channel(Arc::<ClusterPolicy>::default());
    let (tell, settings) = watch::channel(read(&policy.borrow_and_update()));
    let (client, stop) = (service.client.clone(), service.tasks.stop());
    service.tasks.add("webhook policy", async move {
        let turn = async {
            while policy.changed().await.is_ok() {
                let _ = tell.send(read(&policy.borrow_and_update()));
            }
        };
        tokio::select! {
            () = follow_policy(client, to) => {}
            () = turn => {}
            () = stop.requested() => {}
        }
        Ok(())
    });
    settings
}
