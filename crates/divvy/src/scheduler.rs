//! `divvy scheduler`.

use std::net::SocketAddr;
use std::time::Duration;

use divvy_api::reader::PodReader;
use divvy_cluster::change::{Feed, watches};
use divvy_cluster::lease::{self, Standing};
use divvy_cluster::{Failure, KubeEffects};
use divvy_scheduler::extender;
use divvy_scheduler::memory::Memory;
use divvy_scheduler::metrics::Metrics;
use divvy_scheduler::run::{Options, Scheduler, always_leading, channel};
use divvy_service::http::{self, Limits, Port};
use tokio::sync::{mpsc, watch};

use crate::flags::{Common, Service};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) scheduler: SchedulerFlags,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SchedulerFlags {
    /// The name pods ask for us by
    #[arg(long, default_value = divvy_core::keys::SCHEDULER)]
    scheduler_name: String,
    /// Lead without asking: for a single replica and for tests
    #[arg(long)]
    no_leader_election: bool,
    /// Who we are in the election; the host's name and process id where it is not said
    #[arg(long, env = "DIVVY_IDENTITY")]
    identity: Option<String>,
    /// Where kube-scheduler's questions are answered; without it nobody's are
    #[arg(long)]
    extender_listen: Option<SocketAddr>,
    /// The address under which other replicas reach that, to hand binds on to the leader; the pod's address where it is not said
    #[arg(long)]
    extender_advertise: Option<String>,
    /// Binds under way at once
    #[arg(long, default_value_t = Options::default().at_once)]
    binds_at_once: usize,
    /// Show metrics also under the names of the emulated systems' schedulers
    #[arg(long, env = "DIVVY_EMULATE_METRICS", default_value_t = false, action = clap::ArgAction::Set)]
    emulate_metrics: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut service = args.common.service().await?;
    add(&mut service, &args.common, &args.scheduler)?;
    service.run().await
}

/// Adds the scheduler's tasks.
pub(crate) fn add(service: &mut Service, common: &Common, flags: &SchedulerFlags) -> anyhow::Result<()> {
    let stop = service.tasks.stop();
    let standing = if flags.no_leader_election { always_leading() } else { elect(service, common, flags) };
    let (to, changes, relist) = channel();
    let reader = PodReader::default();
    let feed = Feed { client: service.client.clone(), reader: reader.clone(), relist: relist.subscribe() };
    for (name, watching) in watches(feed, to) {
        let stop = stop.clone();
        service.tasks.add(name, async move {
            tokio::select! {
                () = watching => Ok(()),
                () = stop.requested() => Ok(()),
            }
        });
    }
    let (ask, questions) = mpsc::channel(256);
    if let Some(address) = flags.extender_listen {
        let listener = http::bind(address)?;
        tracing::info!(%address, "other schedulers' questions are answered");
        let routes = extender::routes(ask.clone(), reader.clone(), standing.clone());
        let limits = Limits { body: extender::LARGEST, ..Limits::default() };
        service.tasks.add("extender", Port { limits, ..Port::new(listener, routes) }.serve(stop.clone()));
    }
    let (memory, keeper) = Memory::new();
    let keeping = keeper.keep(service.client.clone(), common.namespace.clone(), standing.clone(), stop.clone());
    service.tasks.add("memory", async move {
        keeping.await;
        Ok(())
    });
    let mut metrics = Metrics::register(&mut service.registry);
    if flags.emulate_metrics {
        metrics = metrics.with_emulated(&mut service.registry);
    }
    let scheduler = Scheduler {
        options: Options { name: flags.scheduler_name.clone(), at_once: flags.binds_at_once.max(1) },
        effects: KubeEffects::new(service.client.clone(), &flags.scheduler_name),
        changes,
        relist,
        reader,
        questions,
        standing,
        memory,
        metrics,
        health: service.health.clone(),
    };
    // Held by the task, so that the loop's channel stays open without an extender.
    service.tasks.add("scheduler", async move {
        let _ask = ask;
        scheduler.run(stop).await
    });
    Ok(())
}

/// Takes part in the election, and gives the lead back at the end.
fn elect(service: &mut Service, common: &Common, flags: &SchedulerFlags) -> watch::Receiver<Standing> {
    let (tell, standing) = watch::channel(Standing::Following(None));
    let name = flags.identity.clone().unwrap_or_else(identity);
    let me = match advertised(flags) {
        Some(address) => format!("{name}@{address}"),
        None => name,
    };
    let (client, namespace, name) = (service.client.clone(), common.namespace.clone(), flags.scheduler_name.clone());
    let stop = service.tasks.stop();
    service.tasks.add("lease", async move {
        tokio::select! {
            failed = lease::campaign(client.clone(), &namespace, &name, &me, tell) => failed?,
            () = stop.requested() => {
                let resigned = tokio::time::timeout(Duration::from_secs(2), lease::resign(&client, &namespace, &name, &me));
                match resigned.await {
                    Ok(Ok(()) | Err(Failure::Gone)) => {}
                    other => tracing::debug!(?other, "the lease could not be given back"),
                }
            }
        }
        Ok(())
    });
    standing
}

/// Where other replicas reach our extender.
fn advertised(flags: &SchedulerFlags) -> Option<String> {
    let listen = flags.extender_listen?;
    let of_pod = || std::env::var("POD_IP").ok().map(|ip| format!("{ip}:{}", listen.port()));
    flags
        .extender_advertise
        .clone()
        .or_else(of_pod)
        .or_else(|| (!listen.ip().is_unspecified()).then(|| listen.to_string()))
}

/// A name no other replica has: the pod's, or the machine's with our process id.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    format!("{}-{}", host.unwrap_or_default().trim(), std::process::id())
}
