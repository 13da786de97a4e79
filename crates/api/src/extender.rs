//! The wire types of kube-scheduler's extender protocol (`k8s.io/kube-scheduler/extender/v1`). Names go out in PascalCase, and are
//! read in any case.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::anycase;
use crate::wire::Pod;

/// What `filter` and `prioritize` are asked.
#[derive(Debug, Deserialize)]
pub struct FilterArgs {
    /// The pod to place.
    pub pod: Pod,
    /// The candidates, where the extender keeps no cache of nodes (`nodeCacheCapable: false`).
    #[serde(default)]
    pub nodes: Option<NodeList>,
    /// The candidates' names, where it does.
    #[serde(default, rename = "nodenames")]
    pub node_names: Option<Vec<String>>,
}

impl FilterArgs {
    /// Reads a request body.
    pub fn parse(json: &[u8]) -> Result<FilterArgs, serde_json::Error> {
        anycase::from_slice(json)
    }
}

/// A list of nodes whose items are passed back as they came.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct NodeList {
    /// The nodes, untouched.
    #[serde(default)]
    pub items: Vec<Box<RawValue>>,
}

impl NodeList {
    /// Nodes of which nothing but the name is told.
    pub fn of_names(names: &[String]) -> NodeList {
        let item = |name: &String| serde_json::value::to_raw_value(&serde_json::json!({"metadata": {"name": name}}));
        NodeList { items: names.iter().filter_map(|name| item(name).ok()).collect() }
    }

    /// The name of each node, empty where it has none.
    pub fn names(&self) -> Vec<String> {
        #[derive(Deserialize)]
        struct Named {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            name: String,
        }
        let name =
            |item: &RawValue| serde_json::from_str::<Named>(item.get()).map(|n| n.metadata.name).unwrap_or_default();
        self.items.iter().map(|item| name(item)).collect()
    }
}

/// What `filter` answers.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FilterResult {
    /// Nodes that remain, when nodes were sent.
    pub nodes: Option<NodeList>,
    /// Names that remain, when names were sent.
    pub node_names: Option<Vec<String>>,
    /// Nodes that do not fit, with the reason; preempting on them may help.
    pub failed_nodes: BTreeMap<String, String>,
    /// Nodes that do not fit whatever is preempted there.
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// Set when the question could not be answered at all.
    pub error: String,
}

/// What `prioritize` answers for one node: a score from 0 to 10.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority {
    /// The node.
    pub host: String,
    /// Its score.
    pub score: i64,
}

/// The highest score an extender may give.
pub const MAX_SCORE: i64 = 10;

/// What `bind` is asked.
#[derive(Debug, Deserialize)]
pub struct BindArgs {
    /// The pod's name.
    #[serde(rename = "podname")]
    pub pod_name: String,
    /// The pod's namespace.
    #[serde(rename = "podnamespace")]
    pub pod_namespace: String,
    /// The pod's uid.
    #[serde(rename = "poduid", default)]
    pub pod_uid: String,
    /// The node kube-scheduler chose.
    pub node: String,
}

impl BindArgs {
    /// Reads a request body.
    pub fn parse(json: &[u8]) -> Result<BindArgs, serde_json::Error> {
        anycase::from_slice(json)
    }
}

/// What `bind` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindResult {
    /// Empty when the pod is bound.
    pub error: String,
}

/// What `preempt` is asked: on each node, whom kube-scheduler would evict.
#[derive(Debug, Deserialize)]
pub struct PreemptArgs {
    /// The pod that needs room.
    pub pod: Pod,
    /// Victims as whole pods, where the extender keeps no cache.
    #[serde(default, rename = "nodenametovictims", deserialize_with = "anycase::map")]
    pub victims: BTreeMap<String, Victims>,
    /// Victims by uid, where it does.
    #[serde(default, rename = "nodenametometavictims", deserialize_with = "anycase::map")]
    pub meta_victims: BTreeMap<String, MetaVictims>,
}

impl PreemptArgs {
    /// Reads a request body.
    pub fn parse(json: &[u8]) -> Result<PreemptArgs, serde_json::Error> {
        anycase::from_slice(json)
    }
}

/// Victims on one node, as pods.
#[derive(Debug, Default, Deserialize)]
pub struct Victims {
    /// The pods.
    #[serde(default)]
    pub pods: Option<Vec<Pod>>,
    /// How many of them are protected by a disruption budget that has nothing left.
    #[serde(default, rename = "numpdbviolations")]
    pub pdb_violations: i64,
}

/// Victims on one node, by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MetaVictims {
    /// The pods.
    #[serde(default, deserialize_with = "anycase::list")]
    pub pods: Vec<MetaPod>,
    /// How many of them are protected by a disruption budget that has nothing left.
    #[serde(default, rename = "numpdbviolations")]
    pub pdb_violations: i64,
}

/// A pod by uid.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MetaPod {
    /// Its uid.
    pub uid: String,
}

/// What `preempt` answers: the nodes where preemption helps, and whom to evict there.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PreemptResult {
    /// Node to victims.
    pub node_name_to_meta_victims: BTreeMap<String, MetaVictimsOut>,
}

/// Victims on one node, as they go out.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetaVictimsOut {
    /// The pods.
    pub pods: Vec<MetaPodOut>,
    /// How many of them are protected by a disruption budget that has nothing left.
    #[serde(rename = "NumPDBViolations")]
    pub pdb_violations: i64,
}

/// A pod by uid, as it goes out.
#[derive(Debug, Serialize)]
pub struct MetaPodOut {
    /// Its uid.
    #[serde(rename = "UID")]
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case() {
        for json in [
            r#"{"PodName":"a","PodNamespace":"b","PodUID":"c","Node":"n"}"#,
            r#"{"podName":"a","podNamespace":"b","podUID":"c","node":"n"}"#,
            r#"{"podname":"a","PODNAMESPACE":"b","poduid":"c","nOde":"n","later":"ignored"}"#,
        ] {
            let args = BindArgs::parse(json.as_bytes()).unwrap();
            assert_eq!(
                (args.pod_name.as_str(), args.pod_namespace.as_str(), args.pod_uid.as_str(), args.node.as_str()),
                ("a", "b", "c", "n")
            );
        }
    }

    #[test]
    fn a_pod_inside_keeps_its_own_case() {
        let json = r#"{"Pod":{"metadata":{"name":"p","namespace":"d","labels":{"Team":"x"}}},"Nodes":null,"NodeNames":["n1","n2"]}"#;
        let args = FilterArgs::parse(json.as_bytes()).unwrap();
        assert_eq!(args.pod.metadata.labels["Team"], "x");
        assert_eq!(args.node_names.unwrap(), ["n1", "n2"]);
        assert!(args.nodes.is_none());
    }

    #[test]
    fn nodes_come_back_untouched() {
        let json = r#"{"pod":{"metadata":{"name":"p"}},"nodes":{"metadata":{},"items":[{"metadata":{"name":"n1"},"odd":{"Field":1}}]}}"#;
        let args = FilterArgs::parse(json.as_bytes()).unwrap();
        let nodes = args.nodes.unwrap();
        assert_eq!(nodes.names(), ["n1"]);
        let out = FilterResult { nodes: Some(nodes), ..FilterResult::default() };
        assert_eq!(
            serde_json::to_string(&out).unwrap(),
            r#"{"Nodes":{"items":[{"metadata":{"name":"n1"},"odd":{"Field":1}}]},"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}"#
        );
    }

    #[test]
    fn victims_are_read_by_uid_and_as_pods() {
        let json = r#"{"Pod":{"metadata":{"name":"p"}},
            "NodeNameToVictims":{"N1":{"Pods":[{"metadata":{"name":"v","uid":"u1"}}],"NumPDBViolations":1}},
            "NodeNameToMetaVictims":{"N2":{"pods":[{"UID":"u2"}],"numPDBViolations":0}}}"#;
        let args = PreemptArgs::parse(json.as_bytes()).unwrap();
        assert_eq!(args.victims["N1"].pods.as_ref().unwrap()[0].metadata.uid, "u1");
        assert_eq!(args.victims["N1"].pdb_violations, 1);
        assert_eq!(args.meta_victims["N2"].pods, [MetaPod { uid: "u2".into() }]);
    }

    #[test]
    fn answers_go_out_in_pascal_case() {
        let scores = vec![HostPriority { host: "n1".into(), score: 7 }];
        assert_eq!(serde_json::to_string(&scores).unwrap(), r#"[{"Host":"n1","Score":7}]"#);
        assert_eq!(serde_json::to_string(&BindResult::default()).unwrap(), r#"{"Error":""}"#);
        let mut preempt = PreemptResult::default();
        preempt
            .node_name_to_meta_victims
            .insert("n1".into(), MetaVictimsOut { pods: vec![MetaPodOut { uid: "u".into() }], pdb_violations: 2 });
        assert_eq!(
            serde_json::to_string(&preempt).unwrap(),
            r#"{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u"}],"NumPDBViolations":2}}}"#
        );
    }

    #[test]
    fn what_is_not_json_is_an_error_not_a_panic() {
        for json in ["", "[]", "3", "{", r#"{"Pod":{}}{}"#] {
            assert!(FilterArgs::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
