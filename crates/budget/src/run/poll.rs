//! Journals are read from the nodes' agents, a few at a time, each about once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use divvy_core::budget::Cut;
use divvy_core::id::NodeName;
use futures::stream::{self, StreamExt};
use tokio::sync::{mpsc, watch};

use crate::Treasury;
use crate::journals::Journals;
use crate::metrics::Metrics;
use crate::news::News;

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(30);
/// Nodes asked at the same time.
const AT_ONCE: usize = 16;

/// Where agents answer, and from where their journals are to be read on. Empty while the books are closed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agents(BTreeMap<NodeName, (String, Option<Cut>)>);

impl Agents {
    /// Takes over what the treasury knows; true where it is new.
    pub(super) fn update(&mut self, treasury: &Treasury) -> bool {
        let answering = treasury.nodes().filter_map(|node| {
            let agent = node.agent.clone()?;
            Some((node.name.clone(), (agent, treasury.read_from(&node.name))))
        });
        let next = Agents(if treasury.is_open() { answering.collect() } else { BTreeMap::new() });
        let changed = *self != next;
        *self = next;
        changed
    }
}

/// Reads journals, for ever.
pub async fn poll_journals(
    journals: impl Journals,
    agents: watch::Receiver<Agents>,
    to: mpsc::Sender<News>,
    metrics: Metrics,
) {
    loop {
        let round: Vec<(NodeName, (String, Option<Cut>))> = agents.borrow().0.clone().into_iter().collect();
        stream::iter(round)
            .for_each_concurrent(AT_ONCE, |(node, (agent, mut after))| {
                let (journals, to, metrics) = (&journals, &to, &metrics);
                async move {
                    loop {
                        match journals.page(&agent, after).await {
                            Ok(page) => {
                                metrics.pages.inc();
                                let (more, cut) = (page.more, page.cut());
                                let news = News::Page(node.clone(), after, page);
                                if to.send(news).await.is_err() || !more || cut.is_none() {
                                    break;
                                }
                                after = cut;
                            }
                            Err(error) => {
                                tracing::debug!(%node, error = format!("{error:#}"), "the journal cannot be read now");
                                break;
                            }
                        }
                    }
                }
            })
            .await;
        if to.is_closed() {
            return;
        }
        tokio::time::sleep(ROUND).await;
    }
}
