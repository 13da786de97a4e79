//! `divvy budget`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use divvy_api::budget::length;
use divvy_budget::journals::HttpJournals;
use divvy_budget::metrics::Metrics;
use divvy_budget::news::News;
use divvy_budget::routes::{ApiServer, routes};
use divvy_budget::run::{Clock, Controller, poll_journals, watches};
use divvy_budget::treasury::Settings;
use divvy_cluster::Failure;
use divvy_cluster::lease::{self, Standing};
use divvy_service::http;
use tokio::sync::{mpsc, watch};

use crate::flags::{Common, Service};

/// The name of the lease.
const LEASE: &str = "divvy-budget";

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) budget: BudgetFlags,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BudgetFlags {
    /// Where balances are answered (/budget/NAMESPACE) to those who may read them; without it nowhere
    #[arg(long)]
    budget_listen: Option<SocketAddr>,
    /// The certificate for that; without it the answers, and the callers' tokens, travel in the open
    #[arg(long, requires = "budget_key")]
    budget_certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, requires = "budget_certificate")]
    budget_key: Option<PathBuf>,
    /// How long charges are kept
    #[arg(long, default_value = "7d", value_parser = parse_length)]
    keep_charges: u64,
    /// How long after a pod's end what its node tells of it is still charged
    #[arg(long, default_value = "24h", value_parser = parse_length)]
    late_reports: u64,
    /// Keep the books without asking who else does: for a single replica and for tests
    #[arg(long)]
    no_budget_election: bool,
    /// For trials: a file with the milliseconds by which our clock is moved
    #[arg(long, hide = true)]
    budget_clock: Option<PathBuf>,
}

fn parse_length(text: &str) -> Result<u64, String> {
    length::millis(text).ok_or_else(|| format!("{text:?} is not a length of time; write it as 12h or 7d"))
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let mut service = args.common.service().await?;
    add(&mut service, &args.common, &args.budget)?;
    service.run().await
}

/// Adds the budget controller's tasks.
pub(crate) fn add(service: &mut Service, common: &Common, flags: &BudgetFlags) -> anyhow::Result<()> {
    let stop = service.tasks.stop();
    let (client, metrics) = (service.client.clone(), Metrics::register(&mut service.registry));
    let (to, news) = mpsc::channel::<News>(4096);

    for (name, watching) in watches(&client, &to) {
        let ending = stop.clone();
        service.tasks.add(name, async move {
            tokio::select! {
                () = watching => Ok(()),
                () = ending.requested() => Ok(()),
            }
        });
    }

    let (agents, answering) = watch::channel(Default::default());
    let (ending, counted) = (stop.clone(), metrics.clone());
    service.tasks.add("budget: journals", async move {
        tokio::select! {
            () = poll_journals(HttpJournals, answering, to, counted) => Ok(()),
            () = ending.requested() => Ok(()),
        }
    });

    let (ask, questions) = mpsc::channel(64);
    if let Some(address) = flags.budget_listen {
        let certificate = match (&flags.budget_certificate, &flags.budget_key) {
            (Some(chain), Some(key)) => {
                let certificate = service.certificate("budget certificate", chain.clone(), key.clone());
                Some(certificate.context("--budget-certificate")?)
            }
            _ => None,
        };
        let listener = http::bind(address)?;
        tracing::info!(%address, "balances are answered");
        let routes = routes(ApiServer(client.clone()), ask.clone());
        service.tasks.add("budget: http", http::serve(listener, routes, certificate, stop.clone()));
    }

    let standing = if flags.no_budget_election {
        watch::Sender::new(Standing::Leading).subscribe()
    } else {
        elect(service, common)
    };
    let controller = Controller {
        client,
        settings: Settings {
            home: common.namespace.clone(),
            late: flags.late_reports,
            retention: flags.keep_charges,
            ..Settings::default()
        },
        clock: Clock::new(flags.budget_clock.clone()),
        news,
        questions,
        standing,
        agents,
        metrics,
        health: service.health.clone(),
    };
    // Held by the task, so that the loop's channel stays open where nobody can ask.
    service.tasks.add("budget", async move {
        let _ask = ask;
        controller.run(stop).await
    });
    Ok(())
}

/// Takes part in the election of who keeps the books, and gives the lead back at the end.
fn elect(service: &mut Service, common: &Common) -> watch::Receiver<Standing> {
    let (tell, standing) = watch::channel(Standing::Following(None));
    let host = std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let me = format!("{}-{}", host.unwrap_or_default().trim(), std::process::id());
    let (client, namespace, stop) = (service.client.clone(), common.namespace.clone(), service.tasks.stop());
    service.tasks.add("budget: lease", async move {
        tokio::select! {
            failed = lease::campaign(client.clone(), &namespace, LEASE, &me, tell) => failed?,
            () = stop.requested() => {
                let resigned = tokio::time::timeout(Duration::from_secs(2), lease::resign(&client, &namespace, LEASE, &me));
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
