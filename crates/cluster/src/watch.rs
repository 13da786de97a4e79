//! Listing and watching one kind of object, across broken connections, restarts of the API server and expired versions.

use std::collections::HashMap;
use std::time::Duration;

use divvy_api::wire::{Meta, Watched};
use futures::StreamExt;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::sync::watch::Receiver;

use crate::effect::Failure;
use crate::request::{self, failure};

/// Objects per page of a list: small enough to keep the reply in cache, large enough to keep the number of requests low.
const PAGE: usize = 1000;
/// How long the server keeps a watch open before it asks us to come again.
const WATCH_SECONDS: u64 = 240;
/// Bookmarks come about once a minute; a watch that says nothing for this long is dead, whatever the socket says.
const SILENCE: Duration = Duration::from_secs(150);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What was seen.
#[derive(Clone, Debug)]
pub enum Seen<T> {
    /// It is like this now.
    Applied(T),
    /// It is gone; this is the last that was seen of it.
    Gone(Gone),
    /// Everything there was when a list began has been told, in answer to this request for one.
    Complete(u64),
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
}

impl Gone {
    fn of(meta: &Meta) -> Gone {
        Gone { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
    }
}

/// Tells everything that happens to objects of this kind, turned into the receiver's own words, until the receiver is gone.
/// After a new list it tells what vanished meanwhile, so that the receiver never has to compare. Raising `relist` makes it list anew:
/// what is told before the `Complete` of that number was read after the number was raised.
pub async fn follow<T: Watched, C: Send>(
    client: Client,
    to: mpsc::Sender<C>,
    mut relist: Receiver<u64>,
    mut turn: impl FnMut(Seen<T>) -> Option<C> + Send,
) {
    let mut known: HashMap<String, Gone> = HashMap::new();
    let mut pause = FIRST_PAUSE;
    while !to.is_closed() {
        let asked = *relist.borrow_and_update();
        match list(&client, &to, &mut turn, &mut known).await {
            Ok(version) => {
                pause = FIRST_PAUSE;
                tell(&to, turn(Seen::Complete(asked))).await;
                tokio::select! {
                    () = watch(&client, version, &to, &mut turn, &mut known) => {}
                    // Whoever asked for lists may be gone; then nobody asks any more.
                    Ok(()) = relist.changed() => {}
                }
            }
            Err(Failure::Gone) if T::OPTIONAL => {
                tell(&to, turn(Seen::Complete(asked))).await;
                tokio::time::sleep(LONGEST_PAUSE).await;
            }
            Err(failure) => {
                tracing::warn!(path = T::PATH, %failure, "cannot list; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(bound = "T: serde::de::DeserializeOwned")]
struct Page<T> {
    metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "nullable")]
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

fn nullable<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(source: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

/// Lists everything, page by page, with a consistent read (no cached version): what another scheduler bound a moment ago is in it.
async fn list<T: Watched, C>(
    client: &Client,
    to: &mpsc::Sender<C>,
    turn: &mut (impl FnMut(Seen<T>) -> Option<C> + Send),
    known: &mut HashMap<String, Gone>,
) -> Result<String, Failure> {
    let mut before = std::mem::take(known);
    let mut next = String::new();
    loop {
        let mut path = format!("{}?limit={PAGE}{}", T::PATH, selectors::<T>());
        if !next.is_empty() {
            path.push_str(&format!("&continue={}", escaped(&next)));
        }
        let page: Page<T> = match request::get(client, &path).await {
            Ok(page) => page,
            Err(failure) => {
                // What this list did not reach is still known from before.
                before.extend(known.drain());
                *known = before;
                return Err(failure);
            }
        };
        for item in page.items {
            before.remove(&item.meta().uid);
            known.insert(item.meta().uid.clone(), Gone::of(item.meta()));
            tell(to, turn(Seen::Applied(item))).await;
        }
        if page.metadata.next.is_empty() {
            for (_, gone) in before {
                tell(to, turn(Seen::Gone(gone))).await;
            }
            return Ok(page.metadata.resource_version);
        }
        next = page.metadata.next;
    }
}

/// Watches from `version` on until that is no longer possible.
async fn watch<T: Watched, C>(
    client: &Client,
    mut version: String,
    to: &mpsc::Sender<C>,
    turn: &mut (impl FnMut(Seen<T>) -> Option<C> + Send),
    known: &mut HashMap<String, Gone>,
) {
    let mut pause = FIRST_PAUSE;
    while !to.is_closed() {
        match watch_once(client, &mut version, to, turn, known).await {
            Ok(()) => pause = FIRST_PAUSE,
            Err(Failure::Gone) => {
                tracing::debug!(path = T::PATH, "the version expired; listing again");
                return;
            }
            Err(failure) => {
                tracing::debug!(path = T::PATH, %failure, "the watch broke; resuming");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn watch_once<T: Watched, C>(
    client: &Client,
    version: &mut String,
    to: &mpsc::Sender<C>,
    turn: &mut (impl FnMut(Seen<T>) -> Option<C> + Send),
    known: &mut HashMap<String, Gone>,
) -> Result<(), Failure> {
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}{}",
        T::PATH,
        selectors::<T>()
    );
    let request = Request::get(path).body(Vec::new()).map_err(|e| Failure::Unavailable { message: e.to_string() })?;
    let events = client.request_events::<T>(request).await.map_err(failure)?;
    tokio::pin!(events);
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(SILENCE, events.next()) => next,
            () = to.closed() => return Ok(()),
        };
        let event = match next {
            Err(_) => return Err(Failure::Unavailable { message: format!("nothing was said for {SILENCE:?}") }),
            Ok(None) => return Ok(()),
            Ok(Some(event)) => event.map_err(failure)?,
        };
        match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                version.clone_from(&item.meta().resource_version);
                known.entry(item.meta().uid.clone()).or_insert_with(|| Gone::of(item.meta()));
                tell(to, turn(Seen::Applied(item))).await;
            }
            WatchEvent::Deleted(item) => {
                version.clone_from(&item.meta().resource_version);
                known.remove(&item.meta().uid);
                tell(to, turn(Seen::Gone(Gone::of(item.meta())))).await;
            }
            WatchEvent::Bookmark(mark) => *version = mark.metadata.resource_version,
            WatchEvent::Error(status) if status.code == 410 => return Err(Failure::Gone),
            WatchEvent::Error(status) => return Err(Failure::Unavailable { message: status.message.clone() }),
        }
    }
}

/// What restricts a list or a watch of this kind, as further words of its query.
pub fn selectors<T: Watched>() -> String {
    let word = |name: &str, said: Option<&str>| said.map_or(String::new(), |said| format!("&{name}={}", escaped(said)));
    word("fieldSelector", T::FIELDS) + &word("labelSelector", T::LABELS)
}

async fn tell<C>(to: &mpsc::Sender<C>, change: Option<C>) {
    if let Some(change) = change {
        // A closed receiver ends the loop at its next turn.
        let _ = to.send(change).await;
    }
}

/// Percent-encoding of the few characters that occur in selectors and continue tokens.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
