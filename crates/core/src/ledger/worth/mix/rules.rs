//! The model rules that remembered shapes name, each once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash::FixedMap;
use crate::model::ask::ModelRule;

/// Rules, each known by its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<ModelRule>", into = "Vec<ModelRule>")]
pub(in crate::ledger::worth) struct ModelRules {
    list: Vec<Arc<ModelRule>>,
    places: FixedMap<Arc<ModelRule>, u32>,
}

impl From<Vec<ModelRule>> for ModelRules {
    fn from(rules: Vec<ModelRule>) -> ModelRules {
        let list: Vec<Arc<ModelRule>> = rules.into_iter().map(Arc::new).collect();
        let places = list.iter().enumerate().map(|(place, rule)| (rule.clone(), place as u32)).collect();
        ModelRules { list, places }
    }
}

impl From<ModelRules> for Vec<ModelRule> {
    fn from(rules: ModelRules) -> Vec<ModelRule> {
        rules.list.iter().map(|rule| (**rule).clone()).collect()
    }
}

impl ModelRules {
    pub(in crate::ledger::worth) fn list(&self) -> &[Arc<ModelRule>] {
        &self.list
    }

    /// The place of a rule, which gets one where it has none.
    pub(super) fn place(&mut self, rule: &ModelRule) -> u32 {
        if let Some(place) = self.places.get(rule) {
            return *place;
        }
        let (rule, place) = (Arc::new(rule.clone()), self.list.len() as u32);
        self.places.insert(rule.clone(), place);
        self.list.push(rule);
        place
    }

    /// Keeps the `most` rules of most weight, of equally heavy ones the older, and none without weight. Those that stay move together in
    /// their order; what is told is the new place of each, where anything changed.
    pub(super) fn keep(&mut self, weights: &[u64], most: usize) -> Option<Vec<Option<u32>>> {
        let mut order: Vec<usize> = (0..self.list.len()).filter(|place| weights[*place] > 0).collect();
        if order.len() == self.list.len() && order.len() <= most {
            return None;
        }
        order.sort_by_key(|place| std::cmp::Reverse(weights[*place]));
        order.truncate(most);
        order.sort_unstable();
        let mut places = vec![None; self.list.len()];
        order.iter().enumerate().for_each(|(new, old)| places[*old] = Some(new as u32));
        let list = order.iter().map(|old| self.list[*old].clone()).collect();
        let kept = |(rule, old): (Arc<ModelRule>, u32)| Some((rule, places[old as usize]?));
        let by_rule = std::mem::take(&mut self.places).into_iter().filter_map(kept).collect();
        (self.list, self.places) = (list, by_rule);
        Some(places)
    }
}
