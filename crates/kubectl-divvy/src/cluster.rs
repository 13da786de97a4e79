//! The cluster a command looks at: a running one, or one that was written into a file.

mod file;
mod live;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use divvy_api::convert::opted_in;
use divvy_api::policy::ClusterPolicy;
use divvy_core::id::{NodeName, PodKey};
use divvy_core::snapshot::{PodState, Snapshot};
use divvy_core::time::Time;
use kube::Client;
use serde_json::Value;

pub(crate) use file::{File, NodeNote};
pub(crate) use live::{gather, list_or_none};

use crate::ending::NotFound;
use crate::output::Format;

/// Where to look, and how to print what was seen.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Source {
    /// Look at a cluster that `kubectl divvy snapshot` wrote into a file, instead of a running one
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) snapshot: Option<PathBuf>,
    /// The kubeconfig to use
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context to use
    #[arg(long, global = true)]
    context: Option<String>,
    /// The namespace of the pods named
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true, global = true)]
    pub(crate) output: Format,
}

/// A cluster as the scheduler would see it, and what else people want to know of it.
pub(crate) struct View {
    /// Nodes, pods, books.
    pub(crate) snapshot: Snapshot,
    /// The policy in force.
    pub(crate) policy: ClusterPolicy,
    /// When this was true.
    pub(crate) now: Time,
    /// What else is known of nodes.
    pub(crate) notes: BTreeMap<NodeName, NodeNote>,
    /// GpuBudgets and ClusterGpuBudgets, as they are.
    pub(crate) budgets: Vec<Value>,
    /// GpuQuotas, as they are.
    pub(crate) quotas: Vec<Value>,
    /// The namespace of pods that are named without one.
    namespace: String,
}

impl Source {
    /// The cluster to look at.
    pub(crate) async fn view(&self) -> anyhow::Result<View> {
        let (file, namespace) = match &self.snapshot {
            Some(path) => (File::read(path)?, None),
            None => {
                let client = self.client().await?;
                (gather(&client).await?, Some(client.default_namespace().to_owned()))
            }
        };
        let namespace = self.namespace.clone().or(namespace).unwrap_or_else(|| "default".into());
        let view = View::of(file, namespace);
        match &self.snapshot {
            Some(path) => view
                .with_context(|| format!("{} cannot be used, `kubectl divvy snapshot` writes another", path.display())),
            None => view,
        }
    }

    /// The running cluster; a file cannot be changed.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        anyhow::ensure!(self.snapshot.is_none(), "this command needs a running cluster: leave --snapshot out");
        Ok(divvy_cluster::client::connect_in(self.kubeconfig.as_deref(), self.context.as_deref()).await?)
    }

    /// The namespace somebody asked for.
    pub(crate) fn wanted_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The pod somebody named: `POD` or `NAMESPACE/POD`.
    pub(crate) fn key(&self, name: &str, default: &str) -> PodKey {
        match name.split_once('/') {
            Some((namespace, name)) => PodKey::new(namespace, name),
            None => PodKey::new(self.namespace.as_deref().unwrap_or(default), name),
        }
    }
}

impl View {
    /// Makes a view of what a file says.
    pub(crate) fn of(file: File, namespace: String) -> anyhow::Result<View> {
        let policy = ClusterPolicy::read(&file.policy).context("the policy in force cannot be read")?;
        let mut record = file.cluster;
        for node in &mut record.nodes {
            let opted = opted_in(&node.labels);
            if opted == Some(false) || (policy.devices.only_opted_in && opted != Some(true)) {
                node.inventory.devices.clear();
            }
            policy.devices.offer(node.name.as_str()).lower(&mut node.inventory.devices);
        }
        Ok(View {
            snapshot: record.restore()?,
            policy,
            now: file.taken_at,
            notes: file.nodes,
            budgets: file.budgets,
            quotas: file.quotas,
            namespace,
        })
    }

    /// The pod somebody named.
    pub(crate) fn pod(&self, source: &Source, name: &str) -> anyhow::Result<&PodState> {
        let key = source.key(name, &self.namespace);
        let found = self.snapshot.pods().map(|(_, state)| state).find(|state| state.pod().key == key);
        found.ok_or_else(|| {
            let near: Vec<String> = self
                .snapshot
                .pods()
                .map(|(_, state)| &state.pod().key)
                .filter(|k| k.name == key.name)
                .map(ToString::to_string)
                .collect();
            let hint = if near.is_empty() {
                "pods that ended, and ordinary pods of other schedulers that wait, are not Divvy's to know".to_owned()
            } else {
                format!("did you mean {}?", near.join(" or "))
            };
            NotFound(format!("there is no pod {key} here; {hint}")).into()
        })
    }
}
