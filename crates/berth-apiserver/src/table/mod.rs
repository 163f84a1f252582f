//! `meta.k8s.io/v1` Tables: what `kubectl get` prints.
//!
//! The columns and the words in them are those of kube-apiserver, because people and scripts know them.
//! A column with a priority above 0 shows only with `-o wide`. Ages are counted to a `now` from outside.

mod age;
mod cluster;
mod custom;
mod network;
mod storage;
mod workload;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use self::age::human_duration;
use crate::registry::ResourceType;

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
    /// `additionalPrinterColumns` of a custom resource's version; null for built-in kinds.
    pub printer_columns: &'a Value,
}

/// A column: its name, its JSON type, and whether it shows only with `-o wide`.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    cell_type: &'static str,
    wide: bool,
}

/// A column of text that always shows.
const fn text(name: &'static str) -> Column {
    Column {
        name,
        cell_type: "string",
        wide: false,
    }
}

/// A column of numbers that always shows.
const fn integer(name: &'static str) -> Column {
    Column {
        name,
        cell_type: "integer",
        wide: false,
    }
}

/// A column of yes or no.
const fn boolean(name: &'static str) -> Column {
    Column {
        name,
        cell_type: "boolean",
        wide: false,
    }
}

/// The columns of kinds that Kubernetes says nothing more about.
const CREATED: Printer = Printer {
    columns: &[
        text("Name"),
        Column {
            name: "Created At",
            cell_type: "date",
            wide: false,
        },
    ],
    row: |object, _| vec![name(object), text_or(&object["metadata"]["creationTimestamp"], "")],
};

/// A column of text that shows only with `-o wide`.
const fn wide(name: &'static str) -> Column {
    Column {
        name,
        cell_type: "string",
        wide: true,
    }
}

/// The columns of a kind, and the function that fills one row.
struct Printer {
    columns: &'static [Column],
    row: fn(&Value, Timestamp) -> Vec<Value>,
}

const DEFAULT: Printer = Printer {
    columns: &[text("Name"), text("Age")],
    row: |object, now| vec![name(object), age::of(object, now)],
};

fn printer(group: &str, kind: &str) -> Option<Printer> {
    workload::printer(group, kind)
        .or_else(|| storage::printer(group, kind))
        .or_else(|| cluster::printer(group, kind))
        .or_else(|| network::printer(group, kind))
}

/// The Table of these objects. `list_metadata` is the `metadata` of the list they come from, or that of a
/// single object (only `resourceVersion`, `continue` and `remainingItemCount` are taken from it).
pub fn table(resource: &ResourceType, objects: &[&Value], list_metadata: &Value, options: &TableOptions<'_>) -> Value {
    let (columns, rows): (Vec<Value>, Vec<Vec<Value>>) = match options.printer_columns {
        Value::Array(columns) if !columns.is_empty() => (
            custom::columns(columns),
            objects.iter().map(|o| custom::row(o, columns, options.now)).collect(),
        ),
        _ => {
            let printer = printer(&resource.group, &resource.kind).unwrap_or(DEFAULT);
            let columns = printer.columns.iter().map(column_definition).collect();
            (columns, objects.iter().map(|o| (printer.row)(o, options.now)).collect())
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

/// A cell that says there is nothing.
const NONE: &str = "<none>";
/// A cell that says the value is not known.
const UNKNOWN: &str = "<unknown>";
/// A cell that says the field is not set.
const UNSET: &str = "<unset>";

fn name(object: &Value) -> Value {
    object["metadata"]["name"].as_str().unwrap_or_default().into()
}

/// The text of a field, or nothing if it is empty.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// The text of a field, or another.
fn text_or(value: &Value, other: &str) -> Value {
    json!(text_of(value).unwrap_or(other))
}

/// A count that reads as 0 where it is not set.
fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// `a=1,b=2`, or `<none>`.
fn labels(value: &Value) -> String {
    let labels: Vec<_> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if labels.is_empty() {
        NONE.to_owned()
    } else {
        labels.join(",")
    }
}

#[cfg(test)]
mod tests;
