//! `metadata.managedFields`: reading and writing its entries.

use berth_core::time::seconds;
use serde_json::{Map, Value, json};

use super::path::{FieldSet, PathElement};
use super::{Operation, Writer};

/// Maximum number of update entries. Older ones are merged, so that objects with many writers do not grow without
/// bound. The number is kube-apiserver's.
const UPDATE_ENTRIES_MAX: usize = 10;
/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

impl Entry {
    pub(super) fn new(writer: Writer<'_>, operation: Operation, fields: FieldSet) -> Self {
        Entry {
            manager: writer.manager.to_owned(),
            operation,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            // Kubernetes does not record when an object was scaled.
            time: (writer.subresource != "scale").then(|| seconds(writer.time)),
            fields,
        }
    }

    /// Whether a write of this kind is added to this entry. An applier has one entry for all versions.
    pub(super) fn belongs_to(&self, writer: Writer<'_>, operation: Operation) -> bool {
        self.manager == writer.manager
            && self.subresource == writer.subresource
            && self.operation == operation
            && (operation == Operation::Apply || self.api_version == writer.api_version)
    }

    /// `"kubectl" using apps/v1`: the owner as shown in messages.
    pub(super) fn owner(&self) -> String {
        let mut owner = format!("\"{}\"", self.manager);
        if !self.subresource.is_empty() {
            owner.push_str(&format!(" with subresource \"{}\"", self.subresource));
        }
        if self.operation == Operation::Update {
            owner.push_str(&format!(" using {}", self.api_version));
        }
        owner
    }

    fn decode(entry: &Value) -> Option<Entry> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Entry {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: entry["time"].as_str().map(str::to_owned),
            fields: FieldSet::decode(&entry["fieldsV1"]),
        })
    }

    fn encode(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("manager".to_owned(), json!(self.manager));
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        entry.insert("operation".to_owned(), json!(operation));
        entry.insert("apiVersion".to_owned(), json!(self.api_version));
        if let Some(time) = &self.time {
            entry.insert("time".to_owned(), json!(time));
        }
        entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
        entry.insert("fieldsV1".to_owned(), self.fields.encode());
        if !self.subresource.is_empty() {
            entry.insert("subresource".to_owned(), json!(self.subresource));
        }
        Value::Object(entry)
    }
}

/// The entries of an object. Invalid entries are dropped.
pub(super) fn entries(object: &Value) -> Vec<Entry> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().filter_map(Entry::decode).collect()
}

/// The `managedFields` of these entries, in Kubernetes' order, without empty ones.
pub(super) fn encode(mut entries: Vec<Entry>) -> Vec<Value> {
    entries.retain(|entry| !entry.fields.is_empty());
    put_oldest_together(&mut entries);
    entries.sort_by(|a, b| {
        let key = |e: &Entry| (e.operation, e.time.clone(), e.manager.clone(), e.api_version.clone());
        key(a).cmp(&key(b)).then_with(|| a.subresource.cmp(&b.subresource))
    });
    entries.iter().map(Entry::encode).collect()
}

fn put_oldest_together(entries: &mut Vec<Entry>) {
    let is_update = |entry: &&Entry| entry.operation == Operation::Update && entry.subresource.is_empty();
    while entries.iter().filter(is_update).count() > UPDATE_ENTRIES_MAX {
        let others = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| is_update(entry) && entry.manager != ANCIENT);
        let Some((oldest, _)) = others.min_by_key(|(_, entry)| entry.time.clone()) else {
            return;
        };
        let oldest = entries.remove(oldest);
        let ancient = entries
            .iter_mut()
            .find(|entry| entry.manager == ANCIENT && entry.api_version == oldest.api_version);
        match ancient {
            Some(ancient) => {
                ancient.fields = std::mem::take(&mut ancient.fields).union(&oldest.fields);
                ancient.time = oldest.time;
            }
            None => entries.push(Entry {
                manager: ANCIENT.to_owned(),
                ..oldest
            }),
        }
    }
}

/// Removes what no manager owns: the object's identity and server-generated fields.
pub(super) fn strip_system_fields(mut set: FieldSet) -> FieldSet {
    let field = |name: &str| PathElement::Field(name.to_owned());
    set.remove(&field("apiVersion"));
    set.remove(&field("kind"));
    set.remove_member(&field("metadata"));
    set.change_below(&field("metadata"), |metadata| {
        for name in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ] {
            metadata.remove(&field(name));
        }
    });
    set
}

impl FieldSet {
    /// The set without the members of `removed` and everything below them.
    pub(super) fn without_subtrees(&self, removed: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        for element in removed.elements() {
            if removed.has(element) {
                left.remove(element);
            } else if let Some(removed) = removed.below(element) {
                left.change_below(element, |below| *below = below.without_subtrees(removed));
            }
        }
        left
    }
}
