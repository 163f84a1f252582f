//! OpenAPI documents, version 2 and 3.
//!
//! They contain what clients read: the types with their descriptions and merge keys, and for each resource the
//! operations with their kind and parameters. `kubectl explain`, the validation of `kubectl apply` and its strategic
//! patch depend on them. They are large: a caller caches them until the types change.

mod paths;
mod types;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use self::paths::Dialect;
use crate::registry::ResourceType;

/// A served type and, for a custom resource, its schema.
#[derive(Debug, Clone, Copy)]
pub struct ServedType<'a> {
    /// The type.
    pub resource: &'a ResourceType,
    /// `openAPIV3Schema` of a custom resource's version; `None` for built-in kinds.
    pub custom_schema: Option<&'a Value>,
}

/// `/openapi/v2`: one Swagger document for everything. `server_version` is that of `/version`, for example `v1.37.0`.
pub fn v2(types: &[ServedType<'_>], server_version: &str) -> Value {
    let mut paths = Map::new();
    for served in types {
        let is_custom = served.custom_schema.is_some();
        paths::add(&mut paths, served.resource, is_custom, Dialect::V2);
    }
    let mut document = Map::new();
    document.insert("swagger".to_owned(), json!("2.0"));
    document.insert(
        "info".to_owned(),
        json!({"title": "Kubernetes", "version": server_version}),
    );
    document.insert("paths".to_owned(), Value::Object(paths));
    document.insert("definitions".to_owned(), types::definitions(types, Dialect::V2));
    Value::Object(document)
}

/// `/openapi/v3`: the addresses of the documents of the group versions. The address of a document changes whenever its
/// content does, so that clients can cache it.
pub fn v3_index(types: &[ServedType<'_>]) -> Value {
    let mut hashers: BTreeMap<String, DefaultHasher> = BTreeMap::new();
    for served in types {
        let hasher = hashers.entry(v3_path(served.resource)).or_default();
        env!("CARGO_PKG_VERSION").hash(hasher);
        format!("{:?}", served.resource).hash(hasher);
        served.custom_schema.map(Value::to_string).hash(hasher);
    }
    let paths: Map<String, Value> = hashers
        .into_iter()
        .map(|(path, hasher)| {
            let url = format!("/openapi/v3/{path}?hash={:016X}", hasher.finish());
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

fn v3_path(resource: &ResourceType) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`, or `None` if there is no such version.
pub fn v3_document(types: &[ServedType<'_>], group: &str, version: &str, server_version: &str) -> Option<Value> {
    let served: Vec<_> = types
        .iter()
        .filter(|t| t.resource.group == group && t.resource.version == version)
        .copied()
        .collect();
    if served.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for served in &served {
        let is_custom = served.custom_schema.is_some();
        paths::add(&mut paths, served.resource, is_custom, Dialect::V3);
    }
    let mut components = Map::new();
    components.insert("schemas".to_owned(), types::definitions(&served, Dialect::V3));
    let mut document = Map::new();
    document.insert("openapi".to_owned(), json!("3.0.0"));
    document.insert(
        "info".to_owned(),
        json!({"title": "Kubernetes", "version": server_version}),
    );
    document.insert("paths".to_owned(), Value::Object(paths));
    document.insert("components".to_owned(), Value::Object(components));
    Some(Value::Object(document))
}

#[cfg(test)]
mod tests {
    use crate::registry::{builtin, reviews};

    use super::*;

    fn served() -> Vec<ServedType<'static>> {
        let types = builtin().iter().chain(reviews());
        types
            .map(|resource| ServedType {
                resource,
                custom_schema: None,
            })
            .collect()
    }

    fn collect_references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| collect_references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let check = |document: &Value| {
            let mut references = Vec::new();
            collect_references(document, &mut references);
            assert!(!references.is_empty());
            for reference in references {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        };
        check(&v2(&served(), "v1.37.0"));
        for path in v3_index(&served())["paths"].as_object().unwrap().keys() {
            let mut parts = path
                .trim_start_matches("api")
                .trim_start_matches('s')
                .trim_start_matches('/')
                .split('/');
            let (group, version) = match (parts.next(), parts.next()) {
                (Some(version), None) => ("", version),
                (Some(group), Some(version)) => (group, version),
                _ => unreachable!(),
            };
            check(&v3_document(&served(), group, version, "v1.37.0").expect(path));
        }
        assert_eq!(v3_document(&served(), "apps", "v9", ""), None);
    }

    #[test]
    fn kinds_are_found_by_path_and_by_schema() {
        let document = v3_document(&served(), "apps", "v1", "v1.37.0").unwrap();
        let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
        let path = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
        assert_eq!(path["patch"]["x-kubernetes-group-version-kind"], kind);
        let parameters = path["patch"]["parameters"].as_array().unwrap();
        for name in ["dryRun", "fieldManager", "fieldValidation", "force"] {
            assert!(parameters.iter().any(|p| p["name"] == name), "{name}");
        }
        let schema = &document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
        assert_eq!(schema["x-kubernetes-group-version-kind"], json!([kind]));
    }

    #[test]
    fn documents_hold_only_what_they_need() {
        let document = v3_document(&served(), "coordination.k8s.io", "v1", "v1.37.0").unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(schemas.contains_key("io.k8s.api.coordination.v1.LeaseList"));
        assert!(!schemas.contains_key("io.k8s.api.core.v1.PodSpec"));
    }

    #[test]
    fn custom_resources_are_described() {
        let resource = ResourceType::stored("stable.example.com", "v1", "Widget", "widgets", true);
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer", "description": "How large it is."}}}}});
        let types = [ServedType {
            resource: &resource,
            custom_schema: Some(&schema),
        }];
        let document = v3_document(&types, "stable.example.com", "v1", "v1.37.0").unwrap();
        let widget = &document["components"]["schemas"]["com.example.stable.v1.Widget"];
        assert_eq!(
            widget["properties"]["spec"]["properties"]["size"]["description"],
            "How large it is."
        );
        assert!(widget["properties"]["metadata"]["allOf"].is_array());
        let other = json!({"type": "object"});
        let changed = [ServedType {
            resource: &resource,
            custom_schema: Some(&other),
        }];
        assert_ne!(v3_index(&types), v3_index(&changed));
    }
}
