//! `meta.k8s.io/v1` Tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

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

/// The Table of these objects. `list_metadata` is the `metadata` of the list they come from, or that of a
/// single object (only `resourceVersion`, `continue` and `remainingItemCount` are taken from it).
pub fn table(
    resource: &ResourceType,
    objects: &[&Value],
    list_metadata: &Value,
    options: &TableOptions<'_>,
) -> Value {
    let _ = (resource, options, list_metadata);
    let rows: Vec<_> = objects
        .iter()
        .map(|o| json!({"cells": [o["metadata"]["name"]], "object": o}))
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}],
        "rows": rows})
}
