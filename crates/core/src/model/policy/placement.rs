//! The ways of placing, by name, with the settings each takes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::ask::PolicyChoice;

/// A way of placing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Placement {
    /// Where the least of what could still be hosted is lost.
    Frag,
    /// On the fullest node and device that fits.
    Binpack,
    /// On the emptiest.
    Spread,
    /// KubeShare's: opportunistic pods pack, guaranteed ones spread, near their group.
    Kubeshare,
    /// KubeGPU's: groups of devices, filled.
    Kubegpu,
    /// Aliyun gpushare's: the card with the least memory that is enough.
    Gpushare,
    /// gpu-manager's: the fullest node; share, fragment or link on it.
    GpuManager,
    /// 4paradigm's: nodes with many cards, then busy ones; cards with few users.
    Vgpu,
    /// HAMi's: a policy for nodes and one for cards.
    Hami(Hami),
}

/// HAMi's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Hami {
    /// Among nodes.
    pub node: NodePolicy,
    /// Among cards of a node: the first decides, the next break its ties.
    pub card: Vec<CardPolicy>,
    /// What slots, cores and memory count.
    pub weights: Weights,
}

/// HAMi's choice among nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodePolicy {
    /// The busiest.
    #[default]
    Binpack,
    /// The least busy.
    Spread,
}

/// HAMi's choice among cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardPolicy {
    /// The least busy.
    #[default]
    Spread,
    /// The busiest.
    Binpack,
    /// Those best connected; a single card is the one that connects worst, so that the others stay together.
    TopologyAware,
    /// Only idle cards.
    Mutex,
    /// Those of one NUMA node.
    Numa,
}

/// What each of HAMi's three measures counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Weights {
    /// Containers on a card, of those that may be.
    pub slot: u32,
    /// Cores.
    pub core: u32,
    /// Memory.
    pub memory: u32,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { slot: 1, core: 1, memory: 1 }
    }
}

/// The choice of a policy that cannot be followed: what is wrong, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyMistake(pub String);

impl fmt::Display for PolicyMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyMistake {}

impl Placement {
    /// The names there are.
    pub const NAMES: [&'static str; 9] =
        ["frag", "binpack", "spread", "kubeshare", "kubegpu", "gpushare", "gpu-manager", "vgpu", "hami"];

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Placement::Frag => "frag",
            Placement::Binpack => "binpack",
            Placement::Spread => "spread",
            Placement::Kubeshare => "kubeshare",
            Placement::Kubegpu => "kubegpu",
            Placement::Gpushare => "gpushare",
            Placement::GpuManager => "gpu-manager",
            Placement::Vgpu => "vgpu",
            Placement::Hami(_) => "hami",
        }
    }

    /// The one of this name, with its default settings.
    pub fn named(name: &str) -> Result<Placement, PolicyMistake> {
        Ok(match name {
            "frag" => Placement::Frag,
            "binpack" => Placement::Binpack,
            "spread" => Placement::Spread,
            "kubeshare" => Placement::Kubeshare,
            "kubegpu" => Placement::Kubegpu,
            "gpushare" => Placement::Gpushare,
            "gpu-manager" => Placement::GpuManager,
            "vgpu" => Placement::Vgpu,
            "hami" => Placement::Hami(Hami::default()),
            _ => {
                let known = Placement::NAMES.join(", ");
                return Err(PolicyMistake(format!("there is no policy `{name}`; there are {known}")));
            }
        })
    }

    /// Reads a choice as a user wrote it; `otherwise` is what it changes where it names no policy, or the same one: a pod that says
    /// something about nodes keeps what the administrator said about cards.
    pub fn read(choice: &PolicyChoice, otherwise: &Placement) -> Result<Placement, PolicyMistake> {
        let mut placement = match &choice.name {
            Some(name) if **name != *otherwise.name() => Placement::named(name)?,
            _ => otherwise.clone(),
        };
        for (key, value) in &choice.settings {
            match &mut placement {
                Placement::Hami(hami) => hami.set(key, value)?,
                other => {
                    let name = other.name();
                    return Err(PolicyMistake(format!("policy `{name}` takes no settings, `{key}` was given")));
                }
            }
        }
        Ok(placement)
    }
}

impl Hami {
    fn set(&mut self, key: &str, value: &str) -> Result<(), PolicyMistake> {
        match key {
            "node" => {
                self.node = match value.trim() {
                    "binpack" => NodePolicy::Binpack,
                    "spread" => NodePolicy::Spread,
                    other => return Err(PolicyMistake(format!("node policy `{other}` is neither binpack nor spread"))),
                };
            }
            "gpu" => {
                self.card = value
                    .split(',')
                    .map(|word| match word.trim() {
                        "spread" => Ok(CardPolicy::Spread),
                        "binpack" => Ok(CardPolicy::Binpack),
                        "topology-aware" => Ok(CardPolicy::TopologyAware),
                        "mutex" => Ok(CardPolicy::Mutex),
                        "numa" => Ok(CardPolicy::Numa),
                        other => Err(PolicyMistake(format!(
                            "card policy `{other}` is none of spread, binpack, topology-aware, mutex, numa"
                        ))),
                    })
                    .collect::<Result<_, _>>()?;
            }
            "weights" => self.weights = Weights::read(value)?,
            other => {
                return Err(PolicyMistake(format!(
                    "policy `hami` has no setting `{other}`; it has node, gpu, weights"
                )));
            }
        }
        Ok(())
    }
}

impl Weights {
    /// Reads `slot=1,core=1,memory=3`: all three, whole numbers, not all of them zero.
    pub fn read(text: &str) -> Result<Weights, PolicyMistake> {
        let wrong =
            || PolicyMistake(format!("weights `{text}` must read like slot=1,core=1,memory=3, not all of them 0"));
        let mut found = [None; 3];
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let place = ["slot", "core", "memory"].iter().position(|n| *n == name.trim()).ok_or_else(wrong)?;
            if found[place].replace(value.trim().parse::<u32>().map_err(|_| wrong())?).is_some() {
                return Err(wrong());
            }
        }
        match found {
            [Some(slot), Some(core), Some(memory)] if slot | core | memory > 0 => Ok(Weights { slot, core, memory }),
            _ => Err(wrong()),
        }
    }
}

/// How a placement is written in a file: its name, or its name and settings.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Choice(PolicyChoice),
}

impl TryFrom<Written> for Placement {
    type Error = PolicyMistake;

    fn try_from(written: Written) -> Result<Placement, PolicyMistake> {
        match written {
            Written::Name(name) => Placement::named(&name),
            Written::Choice(choice) => Placement::read(&choice, &Placement::Frag),
        }
    }
}

impl From<Placement> for Written {
    fn from(placement: Placement) -> Written {
        let name = placement.name();
        let Placement::Hami(hami) = placement else { return Written::Name(name.into()) };
        let card = |c: &CardPolicy| match c {
            CardPolicy::Spread => "spread",
            CardPolicy::Binpack => "binpack",
            CardPolicy::TopologyAware => "topology-aware",
            CardPolicy::Mutex => "mutex",
            CardPolicy::Numa => "numa",
        };
        let mut settings = std::collections::BTreeMap::new();
        if hami.node == NodePolicy::Spread {
            settings.insert("node".to_owned(), "spread".to_owned());
        }
        if !hami.card.is_empty() {
            settings.insert("gpu".to_owned(), hami.card.iter().map(card).collect::<Vec<_>>().join(","));
        }
        if hami.weights != Weights::default() {
            let Weights { slot, core, memory } = hami.weights;
            settings.insert("weights".to_owned(), format!("slot={slot},core={core},memory={memory}"));
        }
        if settings.is_empty() {
            return Written::Name(name.into());
        }
        Written::Choice(PolicyChoice { name: Some(name.into()), settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_written_as_they_are_read() {
        for name in Placement::NAMES {
            let json = format!("{name:?}");
            let placement: Placement = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&placement).unwrap(), json);
        }
        let text =
            r#"{"name":"hami","settings":{"gpu":"numa,binpack","node":"spread","weights":"slot=1,core=0,memory=3"}}"#;
        let placement: Placement = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&placement).unwrap(), text);
    }

    #[test]
    fn weights_need_all_three_and_one_above_zero() {
        assert_eq!(Weights::read("slot=1, core=2,memory=3"), Ok(Weights { slot: 1, core: 2, memory: 3 }));
        let most = Weights { slot: u32::MAX, core: u32::MAX, memory: 1 };
        assert_eq!(Weights::read("slot=4294967295,core=4294967295,memory=1"), Ok(most), "however large");
        for text in [
            "",
            "slot=1",
            "slot=0,core=0,memory=0",
            "slot=1,core=1,memory=-1",
            "slot=1,slot=1,core=1,memory=1",
            "a=1,core=1,memory=1",
        ] {
            assert!(Weights::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_pod_does_not_say_stays_as_the_administrator_said() {
        let choice = |name: &str, settings: &[(&str, &str)]| PolicyChoice {
            name: Some(name.into()),
            settings: settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        let admin = Placement::read(&choice("hami", &[("gpu", "binpack")]), &Placement::Frag).unwrap();
        let both = Hami { node: NodePolicy::Spread, card: vec![CardPolicy::Binpack], ..Hami::default() };
        assert_eq!(Placement::read(&choice("hami", &[("node", "spread")]), &admin), Ok(Placement::Hami(both)));
        assert_eq!(Placement::read(&choice("spread", &[]), &admin), Ok(Placement::Spread));
    }

    #[test]
    fn an_unknown_policy_is_answered_with_the_names_there_are() {
        let mistake = Placement::named("best").unwrap_err().to_string();
        assert!(mistake.contains("`best`") && mistake.contains("gpu-manager"), "{mistake}");
    }
}
