//! Server-side apply and the bookkeeping of `metadata.managedFields`.
//!
//! Each manager owns the fields that it applied or changed. An apply sets the fields it specifies, removes those that
//! its manager specified before and no one else owns, and is refused if it would change another manager's fields. All
//! of this is a function of the objects and the schema: nothing is stored here.

mod empty;
mod fields;
mod last_applied;
mod managed;
mod path;

use jiff::Timestamp;
use serde_json::{Map, Value};

use self::fields::{Comparison, Containers};
use self::managed::Entry;
use self::path::FieldSet;
use crate::meta;
use crate::schema::Schema;

/// How a manager wrote its fields, according to `managedFields`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update or any other patch.
    Update,
}

/// The writer and its operation: each has one entry in `managedFields`.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The field manager's name.
    pub manager: &'a str,
    /// The `apiVersion` of the object that was sent.
    pub api_version: &'a str,
    /// The subresource written to; empty for the object itself.
    pub subresource: &'a str,
    /// The time of the request.
    pub time: Timestamp,
    /// Parts of the object that this writer cannot change, such as `status`, and so never owns.
    pub reset: &'a [&'a str],
}

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "manager" using v1`: the owner of the field, as worded in `Status` causes.
    pub message: String,
    /// The field, for example `.spec.replicas`.
    pub field: String,
}

/// Why an apply is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own some of the fields (409, reason `Conflict`, one cause `FieldManagerConflict` for each).
    #[error("{}", conflicts_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The sent object has `metadata.managedFields` (400).
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsSet,
    /// A list of the sent object cannot be merged: elements lack their keys, or there are duplicates.
    #[error("failed to create typed patch object ({object}): {errors}")]
    Untyped {
        /// `namespace/name; apiVersion, Kind=Kind`.
        object: String,
        /// The errors, each with its path.
        errors: String,
    },
}

impl ApplyError {
    fn untyped(applied: &Value, errors: &[String]) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &applied["metadata"];
        let api_version = text(&applied["apiVersion"]);
        // The core group has no name, but a slash follows it.
        let slash = if api_version.contains('/') { "" } else { "/" };
        let object = format!(
            "{}/{}; {slash}{api_version}, Kind={}",
            text(&metadata["namespace"]),
            text(&metadata["name"]),
            text(&applied["kind"])
        );
        let errors = match errors {
            [only] => only.clone(),
            several => format!("errors:\n  {}", several.join("\n  ")),
        };
        ApplyError::Untyped { object, errors }
    }
}

/// The error for fields that are not in the schema.
pub(crate) fn undeclared(applied: &Value, unknown: &[String]) -> ApplyError {
    let errors: Vec<String> = unknown
        .iter()
        .map(|path| format!(".{path}: field not declared in schema"))
        .collect();
    ApplyError::untyped(applied, &errors)
}

/// One conflict is reported in a line; several are grouped by owner.
fn conflicts_message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", conflict.message, conflict.field);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut owner = "";
    for conflict in conflicts {
        if conflict.message != owner {
            owner = &conflict.message;
            lines.push(format!("conflicts{}:", owner.trim_start_matches("conflict")));
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Applies a configuration. Returns the live object with the applied fields, without those that this manager no longer
/// applies, and with updated `managedFields`.
///
/// `live` is `None` if the object does not exist yet. Fields that this request may not write (`status` on the object
/// itself, everything else on its status) must be removed from `applied` before. The caller checks preconditions in
/// `applied` (`resourceVersion`, `uid`): the result has those of `live`. The result equals `live` if there is nothing
/// to change.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    writer: Writer<'_>,
    force: bool,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    let is_set = |value: &Value| value.as_array().is_some_and(|entries| !entries.is_empty());
    if is_set(&applied["metadata"]["managedFields"]) {
        return Err(ApplyError::ManagedFieldsSet);
    }
    let mut errors = Vec::new();
    fields::list_errors(applied, schema.cursor(), "", &mut errors);
    if !errors.is_empty() {
        return Err(ApplyError::untyped(applied, &errors));
    }
    let old = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let mut entries = managed::entries(&old);
    if live.is_some() && entries.is_empty() {
        entries.push(before_first_apply(&old, writer, schema));
    }
    let own = entries
        .iter()
        .position(|entry| entry.belongs_to(writer, Operation::Apply));
    let own = own.map(|index| entries.remove(index));

    let set = applied_set(applied, writer.reset, schema);
    let mut new = fields::merge(&old, &without_system_fields(applied, live.is_some()), schema.cursor());
    if let Some(own) = &own {
        let kept = entries
            .iter()
            .fold(set.clone(), |kept, entry| kept.union(&entry.fields));
        fields::remove(&mut new, &own.fields.difference(&set), &kept, schema.cursor());
    }
    let comparison = fields::compare(&old, &new, schema.cursor());
    let allowed = last_applied::allowed(writer.manager, &old, schema);
    take_over(&mut entries, &comparison, force, &allowed)?;

    let unchanged = old == new && own.as_ref().is_some_and(|own| own.fields == set);
    if unchanged && own.as_ref().is_some_and(|own| own.api_version == writer.api_version) {
        return Ok(old);
    }
    let mut entry = Entry::new(writer, Operation::Apply, set);
    if live.is_some() && without_managed_fields(&old) == without_managed_fields(&new) {
        // Only changes of the object have a time.
        entry.time = own.and_then(|own| own.time);
    }
    entries.push(entry);
    last_applied::renew(writer.manager, &mut new, applied);
    set_managed_fields(&mut new, managed::encode(entries));
    Ok(new)
}

/// Takes over the changed fields from their owners, or reports those that need force.
fn take_over(
    entries: &mut [Entry],
    comparison: &Comparison,
    force: bool,
    allowed: &FieldSet,
) -> Result<(), ApplyError> {
    let mut conflicts = Vec::new();
    for entry in entries.iter_mut() {
        let taken = entry.fields.intersection(&comparison.changed);
        let refused = taken.difference(allowed);
        conflicts.extend(refused.paths().into_iter().map(|field| Conflict {
            message: format!("conflict with {}", entry.owner()),
            field,
        }));
        entry.fields = entry.fields.difference(&taken).without_subtrees(&comparison.removed);
    }
    if conflicts.is_empty() || force {
        return Ok(());
    }
    conflicts.sort_by(|a, b| a.message.cmp(&b.message));
    Err(ApplyError::Conflicts(conflicts))
}

/// Fields that existed before any owner was recorded: they must be taken over by force.
fn before_first_apply(live: &Value, writer: Writer<'_>, schema: &Schema) -> Entry {
    let fields = fields::compare(&empty::empty_object(live), live, schema.cursor()).changed;
    let entry = Entry::new(writer, Operation::Update, managed::strip_system_fields(fields));
    Entry {
        manager: "before-first-apply".to_owned(),
        subresource: String::new(),
        ..entry
    }
}

fn applied_set(applied: &Value, reset: &[&str], schema: &Schema) -> FieldSet {
    let set = fields::field_set(applied, schema.cursor(), Containers::Applied);
    let nulls = fields::null_fields(applied, schema.cursor());
    let mut set = managed::strip_system_fields(set.union(&nulls));
    for part in reset {
        set.remove(&path::PathElement::Field((*part).to_owned()));
    }
    set
}

/// The part of an applied object to merge, without server-generated fields.
fn without_system_fields(applied: &Value, exists: bool) -> Value {
    let mut applied = applied.clone();
    if let Some(Value::Object(metadata)) = applied.get_mut("metadata") {
        metadata.remove("managedFields");
        if exists {
            for name in ["resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
                metadata.remove(name);
            }
        }
    }
    applied
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    meta::set(&mut object, &["metadata", "managedFields"], Value::Null);
    object
}

fn set_managed_fields(object: &mut Value, entries: Vec<Value>) {
    let Value::Object(object) = object else {
        return;
    };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}

/// The `managedFields` after an ordinary write: the writer owns what changed from `old` to `new`. `old` is `None` on
/// create. Set the result as `metadata.managedFields` (and remove the field if it is empty).
///
/// Ownership is read from `new` if it has any (a client may rewrite it), else from `old`.
pub fn managed_fields_after_update(
    old: Option<&Value>,
    new: &Value,
    writer: Writer<'_>,
    operation: Operation,
    schema: &Schema,
) -> Vec<Value> {
    let empty = empty::empty_object(new);
    let old = old.unwrap_or(&empty);
    let mut entries = managed::entries(new);
    if entries.is_empty() {
        entries = managed::entries(old);
    }
    let comparison = fields::compare(old, new, schema.cursor());
    let mut changed = managed::strip_system_fields(comparison.changed);
    for part in writer.reset {
        changed.remove(&path::PathElement::Field((*part).to_owned()));
    }
    for entry in &mut entries {
        let is_own = entry.belongs_to(writer, operation);
        let left = entry.fields.without_subtrees(&comparison.removed);
        entry.fields = if is_own { left } else { left.difference(&changed) };
    }
    if !changed.is_empty() {
        let own = entries.iter_mut().find(|entry| entry.belongs_to(writer, operation));
        let entry = Entry::new(writer, operation, changed);
        match own {
            Some(own) => {
                let fields = std::mem::take(&mut own.fields).union(&entry.fields);
                *own = Entry { fields, ..entry };
            }
            None => entries.push(entry),
        }
    }
    managed::encode(entries)
}

#[cfg(test)]
mod tests;
