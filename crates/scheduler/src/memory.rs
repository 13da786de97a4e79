//! What namespaces have used, kept in the API server: a scheduler that starts anew, or takes the lead over, goes on from it.
//!
//! One bounded object, written by the leader twice a minute and when it stops. Losing it loses no pod anything but a turn.

use std::time::Duration;

use divvy_cluster::lease::Standing;
use divvy_cluster::{Failure, apply, get};
use divvy_core::keys;
use divvy_core::schedule::FairShare;
use divvy_service::Stop;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

/// Between two writes.
const PERIOD: Duration = Duration::from_secs(30);
/// Before the first, and after a read that failed.
const SOON: Duration = Duration::from_secs(5);
/// Most namespaces that are written, those that used most: at 100 bytes each well below what the API server takes.
const MOST: usize = 5_000;
/// The field of the object.
const FIELD: &str = "used";

/// The loop's side: what comes back at its start, and what is to be kept.
#[derive(Debug)]
pub struct Memory {
    /// What was kept before this scheduler led.
    pub recalled: mpsc::Receiver<Recalled>,
    /// What is to be kept.
    pub kept: watch::Sender<FairShare>,
}

/// What was kept before, and whom to tell once it is taken in: nothing is written over it until then.
#[derive(Debug)]
pub struct Recalled {
    /// What namespaces have used.
    pub used: FairShare,
    /// It is part of what is to be kept now.
    pub taken: oneshot::Sender<()>,
}

/// The keeper's side.
#[derive(Debug)]
pub struct Keeper {
    recalled: mpsc::Sender<Recalled>,
    kept: watch::Receiver<FairShare>,
}

impl Memory {
    /// Both sides.
    pub fn new() -> (Memory, Keeper) {
        let ((tell, recalled), (kept, keep)) = (mpsc::channel(1), watch::channel(FairShare::default()));
        (Memory { recalled, kept }, Keeper { recalled: tell, kept: keep })
    }

    /// Nothing is kept: for trials.
    pub fn none() -> Memory {
        Memory::new().0
    }
}

/// An object with text in it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    data: std::collections::BTreeMap<String, String>,
}

/// Waits until we lead, or do not. For ever where nobody elects any more.
async fn stands(standing: &mut watch::Receiver<Standing>, leading: bool) {
    let heard = standing.wait_for(|standing| (*standing == Standing::Leading) == leading).await.is_ok();
    if !heard {
        std::future::pending::<()>().await;
    }
}

/// What an object says; nothing where it cannot be read.
fn read(object: &ConfigMap) -> FairShare {
    let text = object.data.get(FIELD).map_or("{}", String::as_str);
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::warn!(%error, object = keys::FAIR_SHARE, "what namespaces have used cannot be read; it is counted anew");
        FairShare::default()
    })
}

impl Keeper {
    /// Keeps what namespaces have used in an object of `namespace` while we lead, until `stop`.
    pub async fn keep(
        mut self,
        client: Client,
        namespace: String,
        mut standing: watch::Receiver<Standing>,
        stop: Stop,
    ) {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{}", keys::FAIR_SHARE);
        loop {
            tokio::select! {
                () = stop.requested() => return,
                () = stands(&mut standing, true) => {}
            }
            match get::<ConfigMap>(&client, &path).await {
                Ok(object) => {
                    let (taken, is_taken) = oneshot::channel();
                    let told = self.recalled.send(Recalled { used: read(&object), taken }).await;
                    if told.is_err() || is_taken.await.is_err() {
                        return;
                    }
                }
                Err(Failure::Gone) => {}
                Err(failure) => {
                    // Nothing is written before what is there was read.
                    tracing::warn!(%failure, "what namespaces have used cannot be recalled; trying again");
                    tokio::time::sleep(SOON).await;
                    continue;
                }
            }
            let mut pause = SOON;
            loop {
                tokio::select! {
                    () = stop.requested() => return self.write(&client, &path).await,
                    () = stands(&mut standing, false) => break,
                    () = tokio::time::sleep(std::mem::replace(&mut pause, PERIOD)) => self.write(&client, &path).await,
                }
            }
        }
    }

    async fn write(&mut self, client: &Client, path: &str) {
        let used = self.kept.borrow_and_update().most(MOST);
        if used == FairShare::default() {
            return;
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": keys::FAIR_SHARE},
            "data": {(FIELD): serde_json::to_string(&used).unwrap_or_default()},
        });
        if let Err(failure) = apply(client, path, keys::SCHEDULER, &object).await {
            tracing::warn!(%failure, "what namespaces have used could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_is_as_none() {
        let object = |text: &str| ConfigMap { data: [(FIELD.to_owned(), text.to_owned())].into() };
        assert_eq!(read(&object("not JSON")), FairShare::default());
        assert_eq!(read(&ConfigMap::default()), FairShare::default());
        let used = read(&object(r#"{"averages": {"team": 250.5}, "at": 7}"#));
        assert!((used.average(&"team".into()) - 250.5).abs() < 1e-9);
    }
}
