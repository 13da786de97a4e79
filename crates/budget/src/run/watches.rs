//! What is watched, turned into news.

use std::sync::Arc;

use divvy_api::budget::{BudgetObject, ClusterBudgetObject, EntryObject, QuotaObject};
use divvy_api::convert;
use divvy_api::policy::{ClusterPolicy, NAME};
use divvy_api::wire::{NamespaceObject, Node, PolicyObject, ResourceQuota};
use divvy_cluster::watch::{Gone, Seen, follow};
use divvy_core::id::{Namespace, NodeName, PodUid};
use divvy_core::keys;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{mpsc, watch};

use crate::facts::{EveryPod, PodFacts};
use crate::news::{Kind, News, NodeSeen};

/// One future per kind, to be supervised by name; each tells `to` what it sees until `to` is closed.
pub fn watches(client: &Client, to: &mpsc::Sender<News>) -> Vec<(&'static str, BoxFuture<'static, ()>)> {
    let (never, _) = watch::channel(0);
    let mut all: Vec<(&'static str, BoxFuture<'static, ()>)> = Vec::new();
    macro_rules! watch {
        ($name:literal, $kind:expr, $object:ty, $applied:expr, $gone:expr) => {{
            let (applied, gone) = ($applied, $gone);
            let turn = move |seen: Seen<$object>| match seen {
                Seen::Applied(object) => applied(object),
                Seen::Gone(object) => gone(object),
                Seen::Complete(_) => Some(News::Complete($kind)),
            };
            all.push(($name, Box::pin(follow::<$object, News>(client.clone(), to.clone(), never.subscribe(), turn))));
        }};
    }
    watch!(
        "budget: budgets",
        Kind::Budgets,
        BudgetObject,
        |object: BudgetObject| Some(News::Budget(Box::new(object))),
        |gone: Gone| Some(News::BudgetGone(gone.namespace, gone.name))
    );
    watch!(
        "budget: cluster budgets",
        Kind::Clusters,
        ClusterBudgetObject,
        |object: ClusterBudgetObject| Some(News::Cluster(Box::new(object))),
        |gone: Gone| Some(News::ClusterGone(gone.name))
    );
    watch!(
        "budget: entries",
        Kind::Entries,
        EntryObject,
        |object: EntryObject| Some(News::Entry(Box::new(object))),
        // What was booked stays booked.
        |_: Gone| None
    );
    watch!(
        "budget: quotas",
        Kind::Quotas,
        QuotaObject,
        |object: QuotaObject| Some(News::Quota(Box::new(object))),
        |gone: Gone| Some(News::QuotaGone(gone.namespace, gone.name))
    );
    watch!(
        "budget: resource quotas",
        Kind::ResourceQuotas,
        ResourceQuota,
        |object: ResourceQuota| {
            let (meta, hard) = (object.metadata, object.spec.hard);
            Some(News::ResourceQuota(meta.namespace, meta.name, hard))
        },
        |gone: Gone| Some(News::ResourceQuotaGone(gone.namespace, gone.name))
    );
    watch!(
        "budget: namespaces",
        Kind::Namespaces,
        NamespaceObject,
        |object: NamespaceObject| Some(News::Namespace(Namespace::from(object.metadata.name), object.metadata.labels)),
        |gone: Gone| Some(News::NamespaceGone(Namespace::from(gone.name)))
    );
    let (in_force, policy) = watch::channel(Arc::<ClusterPolicy>::default());
    let set = move |policy: Arc<ClusterPolicy>| {
        in_force.send_replace(policy.clone());
        Some(News::Policy(policy))
    };
    let unset = set.clone();
    watch!(
        "budget: policy",
        Kind::Policy,
        PolicyObject,
        move |object: PolicyObject| match ClusterPolicy::read(&object.spec) {
            Ok(policy) if object.metadata.name == NAME => set(Arc::new(policy)),
            Ok(_) => None,
            Err(problem) => {
                tracing::error!(%problem, "the policy stays as it was");
                None
            }
        },
        move |gone: Gone| if gone.name == NAME { unset(Arc::default()) } else { None }
    );
    watch!(
        "budget: nodes",
        Kind::Nodes,
        Node,
        move |object: Node| {
            let note = |key: &str| object.metadata.annotations.get(key).cloned();
            let (agent, cut) = (note(keys::AGENT), note(keys::JOURNAL_CUT));
            let (mut node, _) = convert::node(object);
            policy.borrow().devices.offer(node.name.as_str()).lower(&mut node.inventory.devices);
            let cut = cut.and_then(|text| serde_json::from_str(&text).ok());
            Some(News::Node(Box::new(NodeSeen { name: node.name, inventory: node.inventory, agent, cut })))
        },
        |gone: Gone| Some(News::NodeGone(NodeName::from(gone.name)))
    );
    watch!(
        "budget: pods",
        Kind::Pods,
        EveryPod,
        |pod: EveryPod| PodFacts::read(&pod.0).map(|facts| News::Pod(Box::new(facts))),
        |gone: Gone| Some(News::PodGone(PodUid::from(gone.uid)))
    );
    all
}
