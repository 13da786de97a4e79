//! `kubectl divvy whatif -f pod.yaml`: what would happen to pods that do not exist yet. The same reading, the same placing, no cluster
//! touched.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use divvy_api::convert;
use divvy_api::managed;
use divvy_core::Engine;
use divvy_core::grant::Grant;
use divvy_core::id::{NodeName, PodKey, PodUid};
use divvy_core::keys;
use divvy_core::pod::Pod;
use divvy_core::policy::{Placement, Policy};
use divvy_core::snapshot::PodIx;
use divvy_dialects::{PodManifest, Reading, parse, pod_templates, sentence};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster::{Source, View};
use crate::ending::Ending;
use crate::output::{BAD, Cell, GOOD, PLAIN, Table, WARN};

/// What the command promises.
pub(crate) const ABOUT: &str = "\
Reads manifests in any dialect (pods, or workloads with a pod template: as many pods as they have replicas), places them on the cluster as it \
is now with the scheduler's own code, and prints where each would go and what it would hold, or why it would wait. Nothing is created. \
Pods that wait already come first if they would in the cluster.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The manifests; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: String,
    /// Place by this policy instead of the cluster's (frag, binpack, spread, ...)
    #[arg(long)]
    policy: Option<String>,
}

/// Begins what admission would say.
const REFUSED: &str = "admission refuses it: ";

/// What would become of one pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    pod: String,
    /// The dialect it is written in; absent for an ordinary pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    dialect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<Grant>,
    /// Why it would wait, or would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
    /// Pods that would have to make room.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    evicts: Vec<String>,
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let text = read(&args.filename)?;
    let mut view = source.view().await?;
    if let Some(name) = &args.policy {
        choose(&mut view.policy.scheduling, name)?;
    }
    let namespace = source.key("x", "default").namespace.to_string();
    let pods = pods(&text, &namespace).with_context(|| format!("{} cannot be used", args.filename))?;
    let outcomes = place(&mut view, pods)?;
    source.output.print(&outcomes, |_| table(&outcomes))?;
    let fine = outcomes.iter().all(|outcome| outcome.node.is_some());
    Ok(if fine { Ending::Yes } else { Ending::No })
}

/// Places every pod by the policy of this name, whatever its dialect.
pub(crate) fn choose(policy: &mut Policy, name: &str) -> anyhow::Result<()> {
    policy.placement = Placement::named(name).map_err(|mistake| anyhow::anyhow!("--policy: {}", mistake.0))?;
    policy.by_dialect.clear();
    policy.by_pool.clear();
    Ok(())
}

fn read(name: &str) -> anyhow::Result<String> {
    if name == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
        return Ok(text);
    }
    std::fs::read_to_string(Path::new(name)).with_context(|| format!("{name} cannot be read"))
}

/// The pods of some manifests, each with a name and a namespace.
fn pods(text: &str, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).context("it is not YAML")?;
    let mut pods = Vec::new();
    for object in objects.iter().filter(|object| !object.is_null()) {
        let name = object["metadata"]["name"].as_str().or_else(|| object["metadata"]["generateName"].as_str());
        let kind = object["kind"].as_str().unwrap_or_default();
        let templates = pod_templates(object);
        if templates.is_empty() && !matches!(kind, "Namespace" | "Service" | "ConfigMap" | "Secret") {
            bail!("{kind:?} {:?} has no pods", name.unwrap_or_default());
        }
        let spec = &object["spec"];
        let copies = ["replicas", "parallelism"].iter().find_map(|field| spec[*field].as_u64()).unwrap_or(1);
        for template in templates {
            for copy in 0..copies {
                let mut pod = template.clone();
                let own = pod["metadata"]["name"].as_str().or(name).unwrap_or("pod").to_owned();
                let meta = &mut pod["metadata"];
                meta["name"] = json!(if copies > 1 { format!("{own}-{copy}") } else { own });
                if meta["namespace"].as_str().is_none() {
                    meta["namespace"] = object["metadata"]["namespace"].as_str().unwrap_or(namespace).into();
                }
                pods.push(pod);
            }
        }
    }
    if pods.is_empty() {
        bail!("there is no pod in it");
    }
    Ok(pods)
}

/// Adds the pods to the cluster's queue and looks at what the scheduler would do.
fn place(view: &mut View, pods: Vec<Value>) -> anyhow::Result<Vec<Outcome>> {
    let names = managed::names(&view.policy.dialects);
    let mut outcomes = Vec::new();
    let mut uids: Vec<Option<PodUid>> = Vec::new();
    for (n, mut json) in pods.into_iter().enumerate() {
        let labels = namespace_labels(view, &json);
        let key = PodKey::new(
            json["metadata"]["namespace"].as_str().unwrap_or_default(),
            json["metadata"]["name"].as_str().unwrap_or_default(),
        );
        let mut outcome =
            Outcome { pod: key.to_string(), dialect: None, node: None, grant: None, because: None, evicts: Vec::new() };
        let reading = parse(&PodManifest::new(&json).with_namespace_labels(&labels), &view.policy.dialects);
        match reading {
            Reading::Refused(mistakes) => {
                outcome.because = Some(format!("{REFUSED}{}", sentence(&mistakes)));
                outcomes.push(outcome);
                uids.push(None);
                continue;
            }
            Reading::NotOurs => {}
            Reading::Ask(ask, hints) => {
                // As admission does it: a node has so many slots, and no more containers with devices.
                for (container, slots) in &hints.slots {
                    add_slots(&mut json, container.as_str(), *slots);
                }
                outcome.dialect = serde_json::to_value(ask.dialect)?.as_str().map(str::to_owned);
                json["metadata"]["annotations"][keys::ASK] = serde_json::to_string(&ask)?.into();
            }
        }
        let uid = PodUid::from(format!("whatif-{n}"));
        json["metadata"]["uid"] = uid.as_str().into();
        let wire = serde_json::from_value(json).with_context(|| format!("{key} is no pod"))?;
        let seen = convert::pod(wire, |resource| managed::is_managed(&names, resource));
        view.snapshot.put_pod(Pod { created: view.now, ..seen.pod });
        outcomes.push(outcome);
        uids.push(Some(uid));
    }
    let plan = Engine::default().schedule_some(
        &mut view.snapshot,
        &view.policy.scheduling,
        view.now,
        |_: PodIx| true,
        usize::MAX,
    );
    for (outcome, uid) in outcomes.iter_mut().zip(uids) {
        let Some(uid) = uid else { continue };
        if let Some(bind) = plan.binds.iter().find(|bind| bind.pod == uid) {
            (outcome.node, outcome.grant) = (Some(bind.node.clone()), bind.grant.clone());
        }
        outcome.because = plan.waits.iter().find(|wait| wait.pod == uid).map(|wait| wait.reason.to_string());
        let evictions = plan.evictions.iter().filter(|e| e.makes_room_for.to_string() == outcome.pod);
        outcome.evicts = evictions.map(|e| e.key.to_string()).collect();
    }
    Ok(outcomes)
}

/// Lets a container ask for slots, beside what it asks for itself.
fn add_slots(pod: &mut Value, container: &str, slots: u32) {
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        if let Some(own) = containers.into_iter().flatten().find(|own| own["name"] == container) {
            for kind in ["limits", "requests"] {
                own["resources"][kind][keys::SLOT] = slots.to_string().into();
            }
            return;
        }
    }
}

fn namespace_labels(view: &View, pod: &Value) -> Value {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let labels = view.snapshot.surroundings().namespaces.get(namespace);
    let text = |text: &Arc<str>| text.to_string();
    labels.map_or(Value::Null, |labels| labels.iter().map(|(k, v)| (text(k), Value::from(text(v)))).collect())
}

fn table(outcomes: &[Outcome]) -> String {
    let mut table = Table::new(["POD", "DIALECT", "WOULD", "WHERE", "HOW, OR WHY NOT"]);
    for outcome in outcomes {
        let refused = outcome.because.as_ref().is_some_and(|because| because.starts_with(REFUSED));
        let (would, style) = match &outcome.node {
            Some(_) => ("run", GOOD),
            None if refused => ("be refused", BAD),
            None => ("wait", WARN),
        };
        let how = match (&outcome.grant, &outcome.because) {
            (Some(grant), _) => super::explain::devices(grant),
            (None, Some(because)) => because.clone(),
            (None, None) => String::new(),
        };
        let evicts =
            if outcome.evicts.is_empty() { String::new() } else { format!(" once {} left", outcome.evicts.join(", ")) };
        table.row([
            Cell::from(&outcome.pod),
            Cell::from(outcome.dialect.as_deref().unwrap_or("-")),
            Cell(would.into(), style),
            Cell::from(outcome.node.as_ref().map_or("-", |node| node.as_str())),
            Cell(format!("{how}{evicts}"), PLAIN),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_takes_slots_beside_what_it_asks_for() {
        let mut pod = json!({"spec": {
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}],
        }});
        add_slots(&mut pod, "c", 2);
        add_slots(&mut pod, "i", 1);
        let slots = |amount: &str| json!({(keys::SLOT): amount});
        assert_eq!(
            pod["spec"]["initContainers"][0]["resources"],
            json!({"limits": slots("1"), "requests": slots("1")})
        );
        let limits = json!({"cpu": "1", (keys::SLOT): "2"});
        assert_eq!(pod["spec"]["containers"][0]["resources"], json!({"limits": limits, "requests": slots("2")}));
    }
}
