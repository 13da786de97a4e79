//! Who leads: one Lease object, and a pure rule for reading it.
//!
//! A Binding guards its pod, not the card, so leading is not what keeps devices from being over-committed (the node is). It keeps
//! two schedulers from doing the same work and taking each other's decisions back.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use crate::effect::Failure;
use crate::request;

/// How long a leader that says nothing still leads.
pub const DURATION: Duration = Duration::from_secs(8);
/// How often the leader renews and a follower looks.
pub const PERIOD: Duration = Duration::from_secs(2);
/// A leader that could not renew for this long stops deciding, before anyone else may begin: clocks may run apart by the rest.
pub const GIVE_UP: Duration = Duration::from_secs(5);

/// A Lease as stored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Who leads; absent or empty when nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// For how many seconds after the last renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<u64>,
    /// Since when this holder leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<Timestamp>,
    /// When it last said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<Timestamp>,
    /// How often the lead changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<u32>,
}

/// What to do about a lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Write this: it makes us leader, or keeps us so.
    Write(LeaseSpec),
    /// Somebody else leads.
    Follow(String),
}

/// What `me` does about the lease it sees. `unchanged_for` is how long this very version has been seen, by our own clock: the
/// holder's clock is not trusted.
pub fn evaluate(lease: Option<&LeaseSpec>, me: &str, now: Timestamp, unchanged_for: Duration) -> Move {
    let fresh = |transitions| LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(DURATION.as_secs()),
        acquire_time: Some(now),
        renew_time: Some(now),
        lease_transitions: Some(transitions),
    };
    let Some(lease) = lease else { return Move::Write(fresh(0)) };
    let transitions = lease.lease_transitions.unwrap_or(0);
    match lease.holder_identity.as_deref() {
        Some(holder) if holder == me => {
            Move::Write(LeaseSpec { acquire_time: lease.acquire_time.or(Some(now)), ..fresh(transitions) })
        }
        None | Some("") => Move::Write(fresh(transitions + 1)),
        Some(holder) => {
            let lasts = Duration::from_secs(lease.lease_duration_seconds.unwrap_or(DURATION.as_secs()));
            if unchanged_for > lasts { Move::Write(fresh(transitions + 1)) } else { Move::Follow(holder.to_owned()) }
        }
    }
}

/// Where we stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody else leads, by this identity; or nobody is known to.
    Following(Option<String>),
    /// We lead.
    Leading,
}

/// Takes part in the election of `namespace/name` as `me`, for ever; `standing` tells where we stand. Returns only on an error that
/// waiting does not mend (no permission).
pub async fn campaign(
    client: Client,
    namespace: &str,
    name: &str,
    me: &str,
    standing: watch::Sender<Standing>,
) -> Result<(), Failure> {
    let list = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let path = format!("{list}/{name}");
    let mut seen: (String, Instant) = (String::new(), Instant::now());
    let mut renewed = Instant::now();
    let mut tick = tokio::time::interval(PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let began = Instant::now();
        let outcome = tokio::time::timeout(GIVE_UP, turn(&client, &list, &path, name, me, &mut seen)).await;
        match outcome {
            Ok(Ok(None)) => {
                // Counted from before the request: the server may have written it that early.
                renewed = began;
                set(&standing, Standing::Leading, me);
            }
            Ok(Ok(Some(leader))) => set(&standing, Standing::Following(Some(leader)), me),
            Ok(Err(failure @ Failure::Refused { .. })) => return Err(failure),
            Ok(Err(failure)) => tracing::warn!(%failure, "cannot renew or read the lease"),
            Err(_) => tracing::warn!("the lease could not be renewed in time"),
        }
        if *standing.borrow() == Standing::Leading && renewed.elapsed() >= GIVE_UP {
            set(&standing, Standing::Following(None), me);
        }
    }
}

fn set(standing: &watch::Sender<Standing>, to: Standing, me: &str) {
    standing.send_if_modified(|now| {
        let changed = *now != to;
        if changed {
            tracing::info!(standing = ?to, me, "the lead changed");
            *now = to.clone();
        }
        changed
    });
}

#[derive(Deserialize)]
struct Lease {
    metadata: divvy_api::wire::Meta,
    #[serde(default)]
    spec: LeaseSpec,
}

/// One look and, where the rule says so, one write. Who leads, if it is not us.
async fn turn(
    client: &Client,
    list: &str,
    path: &str,
    name: &str,
    me: &str,
    seen: &mut (String, Instant),
) -> Result<Option<String>, Failure> {
    let found: Option<Lease> = match request::get(client, path).await {
        Ok(lease) => Some(lease),
        Err(Failure::Gone) => None,
        Err(failure) => return Err(failure),
    };
    let version = found.as_ref().map(|l| l.metadata.resource_version.clone()).unwrap_or_default();
    if seen.0 != version {
        *seen = (version.clone(), Instant::now());
    }
    match evaluate(found.as_ref().map(|l| &l.spec), me, Timestamp::now(), seen.1.elapsed()) {
        Move::Follow(leader) => Ok(Some(leader)),
        Move::Write(spec) => {
            let micro = |time: Option<Timestamp>| time.map(|t| t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
            let mut body = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name},
                "spec": spec,
            });
            body["spec"]["acquireTime"] = json!(micro(spec.acquire_time));
            body["spec"]["renewTime"] = json!(micro(spec.renew_time));
            let written: Result<Lease, Failure> = if version.is_empty() {
                request::post(client, list, &body).await
            } else {
                body["metadata"]["resourceVersion"] = json!(version);
                request::put(client, path, &body).await
            };
            match written {
                Ok(lease) => {
                    *seen = (lease.metadata.resource_version, Instant::now());
                    Ok(None)
                }
                // Somebody was faster; who, the next look tells.
                Err(Failure::Conflict { .. }) => Ok(Some(String::new())),
                Err(failure) => Err(failure),
            }
        }
    }
}

/// Gives the lead back on a planned end, so that the next one need not wait.
pub async fn resign(client: &Client, namespace: &str, name: &str, me: &str) -> Result<(), Failure> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let lease: Lease = request::get(client, &path).await?;
    if lease.spec.holder_identity.as_deref() != Some(me) {
        return Ok(());
    }
    let body =
        json!({"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": ""}});
    request::patch::<serde::de::IgnoredAny>(client, &path, &body).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(by.into()),
            lease_duration_seconds: Some(8),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    fn rule(lease: Option<&LeaseSpec>, seconds: u64) -> Move {
        evaluate(lease, "me", Timestamp::UNIX_EPOCH, Duration::from_secs(seconds))
    }

    #[test]
    fn nobody_leads_so_we_do() {
        for lease in [None, Some(held("")), Some(LeaseSpec::default())] {
            assert!(matches!(rule(lease.as_ref(), 0), Move::Write(_)), "{lease:?}");
        }
    }

    #[test]
    fn a_leader_is_followed_until_it_was_silent_for_its_own_duration() {
        assert_eq!(rule(Some(&held("other")), 8), Move::Follow("other".into()));
        let Move::Write(spec) = rule(Some(&held("other")), 9) else { panic!("not taken over") };
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(4)));
    }

    #[test]
    fn renewing_keeps_the_count_and_the_beginning() {
        let mut lease = held("me");
        lease.acquire_time = Some(Timestamp::from_second(-60).unwrap());
        let Move::Write(spec) = rule(Some(&lease), 100) else { panic!("not renewed") };
        assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(3), lease.acquire_time));
    }

    #[test]
    fn a_leader_stops_before_a_follower_may_begin_and_the_handover_fits_its_promise() {
        assert!(GIVE_UP < DURATION);
        // Worst case: the leader dies right after renewing, the follower has just looked.
        assert!(DURATION + PERIOD + PERIOD <= Duration::from_secs(15));
    }
}
