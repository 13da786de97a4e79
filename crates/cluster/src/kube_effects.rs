//! Effects on a real API server.

mod annotate;
mod bind;
mod condition;
mod event;
mod evict;
mod explain;
mod gate;
mod policy;
mod volume;

use std::sync::Arc;

use divvy_api::wire;
use divvy_core::id::PodKey;
use kube::Client;

use crate::effect::{Effect, Effects, Failure, Target};
use crate::request;

/// Carries effects out through the Kubernetes API.
#[derive(Clone)]
pub struct KubeEffects {
    client: Client,
    /// Who we are, in the events we write.
    reporter: Arc<str>,
}

impl KubeEffects {
    /// On this cluster, as this reporter (a scheduler's name).
    pub fn new(client: Client, reporter: &str) -> KubeEffects {
        KubeEffects { client, reporter: reporter.into() }
    }
}

impl Effects for KubeEffects {
    async fn carry_out(&self, effect: &Effect) -> Result<(), Failure> {
        match effect {
            Effect::Bind(bind) => bind::carry_out(&self.client, bind).await,
            Effect::Evict(evict) => evict::carry_out(&self.client, evict).await,
            Effect::Tell(event) => event::carry_out(&self.client, &self.reporter, event).await,
            Effect::Explain(explain) => explain::carry_out(&self.client, explain).await,
            Effect::Annotate(annotate) => annotate::carry_out(&self.client, annotate).await,
            Effect::Condition(condition) => condition::carry_out(&self.client, condition).await,
            Effect::LiftGate(lift) => gate::carry_out(&self.client, lift).await,
            Effect::AcknowledgePolicy { generation, problem } => {
                policy::carry_out(&self.client, *generation, problem.as_deref()).await
            }
        }
    }

    async fn look(&self, target: &Target) -> Result<Option<wire::Pod>, Failure> {
        match request::get::<wire::Pod>(&self.client, &pod_path(&target.pod)).await {
            Ok(pod) if pod.metadata.uid == target.uid.as_str() => Ok(Some(pod)),
            Ok(_) | Err(Failure::Gone) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// The path of a pod.
fn pod_path(pod: &PodKey) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}
