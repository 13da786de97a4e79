//! What a recorded answer must look like.

use serde_json::Value;

/// Whether an answer is as recorded; `"*"` stands for anything.
pub(crate) fn same(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::String(any), _) if any == "*" => true,
        (Value::Object(expected), Value::Object(found)) => {
            expected.len() == found.len()
                && expected.iter().all(|(key, value)| found.get(key).is_some_and(|f| same(value, f)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| same(e, f))
        }
        _ => expected == found,
    }
}
