//! The controller as a set of supervised tasks: watches, journals, and the one loop that accounts and writes.

mod carry;
mod clock;
mod poll;
mod watches;

use std::time::{Duration, Instant};

use divvy_api::budget::GpuChargesSpec;
use divvy_api::wire::Meta;
use divvy_cluster::lease::Standing;
use divvy_cluster::{Failure, KubeEffects, get};
use divvy_core::time::Time;
use divvy_service::{Health, Stop};
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::metrics::Metrics;
use crate::news::News;
use crate::routes::Question;
use crate::treasury::{Settings, StoredCharges};
use crate::{Treasury, calendar};

pub use clock::Clock;
pub use poll::poll_journals;
pub use watches::watches;

/// Between two passes.
const TICK: Duration = Duration::from_secs(1);
/// News taken in before the loop looks at anything else.
const GULP: usize = 256;

/// The controller.
pub struct Controller {
    /// The way to the API server.
    pub client: Client,
    /// What it is told at its start.
    pub settings: Settings,
    /// What time it is.
    pub clock: Clock,
    /// What the watches and journals tell.
    pub news: mpsc::Receiver<News>,
    /// What people ask.
    pub questions: mpsc::Receiver<Question>,
    /// Whether we lead.
    pub standing: watch::Receiver<Standing>,
    /// Where journals are to be read: kept current for whoever reads them.
    pub agents: watch::Sender<poll::Agents>,
    /// What is counted.
    pub metrics: Metrics,
    /// Whether we are ready.
    pub health: Health,
}

impl Controller {
    /// Runs until `stop`.
    pub async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let ready = self.health.condition("budgets known");
        let effects = KubeEffects::new(self.client.clone(), "divvy-budget");
        let mut treasury = Treasury::new(self.settings.clone());
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tidied: Option<Time> = None;
        loop {
            tokio::select! {
                () = stop.requested() => return Ok(()),
                heard = self.news.recv() => match heard {
                    None => return Ok(()),
                    Some(news) => {
                        treasury.hear(news, self.clock.now());
                        for _ in 0..GULP {
                            let Ok(news) = self.news.try_recv() else { break };
                            treasury.hear(news, self.clock.now());
                        }
                        continue;
                    }
                },
                Some(question) = self.questions.recv() => {
                    let view = match &question.about {
                        Some(namespace) => treasury.view(namespace),
                        None => treasury.view_all(),
                    };
                    // Whoever asked may have gone.
                    let _ = question.answer.send(view);
                    continue;
                }
                _ = tick.tick() => {}
            }
            let leading = *self.standing.borrow_and_update() == Standing::Leading;
            ready.set(treasury.is_complete());
            if !treasury.is_complete() {
                continue;
            }
            let now = self.clock.now();
            if !leading {
                if treasury.is_open() {
                    tracing::info!("somebody else keeps the books");
                    treasury.close_books();
                }
                continue;
            }
            if !treasury.is_open() {
                match self.stored(treasury.needed_from(now)).await {
                    Ok(stored) => {
                        tracing::info!(charges = stored.len(), "the books are open");
                        treasury.open_books(stored, now);
                    }
                    Err(failure) => {
                        tracing::warn!(%failure, "charges cannot be read; trying again");
                        continue;
                    }
                }
            }
            self.pass(&mut treasury, &effects, now).await;
            self.agents.send_if_modified(|agents| agents.update(&treasury));
            if tidied.is_none_or(|last| now.millis_since(last) >= 3_600_000) {
                tidied = Some(now);
                self.forget_old(treasury.keeps_from(now)).await;
            }
        }
    }

    /// One pass, and what follows from it.
    async fn pass(&self, treasury: &mut Treasury, effects: &KubeEffects, now: Time) {
        let began = Instant::now();
        let pass = treasury.pass(now);
        self.metrics.pass.observe(began.elapsed().as_secs_f64());
        for happened in &pass.happened {
            tracing::info!(account = %happened.account, at = calendar::stamp(happened.at), what = ?happened.what, "a balance");
        }
        self.metrics.budgets.set(i64::try_from(treasury.budgets().len()).unwrap_or(i64::MAX));
        let home = &self.settings.home;
        let mut under_way: FuturesUnordered<_> = pass
            .writes
            .iter()
            .map(|write| async move { (write, carry::out(&self.client, effects, home, write).await) })
            .collect();
        while let Some((write, outcome)) = under_way.next().await {
            self.count(write, &outcome);
            if matches!(outcome, Err(Failure::Conflict { .. })) {
                // Of our statuses the watch will bring a newer version; charges are not watched.
                let version = carry::charges_version(&self.client, home, write).await;
                treasury.correct_charges(write, version);
            }
            treasury.done(write, &outcome, now);
        }
    }

    fn count(&self, write: &crate::write::Write, outcome: &Result<crate::treasury::Written, Failure>) {
        use crate::write::Write;
        match write {
            Write::Class { .. } => self.metrics.classes.inc(),
            Write::Stop { .. } => self.metrics.stops.inc(),
            _ => self.metrics.writes.inc(),
        };
        if let Err(failure) = outcome {
            self.metrics.failures.inc();
            let what = Treasury::names(std::slice::from_ref(write)).join("");
            tracing::debug!(what, %failure, "not written; it will be tried again");
        }
    }

    /// Charges from this hour on, as they are stored.
    async fn stored(&self, from: Time) -> Result<Vec<StoredCharges>, Failure> {
        let mut all = Vec::new();
        self.each_charges(|meta, spec| {
            let hour = spec.get("hour").and_then(Value::as_str).and_then(calendar::read);
            if hour.is_some_and(|hour| hour.0 + 3_600_000 > from.0)
                && let Ok(spec) = serde_json::from_value::<GpuChargesSpec>(spec)
            {
                all.push(StoredCharges { name: meta.name, version: meta.resource_version, spec });
            }
        })
        .await?;
        Ok(all)
    }

    async fn each_charges(&self, mut take: impl FnMut(Meta, Value)) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Meta,
            #[serde(default)]
            spec: Value,
        }
        #[derive(Deserialize)]
        struct Next {
            #[serde(default, rename = "continue")]
            next: String,
        }
        #[derive(Deserialize)]
        struct List {
            metadata: Next,
            items: Vec<Object>,
        }
        let path = carry::charges_path(&self.settings.home);
        let mut next = String::new();
        loop {
            let list: List = get(&self.client, &format!("{path}?limit=200{next}")).await?;
            list.items.into_iter().for_each(|object| take(object.metadata, object.spec));
            if list.metadata.next.is_empty() {
                return Ok(());
            }
            next = format!("&continue={}", list.metadata.next);
        }
    }

    /// Deletes charges that need not be kept any longer.
    async fn forget_old(&self, before: Time) {
        let mut old = Vec::new();
        let listed = self
            .each_charges(|meta, spec| {
                let hour = spec.get("hour").and_then(Value::as_str).and_then(calendar::read);
                if hour.is_some_and(|hour| hour < before) {
                    old.push(meta.name);
                }
            })
            .await;
        if let Err(failure) = listed {
            tracing::warn!(%failure, "old charges cannot be listed");
        }
        for name in old {
            if let Err(failure) =
                divvy_cluster::delete(&self.client, &format!("{}/{name}", carry::charges_path(&self.settings.home)))
                    .await
            {
                tracing::warn!(name, %failure, "old charges cannot be deleted");
            }
            // Few per second, like every write of ours.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
