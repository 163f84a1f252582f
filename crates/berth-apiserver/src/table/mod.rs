//! `meta.k8s.io/v1` Tables: the output of `kubectl get`.
//!
//! Columns and wording are those of kube-apiserver, because people and scripts rely on them. A column with a priority
//! above 0 is shown only with `-o wide`. Ages are relative to a `now` parameter.

mod custom;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use berth_kinds::age::human_duration;
use berth_kinds::columns::{Column, NAME_AND_AGE};

/// What each row includes of its object: the `includeObject` parameter.
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
    /// Parses the parameter; empty means the default. `None` if there is no such value.
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
    /// The reference time of ages.
    pub now: Timestamp,
    /// What each row includes of its object.
    pub include_object: IncludeObject,
    /// The columns of a built-in kind.
    pub columns: Option<&'static [Column]>,
    /// `additionalPrinterColumns` of a custom resource's version; null for built-in kinds.
    pub printer_columns: &'a Value,
}

impl<'a> TableOptions<'a> {
    /// The columns of a custom resource that defines some.
    fn custom(&self) -> Option<&'a [Value]> {
        self.printer_columns
            .as_array()
            .map(Vec::as_slice)
            .filter(|columns| !columns.is_empty())
    }

    fn builtin(&self) -> &'static [Column] {
        self.columns.unwrap_or(NAME_AND_AGE)
    }
}

/// A Table of one object, or of none. `list_metadata` is the `metadata` of the list, or that of a single object (only
/// `resourceVersion`, `continue` and `remainingItemCount` are used). The rows come last.
pub fn table(object: Option<&Value>, list_metadata: &Value, options: &TableOptions<'_>) -> Value {
    let columns = match options.custom() {
        Some(columns) => custom::columns(columns),
        None => options.builtin().iter().map(column_definition).collect(),
    };
    let rows = object.map(|object| row(object, options)).into_iter().collect();
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

/// The row of an object. Built by hand: the macro would serialize the metadata of every object again.
pub fn row(object: &Value, options: &TableOptions<'_>) -> Value {
    let cell = |column: &Column| column.cell(object, options.now);
    let cells = match options.custom() {
        Some(columns) => custom::row(object, columns, options.now),
        None => options.builtin().iter().map(cell).collect(),
    };
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array(cells));
    match options.include_object {
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
