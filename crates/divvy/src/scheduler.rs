//! `divvy scheduler`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use divvy_api::reader::PodReader;
use divvy_cluster::change::{Feed, watches};
use divvy_cluster::lease::{self, Standing};
use divvy_cluster::{Failure, KubeEffects};
use divvy_scheduler::extender::{self, Manner};
use divvy_scheduler::memory::Memory;
use divvy_scheduler::metrics::Metrics;
use divvy_scheduler::run::{Options, Scheduler, always_leading, channel};
use divvy_service::http::{self, Limits, Port};
use divvy_service::mutual::Mutual;
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
    /// Where kube-scheduler's questions are answered; without it nobody's are. An address that other machines reach takes the three files
    /// below
    #[arg(long)]
    extender_listen: Option<SocketAddr>,
    /// The extender's certificate, for servers and clients (tls.crt)
    #[arg(long, requires_all = ["extender_key", "extender_client_ca"])]
    extender_certificate: Option<PathBuf>,
    /// Its key (tls.key)
    #[arg(long, requires = "extender_certificate")]
    extender_key: Option<PathBuf>,
    /// The authority of which callers show a certificate (ca.crt): kube-scheduler by its tlsConfig, and other replicas, which hand binds on to
    /// the leader
    #[arg(long, requires = "extender_certificate")]
    extender_client_ca: Option<PathBuf>,
    /// The name in the certificates of both sides; divvy-extender.NAMESPACE.svc where it is not said
    #[arg(long)]
    extender_name: Option<String>,
    /// Answer gpushare's /inspect, too: it tells callers who holds what in all namespaces
    #[arg(long)]
    extender_inspect: bool,
    /// The address under which other replicas reach --extender-listen, to hand binds on to the leader; the pod's address where it is not said
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
        let mutual = mutual(service, common, flags, address)?;
        let listener = http::bind(address)?;
        tracing::info!(%address, certificates = mutual.is_some(), "other schedulers' questions are answered");
        let manner = Manner { mutual: mutual.clone(), inspect: flags.extender_inspect };
        let routes = extender::routes(ask.clone(), reader.clone(), standing.clone(), manner);
        let limits = Limits { body: extender::LARGEST, ..Limits::default() };
        service.tasks.add("extender", Port { mutual, limits, ..Port::new(listener, routes) }.serve(stop.clone()));
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

/// Certificate, key and authority, where callers of the extender have to show a certificate. Callers can have pods bound: without
/// certificates only this machine's own processes may call.
fn files(flags: &SchedulerFlags, address: SocketAddr) -> anyhow::Result<Option<[PathBuf; 3]>> {
    let named = [&flags.extender_certificate, &flags.extender_key, &flags.extender_client_ca];
    if let [Some(chain), Some(key), Some(authority)] = named {
        return Ok(Some([chain, key, authority].map(PathBuf::clone)));
    }
    anyhow::ensure!(
        address.ip().is_loopback(),
        "--extender-listen {address} is reached from other machines, and callers can have pods bound there: name --extender-certificate, \
         --extender-key and --extender-client-ca, so that callers have to show a certificate, or listen on 127.0.0.1"
    );
    Ok(None)
}

/// What the extender shows, and what it believes.
fn mutual(
    service: &mut Service,
    common: &Common,
    flags: &SchedulerFlags,
    address: SocketAddr,
) -> anyhow::Result<Option<Mutual>> {
    let Some([chain, key, authority]) = files(flags, address)? else { return Ok(None) };
    let name = flags.extender_name.clone().unwrap_or_else(|| format!("divvy-extender.{}.svc", common.namespace));
    let own = service.certificate("extender certificate", chain, key)?;
    let mutual = Mutual::from_files(own, &authority, &name)?;
    let stop = service.tasks.stop();
    service.tasks.add("extender authority", mutual.clone().follow(authority, stop));
    Ok(Some(mutual))
}

/// Takes part in the election, and gives the lead back at the end.
fn elect(service: &mut Service, common: &Common, flags: &SchedulerFlags) -> watch::Receiver<Standing> {
    let (tell, standing) = watch::channel(Standing::Following(None));
    let name = flags.identity.clone().unwrap_or_else(identity);
    let me = match advertised(flags, std::env::var("POD_IP").ok()) {
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

/// Where other replicas reach our extender: not on this machine's own address, which is theirs on theirs.
fn advertised(flags: &SchedulerFlags, pod_ip: Option<String>) -> Option<String> {
    let listen = flags.extender_listen?;
    let reached = !listen.ip().is_loopback();
    let of_pod = || pod_ip.filter(|_| reached).map(|ip| format!("{ip}:{}", listen.port()));
    let own = || (reached && !listen.ip().is_unspecified()).then(|| listen.to_string());
    flags.extender_advertise.clone().or_else(of_pod).or_else(own)
}

/// A name no other replica has: the pod's, or the machine's with our process id.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    format!("{}-{}", host.unwrap_or_default().trim(), std::process::id())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn flags(words: &[&str]) -> anyhow::Result<SchedulerFlags> {
        let Line { args } = Line::try_parse_from([&["scheduler"], words].concat())?;
        Ok(args.scheduler)
    }

    fn asked_for(words: &[&str]) -> anyhow::Result<Option<[PathBuf; 3]>> {
        let flags = flags(words)?;
        files(&flags, flags.extender_listen.unwrap())
    }

    #[test]
    fn an_extender_that_other_machines_reach_asks_for_certificates() {
        for own in ["127.0.0.1:8090", "[::1]:8090"] {
            assert!(asked_for(&["--extender-listen", own]).unwrap().is_none());
        }
        for others in ["0.0.0.0:8090", "10.0.0.7:8090", "[::]:8090"] {
            let error = asked_for(&["--extender-listen", others]).unwrap_err().to_string();
            assert!(error.contains("--extender-certificate, --extender-key and --extender-client-ca"), "{error}");
        }
        let three = ["--extender-certificate=tls.crt", "--extender-key=tls.key", "--extender-client-ca=ca.crt"];
        let others = ["--extender-listen", "0.0.0.0:8090"];
        assert!(asked_for(&[&others[..], &three].concat()).unwrap().is_some());
        for two in [&three[..2], &three[1..]] {
            assert!(asked_for(&[&others[..], two].concat()).is_err(), "{two:?}");
        }
    }

    #[test]
    fn other_replicas_are_told_an_address_that_they_can_reach_or_none() {
        let ip = || Some("10.0.0.5".to_owned());
        let told = |words: &[&str], pod_ip| advertised(&flags(words).unwrap(), pod_ip);
        assert_eq!(told(&[], ip()), None);
        assert_eq!(told(&["--extender-listen", "0.0.0.0:8090"], ip()).as_deref(), Some("10.0.0.5:8090"));
        assert_eq!(told(&["--extender-listen", "0.0.0.0:8090"], None), None);
        assert_eq!(told(&["--extender-listen", "10.0.0.7:8090"], None).as_deref(), Some("10.0.0.7:8090"));
        // A replica that was told this one would ask itself.
        assert_eq!(told(&["--extender-listen", "127.0.0.1:8090"], ip()), None);
        let said = ["--extender-listen", "127.0.0.1:8090", "--extender-advertise", "n1:8090"];
        assert_eq!(told(&said, ip()).as_deref(), Some("n1:8090"));
    }
}
