//! `kubectl divvy resize POD`: another amount of the same devices, for a pod that runs on.
//!
//! The change must fit beside what others hold and into the namespace's quota, by the same books the scheduler keeps. Then the wish is
//! written, in one write that fails if anything about the pod changed since; the scheduler admits it, and the pod's node puts it into
//! force.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use divvy_core::device::DeviceKind;
use divvy_core::grant::{Grant, Slice, held, wished};
use divvy_core::snapshot::PodState;
use divvy_core::units::{Bytes, Share};
use divvy_core::{keys, resize};
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::Source;
use crate::ending::Ending;
use crate::output::{self, BAD, GOOD, paint};

/// What the command promises.
pub(crate) const ABOUT: &str = "\
Changes how much a running pod holds of the devices it has, up or down, without a restart. It is refused when it does not fit beside what \
other pods hold or into the namespace's quota; the scheduler admits it, and the node's agent checks once more and puts it into force. Needs the verb `resize` on `grants.divvy.dev` in the pod's \
namespace. The change is told as an event of the pod, with who made it.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pod, as POD or NAMESPACE/POD
    pod: String,
    /// Memory of each device: 8Gi, 512Mi
    #[arg(long, value_parser = memory)]
    memory: Option<Bytes>,
    /// Memory of each device it may grow to; as much as --memory where it is not said
    #[arg(long, value_parser = memory)]
    memory_limit: Option<Bytes>,
    /// Time of each device it is guaranteed: 0.3 is three tenths
    #[arg(long, value_parser = share)]
    share: Option<Share>,
    /// Time of each device it may use while others are idle; as before, but never below --share, where it is not said
    #[arg(long, value_parser = share)]
    share_limit: Option<Share>,
    /// Only this container of the pod
    #[arg(short, long)]
    container: Option<String>,
    /// Only look whether it fits
    #[arg(long)]
    dry_run: bool,
    /// Seconds to wait until the node has put it into force; 0 does not wait
    #[arg(long, default_value_t = 30)]
    wait: u64,
}

fn memory(text: &str) -> Result<Bytes, String> {
    let bytes = divvy_api::quantity::units(text);
    if bytes == 0 { Err(format!("{text:?} is no amount of memory: write 8Gi or 512Mi")) } else { Ok(Bytes(bytes)) }
}

fn share(text: &str) -> Result<Share, String> {
    let thousandths = divvy_api::quantity::thousandths(text);
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    match u32::try_from(thousandths) {
        Ok(share @ 1..=1000) if plain => Ok(Share(share)),
        _ => Err(format!("{text:?} is no share of a device: write 0.3 for three tenths, at most 1")),
    }
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    let state = view.pod(source, &args.pod)?;
    let grant = resized(state, args)?;
    let before = state.pod().bound().and_then(|b| b.grant.as_deref()).map(super::explain::devices).unwrap_or_default();
    let key = &state.pod().key;
    if let Err(obstacles) = resize::fits(&view.snapshot, &state.pod().uid, &grant) {
        output::show(&format!("{key} {}: {}\n", paint("cannot be resized", BAD), obstacles.join("; ")))?;
        return Ok(Ending::No);
    }
    let after = super::explain::devices(&grant);
    if before == after && (source.snapshot.is_some() || !wishes_otherwise(&source.client().await?, state).await?) {
        output::show(&format!("{key} holds {after} already.\n"))?;
        return Ok(Ending::Yes);
    }
    if args.dry_run {
        output::show(&format!("{key} {}: {before} -> {after}\n", paint("could be resized", GOOD)))?;
        return Ok(Ending::Yes);
    }
    let client = source.client().await?;
    let before_it = write(&client, state, &grant).await?;
    tell(&client, state, &before, &after).await;
    output::show(&format!("{key} is to have {after} (has {before}).\n"))?;
    if args.wait == 0 {
        return Ok(Ending::Yes);
    }
    in_force(&client, state, before_it.as_ref(), Duration::from_secs(args.wait)).await
}

/// The grant the pod would have.
fn resized(state: &PodState, args: &Args) -> anyhow::Result<Grant> {
    let key = &state.pod().key;
    let Some(bound) = state.pod().bound() else {
        bail!("{key} has no node yet: change its manifest instead");
    };
    let Some(grant) = bound.grant.as_deref() else { bail!("{key} holds no device") };
    ensure!(!bound.terminating, "{key} is being deleted");
    ensure!(
        [args.memory.is_some(), args.memory_limit.is_some(), args.share.is_some(), args.share_limit.is_some()]
            .contains(&true),
        "say what to change: --memory, --memory-limit, --share, --share-limit"
    );
    let mut grant = grant.clone();
    let names: Vec<String> = grant.containers.iter().map(|c| c.name.to_string()).collect();
    let mut touched = 0;
    for container in &mut grant.containers {
        if args.container.as_ref().is_some_and(|only| only != container.name.as_str()) {
            continue;
        }
        for slice in &mut container.slices {
            ensure!(!slice.exclusive, "{key} holds {} alone: there is nothing to resize", slice.device);
            ensure!(
                slice.partition.is_none(),
                "{key} holds a hardware partition of {}: its size is fixed",
                slice.device
            );
            ensure!(slice.kind != DeviceKind::Nic, "{} is not shared by memory or time", slice.device);
            change(slice, args)?;
            touched += 1;
        }
    }
    ensure!(touched > 0, "no container {:?} of {key} holds a device: {}", args.container, names.join(", "));
    Ok(grant)
}

fn change(slice: &mut Slice, args: &Args) -> anyhow::Result<()> {
    let grew_with_it = slice.memory_limit == slice.memory;
    if let Some(memory) = args.memory {
        slice.memory = memory;
        if grew_with_it || slice.memory_limit < memory {
            slice.memory_limit = memory;
        }
    }
    if let Some(limit) = args.memory_limit {
        ensure!(
            limit >= slice.memory,
            "--memory-limit {limit} is less than the memory it is guaranteed, {}",
            slice.memory
        );
        slice.memory_limit = limit;
    }
    if let Some(share) = args.share {
        slice.share = share;
        slice.share_limit = slice.share_limit.max(share);
    }
    if let Some(limit) = args.share_limit {
        ensure!(limit >= slice.share, "--share-limit {limit} is less than the share it is guaranteed, {}", slice.share);
        slice.share_limit = limit;
    }
    Ok(())
}

/// Does somebody wish other amounts for the pod than it holds, which were not admitted?
async fn wishes_otherwise(client: &Client, state: &PodState) -> anyhow::Result<bool> {
    let key = &state.pod().key;
    let path = format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name);
    let object: Value = divvy_cluster::get(client, &path).await?;
    let note = |key: &str| object["metadata"]["annotations"][key].as_str();
    let now = note(keys::GRANT).and_then(|grant| held(grant, note(keys::GRANT_ADMITTED)).ok());
    Ok(now.is_some_and(|now| wished(&now, note(keys::GRANT_OVERRIDE)).is_some()))
}

/// Writes the wish, unless the pod changed since we looked at it. Returns what its node said of the last change.
async fn write(client: &Client, state: &PodState, grant: &Grant) -> anyhow::Result<Option<Value>> {
    let pod = state.pod();
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name);
    let object: Value = divvy_cluster::get(client, &path).await?;
    ensure!(object["metadata"]["uid"] == pod.uid.as_str(), "{} is another pod by now: try again", pod.key);
    let note = |key: &str| object["metadata"]["annotations"][key].as_str();
    let now = note(keys::GRANT).and_then(|grant| held(grant, note(keys::GRANT_ADMITTED)).ok());
    let looked_at = pod.bound().and_then(|b| b.grant.as_deref());
    ensure!(
        now.as_ref().map(|held| held.now()) == looked_at,
        "{} was resized by somebody else meanwhile: try again",
        pod.key
    );
    let body = json!({"metadata": {
        "uid": pod.uid,
        "resourceVersion": object["metadata"]["resourceVersion"],
        "annotations": {(keys::GRANT_OVERRIDE): serde_json::to_string(grant)?},
    }});
    divvy_cluster::patch::<serde::de::IgnoredAny>(client, &path, &body).await?;
    Ok(condition(&object).cloned())
}

/// The audit line: an event of the pod that says who changed what. A resize is not undone for want of it.
async fn tell(client: &Client, state: &PodState, before: &str, after: &str) {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let review: Result<Value, _> =
        divvy_cluster::post(client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &body).await;
    let who = review.ok().and_then(|r| r["status"]["userInfo"]["username"].as_str().map(str::to_owned));
    let pod = state.pod();
    let now = jiff::Timestamp::now();
    let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "ResizeRequested", "count": 1,
        "metadata": {"name": format!("{}.{:x}", pod.key.name, now.as_microsecond()), "namespace": pod.key.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid},
        "message": format!("{} changed the grant: {before} -> {after}", who.as_deref().unwrap_or("somebody")),
        "source": {"component": "kubectl-divvy"}, "reportingComponent": "kubectl-divvy", "reportingInstance": "kubectl-divvy",
        "firstTimestamp": at, "lastTimestamp": at,
    });
    let path = format!("/api/v1/namespaces/{}/events", pod.key.namespace);
    if let Err(failure) = divvy_cluster::post::<serde::de::IgnoredAny>(client, &path, &event).await {
        anstream::eprintln!("note: no event tells of the change: {failure}");
    }
}

/// Waits until scheduler or node has answered: until the condition is another than before.
async fn in_force(client: &Client, state: &PodState, before: Option<&Value>, most: Duration) -> anyhow::Result<Ending> {
    let key = &state.pod().key;
    let path = format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name);
    let end = Instant::now() + most;
    while Instant::now() < end {
        let object: Value = divvy_cluster::get(client, &path).await?;
        if let Some(said) = condition(&object).filter(|said| before != Some(*said)) {
            let text = said["message"].as_str().unwrap_or_default();
            if said["status"] == "True" {
                output::show(&format!("{}: {text}\n", paint("In force", GOOD)))?;
                return Ok(Ending::Yes);
            }
            output::show(&format!(
                "{}: {text}\nThe old amounts stay in force; resize it again, or back.\n",
                paint("It is refused", BAD)
            ))?;
            return Ok(Ending::No);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    output::show(&format!(
        "Nobody has answered within {}s: the container has the old amounts until its node puts the new ones into force.\n",
        most.as_secs()
    ))?;
    Ok(Ending::No)
}

fn condition(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == keys::CONDITION_RESIZED)
}
