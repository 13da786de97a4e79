//! `divvy dashboard`: read-only, for whoever has a Kubernetes token; each sees the namespaces whose pods they may list.

mod balances;
mod usage;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use divvy_api::reader::PodReader;
use divvy_cluster::change::{Change, Feed, Kind, watches};
use divvy_core::time::Time;
use divvy_dashboard::{Access, Shared, routes};
use divvy_service::{Stop, http};
use tokio::sync::{mpsc, watch};

use crate::flags::{Common, Service};

/// Changes on their way to the board. The watches wait when it is full.
const ROOM: usize = 4_096;
/// Between two sums.
const TICK: Duration = Duration::from_secs(1);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    dashboard: DashboardFlags,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DashboardFlags {
    /// Where the dashboard is served
    #[arg(long, default_value = "0.0.0.0:8088")]
    dashboard_listen: SocketAddr,
    /// A certificate to serve it over TLS with (tls.crt); without it, put it behind something that does
    #[arg(long, requires = "dashboard_key")]
    dashboard_certificate: Option<PathBuf>,
    /// Its key (tls.key)
    #[arg(long, requires = "dashboard_certificate")]
    dashboard_key: Option<PathBuf>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut service = args.common.service().await?;
    add(&mut service, &args.dashboard)?;
    service.run().await
}

/// Adds the dashboard's tasks.
pub(crate) fn add(service: &mut Service, flags: &DashboardFlags) -> anyhow::Result<()> {
    let files = flags.dashboard_certificate.clone().zip(flags.dashboard_key.clone());
    let certificate = match files {
        Some((chain, key)) => Some(service.certificate("dashboard certificate", chain, key)?),
        None => None,
    };
    let listener = http::bind(flags.dashboard_listen)?;
    tracing::info!(address = %flags.dashboard_listen, "the dashboard is served");
    let shared = Shared::default();
    let access = Access::kubernetes(service.client.clone());
    let stop = service.tasks.stop();
    let routes = routes::routes(shared.clone(), access, certificate.is_some());
    service.tasks.add("dashboard", http::serve(listener, routes, certificate, stop.clone()));
    let (to, changes) = mpsc::channel(ROOM);
    let (_relist, relist) = watch::channel(0);
    let reader = PodReader::default();
    let feed = Feed { client: service.client.clone(), reader: reader.clone(), relist };
    let beside = balances::tasks(&service.client, shared.clone()).into_iter();
    for (name, task) in beside.chain(usage::tasks(&service.client, shared.clone())) {
        let stop = stop.clone();
        service.tasks.add(name, async move {
            tokio::select! {
                () = task => Ok(()),
                () = stop.requested() => Ok(()),
            }
        });
    }
    for (name, watching) in watches(feed, to) {
        let stop = stop.clone();
        service.tasks.add(name, async move {
            tokio::select! {
                () = watching => Ok(()),
                () = stop.requested() => Ok(()),
            }
        });
    }
    let complete = service.health.condition("everything listed");
    service.tasks.add("board", async move {
        let _relist = _relist;
        follow(changes, &shared, &reader, &stop, move || complete.set(true)).await;
        Ok(())
    });
    Ok(())
}

/// Keeps the board at what the watches tell.
async fn follow(
    mut changes: mpsc::Receiver<Change>,
    shared: &Shared,
    reader: &PodReader,
    stop: &Stop,
    complete: impl Fn(),
) {
    let mut tick = tokio::time::interval(TICK);
    let mut listed = std::collections::BTreeSet::new();
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = stop.requested() => return,
            _ = tick.tick() => shared.change(|board| board.tick(now())),
            came = changes.recv_many(&mut batch, ROOM) => {
                if came == 0 {
                    return stop.requested().await;
                }
                for change in &batch {
                    match change {
                        Change::Policy(_, Ok(policy)) => reader.set(policy.dialects.clone()),
                        Change::Complete(kind, _) => drop(listed.insert(*kind)),
                        _ => {}
                    }
                }
                shared.change(|board| batch.drain(..).for_each(|change| board.apply(change, now())));
                if listed.len() == Kind::ALL.len() {
                    complete();
                }
            }
        }
    }
}

fn now() -> Time {
    Time(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0))
}
