//! How much a namespace may hold at once, and what namespaces of a cohort lend each other.
//!
//! Always computed from what pods *hold* (their grants), never from what they ask for: a percentage, a default or an init container
//! counts as what it became on the card.

mod reclaim;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::{Charge, charge};
use crate::model::ask::{GpuAsk, MemoryAsk, ModelPattern, Role};
use crate::model::device::{Device, DeviceKind};
use crate::model::id::{Model, Namespace};
use crate::model::units::{Bytes, Share};

pub use reclaim::{Holder, reclaim};

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Slices: a pod counts once for each device it has a part of.
    Devices,
    /// Time, in thousandths of a device.
    Share,
    /// Memory, in bytes.
    Memory,
}

/// All of them.
pub const ALL: [What; 3] = [What::Devices, What::Share, What::Memory];

/// What is held of devices of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Slices.
    pub devices: u64,
    /// Time, in thousandths of a device.
    pub share: u64,
    /// Memory, in bytes.
    pub memory: u64,
}

impl Usage {
    /// What one pod's charge on one device adds. Of a device that is held alone everything is held, once, however often it is promised.
    pub fn of(charge: &Charge, device: &Device) -> Usage {
        let (share, memory) = if charge.exclusive {
            (device.bookable_share().min(Share::WHOLE), device.bookable_memory().min(device.memory))
        } else {
            (charge.share, charge.memory)
        };
        Usage { devices: 1, share: u64::from(share.0), memory: memory.0 }
    }

    /// The amount of one thing.
    pub fn get(&self, what: What) -> u64 {
        match what {
            What::Devices => self.devices,
            What::Share => self.share,
            What::Memory => self.memory,
        }
    }

    fn join(&mut self, other: &Usage, join: fn(u64, u64) -> u64) {
        self.devices = join(self.devices, other.devices);
        self.share = join(self.share, other.share);
        self.memory = join(self.memory, other.memory);
    }
}

/// What is held, by model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Held(BTreeMap<Model, Usage>);

impl Held {
    /// This much of one model.
    pub fn of(model: &Model, usage: Usage) -> Held {
        Held([(model.clone(), usage)].into())
    }

    /// More is held.
    pub fn add(&mut self, other: &Held) {
        for (model, usage) in &other.0 {
            self.0.entry(model.clone()).or_default().join(usage, u64::saturating_add);
        }
    }

    /// Less is held.
    pub fn take(&mut self, other: &Held) {
        for (model, usage) in &other.0 {
            if let Some(held) = self.0.get_mut(model) {
                held.join(usage, u64::saturating_sub);
            }
        }
        self.0.retain(|_, usage| *usage != Usage::default());
    }

    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How much of one thing is held, of models a limit is about.
    pub fn sum(&self, model: Option<&str>, what: What) -> u64 {
        let about = |name: &&Model| match model {
            None => true,
            Some(part) => ModelPattern::Part(part.into()).accepts(name.as_str()),
        };
        self.0.iter().filter(|(name, _)| about(name)).map(|(_, usage)| usage.get(what)).sum()
    }

    /// By model.
    pub fn models(&self) -> impl Iterator<Item = (&Model, &Usage)> {
        self.0.iter()
    }
}

/// Amounts of some things; what is not named is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Amounts {
    /// Slices.
    pub devices: Option<u64>,
    /// Time, in thousandths of a device.
    pub share: Option<u64>,
    /// Memory, in bytes.
    pub memory: Option<u64>,
}

impl Amounts {
    /// The amount of one thing, if it is named.
    pub fn get(&self, what: What) -> Option<u64> {
        match what {
            What::Devices => self.devices,
            What::Share => self.share,
            What::Memory => self.memory,
        }
    }
}

/// How much a namespace may hold at once of some devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limit {
    /// Of devices whose model's name contains this, letter case ignored; absent means all.
    pub model: Option<Arc<str>>,
    /// So much by right.
    pub nominal: Amounts,
    /// And so much more of what others of the cohort do not use; what is not named may be borrowed without bound.
    pub borrow: Amounts,
    /// So much of one's own that is lent when it is not used; what is not named is lent as a whole.
    pub lend: Amounts,
}

/// What one quota says about a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quota {
    /// Its name.
    pub name: Arc<str>,
    /// Those it lends to and borrows from.
    pub cohort: Option<Arc<str>>,
    /// Pools of nodes the namespace may use; empty means all.
    pub pools: Vec<Arc<str>>,
    /// Its limits.
    pub limits: Vec<Limit>,
    /// Only devices of models that a limit names may be held.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_named: bool,
    /// Pods that would exceed it now are let in and wait, instead of being refused.
    pub waits: bool,
}

impl Quota {
    /// May devices of this model be held?
    pub fn allows_model(&self, model: &Model) -> bool {
        let names = |part: &Arc<str>| ModelPattern::Part(part.clone()).accepts(model.as_str());
        !self.only_named || self.limits.iter().any(|limit| limit.model.as_ref().is_some_and(names))
    }
}

/// All quotas, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quotas(pub BTreeMap<Namespace, Vec<Quota>>);

/// What would be too much.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Excess {
    /// Whose quota, by name.
    pub quota: Arc<str>,
    /// Of which models.
    pub model: Option<Arc<str>>,
    /// Of what.
    pub what: What,
    /// How much is wanted.
    pub want: u64,
    /// How much is held.
    pub held: u64,
    /// How much may be held, borrowed amounts included.
    pub most: u64,
    /// It is one's own by right, but others of the cohort have borrowed it.
    pub lent: bool,
}

/// What the quotas say to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a right to it.
    Fits,
    /// Others of the cohort lend it.
    Borrows,
    /// It has a right to it, but others have borrowed it and must give it back first.
    Reclaims(Vec<Excess>),
    /// It is too much.
    Exceeds(Vec<Excess>),
}

impl Quotas {
    /// May a namespace hold `want` more, given what everybody holds?
    pub fn check(&self, everybody: &BTreeMap<Namespace, Held>, namespace: &Namespace, want: &Held) -> Verdict {
        let (mut borrows, mut lent, mut exceeds) = (false, Vec::new(), Vec::new());
        let held = |namespace: &Namespace, model: Option<&str>, what: What| {
            everybody.get(namespace).map_or(0, |held| held.sum(model, what))
        };
        for quota in self.of(namespace) {
            for limit in &quota.limits {
                let model = limit.model.as_deref();
                for what in ALL {
                    let (Some(nominal), wanted) = (limit.nominal.get(what), want.sum(model, what)) else { continue };
                    let mine = held(namespace, model, what);
                    let after = mine + wanted;
                    // Who wants none of it is no worse off for what is held.
                    if wanted == 0 {
                        continue;
                    }
                    let room = self.room(quota, limit, what, namespace, &held);
                    let most = match (&quota.cohort, limit.borrow.get(what)) {
                        (None, _) => nominal,
                        (Some(_), None) => u64::MAX,
                        (Some(_), Some(borrow)) => nominal.saturating_add(borrow),
                    };
                    let excess = |most: u64, lent: bool| Excess {
                        quota: quota.name.clone(),
                        model: limit.model.clone(),
                        what,
                        want: wanted,
                        held: mine,
                        most,
                        lent,
                    };
                    match room {
                        _ if after > most => exceeds.push(excess(most, false)),
                        Some(room) if wanted > room && after <= nominal => lent.push(excess(nominal, true)),
                        Some(room) if wanted > room => exceeds.push(excess(mine + room, false)),
                        _ => borrows |= after > nominal,
                    }
                }
            }
        }
        match (exceeds.is_empty(), lent.is_empty()) {
            (false, _) => Verdict::Exceeds(exceeds),
            (true, false) => Verdict::Reclaims(lent),
            (true, true) if borrows => Verdict::Borrows,
            (true, true) => Verdict::Fits,
        }
    }

    /// What is left of a cohort's quota for one of its namespaces; none outside of cohorts.
    fn room(
        &self,
        quota: &Quota,
        limit: &Limit,
        what: What,
        namespace: &Namespace,
        held: &impl Fn(&Namespace, Option<&str>, What) -> u64,
    ) -> Option<u64> {
        let cohort = quota.cohort.as_ref()?;
        let (mut nominal, mut used, mut kept) = (0u64, 0u64, 0u64);
        for (member, theirs) in self.members(cohort, limit.model.as_deref()) {
            let own = theirs.nominal.get(what).unwrap_or(0);
            let holds = held(member, limit.model.as_deref(), what);
            nominal = nominal.saturating_add(own);
            used = used.saturating_add(holds);
            if member != namespace
                && let Some(lend) = theirs.lend.get(what)
            {
                kept = kept.saturating_add(own.saturating_sub(lend).saturating_sub(holds));
            }
        }
        Some(nominal.saturating_sub(used).saturating_sub(kept))
    }

    /// The namespaces of a cohort with their limits for the same models.
    pub(crate) fn members<'a>(
        &'a self,
        cohort: &'a str,
        model: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Namespace, &'a Limit)> {
        let all = self.0.iter().flat_map(|(namespace, quotas)| quotas.iter().map(move |quota| (namespace, quota)));
        let members = all.filter(move |(_, quota)| quota.cohort.as_deref() == Some(cohort));
        members
            .flat_map(|(namespace, quota)| quota.limits.iter().map(move |limit| (namespace, limit)))
            .filter(move |(_, limit)| limit.model.as_deref() == model)
    }

    /// The quotas of a namespace.
    pub fn of(&self, namespace: &Namespace) -> &[Quota] {
        self.0.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// May the namespace use nodes of this pool?
    pub fn allows_pool(&self, namespace: &Namespace, pool: Option<&str>) -> bool {
        let named =
            |quota: &Quota| quota.pools.is_empty() || pool.is_some_and(|p| quota.pools.iter().any(|q| **q == *p));
        self.of(namespace).iter().all(named)
    }

    /// What admission says to a pod: refused where it can be told already that it exceeds. What is asked for as a part of a card, or
    /// of particular models, shows only when a card was chosen; scheduling checks again.
    pub fn admits(
        &self,
        everybody: &BTreeMap<Namespace, Held>,
        namespace: &Namespace,
        ask: &GpuAsk,
    ) -> Result<(), Vec<Excess>> {
        let want = at_least(ask);
        match self.check(everybody, namespace, &want) {
            Verdict::Exceeds(excess) => {
                let now: Vec<Excess> =
                    excess.into_iter().filter(|e| e.model.is_none() && self.refuses(namespace, e)).collect();
                if now.is_empty() { Ok(()) } else { Err(now) }
            }
            _ => Ok(()),
        }
    }

    /// A quota that lets pods wait refuses only what could never fit.
    fn refuses(&self, namespace: &Namespace, excess: &Excess) -> bool {
        let quota = self.of(namespace).iter().find(|quota| quota.name == excess.quota);
        excess.want > excess.most || !quota.is_some_and(|quota| quota.waits)
    }
}

/// What an ask will hold at least, on whatever card.
fn at_least(ask: &GpuAsk) -> Held {
    let mut devices = 0u64;
    let mut slices: Vec<(Role, Charge)> = Vec::new();
    for container in &ask.containers {
        for want in container.wants.iter().filter(|want| want.kind != DeviceKind::Nic) {
            let memory = if let MemoryAsk::Bytes(bytes) = want.memory { bytes } else { Bytes::ZERO };
            let count = u64::from(want.count);
            let share = u32::try_from(u64::from(want.share.0) * count).unwrap_or(u32::MAX);
            let memory = Bytes(memory.0.saturating_mul(count));
            slices.push((container.role, Charge { memory, share: Share(share), ..Charge::default() }));
            devices = devices.max(count);
        }
    }
    let together = charge(slices, false);
    let usage = Usage { devices, share: u64::from(together.share.0), memory: together.memory.0 };
    // Of no model yet: only limits on all models are about it.
    Held::of(&Model::from(""), usage)
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |amount: u64| match self.what {
            What::Devices => amount.to_string(),
            What::Share => Share(u32::try_from(amount).unwrap_or(u32::MAX)).to_string(),
            What::Memory => Bytes(amount).to_string(),
        };
        let thing = match self.what {
            What::Devices => "devices",
            What::Share => "share",
            What::Memory => "GPU memory",
        };
        write!(f, "quota {}: {} of {thing}", self.quota, say(self.want))?;
        if let Some(model) = &self.model {
            write!(f, " on {model}")?;
        }
        write!(f, " wanted, {} held, {} allowed", say(self.held), say(self.most))?;
        if self.lent { f.write_str(", but the rest is lent to others of the cohort") } else { Ok(()) }
    }
}
