//! What was lent is taken back: the fewest and least of those who hold more than their own.

use std::collections::BTreeMap;

use crate::ledger::quota::{Excess, Held, Quotas, Verdict};
use crate::model::ask::Class;
use crate::model::id::{Namespace, PodUid};
use crate::model::time::Time;

/// Somebody who could give something back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The pod.
    pub uid: PodUid,
    /// Its namespace.
    pub namespace: Namespace,
    /// What it holds.
    pub held: Held,
    /// Its class: opportunistic ones go first.
    pub class: Class,
    /// Its priority: the lowest go first.
    pub priority: i32,
    /// Since when it runs: the youngest have the least to lose.
    pub since: Time,
}

/// Who gives back what a namespace has a right to and others of its cohort borrowed. None where nobody can, or where it has no right.
/// Nobody is named in vain: without any one of them it would not be enough.
pub fn reclaim(
    quotas: &Quotas,
    everybody: &BTreeMap<Namespace, Held>,
    namespace: &Namespace,
    want: &Held,
    holders: &[Holder],
) -> Option<Vec<PodUid>> {
    let mut held = everybody.clone();
    let Verdict::Reclaims(mut lent) = quotas.check(&held, namespace, want) else { return None };
    let mut order: Vec<&Holder> = holders.iter().filter(|h| h.namespace != *namespace).collect();
    order.sort_by(|a, b| (a.class, a.priority, b.since, &a.uid).cmp(&(b.class, b.priority, a.since, &b.uid)));
    let mut victims: Vec<&Holder> = Vec::new();
    for holder in order {
        if !lent.iter().any(|excess| borrowed(quotas, &held, holder, excess, namespace)) {
            continue;
        }
        held.entry(holder.namespace.clone()).or_default().take(&holder.held);
        victims.push(holder);
        match quotas.check(&held, namespace, want) {
            Verdict::Reclaims(still) => lent = still,
            Verdict::Exceeds(_) => return None,
            Verdict::Fits | Verdict::Borrows => return Some(spare(quotas, held, namespace, want, victims)),
        }
    }
    None
}

/// Does this pod hold something its namespace borrowed, of what is wanted back?
fn borrowed(
    quotas: &Quotas,
    everybody: &BTreeMap<Namespace, Held>,
    holder: &Holder,
    excess: &Excess,
    namespace: &Namespace,
) -> bool {
    let model = excess.model.as_deref();
    let mine = quotas.of(namespace).iter().find(|quota| quota.name == excess.quota);
    let Some(cohort) = mine.and_then(|quota| quota.cohort.as_deref()) else { return false };
    let theirs = quotas.members(cohort, model).find(|(member, _)| **member == holder.namespace);
    let nominal = theirs.and_then(|(_, limit)| limit.nominal.get(excess.what)).unwrap_or(0);
    let holds = everybody.get(&holder.namespace).map_or(0, |held| held.sum(model, excess.what));
    holds > nominal && holder.held.sum(model, excess.what) > 0
}

/// Lets those go on without whom it is enough, the first to be named first.
fn spare(
    quotas: &Quotas,
    mut held: BTreeMap<Namespace, Held>,
    namespace: &Namespace,
    want: &Held,
    victims: Vec<&Holder>,
) -> Vec<PodUid> {
    let mut kept: Vec<PodUid> = Vec::new();
    for victim in &victims {
        held.entry(victim.namespace.clone()).or_default().add(&victim.held);
        if matches!(quotas.check(&held, namespace, want), Verdict::Fits | Verdict::Borrows) {
            continue;
        }
        held.entry(victim.namespace.clone()).or_default().take(&victim.held);
        kept.push(victim.uid.clone());
    }
    kept
}
