//! Who may look: a bearer token is reviewed by the API server, and so is what its owner may see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_cluster::effect::Failure;
use divvy_cluster::post;
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// How long an answer of the API server is believed.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long a token that was good is known as one: its viewer's stream asks again without counting as a stranger.
const KNOWN: Duration = Duration::from_secs(600);
/// Tokens that strangers may have reviewed per second, after a burst of ten times as many. People sign in far more rarely; each review is a
/// question to the API server, which would otherwise be asked as often as anybody likes.
const STRANGERS: f64 = 10.0;
/// Tokens whose review is remembered at once: ten minutes of strangers fit.
const MOST: usize = 8_192;
/// The longest token that is looked at, in bytes. Those of Kubernetes have one or two thousand.
const LONGEST: usize = 16 << 10;
/// Namespaces asked about one by one. A viewer of more than that is better given a role for the whole cluster.
const ASKED: usize = 500;
/// Questions on their way at once.
const AT_ONCE: usize = 16;

/// What a viewer may see by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Everything.
    All,
    /// Pods of these namespaces; of others only how much they hold.
    Only(Arc<BTreeSet<String>>),
}

impl Sight {
    /// May pods of a namespace be seen?
    pub fn sees(&self, namespace: &str) -> bool {
        match self {
            Sight::All => true,
            Sight::Only(namespaces) => namespaces.contains(namespace),
        }
    }

    /// The namespaces, if not all.
    pub(crate) fn only(&self) -> Option<Vec<String>> {
        match self {
            Sight::All => None,
            Sight::Only(namespaces) => Some(namespaces.iter().cloned().collect()),
        }
    }
}

/// Why somebody may not look.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token, or none the API server knows.
    #[error("sign in with a Kubernetes token: `kubectl create token SERVICEACCOUNT`")]
    NoToken,
    /// The API server knows it, but it may see nothing.
    #[error("{user} may list pods in no namespace; bind it to a role that may")]
    Nothing {
        /// Who.
        user: String,
    },
    /// The API server could not be asked.
    #[error("the API server cannot be asked who you are: {0}")]
    Unavailable(String),
    /// It is not asked now.
    #[error("too many people sign in at the moment; try again in a few seconds")]
    Busy,
}

/// How viewers are let in.
#[derive(Clone)]
pub enum Access {
    /// Everybody sees everything: the demo, on this machine alone.
    Open,
    /// By Kubernetes token.
    Kubernetes(Arc<Gate>),
}

/// What the API server said about tokens, by their digest, and when.
type Known = BTreeMap<[u8; 32], (Instant, Result<Sight, Denied>)>;

/// Asks the API server, and remembers for a while.
pub struct Gate {
    client: Client,
    known: Mutex<Known>,
    strangers: Mutex<Strangers>,
}

/// How many strangers may be asked about now.
struct Strangers {
    may: f64,
    at: Instant,
}

impl Strangers {
    /// One more is asked about, if it may be.
    fn one_more(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * STRANGERS;
        self.may = (self.may + earned).min(10.0 * STRANGERS);
        self.at = now;
        let may = self.may >= 1.0;
        if may {
            self.may -= 1.0;
        }
        may
    }
}

impl Access {
    /// By Kubernetes token, reviewed through this client.
    pub fn kubernetes(client: Client) -> Access {
        let strangers = Mutex::new(Strangers { may: 10.0 * STRANGERS, at: Instant::now() });
        Access::Kubernetes(Arc::new(Gate { client, known: Mutex::default(), strangers }))
    }

    /// What the owner of a token may see, of these namespaces.
    pub async fn sight(&self, token: Option<&str>, namespaces: Vec<String>) -> Result<Sight, Denied> {
        match self {
            Access::Open => Ok(Sight::All),
            Access::Kubernetes(gate) => gate.sight(token.ok_or(Denied::NoToken)?, namespaces).await,
        }
    }
}

impl Gate {
    async fn sight(&self, token: &str, namespaces: Vec<String>) -> Result<Sight, Denied> {
        if token.len() > LONGEST {
            return Err(Denied::NoToken);
        }
        let name: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let was_good = match self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            Some((at, sight)) if at.elapsed() < BELIEVED => return sight.clone(),
            found => found.is_some_and(|(_, sight)| sight.is_ok()),
        };
        if !was_good && !self.strangers.lock().unwrap_or_else(PoisonError::into_inner).one_more(Instant::now()) {
            return Err(Denied::Busy);
        }
        let sight = self.ask(token, namespaces).await;
        self.remember(name, &sight);
        sight
    }

    fn remember(&self, name: [u8; 32], sight: &Result<Sight, Denied>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, sight)| at.elapsed() < if sight.is_ok() { KNOWN } else { BELIEVED });
        if !matches!(sight, Err(Denied::Unavailable(_))) && known.len() < MOST {
            known.insert(name, (Instant::now(), sight.clone()));
        }
    }

    async fn ask(&self, token: &str, namespaces: Vec<String>) -> Result<Sight, Denied> {
        let unavailable = |failure: Failure| Denied::Unavailable(failure.to_string());
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let reviewed: Value = post(&self.client, path, &review).await.map_err(unavailable)?;
        if reviewed["status"]["authenticated"] != true {
            return Err(Denied::NoToken);
        }
        let user = reviewed["status"]["user"].clone();
        if self.may_list_pods(&user, None).await.map_err(unavailable)? {
            return Ok(Sight::All);
        }
        let asked = futures::stream::iter(namespaces.into_iter().take(ASKED)).map(|namespace| async {
            let allowed = self.may_list_pods(&user, Some(&namespace)).await;
            allowed.map(|allowed| allowed.then_some(namespace))
        });
        let seen: Vec<Option<String>> = asked.buffer_unordered(AT_ONCE).try_collect().await.map_err(unavailable)?;
        let seen: BTreeSet<String> = seen.into_iter().flatten().collect();
        if seen.is_empty() {
            let user = user["username"].as_str().unwrap_or("the token's owner").to_owned();
            return Err(Denied::Nothing { user });
        }
        Ok(Sight::Only(Arc::new(seen)))
    }

    async fn may_list_pods(&self, user: &Value, namespace: Option<&str>) -> Result<bool, Failure> {
        let mut attributes = json!({"verb": "list", "resource": "pods"});
        if let Some(namespace) = namespace {
            attributes["namespace"] = json!(namespace);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"],
                "uid": user["uid"],
                "groups": user["groups"],
                "extra": user["extra"],
                "resourceAttributes": attributes,
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let reviewed: Value = post(&self.client, path, &review).await?;
        Ok(reviewed["status"]["allowed"] == true)
    }
}

#[cfg(test)]
mod tests;
