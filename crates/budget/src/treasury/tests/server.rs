//! An API server of a few maps, and a controller on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_api::budget::{BudgetObject, BudgetStatus, ClusterBudgetObject, EntryObject};
use divvy_api::policy::ClusterPolicy;
use divvy_api::wire::Meta;
use divvy_cluster::Failure;
use divvy_core::ask::{Class, Role};
use divvy_core::budget::{Cut, HeldDevice, Page};
use divvy_core::device::{Device, DeviceKind, Inventory, Isolation};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::id::{NodeName, PodKey};
use divvy_core::time::Time;
use divvy_core::units::{Bytes, Share};
use serde_json::{Value, json};

use crate::facts::PodFacts;
use crate::news::{Kind, News, NodeSeen};
use crate::treasury::{Settings, StoredCharges, Treasury, Written};
use crate::write::Write;

/// The beginning of the tests: 2026-11-16, a Monday, midnight UTC.
pub(super) const BASE: u64 = 1_794_787_200_000;

/// So many seconds later.
pub(super) fn t(seconds: u64) -> Time {
    Time(BASE + seconds * 1000)
}

const MEMORY: u64 = 141;

pub(super) fn device(share: u32, mib: u64) -> HeldDevice {
    HeldDevice {
        device: "GPU-0".into(),
        model: "NVIDIA-H200".into(),
        share: Share(share),
        memory: Bytes::mib(mib),
        of_share: Share::WHOLE,
        of_memory: Bytes::gib(MEMORY),
        alone: false,
    }
}

/// A pod that holds a slice of the one device from a moment on.
pub(super) fn facts(namespace: &str, name: &str, share: u32, mib: u64, from: Time) -> PodFacts {
    let slice = Slice {
        device: "GPU-0".into(),
        kind: DeviceKind::Gpu,
        memory: Bytes::mib(mib),
        memory_limit: Bytes::mib(mib),
        share: Share(share),
        share_limit: Share(share),
        exclusive: false,
        isolation: Isolation::Intercept,
        partition: None,
    };
    let containers = vec![ContainerGrant { name: "main".into(), role: Role::Main, slices: vec![slice] }];
    let grant = Grant { v: 1, at: from.0, policy: "frag".into(), containers, claim: None };
    PodFacts {
        uid: name.into(),
        key: PodKey::new(namespace, name),
        node: Some("n0".into()),
        asks: true,
        wants: None,
        class: Some(Class::Guarantee),
        grants: vec![Arc::new(grant)],
        init_done: Some(Time(0)),
        finished: None,
        over: false,
        evicted: false,
    }
}

/// What is in the API server, and a controller that watches it.
pub(super) struct Server {
    settings: Settings,
    pub(super) treasury: Treasury,
    budgets: BTreeMap<(String, String), BudgetObject>,
    clusters: BTreeMap<String, ClusterBudgetObject>,
    entries: BTreeMap<String, EntryObject>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) nodes: BTreeMap<String, NodeSeen>,
    pub(super) pods: BTreeMap<String, PodFacts>,
    stored: BTreeMap<String, StoredCharges>,
    policy: Arc<ClusterPolicy>,
    versions: u64,
    pub(super) refuse_charges: bool,
    acknowledged: BTreeMap<String, Cut>,
}

impl Server {
    pub(super) fn new(settings: Settings) -> Server {
        let gpu = Device::gpu("GPU-0", 0, "NVIDIA-H200", Bytes::gib(MEMORY));
        let node = NodeSeen {
            name: "n0".into(),
            inventory: Inventory { devices: vec![gpu], ..Inventory::default() },
            agent: Some("127.0.0.1:1".into()),
            cut: None,
        };
        let mut server = Server {
            treasury: Treasury::new(settings.clone()),
            settings,
            budgets: BTreeMap::new(),
            clusters: BTreeMap::new(),
            entries: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: [("n0".to_owned(), node)].into(),
            pods: BTreeMap::new(),
            stored: BTreeMap::new(),
            policy: Arc::default(),
            versions: 0,
            refuse_charges: false,
            acknowledged: BTreeMap::new(),
        };
        server.restart(t(0));
        server
    }

    /// The controller dies, and another begins with what the API server knows.
    pub(super) fn restart(&mut self, now: Time) {
        let mut treasury = Treasury::new(self.settings.clone());
        let mut news: Vec<News> = vec![News::Policy(self.policy.clone())];
        news.extend(self.namespaces.iter().map(|(name, labels)| News::Namespace(name.as_str().into(), labels.clone())));
        let seen = |node: &NodeSeen| NodeSeen { cut: self.acknowledged(node.name.as_str()), ..node.clone() };
        news.extend(self.nodes.values().map(|node| News::Node(Box::new(seen(node)))));
        news.extend(self.budgets.values().map(|b| News::Budget(Box::new(b.clone()))));
        news.extend(self.clusters.values().map(|b| News::Cluster(Box::new(b.clone()))));
        news.extend(self.entries.values().map(|e| News::Entry(Box::new(e.clone()))));
        news.extend(self.pods.values().map(|p| News::Pod(Box::new(p.clone()))));
        news.extend(Kind::ALL.map(News::Complete));
        news.into_iter().for_each(|n| treasury.hear(n, now));
        let from = treasury.needed_from(now);
        let needed = |c: &&StoredCharges| crate::calendar::read(&c.spec.hour).is_some_and(|h| h.0 + 3_600_000 > from.0);
        treasury.open_books(self.stored.values().filter(needed).cloned().collect(), now);
        self.treasury = treasury;
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    fn meta(&mut self, namespace: &str, name: &str, at: Time) -> Meta {
        let stamp = jiff::Timestamp::from_millisecond(at.0 as i64).unwrap();
        let mut meta: Meta = serde_json::from_value(json!({"creationTimestamp": stamp.to_string()})).unwrap();
        meta.name = name.into();
        meta.namespace = namespace.into();
        meta.uid = name.into();
        meta.resource_version = self.version();
        meta
    }

    pub(super) fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<String, String> = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        self.namespaces.insert(name.into(), labels.clone());
        self.treasury.hear(News::Namespace(name.into(), labels), t(0));
    }

    pub(super) fn budget(&mut self, namespace: &str, name: &str, spec: Value, at: Time) {
        if !self.namespaces.contains_key(namespace) {
            self.namespace(namespace, &[]);
        }
        let metadata = self.meta(namespace, name, at);
        let key = (namespace.to_owned(), name.to_owned());
        let status = self.budgets.get(&key).map(|b| b.status.clone()).unwrap_or_default();
        let object = BudgetObject { metadata, spec: serde_json::from_value(spec).unwrap(), status };
        self.budgets.insert(key, object.clone());
        self.treasury.hear(News::Budget(Box::new(object)), at);
    }

    pub(super) fn cluster(&mut self, name: &str, spec: Value, at: Time) {
        let metadata = self.meta("", name, at);
        let object =
            ClusterBudgetObject { metadata, spec: serde_json::from_value(spec).unwrap(), status: Default::default() };
        self.clusters.insert(name.into(), object.clone());
        self.treasury.hear(News::Cluster(Box::new(object)), at);
    }

    pub(super) fn entry(&mut self, namespace: &str, name: &str, spec: Value, at: Time) {
        let metadata = self.meta(namespace, name, at);
        let object = EntryObject { metadata, spec: serde_json::from_value(spec).unwrap(), status: () };
        self.entries.insert(name.into(), object.clone());
        self.treasury.hear(News::Entry(Box::new(object)), at);
    }

    pub(super) fn policy(&mut self, spec: Value) {
        self.policy = Arc::new(ClusterPolicy::read(&serde_json::from_value(spec).unwrap()).unwrap());
        self.treasury.hear(News::Policy(self.policy.clone()), t(0));
    }

    pub(super) fn quota(&mut self, namespace: &str, name: &str, spec: Value) {
        let metadata = self.meta(namespace, name, t(0));
        let object = divvy_api::budget::QuotaObject {
            metadata,
            spec: serde_json::from_value(spec).unwrap(),
            status: Default::default(),
        };
        self.treasury.hear(News::Quota(Box::new(object)), t(0));
    }

    pub(super) fn resource_quota(&mut self, namespace: &str, name: &str, hard: Option<&[(&str, &str)]>) {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let entry = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let news = match hard {
            Some(hard) => News::ResourceQuota(namespace, name, hard.iter().map(entry).collect()),
            None => News::ResourceQuotaGone(namespace, name),
        };
        self.treasury.hear(news, t(0));
    }

    /// A node like another.
    pub(super) fn node(&mut self, name: &str, like: &NodeSeen) {
        let node = NodeSeen { name: name.into(), ..like.clone() };
        self.nodes.insert(name.into(), node.clone());
        self.treasury.hear(News::Node(Box::new(node)), t(0));
    }

    /// Up to where a node was told that its journal is stored.
    pub(super) fn acknowledged(&self, node: &str) -> Option<Cut> {
        self.acknowledged.get(node).copied()
    }

    pub(super) fn put_pod(&mut self, facts: PodFacts, now: Time) {
        self.pods.insert(facts.uid.to_string(), facts.clone());
        self.treasury.hear(News::Pod(Box::new(facts)), now);
    }

    pub(super) fn finish(&mut self, name: &str, at: Time, evicted: bool, now: Time) {
        let Some(mut facts) = self.pods.get(name).cloned() else { return };
        (facts.finished, facts.over, facts.evicted) = (Some(at), true, evicted);
        self.put_pod(facts, now);
    }

    pub(super) fn delete_pod(&mut self, name: &str, now: Time) {
        if self.pods.remove(name).is_some() {
            self.treasury.hear(News::PodGone(name.into()), now);
        }
    }

    /// A node's agent answers with this page when it is asked for what is not read yet.
    pub(super) fn page(&mut self, asked: &str, page: Page, now: Time) {
        let asked = NodeName::from(asked);
        let after = self.treasury.read_from(&asked);
        self.treasury.hear(News::Page(asked, after, page), now);
    }

    pub(super) fn pass(&mut self, now: Time) -> Vec<Write> {
        self.pass_until(now, usize::MAX)
    }

    /// A pass of which only the first so many writes come to be before the controller dies.
    pub(super) fn pass_until(&mut self, now: Time, most: usize) -> Vec<Write> {
        let writes = self.treasury.pass(now).writes;
        for write in writes.iter().take(most) {
            let outcome = self.carry_out(write, now);
            self.treasury.done(write, &outcome, now);
        }
        writes
    }

    fn carry_out(&mut self, write: &Write, now: Time) -> Result<Written, Failure> {
        let conflict = || Failure::Conflict { message: "another version".into() };
        let version = self.version();
        let mut written = Written::default();
        written.metadata.resource_version = version.clone();
        match write {
            Write::Budget { key, version: on, status } => {
                let place = key.namespace.as_ref().map(|ns| (ns.to_string(), key.name.to_string()));
                let (meta, kept) = match &place {
                    Some(place) => {
                        let object = self.budgets.get_mut(place).ok_or(Failure::Gone)?;
                        (&mut object.metadata, &mut object.status)
                    }
                    None => {
                        let object = self.clusters.get_mut(&*key.name).ok_or(Failure::Gone)?;
                        (&mut object.metadata, &mut object.status)
                    }
                };
                if meta.resource_version != *on {
                    return Err(conflict());
                }
                // As it would travel.
                *kept = serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap();
                meta.resource_version = version;
            }
            Write::Template { name, status, .. } => {
                let object = self.clusters.get_mut(name).ok_or(Failure::Gone)?;
                object.status = (**status).clone();
                object.metadata.resource_version = version;
            }
            Write::Copy { namespace, name, spec } => {
                let key = (namespace.to_string(), name.clone());
                match spec {
                    None => {
                        self.budgets.remove(&key);
                        self.treasury.hear(News::BudgetGone(key.0, key.1), now);
                    }
                    Some(spec) => {
                        let mut metadata = self.meta(namespace.as_str(), name, now);
                        metadata.labels.insert(divvy_core::keys::BUDGET_TEMPLATE.into(), name.clone());
                        let spec = divvy_api::budget::GpuBudgetSpec { budget: (**spec).clone() };
                        let object = BudgetObject { metadata, spec, status: Default::default() };
                        self.budgets.insert(key, object.clone());
                        self.treasury.hear(News::Budget(Box::new(object)), now);
                    }
                }
            }
            Write::QuotaCopy { namespace, name, spec } => match spec {
                None => self.treasury.hear(News::QuotaGone(namespace.to_string(), name.clone()), now),
                Some(spec) => {
                    let mut metadata = self.meta(namespace.as_str(), name, now);
                    metadata.labels.insert(divvy_core::keys::RESOURCE_QUOTA.into(), name.clone());
                    let status = Default::default();
                    let object = divvy_api::budget::QuotaObject { metadata, spec: (**spec).clone(), status };
                    self.treasury.hear(News::Quota(Box::new(object)), now);
                }
            },
            Write::Charges { name, version: on, spec, .. } => {
                if self.refuse_charges {
                    return Err(Failure::Unavailable { message: "not today".into() });
                }
                if self.stored.get(name).map(|c| c.version.clone()) != *on {
                    return Err(conflict());
                }
                let spec = serde_json::from_value(serde_json::to_value(spec).unwrap()).unwrap();
                self.stored.insert(name.clone(), StoredCharges { name: name.clone(), version, spec });
            }
            Write::Class { target, class, .. } => {
                let facts = self.pods.get_mut(target.uid.as_str()).ok_or(Failure::Gone)?;
                facts.class = Some(*class);
                let facts = facts.clone();
                self.treasury.hear(News::Pod(Box::new(facts)), now);
            }
            Write::Acknowledge { node, cut } => _ = self.acknowledged.insert(node.to_string(), *cut),
            Write::Quota { .. } | Write::Forget { .. } | Write::Stop { .. } => {}
        }
        Ok(written)
    }

    pub(super) fn status(&self, namespace: &str, name: &str) -> BudgetStatus {
        self.budgets[&(namespace.to_owned(), name.to_owned())].status.clone()
    }

    pub(super) fn cluster_status(&self, name: &str) -> BudgetStatus {
        self.clusters[name].status.clone()
    }

    pub(super) fn class(&self, name: &str) -> Option<Class> {
        self.pods[name].class
    }

    /// All charges, as text.
    pub(super) fn charges(&self) -> String {
        self.stored.values().map(|c| serde_json::to_string(&c.spec).unwrap()).collect::<Vec<_>>().join("\n")
    }
}
