//! A snapshot as a file: what was told, from which everything else follows. Dump a live cluster, replay it on a laptop.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Snapshot, Surroundings};
use crate::ledger::kind::Kinds;
use crate::ledger::worth::Mix;
use crate::model::node::Node;
use crate::model::pod::Pod;

/// Everything a snapshot was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Layout version.
    pub v: u32,
    /// The nodes, in the order that breaks ties.
    pub nodes: Vec<Node>,
    /// The pods.
    pub pods: Vec<Pod>,
    /// The rest.
    #[serde(default)]
    pub surroundings: Surroundings,
    /// The mix of requests it had learnt, or was told.
    #[serde(default)]
    pub mix: Mix,
}

impl Record {
    /// The layout this code writes.
    pub const VERSION: u32 = 1;

    /// The snapshot that was told all this.
    pub fn restore(self) -> Result<Snapshot, Damaged> {
        self.check()?;
        let mut snapshot = Snapshot::with_kinds(Kinds::default());
        *snapshot.surroundings_mut() = self.surroundings;
        for node in self.nodes {
            snapshot.put_node(node);
        }
        for pod in self.pods {
            snapshot.put_pod(pod);
        }
        // A record that was put together by hand says nothing about the mix: then it is that of its pods.
        if self.mix != Mix::default() {
            snapshot.expect(self.mix);
        }
        Ok(snapshot)
    }

    fn check(&self) -> Result<(), Damaged> {
        let mut wrong = Vec::new();
        if self.v != Record::VERSION {
            wrong.push(format!("its layout is {}, and this version reads {}", self.v, Record::VERSION));
        }
        let mut nodes = BTreeSet::new();
        let twice = self.nodes.iter().filter(|node| !nodes.insert(&node.name));
        wrong.extend(twice.map(|node| format!("node {} is listed twice", node.name)));
        let mut pods = BTreeSet::new();
        let twice = self.pods.iter().filter(|pod| !pods.insert(&pod.uid));
        wrong.extend(twice.map(|pod| format!("pod {} is listed twice, by its uid {}", pod.key, pod.uid)));
        wrong.extend(self.mix.mistakes());
        if wrong.is_empty() { Ok(()) } else { Err(Damaged(wrong)) }
    }
}

/// Why a record is that of no cluster: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged(Vec<String>);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Who has more than so many has written it by a machine, and is told how many there are.
        const MOST: usize = 20;
        write!(f, "{}", self.0[..self.0.len().min(MOST)].join("; "))?;
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Damaged {}

impl Snapshot {
    /// Everything this snapshot was told.
    pub fn record(&self) -> Record {
        Record {
            v: Record::VERSION,
            nodes: self.nodes().map(|(_, state)| state.node().clone()).collect(),
            pods: self.pods().map(|(_, state)| state.pod().clone()).collect(),
            surroundings: self.surroundings.clone(),
            mix: self.mix.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    #[test]
    fn a_record_that_no_cluster_wrote_is_refused_with_everything_that_is_wrong() {
        let snapshot = cluster("node a gpu=1\nnode b gpu=1\nwait p share=300 model=t4\nwait q share=400");
        let whole = serde_json::to_value(snapshot.record()).unwrap();
        let read = |json: serde_json::Value| serde_json::from_value::<Record>(json).map_err(|error| error.to_string());
        let said = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut json = whole.clone();
            change(&mut json);
            read(json).and_then(|record| record.restore().map(|_| ()).map_err(|damaged| damaged.to_string()))
        };
        assert_eq!(said(&|_| {}), Ok(()));
        let twice = |json: &mut serde_json::Value, list: &str| {
            let first = json[list][0].clone();
            json[list].as_array_mut().unwrap().push(first);
        };
        let everything = |json: &mut serde_json::Value| {
            json["v"] = 2.into();
            twice(json, "nodes");
            twice(json, "pods");
            json["mix"]["rules"] = serde_json::json!([]);
        };
        assert_eq!(
            said(&everything).unwrap_err(),
            "its layout is 2, and this version reads 1; node a is listed twice; pod default/p is listed twice, by its uid \
             default/p; its mix of requests names 2 model rules, and lists 0"
        );
        // A name that is spelled wrongly is not passed over.
        let misspelled = |json: &mut serde_json::Value| json["mix"]["rgpus"] = json["mix"]["rules"].take();
        assert!(said(&misspelled).unwrap_err().starts_with("unknown field `rgpus`"));
        assert!(said(&|json| json["pdos"] = 1.into()).unwrap_err().starts_with("unknown field `pdos`"));
    }

    #[test]
    fn numbers_that_no_pods_amount_to_are_refused() {
        let whole = cluster("node a gpu=1\nwait p share=300").record();
        for (path, number) in [("part", 1001), ("deviceMemory", u64::MAX / 2), ("count", u64::MAX)] {
            let mut json = serde_json::to_value(&whole).unwrap();
            match path {
                "count" => json["mix"]["counts"][0][1] = number.into(),
                field => json["mix"]["counts"][0][0][field] = number.into(),
            }
            let damaged = serde_json::from_value::<Record>(json).unwrap().restore().unwrap_err();
            assert_eq!(damaged.to_string(), "its mix of requests has numbers that no pods amount to", "{path}");
        }
    }
}
