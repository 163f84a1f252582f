//! OpenAPI documents.

use serde_json::{Value, json};

use crate::registry::ResourceType;

/// A served type and, for a custom resource, its schema.
#[derive(Debug, Clone, Copy)]
pub struct ServedType<'a> {
    /// The type.
    pub resource: &'a ResourceType,
    /// `openAPIV3Schema` of a custom resource's version; `None` for built-in kinds.
    pub custom_schema: Option<&'a Value>,
}

/// `/openapi/v2`: one Swagger document for everything. `server_version` is that of `/version`, such as `v1.37.0`.
pub fn v2(_types: &[ServedType<'_>], server_version: &str) -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": server_version}, "paths": {}, "definitions": {}})
}

/// `/openapi/v3`: where the documents of the group versions are.
pub fn v3_index(_types: &[ServedType<'_>]) -> Value {
    json!({"paths": {}})
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`, or nothing if there is no such version.
pub fn v3_document(
    _types: &[ServedType<'_>],
    _group: &str,
    _version: &str,
    _server_version: &str,
) -> Option<Value> {
    None
}
