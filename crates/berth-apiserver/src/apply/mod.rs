//! Server-side apply and the bookkeeping of `metadata.managedFields`.

use jiff::Timestamp;
use serde_json::Value;

use crate::schema::Schema;

/// What `managedFields` says about how a manager wrote its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update or any other patch.
    Update,
}

/// Who writes, and how: one entry of `managedFields` is kept for each.
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
}

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "manager" using v1`: who owns the field, in the words of the `Status` causes.
    pub message: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

/// Why an apply is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own some of the fields (409, reason `Conflict`, one cause `FieldManagerConflict` for each).
    #[error("{}", conflicts_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The sent object has `metadata.managedFields` (400).
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsSet,
}

fn conflicts_message(_conflicts: &[Conflict]) -> String {
    String::new()
}

/// Applies a configuration: the live object with the applied fields, without those that this manager
/// applied before and does not any more, and with `managedFields` brought up to date.
///
/// `live` is `None` where the object does not exist yet.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    writer: Writer<'_>,
    force: bool,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    let _ = (writer, force, schema);
    Ok(crate::patch::merge::apply(
        live.unwrap_or(&Value::Null),
        applied,
    ))
}

/// The `managedFields` after an ordinary write: what changed from `old` to `new` is now the writer's.
/// `old` is `None` on create. Put the result into `metadata.managedFields` (and drop the field if it is empty).
pub fn managed_fields_after_update(
    old: Option<&Value>,
    new: &Value,
    writer: Writer<'_>,
    operation: Operation,
    schema: &Schema,
) -> Vec<Value> {
    let _ = (old, new, writer, operation, schema);
    Vec::new()
}
