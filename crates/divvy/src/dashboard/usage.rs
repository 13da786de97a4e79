//! What pods use, for the board: every agent is asked for its metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use divvy_api::wire::Node;
use divvy_cluster::watch::{Seen, follow};
use divvy_core::id::NodeName;
use divvy_core::keys;
use divvy_core::time::Time;
use divvy_dashboard::Shared;
use divvy_dashboard::usage::Meter;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::now;

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(10);
/// Agents asked at once.
const AT_ONCE: usize = 16;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most an agent is listened to, in bytes: a node of 16 cards and 110 pods says 300 KiB. With all of them at it 64 MiB are held.
const LARGEST: u64 = 4 << 20;

/// Where a node's agent answers; nothing when it is gone.
type Address = (NodeName, Option<String>);

/// What keeps the board's usage: a watch that knows where agents are, and one who asks them. To be supervised by name.
pub(super) fn tasks(client: &Client, shared: Shared) -> Vec<(&'static str, BoxFuture<'static, ()>)> {
    let (to, addresses) = mpsc::channel::<Address>(256);
    let (never, _) = watch::channel(0);
    let turn = |seen: Seen<Node>| match seen {
        Seen::Applied(node) => {
            let address = node.metadata.annotations.get(keys::AGENT).cloned();
            Some((NodeName::from(node.metadata.name), address))
        }
        Seen::Gone(gone) => Some((NodeName::from(gone.name), None)),
        Seen::Complete(_) => None,
    };
    vec![
        ("watch agents", follow(client.clone(), to, never.subscribe(), turn).boxed()),
        ("usage", measure(addresses, shared).boxed()),
    ]
}

async fn measure(mut addresses: mpsc::Receiver<Address>, shared: Shared) {
    let mut agents: BTreeMap<NodeName, String> = BTreeMap::new();
    let mut meter = Meter::default();
    let mut round = tokio::time::interval(ROUND);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            heard = addresses.recv() => match heard {
                None => return,
                Some((node, Some(address))) => drop(agents.insert(node, address)),
                Some((node, None)) => drop(agents.remove(&node)),
            },
            _ = round.tick() => {
                if agents.is_empty() {
                    continue;
                }
                let began = now();
                let asked = agents.clone().into_iter().map(|(node, address)| async move {
                    let answer = ask(&address).await;
                    (node, answer)
                });
                let told: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
                let mut all = Vec::new();
                for (node, answer) in told {
                    match answer {
                        Ok(text) => all.extend(meter.read(&node, &text, now())),
                        Err(error) => tracing::debug!(%node, "its agent does not tell what is used: {error:#}"),
                    }
                }
                meter.forget_before(Time(began.0.saturating_sub(60_000)));
                shared.change(|board| board.set_measured(&all, now()));
            }
        }
    }
}

/// One agent's metrics. It is asked as browsers of old did, so that the end of the connection is the end of the answer.
async fn ask(agent: &str) -> anyhow::Result<String> {
    let talk = async {
        let mut stream = TcpStream::connect(agent).await.with_context(|| format!("could not reach {agent}"))?;
        stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {agent}\r\n\r\n").as_bytes()).await?;
        let mut reply = String::new();
        stream.take(LARGEST).read_to_string(&mut reply).await?;
        let (head, body) = reply.split_once("\r\n\r\n").context("not an HTTP answer")?;
        ensure!(head.lines().next().is_some_and(|line| line.contains(" 200")), "{agent} answered {head}");
        Ok(body.to_owned())
    };
    tokio::time::timeout(PATIENCE, talk).await.context("no answer in time")?
}
