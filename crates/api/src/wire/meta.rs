//! Metadata, without managed fields and without the copy of itself that `kubectl apply` leaves in an annotation.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for objects of the whole cluster.
    pub namespace: String,
    /// Its identity.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// How often what people want of it changed.
    pub generation: i64,
    /// Its labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations, less the one `kubectl apply` keeps for itself.
    #[serde(deserialize_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
    /// When it was made.
    pub creation_timestamp: Option<Timestamp>,
    /// When it is to be gone; present once it is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
    /// Who it belongs to.
    pub owner_references: Vec<Owner>,
}

/// An owner.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// The one that manages the object.
    pub controller: bool,
}

/// Absent and null are the same.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(source: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

fn annotations<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Kept;
    impl<'de> Visitor<'de> for Kept {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut kept = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if key == divvy_core::keys::LAST_APPLIED {
                    map.next_value::<IgnoredAny>()?;
                } else {
                    kept.insert(key, map.next_value()?);
                }
            }
            Ok(kept)
        }
    }
    source.deserialize_any(Kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_absent_and_kubectls_copy_is_dropped() {
        let meta: Meta = serde_json::from_value(serde_json::json!({
            "name": "p", "labels": null, "creationTimestamp": "2026-11-15T12:00:00Z", "managedFields": [{"manager": "x"}],
            "annotations": {"a": "b", (divvy_core::keys::LAST_APPLIED): "{...}"},
        }))
        .unwrap();
        assert_eq!(meta.annotations, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert!(meta.labels.is_empty());
        assert_eq!(meta.creation_timestamp.unwrap().as_second(), 1_794_744_000);
        let none: Meta = serde_json::from_str(r#"{"name":"p","annotations":null,"creationTimestamp":null}"#).unwrap();
        assert_eq!(none.creation_timestamp, None);
    }
}
