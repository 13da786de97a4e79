//! What nodes last said to pods that another scheduler asks about.

use std::collections::VecDeque;

use divvy_core::id::{NodeName, PodUid};

/// Most pods whose answers are remembered. A scheduler filters, prioritizes and binds one pod after another; of a pod that it comes back to
/// later the nodes are asked again. Each answer has a score per node: 10,000 nodes make 64 of them some 20 MiB.
const MOST: usize = 64;

/// How good nodes are for a pod.
type Answer = Vec<(NodeName, f64)>;

/// The latest answers, the latest last.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores(VecDeque<(PodUid, Answer)>);

impl Scores {
    /// Nodes said this.
    pub(super) fn put(&mut self, uid: &PodUid, answer: Answer) {
        self.forget(uid);
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((uid.clone(), answer));
    }

    /// What nodes last said to a pod.
    pub(super) fn get(&self, uid: &PodUid) -> Option<&Answer> {
        self.0.iter().rev().find(|(known, _)| known == uid).map(|(_, answer)| answer)
    }

    /// A pod is bound, or gone.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.0.retain(|(known, _)| known != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_answers_are_remembered_and_no_more() {
        let mut scores = Scores::default();
        let uid = |i: usize| PodUid::from(format!("uid-{i}"));
        for i in 0..1000 {
            scores.put(&uid(i), vec![("n".into(), i as f64)]);
            scores.put(&uid(0), Vec::new());
        }
        assert_eq!(scores.0.len(), MOST);
        assert!(scores.get(&uid(0)).is_some() && scores.get(&uid(999)).is_some() && scores.get(&uid(1)).is_none());
        scores.forget(&uid(999));
        assert!(scores.get(&uid(999)).is_none());
    }
}
