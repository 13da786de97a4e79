//! JSON from anybody, taken apart within a bound of memory.
//!
//! A text of `[{"":0},{"":0},...]` takes a hundred times its size once it is a [`Value`]. The reader here counts what each part takes before
//! it is made, and stops at the bound.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The longest name of a field. The longest that Kubernetes makes are names of resources and annotations (317 bytes) and, in
/// `managedFields`, keys of list entries, which carry a few of these.
const NAME: usize = 4 << 10;
/// What a map takes beside its entries: a node of a B-tree has room for eleven entries from the first one on.
const MAP: usize = 640;
/// What an entry of a map takes beside its name and its value's own memory. Nodes of a B-tree are at least half full.
const ENTRY: usize = 128;
/// What an element of a list takes beside its own memory. Lists grow by doubling.
const ELEMENT: usize = 2 * size_of::<Value>();

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// Its parts take more than the bound.
    #[error("it takes more than {0} bytes of memory once it is read")]
    TooLarge(usize),
    /// It is not JSON, or not as it may be.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads a text whose parts take at most `most` bytes.
pub fn read(text: &str, most: usize) -> Result<Value, Unread> {
    let left = Cell::new(most);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Part { left: &left }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| if left.get() == 0 { Unread::TooLarge(most) } else { error.into() })
}

/// The next part, and what is left for it.
#[derive(Clone, Copy)]
struct Part<'a> {
    left: &'a Cell<usize>,
}

impl Part<'_> {
    /// Counts what is about to be made. Nothing is left once something did not fit.
    fn take<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().saturating_sub(bytes);
        self.left.set(left);
        if left == 0 { Err(E::custom("too large")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.take(ELEMENT)?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Name(name)) = entries.next_key_seed(NamePart { left: self.left })? {
            self.take(if map.is_empty() { MAP } else { ENTRY } + name.len())?;
            map.insert(name, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

/// The name of a field.
struct Name(String);

struct NamePart<'a> {
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for NamePart<'_> {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Name, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for NamePart<'_> {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Name, E> {
        if name.len() > NAME {
            return Err(E::custom(format!("a field's name has {} bytes; it may have {NAME}", name.len())));
        }
        Part { left: self.left }.take(0)?;
        Ok(Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_read_as_it_stands() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,1.5,"x\n",{}],"b":{"c":{"d":[]}},"b":2}"#;
        let as_usual: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read(text, 1 << 20).unwrap(), as_usual);
    }

    #[test]
    fn what_takes_more_than_the_bound_is_not_read() {
        let many = |part: &str| format!("[{}]", vec![part; 20_000].join(","));
        for (text, what) in [
            (many(r#"{"":0}"#), "maps"),
            (many("[]"), "lists"),
            (many("0"), "numbers"),
            (many(r#""0123456789012345678901234567890123456789""#), "texts"),
            (format!("\"{}\"", "x".repeat(1 << 20)), "one text"),
        ] {
            assert!(matches!(read(&text, 1 << 20), Err(Unread::TooLarge(_))), "{what}");
        }
        assert!(matches!(read(&many("0"), 2 << 20), Ok(Value::Array(_))));
    }

    #[test]
    fn what_is_not_json_or_names_a_field_at_length_is_an_error_that_says_so() {
        for text in ["", "{", "[1,]", "{} {}", &"[".repeat(1000)] {
            assert!(matches!(read(text, 1 << 20), Err(Unread::Json(_))), "{text}");
        }
        let error = read(&format!("{{\"{}\":1}}", "n".repeat(NAME + 1)), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "a field's name has 4097 bytes; it may have 4096 at line 1 column 4100");
    }
}
