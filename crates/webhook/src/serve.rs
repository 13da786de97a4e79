//! The webhook as a set of supervised tasks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use divvy_api::budget::{BudgetObject, ClusterBudgetObject, QuotaObject};
use divvy_api::wire::NamespaceObject;
use divvy_cluster::watch::{Seen, follow};
use divvy_dialects::DialectConfig;
use divvy_service::health::Condition;
use divvy_service::tls::Certificate;
use divvy_service::{Health, Stop, Tasks, http};
use jiff::Timestamp;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};

use crate::certificate::{Authority, shared_authority};
use crate::registration::{Reach, blind_plain_pods, register};
use crate::routes::{Admission, Metrics, Namespaces, routes};
use crate::settings::Settings;
use crate::standing::Standings;

/// How often certificates are looked at and the registration is put right.
const UPKEEP: Duration = Duration::from_secs(15);

/// What the webhook is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the API server reaches it.
    pub reach: Reach,
    /// The namespace and name of the Secret that holds the authority.
    pub secret: (String, String),
    /// Names and addresses in the certificate.
    pub names: Vec<String>,
    /// A certificate and key kept by somebody else (cert-manager); none makes our own.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Keep the names of resources up to date by which the API server tells pods that ask for nothing.
    pub blind_plain_pods: bool,
}

/// Adds the webhook's tasks. The socket is open when this returns.
pub async fn add(
    tasks: &mut Tasks,
    client: Client,
    options: Options,
    settings: watch::Receiver<Arc<Settings>>,
    registry: &mut Registry,
    health: &Health,
) -> anyhow::Result<SocketAddr> {
    let listener = http::bind(options.listen)?;
    let address = listener.local_addr().context("the socket has no address")?;
    let registered = health.condition("webhook registered");
    let (namespaces, standings) = (Namespaces::default(), Standings::default());
    let admission = Admission {
        settings: settings.clone(),
        namespaces: namespaces.clone(),
        standings: standings.clone(),
        metrics: Metrics::register(registry),
    };
    let stop = tasks.stop();

    let (certificate, keeper) = match &options.files {
        Some((chain, key)) => {
            let files = Files::read(chain, key)?;
            (Certificate::from_pem(&files.chain, &files.key)?, Keeper::Files(files))
        }
        None => {
            let (namespace, name) = &options.secret;
            let authority = shared_authority(&client, namespace, name, Timestamp::now()).await?;
            let leaf = authority.leaf(&options.names, Timestamp::now())?;
            let certificate = Certificate::from_pem(leaf.chain.as_bytes(), leaf.key.as_bytes())?;
            (certificate, Keeper::Own { authority, renew_at: leaf.renew_at })
        }
    };
    tasks.add("webhook", http::serve(listener, routes(admission), Some(certificate.clone()), stop.clone()));
    tasks.add("namespaces", watch_namespaces(client.clone(), namespaces, stop.clone()));
    tasks.add("standings", watch_standings(client.clone(), standings, stop.clone()));
    tasks.add("webhook upkeep", upkeep(client, options, settings, certificate, keeper, registered, stop));
    Ok(address)
}

/// Who keeps the certificate.
enum Keeper {
    /// We do.
    Own { authority: Authority, renew_at: Timestamp },
    /// Somebody else does, in files that had this in them.
    Files(Files),
}

/// What was in the files of a certificate and its key.
#[derive(PartialEq, Eq)]
struct Files {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(chain: &Path, key: &Path) -> anyhow::Result<Files> {
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("could not read {}", path.display()));
        Ok(Files { chain: read(chain)?, key: read(key)? })
    }
}

async fn upkeep(
    client: Client,
    options: Options,
    mut settings: watch::Receiver<Arc<Settings>>,
    certificate: Certificate,
    mut keeper: Keeper,
    registered: Condition,
    stop: Stop,
) -> anyhow::Result<()> {
    loop {
        let dialects: DialectConfig = settings.borrow_and_update().dialects.clone();
        let bundle = match &mut keeper {
            Keeper::Own { authority, renew_at } => {
                if let Err(error) = renew(&client, &options, &certificate, authority, renew_at).await {
                    tracing::error!(error = format!("{error:#}"), "cannot renew the certificate");
                }
                authority.bundle()
            }
            Keeper::Files(shown) => {
                if let Err(error) = reload(&certificate, &options, shown) {
                    tracing::warn!(error = format!("{error:#}"), "the new certificate cannot be used yet");
                }
                String::new()
            }
        };
        match register(&client, &options.reach, &bundle, &dialects).await {
            Ok(()) => registered.set(true),
            Err(failure) => tracing::error!(
                %failure,
                "cannot register the webhook; its two configurations named divvy are made by the chart or deploy/webhook.yaml"
            ),
        }
        if options.blind_plain_pods
            && let Err(failure) = blind_plain_pods(&client, &options.secret.0, &dialects).await
        {
            tracing::error!(%failure, "which pods ask for nothing is not up to date: --blind-plain-pods takes deploy/blind-plain-pods.yaml");
        }
        tokio::select! {
            () = stop.requested() => return Ok(()),
            () = tokio::time::sleep(UPKEEP) => {}
            Ok(()) = settings.changed() => {}
        }
    }
}

/// Follows the shared authority, and makes a new leaf when it is time or the authority changed.
async fn renew(
    client: &Client,
    options: &Options,
    certificate: &Certificate,
    authority: &mut Authority,
    renew_at: &mut Timestamp,
) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let (namespace, name) = &options.secret;
    let current = shared_authority(client, namespace, name, now).await?;
    if current == *authority && now < *renew_at {
        return Ok(());
    }
    let leaf = current.leaf(&options.names, now)?;
    certificate.replace(leaf.chain.as_bytes(), leaf.key.as_bytes())?;
    tracing::info!(renew_at = %leaf.renew_at, "a new certificate is shown");
    (*authority, *renew_at) = (current, leaf.renew_at);
    Ok(())
}

/// Shows the files' certificate when they changed. A half-written pair is refused by its mismatch and read again next time.
fn reload(certificate: &Certificate, options: &Options, shown: &mut Files) -> anyhow::Result<()> {
    let Some((chain, key)) = &options.files else { return Ok(()) };
    let found = Files::read(chain, key)?;
    if found != *shown {
        certificate.replace(&found.chain, &found.key)?;
        *shown = found;
        tracing::info!("the certificate was read again");
    }
    Ok(())
}

async fn watch_namespaces(client: Client, namespaces: Namespaces, stop: Stop) -> anyhow::Result<()> {
    let (to, mut from) = mpsc::channel::<()>(1);
    let (_never, relist) = watch::channel(0);
    let turn = move |seen: Seen<NamespaceObject>| {
        match seen {
            Seen::Applied(object) => namespaces.put(&object.metadata.name, &object.metadata.labels),
            Seen::Gone(gone) => namespaces.remove(&gone.name),
            Seen::Complete(_) => {}
        }
        None
    };
    tokio::select! {
        () = follow(client, to, relist, turn) => Ok(()),
        _ = from.recv() => Ok(()),
        () = stop.requested() => Ok(()),
    }
}

/// Keeps how namespaces stand with their budgets and quotas.
async fn watch_standings(client: Client, standings: Standings, stop: Stop) -> anyhow::Result<()> {
    let (to, mut from) = mpsc::channel::<()>(1);
    let (_never, relist) = watch::channel(0);
    let (own, pooled, quotas) = (standings.clone(), standings.clone(), standings);
    let budgets = move |seen: Seen<BudgetObject>| {
        match seen {
            Seen::Applied(object) => own.budget(object),
            Seen::Gone(gone) => own.budget_gone(gone.namespace, gone.name),
            Seen::Complete(_) => {}
        }
        None
    };
    let clusters = move |seen: Seen<ClusterBudgetObject>| {
        match seen {
            Seen::Applied(object) => pooled.cluster(object),
            Seen::Gone(gone) => pooled.cluster_gone(&gone.name),
            Seen::Complete(_) => {}
        }
        None
    };
    let quotas = move |seen: Seen<QuotaObject>| {
        match seen {
            Seen::Applied(object) => quotas.quota(object),
            Seen::Gone(gone) => quotas.quota_gone(gone.namespace, gone.name),
            Seen::Complete(_) => {}
        }
        None
    };
    tokio::select! {
        () = follow(client.clone(), to.clone(), relist.clone(), budgets) => Ok(()),
        () = follow(client.clone(), to.clone(), relist.clone(), clusters) => Ok(()),
        () = follow(client, to, relist, quotas) => Ok(()),
        _ = from.recv() => Ok(()),
        () = stop.requested() => Ok(()),
    }
}
