//! `meta.k8s.io/v1` Tables: what `kubectl get` prints.
//!
//! The columns and the words in them are those of kube-apiserver, because people and scripts know them.
//! A column with a priority above 0 shows only with `-o wide`. Ages are counted to a `now` from outside.

mod custom;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use berth_kinds::age::human_duration;
use berth_kinds::columns::{Column, NAME_AND_AGE};

/// What each row carries of its object: the `includeObject` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, as a `PartialObjectMetadata`. The default.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the parameter; empty stands for the default. `None` if there is no such value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(IncludeObject::Metadata),
            "None" => Some(IncludeObject::None),
            "Object" => Some(IncludeObject::Object),
            _ => None,
        }
    }
}

/// How objects are printed.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions<'a> {
    /// The time that ages are counted to.
    pub now: Timestamp,
    /// What each row carries of its object.
    pub include_object: IncludeObject,
    /// What is printed of a built-in kind.
    pub columns: Option<&'static [Column]>,
    /// `additionalPrinterColumns` of a custom resource's version; null for built-in kinds.
    pub printer_columns: &'a Value,
}

/// The Table of these objects. `list_metadata` is the `metadata` of the list they come from, or that of a
/// single object (only `resourceVersion`, `continue` and `remainingItemCount` are taken from it).
pub fn table(objects: &[&Value], list_metadata: &Value, options: &TableOptions<'_>) -> Value {
    let (columns, rows): (Vec<Value>, Vec<Vec<Value>>) = match options.printer_columns {
        Value::Array(columns) if !columns.is_empty() => (
            custom::columns(columns),
            objects.iter().map(|o| custom::row(o, columns, options.now)).collect(),
        ),
        _ => {
            let columns = options.columns.unwrap_or(NAME_AND_AGE);
            let row = |object: &&Value| columns.iter().map(|column| column.cell(object, options.now)).collect();
            (
                columns.iter().map(column_definition).collect(),
                objects.iter().map(row).collect(),
            )
        }
    };
    let rows: Vec<_> = objects
        .iter()
        .zip(rows)
        .map(|(object, cells)| row(object, cells, options.include_object))
        .collect();
    let mut metadata = Map::new();
    for field in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = list_metadata.get(field).filter(|value| *value != "") {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut table = Map::new();
    table.insert("kind".to_owned(), json!("Table"));
    table.insert("apiVersion".to_owned(), json!("meta.k8s.io/v1"));
    table.insert("metadata".to_owned(), Value::Object(metadata));
    table.insert("columnDefinitions".to_owned(), Value::Array(columns));
    table.insert("rows".to_owned(), Value::Array(rows));
    Value::Object(table)
}

fn column_definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.cell_type,
        "format": if matches!(column.name, "Name" | "Attacher") { "name" } else { "" },
        "description": "",
        "priority": i32::from(column.wide),
    })
}

/// Built by hand: the macro would serialize the metadata of every object once more.
fn row(object: &Value, cells: Vec<Value>, include_object: IncludeObject) -> Value {
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array(cells));
    match include_object {
        IncludeObject::None => {}
        IncludeObject::Metadata => {
            let mut partial = Map::new();
            partial.insert("kind".to_owned(), json!("PartialObjectMetadata"));
            partial.insert("apiVersion".to_owned(), json!("meta.k8s.io/v1"));
            partial.insert("metadata".to_owned(), object["metadata"].clone());
            row.insert("object".to_owned(), Value::Object(partial));
        }
        IncludeObject::Object => {
            row.insert("object".to_owned(), object.clone());
        }
    }
    Value::Object(row)
}

#[cfg(test)]
mod tests;
