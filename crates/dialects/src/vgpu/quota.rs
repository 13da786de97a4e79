//! HAMi's keys of a ResourceQuota (`limits.nvidia.com/gpumem`, `limits.nvidia.com/gpucores`). The API server keeps such objects and
//! counts nothing of them.

use std::collections::BTreeMap;

use crate::DialectConfig;
use crate::quantity;

/// What a namespace may hold at once, as a ResourceQuota says in HAMi's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaKeys {
    /// Memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Time, in thousandths of a card.
    pub share: Option<u64>,
}

impl QuotaKeys {
    /// Reads what is said (`spec.hard`), by the names that are in use; none where nothing of it is HAMi's.
    pub fn read(hard: &BTreeMap<String, String>, config: &DialectConfig) -> Option<QuotaKeys> {
        let amount = |resource: &str, factor: u64| {
            let text = hard.get(&format!("limits.{resource}"))?;
            // An amount beyond what can be counted limits nothing; the API server lets no other wrong one pass.
            Some(quantity::whole(text).ok()?.saturating_mul(factor))
        };
        let vgpu = &config.vgpu;
        let memory_mib = amount(&vgpu.names.resource_mem, u64::from(vgpu.memory_factor));
        let share = amount(&vgpu.names.resource_cores, 10);
        (memory_mib.is_some() || share.is_some()).then_some(QuotaKeys { memory_mib, share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(hard: &[(&str, &str)], config: &DialectConfig) -> Option<QuotaKeys> {
        let hard = hard.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        QuotaKeys::read(&hard, config)
    }

    #[test]
    fn memory_is_in_mib_times_the_factor_and_cores_in_percent_by_the_names_in_use() {
        let mut config = DialectConfig::default();
        let both = [("limits.nvidia.com/gpumem", "2k"), ("limits.nvidia.com/gpucores", "150"), ("pods", "3")];
        let expected = QuotaKeys { memory_mib: Some(2000), share: Some(1500) };
        assert_eq!(read(&both, &config), Some(expected));
        let nothing = QuotaKeys { memory_mib: Some(0), share: None };
        assert_eq!(read(&[("limits.nvidia.com/gpumem", "0")], &config), Some(nothing));
        assert_eq!(
            read(&[("requests.nvidia.com/gpumem", "1"), ("pods", "3")], &config),
            None,
            "the API server's to count"
        );
        config.vgpu.memory_factor = 256;
        config.vgpu.names.resource_mem = "acme.com/mem".into();
        assert_eq!(read(&both, &config), Some(QuotaKeys { memory_mib: None, share: Some(1500) }));
        let own = QuotaKeys { memory_mib: Some(512), share: None };
        assert_eq!(read(&[("limits.acme.com/mem", "2")], &config), Some(own));
    }
}
