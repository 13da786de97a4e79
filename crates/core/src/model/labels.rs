//! Labels and the questions Kubernetes asks of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Labels of a pod, a node or a namespace.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// One condition on a set of labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label's name.
    pub key: Arc<str>,
    /// What must hold of its value.
    #[serde(flatten)]
    pub op: Op,
}

/// What must hold of a label's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "operator", content = "values")]
pub enum Op {
    /// It is one of these.
    In(Vec<Arc<str>>),
    /// It is none of these, or there is no such label.
    NotIn(Vec<Arc<str>>),
    /// There is such a label.
    Exists,
    /// There is no such label.
    DoesNotExist,
    /// It is a number greater than this (node affinity only).
    Gt(i64),
    /// It is a number less than this (node affinity only).
    Lt(i64),
}

impl Requirement {
    /// Does it hold of these labels?
    pub fn holds(&self, labels: &Labels) -> bool {
        self.holds_of(labels.get(&self.key).map(|v| &**v))
    }

    /// Does it hold of this value (none: there is no such label)?
    pub fn holds_of(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.op {
            Op::In(allowed) => value.is_some_and(|v| allowed.iter().any(|a| **a == *v)),
            Op::NotIn(banned) => value.is_none_or(|v| banned.iter().all(|b| **b != *v)),
            Op::Exists => value.is_some(),
            Op::DoesNotExist => value.is_none(),
            Op::Gt(bound) => number().is_some_and(|n| n > *bound),
            Op::Lt(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// A label selector: all of its requirements hold. One without requirements selects everything; an absent one (`None` around it)
/// selects nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Selector(pub Vec<Requirement>);

impl Selector {
    /// The selector that wants exactly these values.
    pub fn equals<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Selector {
        let one = |(key, value): (&str, &str)| Requirement { key: key.into(), op: Op::In(vec![value.into()]) };
        Selector(pairs.into_iter().map(one).collect())
    }

    /// Does it select these labels?
    pub fn selects(&self, labels: &Labels) -> bool {
        self.0.iter().all(|r| r.holds(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_read_missing_labels_as_kubernetes_does() {
        let labels: Labels = [("n".into(), "7".into())].into();
        let check = |key: &str, op: Op| Requirement { key: key.into(), op }.holds(&labels);
        assert!(check("n", Op::In(vec!["7".into()])));
        assert!(!check("m", Op::In(vec!["7".into()])));
        assert!(check("m", Op::NotIn(vec!["7".into()])));
        assert!(check("m", Op::DoesNotExist) && check("n", Op::Exists));
        assert!(check("n", Op::Gt(6)) && !check("n", Op::Gt(7)) && check("n", Op::Lt(8)) && !check("m", Op::Lt(8)));
    }
}
