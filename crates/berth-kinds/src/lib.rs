//! The kinds of the Kubernetes API: their names, and how an API server processes their objects.
//!
//! Everything about one kind is in one file of [`kinds`]: names, defaults, admission, validation, warnings, printed
//! columns and selectable fields. [`KINDS`] is the only table of kinds; routing, discovery, OpenAPI, tables, defaults,
//! admission and validation read it. Shared code has its own files next to it.
//!
//! The crate is pure: objects come in as JSON, completed objects and errors come out. Other objects are looked up through
//! [`admission::Lookup`], and the time is a parameter.

pub mod admission;
pub mod age;
pub mod columns;
pub mod deletion;
pub mod error;
pub mod eviction;
mod fields;
mod go_form;
mod kind;
pub mod kinds;
pub mod meta;
pub mod metadata;
mod pod_spec;
mod schedule;
pub mod schema;
pub mod selector;
mod storage;
mod structural;
pub mod workload;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

pub use kind::{Generation, Kind, SelectableField, StoredForm, Subresource, Writes};
pub use kinds::{KINDS, REVIEWS};

/// The kind with this `apiVersion` and `kind`.
#[must_use]
pub fn by_name(api_version: &str, kind: &str) -> Option<&'static Kind> {
    static BY_NAME: LazyLock<HashMap<(&str, &str, &str), &Kind>> = LazyLock::new(|| {
        let kinds = KINDS.iter().copied();
        kinds
            .map(|kind| ((kind.group, kind.version, kind.name), kind))
            .collect()
    });
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    BY_NAME.get(&(group, version, kind)).copied()
}

/// The kind of an object.
#[must_use]
pub fn kind_of(object: &Value) -> Option<&'static Kind> {
    by_name(meta::text(object, &["apiVersion"]), meta::text(object, &["kind"]))
}
