//! JSON patches on raw objects: only what differs, parents made where they are missing, nothing else touched.

use serde_json::{Map, Value, json};

/// RFC 6902 operations, gathered while the object they apply to is changed along.
pub(crate) struct Patch {
    object: Value,
    operations: Vec<Value>,
}

impl Patch {
    /// No change to `object` yet.
    pub(crate) fn of(object: &Value) -> Patch {
        Patch { object: object.clone(), operations: Vec::new() }
    }

    /// Makes the value at `path` (field names and indices) be `value`. Missing objects on the way are made.
    pub(crate) fn set(&mut self, path: &[&str], value: Value) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut at = &mut self.object;
        let mut pointer = String::new();
        for name in parents {
            pointer.push('/');
            pointer.push_str(&escaped(name));
            at = match at {
                Value::Array(items) => match name.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                    Some(item) => item,
                    None => return,
                },
                Value::Object(fields) => {
                    let field = fields.entry((*name).to_owned()).or_insert(Value::Null);
                    if field.is_null() {
                        *field = Value::Object(Map::new());
                        self.operations.push(json!({"op": "add", "path": pointer, "value": {}}));
                    }
                    field
                }
                _ => return,
            };
        }
        let Value::Object(fields) = at else { return };
        if fields.get(*last) == Some(&value) {
            return;
        }
        // `add` on an existing member replaces it.
        self.operations.push(json!({"op": "add", "path": format!("{pointer}/{}", escaped(last)), "value": value}));
        fields.insert((*last).to_owned(), value);
    }

    /// Takes a field of the object at `path` away, if it is there.
    pub(crate) fn remove(&mut self, path: &[&str], field: &str) {
        let pointer: String = path.iter().map(|name| format!("/{}", escaped(name))).collect();
        if let Some(Value::Object(fields)) = self.object.pointer_mut(&pointer)
            && fields.remove(field).is_some()
        {
            self.operations.push(json!({"op": "remove", "path": format!("{pointer}/{}", escaped(field))}));
        }
    }

    /// Appends to the list at `path`, making it where it is missing.
    pub(crate) fn append(&mut self, path: &[&str], value: Value) {
        let pointer: String = path.iter().map(|name| format!("/{}", escaped(name))).collect();
        match self.object.pointer_mut(&pointer) {
            Some(Value::Array(items)) => {
                self.operations.push(json!({"op": "add", "path": format!("{pointer}/-"), "value": value}));
                items.push(value);
            }
            _ => self.set(path, Value::Array(vec![value])),
        }
    }

    /// The object as it would be.
    pub(crate) fn object(&self) -> &Value {
        &self.object
    }

    /// The operations.
    pub(crate) fn into_operations(self) -> Vec<Value> {
        self.operations
    }
}

/// A name as a JSON pointer spells it.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parents_are_made_and_names_escaped() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {}}]}});
        let mut patch = Patch::of(&pod);
        patch.set(&["metadata", "annotations", "a/b~c"], json!("x"));
        patch.set(&["spec", "containers", "0", "resources", "limits", "d/slot"], json!("1"));
        patch.append(&["spec", "containers", "0", "env"], json!({"name": "E"}));
        patch.append(&["spec", "containers", "0", "env"], json!({"name": "F"}));
        let expected = patch.object().clone();
        let operations = patch.into_operations();
        let mut patched = pod;
        json_patch::patch(
            &mut patched,
            &serde_json::from_value::<json_patch::Patch>(Value::Array(operations.clone())).unwrap(),
        )
        .unwrap();
        assert_eq!(patched, expected);
        assert_eq!(patched["metadata"]["annotations"]["a/b~c"], "x");
        assert_eq!(patched["spec"]["containers"][0]["env"].as_array().unwrap().len(), 2);
        assert_eq!(operations.len(), 6);
    }

    #[test]
    fn what_is_so_already_is_not_patched() {
        let pod = json!({"metadata": {"annotations": {"a": "b"}}});
        let mut patch = Patch::of(&pod);
        patch.set(&["metadata", "annotations", "a"], json!("b"));
        assert!(patch.into_operations().is_empty());
    }

    #[test]
    fn objects_of_the_wrong_shape_are_left_alone() {
        let pod = json!({"metadata": 3, "spec": {"containers": {}}});
        let mut patch = Patch::of(&pod);
        patch.set(&["metadata", "annotations", "a"], json!("b"));
        patch.set(&["spec", "containers", "0", "x"], json!(1));
        assert!(!patch.object()["spec"].is_null());
    }
}
