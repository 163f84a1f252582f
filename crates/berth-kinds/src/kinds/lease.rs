//! Leases.

use serde_json::Value;

use crate::columns::{AGE, NAME, text};
use crate::error::FieldError;
use crate::kind::{Kind, Writes};

/// Leases.
pub const KIND: Kind = Kind {
    writes: Writes {
        put_creates: true,
        put_needs_version: true,
        ..Writes::USUAL
    },
    columns: &[NAME, text("Holder", &["spec", "holderIdentity"], ""), AGE],
    validate,
    ..Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases")
};

fn validate(lease: &Value) -> Vec<FieldError> {
    let seconds = &lease["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_none_or(|seconds| seconds > 0) {
        return Vec::new();
    }
    vec![FieldError::invalid(
        "spec.leaseDurationSeconds",
        seconds,
        "must be greater than 0",
    )]
}
