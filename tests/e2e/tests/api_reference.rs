//! The API reference is written from the custom resource definitions under `deploy/crds`: one section per kind, one table per object.

use std::path::Path;

use serde_json::Value;

const HEAD: &str = "\
# API reference

Divvy's custom resources, field by field. Written from the definitions by `UPDATE=1 cargo test -p divvy-e2e --test api_reference`; a test fails where it is
out of date. Annotations, labels and resource names are in [asks.md](asks.md).
";

#[test]
fn the_api_reference_is_what_the_definitions_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = std::fs::read_dir(root.join("deploy/crds")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let text = markdown(&paths.iter().map(read).collect::<Vec<Value>>());
    let path = root.join("docs/reference/api.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/reference/api.md is out of date: UPDATE=1 cargo test -p divvy-e2e --test api_reference"
    );
}

/// The reference for these definitions.
fn markdown(definitions: &[Value]) -> String {
    let mut out = HEAD.to_owned();
    for crd in definitions {
        let (spec, kind) = (&crd["spec"], text(&crd["spec"]["names"]["kind"]));
        let scope = if spec["scope"] == "Namespaced" { "in a namespace" } else { "for the whole cluster" };
        for version in spec["versions"].as_array().into_iter().flatten() {
            let schema = &version["schema"]["openAPIV3Schema"];
            out.push_str(&format!("\n## {kind}\n\n`{}/{}`, {scope}. ", text(&spec["group"]), text(&version["name"])));
            out.push_str(&format!("{}\n", one_line(&schema["description"])));
            for part in ["spec", "status"] {
                let part_schema = &schema["properties"][part];
                if part_schema.is_object() {
                    object(&mut out, part, part_schema);
                }
            }
        }
    }
    out
}

/// The table of one object's fields, and the tables of the objects in it.
fn object(out: &mut String, path: &str, schema: &Value) {
    let Some(fields) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) else { return };
    out.push_str(&format!("\n### {path}\n\n| field | type | |\n|---|---|---|\n"));
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in fields {
        let must = if required.contains(&name.as_str()) { " **required**" } else { "" };
        let says = [one_line(&field["description"]), limits(field).trim().to_owned()].join(" ");
        out.push_str(&format!("| `{name}`{must} | {} | {} |\n", kind(field), says.trim().replace('|', "\\|")));
    }
    for (name, field) in fields {
        object(out, &format!("{path}.{name}"), field);
        object(out, &format!("{path}.{name}[]"), &field["items"]);
        object(out, &format!("{path}.{name}.*"), &field["additionalProperties"]);
    }
}

fn kind(field: &Value) -> String {
    if let Some(words) = field["enum"].as_array() {
        let words: Vec<String> = words.iter().filter(|w| !w.is_null()).map(|w| format!("`{}`", text(w))).collect();
        return words.join(", ");
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", kind(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map to {}", kind(&field["additionalProperties"]))
        }
        Some(word) => word.to_owned(),
        None if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        None => "any".to_owned(),
    }
}

fn limits(field: &Value) -> String {
    let bound = |name: &str| field[name].as_f64().map(|n| n.to_string());
    let mut said = match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!("{least} to {most}."),
        (Some(least), None) if least != "0" => format!("At least {least}."),
        (None, Some(most)) => format!("At most {most}."),
        _ => String::new(),
    };
    for rule in field["x-kubernetes-validations"].as_array().into_iter().flatten() {
        said.push_str(&format!(" Rule: {}.", text(&rule["message"])));
    }
    said
}

fn one_line(value: &Value) -> String {
    text(value).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}
