//! Reading JSON the way Go does: field names match in any letter case.
//!
//! kube-scheduler's extender types carry no JSON tags and are sent in PascalCase; an older package of the same types tagged them
//! in lower case. A Go server reads both without noticing. Types read through here name their fields in lower case.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Parses an object whose field names may be in any case. Values inside keep theirs.
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(AnyCase(&mut source))?;
    source.end()?;
    Ok(value)
}

/// For a field that is a map of names to objects of the same kind.
pub(crate) fn map<'de, D: Deserializer<'de>, T: DeserializeOwned>(source: D) -> Result<BTreeMap<String, T>, D::Error> {
    let map: Option<BTreeMap<String, Inner<T>>> = Option::deserialize(source)?;
    Ok(map.unwrap_or_default().into_iter().map(|(name, inner)| (name, inner.0)).collect())
}

/// For a field that is a list of objects of the same kind.
pub(crate) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(source: D) -> Result<Vec<T>, D::Error> {
    let list: Option<Vec<Inner<T>>> = Option::deserialize(source)?;
    Ok(list.unwrap_or_default().into_iter().map(|inner| inner.0).collect())
}

struct Inner<T>(T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Inner<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Inner<T>, D::Error> {
        T::deserialize(AnyCase(source)).map(Inner)
    }
}

/// A deserializer whose outermost object has its names put in lower case.
struct AnyCase<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for AnyCase<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(LowerNames { visitor, marker: PhantomData })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct LowerNames<'de, V> {
    visitor: V,
    marker: PhantomData<&'de ()>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for LowerNames<'de, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(LowerMap(map))
    }
}

struct LowerMap<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for LowerMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.0.next_key::<String>()? else { return Ok(None) };
        let lower: StringDeserializer<A::Error> = name.to_ascii_lowercase().into_deserializer();
        seed.deserialize(lower).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}
