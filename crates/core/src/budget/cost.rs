//! What a slice costs: its part of the card, times the model's price, per millisecond held or busy.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::amount::{Price, Rate};
use crate::ledger::charges;
use crate::model::ask::ModelPattern;
use crate::model::device::{DeviceKind, Inventory};
use crate::model::grant::Grant;
use crate::model::id::{DeviceId, Model};
use crate::model::units::{Bytes, Share};

/// A whole device, in the millionths in which parts are counted.
pub const WHOLE: u64 = 1_000_000;

/// What a pod holds of one device, and how large the device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDevice {
    /// The device.
    pub device: DeviceId,
    /// Its model, by which it has its price.
    pub model: Model,
    /// Time held.
    pub share: Share,
    /// Memory held.
    pub memory: Bytes,
    /// Time there is to hold.
    pub of_share: Share,
    /// Memory there is to hold.
    pub of_memory: Bytes,
    /// Nobody else may come: all of it is held, whatever the numbers say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl HeldDevice {
    /// The larger of its parts of memory and time, in millionths: what the fair share and the trail show.
    pub fn dominant(&self) -> u64 {
        if self.alone {
            return WHOLE;
        }
        let (share, memory) = self.parts(None);
        share.max(memory).min(WHOLE)
    }

    /// Parts of time and memory, of the device or of a reference size, rounded up to millionths. Nobody holds more of a device than there
    /// is of it, whatever the numbers say.
    fn parts(&self, reference: Option<Reference>) -> (u64, u64) {
        let of = |part: u64, whole: u64| match whole {
            0 => 0,
            _ => u64::try_from((u128::from(part) * u128::from(WHOLE)).div_ceil(u128::from(whole))).unwrap_or(u64::MAX),
        };
        let held = (self.share.min(self.of_share), self.memory.min(self.of_memory));
        let (share, memory) = if self.alone { (self.of_share, self.of_memory) } else { held };
        let whole = reference.unwrap_or(Reference { share: self.of_share, memory: self.of_memory });
        (of(u64::from(share.0), u64::from(whole.share.0)), of(memory.0, whole.memory.0))
    }
}

/// What a grant holds, device by device. Devices that cost nothing by nature (NICs) and devices the node does not have are left out.
pub fn held(grant: &Grant, inventory: &Inventory, init_done: bool) -> Vec<HeldDevice> {
    let held = |(id, charge): (DeviceId, crate::ledger::Charge)| {
        let device = inventory.devices.iter().find(|d| d.id == id)?;
        (device.kind != DeviceKind::Nic).then(|| HeldDevice {
            device: id,
            model: device.model.clone(),
            share: charge.share,
            memory: charge.memory,
            of_share: device.bookable_share(),
            of_memory: device.bookable_memory(),
            alone: charge.exclusive,
        })
    };
    charges(grant, inventory, init_done).into_iter().filter_map(held).collect()
}

/// How an account charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostRule {
    /// What is counted.
    pub basis: Basis,
    /// How a part of a card is measured.
    pub measure: Measure,
    /// The slice that counts as one; a whole card where it is absent.
    pub reference: Option<Reference>,
    /// What devices cost.
    pub prices: Prices,
    /// What opportunistic pods pay, in hundredths of the price.
    pub opportunistic: u8,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Time during which a pod holds a slice, used or not.
    #[default]
    Held,
    /// Time during which a pod's work runs on the device.
    Busy,
}

/// How a part of a card is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The larger of the parts of memory and time: what a slice keeps others from.
    #[default]
    Dominant,
    /// The mean of both, as GPUSharing counted.
    Mean,
}

/// The slice that counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reference {
    /// Its time.
    pub share: Share,
    /// Its memory.
    pub memory: Bytes,
}

/// What an hour of a whole device costs, by model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// By part of the model's name, letter case ignored; where several fit the longest counts.
    pub by_model: Vec<(Arc<str>, Price)>,
    /// What any other model costs.
    pub otherwise: Option<Price>,
    /// What the cluster says where the account says nothing, by part of the model's name.
    pub usual: Vec<(Arc<str>, Price)>,
}

impl Prices {
    /// GPU time: every device costs the time it is held.
    pub fn time() -> Prices {
        Prices { otherwise: Some(Price::TIME), ..Prices::default() }
    }

    /// What an hour of this model costs; none where nobody said.
    pub fn of(&self, model: &str) -> Option<Price> {
        let fits = |(name, _): &&(Arc<str>, Price)| ModelPattern::Part(name.clone()).accepts(model);
        let longest = |list: &[(Arc<str>, Price)]| {
            list.iter().filter(fits).max_by_key(|(name, _)| name.len()).map(|(_, price)| *price)
        };
        longest(&self.by_model).or(self.otherwise).or_else(|| longest(&self.usual))
    }
}

/// What a pod's devices cost an account per millisecond, in the order of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tariff {
    /// What is counted.
    pub basis: Basis,
    /// Per device, at full price. By [`Basis::Busy`] a busy millisecond costs the whole device.
    pub rates: Vec<Rate>,
    /// What it costs an opportunistic pod, in hundredths.
    pub opportunistic: u8,
}

impl Tariff {
    /// What a millisecond of holding costs.
    pub fn rate(&self, opportunistic: bool) -> Rate {
        match self.basis {
            Basis::Busy => Rate::default(),
            Basis::Held => self.rates.iter().map(|rate| self.at_class(*rate, opportunistic)).sum(),
        }
    }

    /// What a busy millisecond on one device costs.
    pub fn busy_rate(&self, device: usize, opportunistic: bool) -> Rate {
        match self.basis {
            Basis::Held => Rate::default(),
            Basis::Busy => self.at_class(self.rates.get(device).copied().unwrap_or_default(), opportunistic),
        }
    }

    fn at_class(&self, rate: Rate, opportunistic: bool) -> Rate {
        Rate(rate.0.saturating_mul(if opportunistic { u128::from(self.opportunistic) } else { 100 }))
    }
}

impl CostRule {
    /// What these devices cost.
    pub fn tariff(&self, devices: &[HeldDevice]) -> Tariff {
        let rate = |held: &HeldDevice| {
            let part = match self.basis {
                Basis::Held => self.part(held),
                Basis::Busy => WHOLE,
            };
            Rate::of(part, self.prices.of(held.model.as_str()).unwrap_or_default(), 1)
        };
        Tariff { basis: self.basis, rates: devices.iter().map(rate).collect(), opportunistic: self.opportunistic }
    }

    /// How much of a card a slice counts as, in millionths.
    pub fn part(&self, held: &HeldDevice) -> u64 {
        let (share, memory) = held.parts(self.reference);
        match self.measure {
            Measure::Dominant => share.max(memory),
            // GPUSharing knew no card's size: a whole one was so many times the reference, whichever the scheduler chose.
            Measure::Mean if held.alone && self.reference.is_some() => {
                share.saturating_add(memory.min(share)).div_ceil(2)
            }
            Measure::Mean => share.saturating_add(memory).div_ceil(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Amount;

    fn slice(share: u32, memory: Bytes, of: Bytes) -> HeldDevice {
        HeldDevice {
            device: "GPU-0".into(),
            model: "NVIDIA-A100-SXM4-40GB".into(),
            share: Share(share),
            memory,
            of_share: Share::WHOLE,
            of_memory: of,
            alone: false,
        }
    }

    #[test]
    fn a_slice_costs_the_larger_of_its_parts() {
        let rule = CostRule::default();
        assert_eq!(rule.part(&slice(300, Bytes::gib(8), Bytes::gib(16))), 500_000);
        assert_eq!(rule.part(&slice(300, Bytes::gib(1), Bytes::gib(16))), 300_000);
        assert_eq!(rule.part(&HeldDevice { alone: true, ..slice(0, Bytes::ZERO, Bytes::gib(16)) }), WHOLE);
        assert_eq!(rule.part(&slice(0, Bytes(1), Bytes(3))), 333_334, "never cheaper than it is");
    }

    /// Numbers near the ends of their types, where sums wrap, and any others.
    fn extreme() -> impl Strategy<Value = u64> {
        let near = |end: u64| (0u64..3).prop_map(move |off| end.saturating_sub(off));
        prop_oneof![
            0u64..3,
            near(1 << 58),
            near(u64::from(u32::MAX)),
            near(i64::MAX as u64),
            near(u64::MAX),
            any::<u64>()
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A journal may say anything: it costs no more than a whole card, something where something is held, and nothing wraps.
        #[test]
        fn whatever_is_said_to_be_held_costs_between_something_and_a_whole_card(
            numbers in (extreme(), extreme(), extreme(), extreme()),
            (alone, mean, busy) in any::<(bool, bool, bool)>(),
            reference in prop::option::of((extreme(), extreme())),
            (price, millis, opportunistic, percent) in (extreme(), extreme(), 0u8..=100, 0u8..=100),
        ) {
            let (share, memory, of_share, of_memory) = numbers;
            let held = HeldDevice {
                share: Share(share as u32),
                memory: Bytes(memory),
                of_share: Share(of_share as u32),
                of_memory: Bytes(of_memory),
                alone,
                ..slice(0, Bytes::ZERO, Bytes::ZERO)
            };
            let rule = CostRule {
                basis: if busy { Basis::Busy } else { Basis::Held },
                measure: if mean { Measure::Mean } else { Measure::Dominant },
                reference: reference.map(|(share, memory)| Reference { share: Share(share as u32), memory: Bytes(memory) }),
                prices: Prices { otherwise: Some(Price(price)), ..Prices::default() },
                opportunistic,
            };
            let part = rule.part(&held);
            prop_assert!(held.dominant() <= WHOLE && (rule.reference.is_some() || part <= WHOLE), "{part}");
            let something = (held.memory > Bytes::ZERO && held.of_memory > Bytes::ZERO) || (held.share.0 > 0 && held.of_share.0 > 0);
            prop_assert!(!something || rule.reference.is_some() || part > 0);
            let tariff = rule.tariff(&[held.clone(), held]);
            let cost = tariff.rate(false).over(millis) + tariff.busy_rate(0, true).over(millis);
            let (less, budget) = (cost.percent(percent), Amount::units(i64::MAX));
            prop_assert!(Amount::ZERO <= less && less <= cost, "{percent} % of {cost} is {less}");
            let _ = (budget.lasts(tariff.rate(false)), budget - cost - cost);
        }
    }

    /// GPUSharing's quota-sized pod, 50 cores and 15 blocks of 256 MiB, on a card of 30 blocks.
    #[test]
    fn gs_02_gs_03_gs_04_the_consumption_factor_is_the_mean_of_the_parts_of_the_quota() {
        let block = |n: u64| Bytes::mib(256 * n);
        let rule = CostRule {
            measure: Measure::Mean,
            reference: Some(Reference { share: Share(500), memory: block(15) }),
            ..CostRule::default()
        };
        for (core, memory, factor) in [(50, 15, 1_000_000), (25, 15, 750_000), (100, 30, 2_000_000)] {
            assert_eq!(rule.part(&slice(core * 10, block(memory), block(30))), factor, "{core}/{memory}");
        }
        // A whole card counts as a whole card, also where the manifest names less memory.
        assert_eq!(rule.part(&HeldDevice { alone: true, ..slice(1000, block(15), block(30)) }), 2_000_000);
        // As admission makes it of 100 cores: alone on the card, all of whose memory it has.
        for size in [Bytes::gib(16), Bytes::gib(80)] {
            let whole = HeldDevice { alone: true, ..slice(1000, size, size) };
            assert_eq!(rule.part(&whole), 2_000_000, "on a card of {size}");
            let dominant = CostRule { measure: Measure::Dominant, ..rule.clone() };
            assert!(dominant.part(&whole) > 2_000_000, "the larger part is the larger part");
        }
        assert_eq!(
            rule.part(&HeldDevice { alone: true, ..slice(1000, block(15), block(15)) }),
            1_500_000,
            "a small card"
        );
    }

    #[test]
    fn the_longest_name_that_fits_has_the_price() {
        let prices = Prices {
            by_model: vec![("a100".into(), Price(2)), ("a100-sxm4".into(), Price(3))],
            otherwise: Some(Price(1)),
            usual: vec![("t4".into(), Price(9))],
        };
        assert_eq!(prices.of("NVIDIA-A100-SXM4-40GB"), Some(Price(3)));
        assert_eq!(prices.of("NVIDIA-A100-PCIE-40GB"), Some(Price(2)));
        assert_eq!(prices.of("Tesla-T4"), Some(Price(1)));
        assert_eq!(Prices::default().of("Tesla-T4"), None);
    }
}
