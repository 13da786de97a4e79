//! The control plane's effects on the store: the same rules an API server applies, one write each.

use divvy_api::wire;
use divvy_cluster::effect::{About, Bind, Effect, Effects, Event, Failure, Target};
use divvy_core::id::PodUid;
use serde_json::{Value, json};

use super::{Embedded, Store, condition, stamp};

impl Effects for Embedded {
    async fn carry_out(&self, effect: &Effect) -> Result<(), Failure> {
        self.lock().carry_out(effect)
    }

    async fn look(&self, target: &Target) -> Result<Option<wire::Pod>, Failure> {
        Ok(self.lock().look(target))
    }
}

impl Store {
    /// Does one thing, at once.
    pub fn carry_out(&mut self, effect: &Effect) -> Result<(), Failure> {
        match effect {
            Effect::Bind(bind) => self.bind(bind),
            Effect::Evict(evict) => {
                self.find(&evict.target).ok_or(Failure::Gone)?;
                let now = stamp(self.now);
                let mark = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                    "message": evict.reason, "lastTransitionTime": now});
                self.change_pod(&evict.target.uid, |pod| condition(pod, mark));
                self.delete(&evict.target.uid);
                Ok(())
            }
            Effect::Tell(Event { about, reason, message, warning }) => {
                let about = match about {
                    About::Pod(target) => target.pod.to_string(),
                    About::Node(node) => node.to_string(),
                };
                self.tell(about, reason, message.clone(), *warning);
                Ok(())
            }
            Effect::Explain(explain) => {
                let now = stamp(self.now);
                let why = json!({"type": "PodScheduled", "status": "False", "reason": explain.reason,
                    "message": explain.message, "lastTransitionTime": now});
                self.change_found(&explain.target, |pod| {
                    condition(pod, why);
                    if let Some(node) = &explain.nominated {
                        pod["status"]["nominatedNodeName"] = json!(node);
                    }
                })
            }
            Effect::Annotate(annotate) => self.change_found(&annotate.target, |pod| {
                for (name, value) in &annotate.annotations {
                    match (value, pod["metadata"]["annotations"].as_object_mut()) {
                        (None, Some(annotations)) => drop(annotations.remove(name)),
                        (None, None) => {}
                        (Some(value), _) => pod["metadata"]["annotations"][name] = json!(value),
                    }
                }
            }),
            Effect::Condition(said) => {
                let now = stamp(self.now);
                let status = if said.holds { "True" } else { "False" };
                let said_so = json!({"type": said.kind, "status": status, "reason": said.reason,
                    "message": said.message, "lastTransitionTime": now});
                self.change_found(&said.target, |pod| condition(pod, said_so))
            }
            Effect::LiftGate(lift) => self.change_found(&lift.target, |pod| {
                if let Some(gates) = pod["spec"]["schedulingGates"].as_array_mut() {
                    gates.retain(|gate| gate["name"] != lift.gate.as_str());
                }
                for (name, value) in &lift.annotations {
                    pod["metadata"]["annotations"][name] = json!(value);
                }
            }),
            Effect::AcknowledgePolicy { .. } => Ok(()),
        }
    }

    /// A pod as it is now; none when it is gone.
    pub fn look(&self, target: &Target) -> Option<wire::Pod> {
        serde_json::from_value(self.find(target)?.clone()).ok()
    }

    /// The node's name and the grant in one write, on the version that was decided on.
    fn bind(&mut self, bind: &Bind) -> Result<(), Failure> {
        let pod = self.find(&bind.target).ok_or(Failure::Gone)?;
        let conflict = |message: &str| Err(Failure::Conflict { message: message.to_owned() });
        if pod["metadata"]["resourceVersion"] != bind.version.as_str() {
            return conflict("the object has been modified");
        }
        if pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            return conflict("the pod is already assigned to a node");
        }
        if !self.nodes.contains_key(bind.node.as_str()) {
            return Err(Failure::Refused { code: 404, message: format!("nodes {:?} not found", bind.node) });
        }
        self.binds += 1;
        let now = stamp(self.now);
        self.change_found(&bind.target, |pod| {
            pod["spec"]["nodeName"] = json!(bind.node);
            for (name, value) in &bind.annotations {
                pod["metadata"]["annotations"][name] = json!(value);
            }
            condition(pod, json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now}));
        })
    }

    fn change_found(&mut self, target: &Target, change: impl FnOnce(&mut Value)) -> Result<(), Failure> {
        self.find(target).ok_or(Failure::Gone)?;
        self.change_pod(&target.uid, change);
        Ok(())
    }

    /// The raw object, for tests and for people who look.
    pub fn pod(&self, uid: &PodUid) -> Option<&Value> {
        self.pods.get(uid)
    }
}
