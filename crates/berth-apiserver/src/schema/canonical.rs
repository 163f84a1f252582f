//! Converts values to the canonical form of Kubernetes: quantities in their shortest exact form, and no nulls.

use berth_core::quantity;
use serde_json::Value;

use super::node::{Cursor, Schema, Shape};

/// Converts the values of an object to canonical form.
pub(crate) fn canonicalize(value: &mut Value, schema: &Schema) {
    visit(value, schema.cursor());
}

fn visit(value: &mut Value, cursor: Cursor<'_>) {
    match (cursor.shape(), value) {
        (Shape::Quantity, value) => {
            let text = match &*value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return,
            };
            if let Some(canonical) = quantity::canonical(&text) {
                *value = canonical.into();
            }
        }
        (Shape::Struct(_) | Shape::Map(_), Value::Object(fields)) => {
            fields.retain(|_, field| !field.is_null());
            for (name, field) in fields {
                visit(field, cursor.field_or_any(name));
            }
        }
        (Shape::List(_), Value::Array(items)) => items.iter_mut().for_each(|item| visit(item, cursor.items())),
        _ => {}
    }
}
