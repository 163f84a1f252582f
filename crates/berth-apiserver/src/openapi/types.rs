//! The schemas of the types, for either version of OpenAPI.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::ServedType;
use super::paths::Dialect;
use crate::registry::ResourceType;
use crate::schema::{builtin_definition_name, builtin_definitions, list_definition};

const REFERENCE_PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The definition name of the type: generated kinds have it in their marker, custom ones are named by their reversed
/// group.
pub(super) fn definition_name(group: &str, version: &str, kind: &str) -> String {
    match builtin_definition_name(group, version, kind) {
        Some(name) => name.to_owned(),
        None => {
            let group: Vec<_> = group.split('.').rev().collect();
            format!("{}.{version}.{kind}", group.join("."))
        }
    }
}

/// The definitions of the served types, and those that they refer to.
pub(super) fn definitions(types: &[ServedType<'_>], dialect: Dialect) -> Value {
    let mut custom = BTreeMap::new();
    let mut wanted: Vec<String> = ["DeleteOptions", "Status"].map(|name| format!("{META}{name}")).to_vec();
    for served in types {
        let resource = served.resource;
        let name = definition_name(&resource.group, &resource.version, &resource.kind);
        let list = definition_name(&resource.group, &resource.version, &resource.list_kind);
        if !builtin_definitions().contains_key(&name) {
            custom.insert(name.clone(), custom_definition(resource, served.custom_schema));
            let mut definition = list_definition(&resource.kind, &resource.list_kind, &name);
            mark_kind(&mut definition, resource, &resource.list_kind);
            custom.insert(list.clone(), definition);
        }
        wanted.push(name);
        if resource.has_verb("list") {
            wanted.push(list);
        }
        for sub in &resource.subresources {
            wanted.push(definition_name(&sub.group, &sub.version, &sub.kind));
        }
    }
    let mut result = Map::new();
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(definition) = custom.get(&name).or_else(|| builtin_definitions().get(&name)) {
            collect_references(definition, &mut wanted);
            let definition = special(&name, definition, dialect).unwrap_or_else(|| translate(definition, dialect));
            result.insert(name, definition);
        }
    }
    Value::Object(result)
}

fn mark_kind(definition: &mut Value, resource: &ResourceType, kind: &str) {
    definition["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "version": resource.version, "kind": kind}]);
}

fn custom_definition(resource: &ResourceType, schema: Option<&Value>) -> Value {
    let preserving = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = schema
        .filter(|schema| schema.is_object())
        .cloned()
        .unwrap_or(preserving);
    if !definition["properties"].is_object() {
        definition["properties"] = json!({});
    }
    let properties = &mut definition["properties"];
    properties["apiVersion"] = json!({
        "description": "APIVersion defines the versioned schema of this representation of an object.",
        "type": "string"});
    properties["kind"] = json!({
        "description": "Kind is a string value representing the REST resource this object represents.",
        "type": "string"});
    properties["metadata"] = json!({
        "description": "Standard object's metadata.", "$ref": format!("{REFERENCE_PREFIX}{META}ObjectMeta")});
    mark_kind(&mut definition, resource, &resource.kind);
    definition
}

fn collect_references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            found.extend(
                reference
                    .and_then(|r| r.strip_prefix(REFERENCE_PREFIX))
                    .map(str::to_owned),
            );
            fields.values().for_each(|value| collect_references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

/// Types that accept more than one JSON type, which the two versions express differently.
fn special(name: &str, definition: &Value, dialect: Dialect) -> Option<Value> {
    let description = &definition["description"];
    match (name.rsplit('.').next()?, dialect) {
        ("Quantity", Dialect::V2) => Some(json!({"description": description, "type": "string"})),
        ("Quantity", Dialect::V3) => {
            Some(json!({"description": description, "oneOf": [{"type": "string"}, {"type": "number"}]}))
        }
        ("IntOrString", Dialect::V2) => {
            Some(json!({"description": description, "type": "string", "format": "int-or-string"}))
        }
        ("IntOrString", Dialect::V3) => Some(json!({
            "description": description, "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}]})),
        (name, _) if name == "JSON" || name.starts_with("JSONSchemaPropsOr") => {
            Some(json!({"description": description}))
        }
        _ => None,
    }
}

/// Rewrites the references. Version 3 allows nothing next to one, so they are moved into `allOf`.
fn translate(value: &Value, dialect: Dialect) -> Value {
    match value {
        Value::Object(fields) => {
            let mut result: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| (name.clone(), translate(value, dialect)))
                .collect();
            let reference = fields.get("$ref").and_then(Value::as_str);
            if let Some(name) = reference.and_then(|r| r.strip_prefix(REFERENCE_PREFIX)) {
                let reference = json!(dialect.reference(name));
                if dialect == Dialect::V3 && fields.len() > 1 {
                    result.remove("$ref");
                    result.insert("allOf".to_owned(), json!([{"$ref": reference}]));
                } else {
                    result.insert("$ref".to_owned(), reference);
                }
            }
            Value::Object(result)
        }
        Value::Array(items) => items.iter().map(|item| translate(item, dialect)).collect(),
        other => other.clone(),
    }
}
