//! Validation and defaults of custom resources by the schema of their definition.
//!
//! Built-in kinds have rules that a schema cannot express; this is for custom ones. The messages are those of a
//! Kubernetes API server. CEL rules are evaluated elsewhere (`rules`).

use std::collections::{HashMap, HashSet};

use regex::Regex;
use serde_json::{Map, Value};

use super::format;
use super::pattern::{self, PatternError};
use crate::error::FieldError;

/// Checks an object against `openAPIV3Schema`.
#[must_use]
pub fn validate(object: &Value, schema: &Value) -> Vec<FieldError> {
    let mut findings = Findings::default();
    validate_value(object, schema, "", &mut findings);
    findings.errors
}

/// The errors so far, and compiled patterns: a list of strings has one pattern for all of them.
#[derive(Default)]
struct Findings<'s> {
    errors: Vec<FieldError>,
    patterns: HashMap<&'s str, Result<Regex, PatternError>>,
}

impl<'s> Findings<'s> {
    fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// The errors of a value by a schema that need not match.
    fn aside(&mut self, value: &Value, schema: &'s Value, path: &str) -> Vec<FieldError> {
        let before = std::mem::take(&mut self.errors);
        validate_value(value, schema, path, self);
        std::mem::replace(&mut self.errors, before)
    }

    /// Why a text does not match a pattern, if it does not.
    fn mismatch(&mut self, text: &str, pattern: &'s str) -> Option<String> {
        let compiled = self.patterns.entry(pattern);
        match compiled.or_insert_with(|| pattern::compile(pattern)) {
            Ok(regex) if regex.is_match(text) => None,
            Ok(_) => Some(format!("should match '{pattern}'")),
            // Definitions with such a pattern are refused, so this one is older. Nothing matches it.
            Err(error) => Some(format!("should match a pattern that {error}")),
        }
    }
}

/// Fills in the defaults of `openAPIV3Schema`, also where the object has null for a non-nullable field.
pub fn apply_defaults(object: &mut Value, schema: &Value) {
    match object {
        Value::Object(fields) => {
            for (name, property) in properties(schema) {
                let nullable = property["nullable"] == true;
                if let Some(default) = property.get("default") {
                    let unset = fields.get(name).is_none_or(|value| value.is_null() && !nullable);
                    if unset {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                if let Some(value) = fields.get_mut(name) {
                    apply_defaults(value, property);
                }
            }
            if let Some(elements @ Value::Object(_)) = schema.get("additionalProperties") {
                let others = fields
                    .iter_mut()
                    .filter(|(name, _)| schema["properties"].get(name).is_none());
                others.for_each(|(_, value)| apply_defaults(value, elements));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| apply_defaults(item, &schema["items"])),
        _ => {}
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn validate_value<'s>(value: &Value, schema: &'s Value, path: &str, findings: &mut Findings<'s>) {
    if value.is_null() && (schema["nullable"] == true || schema["type"].is_null()) {
        return;
    }
    if !has_type(value, schema) {
        let found = type_name(value);
        let wanted = schema["type"].as_str().unwrap_or("integer or string");
        let detail = format!("{path} in body must be of type {wanted}: \"{found}\"");
        findings.push(FieldError::type_invalid(path, &found.into(), &detail));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
        findings.push(FieldError::not_among(path, &value.to_string(), &allowed));
    }
    match value {
        Value::String(text) => validate_text(text, schema, path, findings),
        Value::Number(number) => {
            validate_number(
                number.as_f64().unwrap_or(0.0),
                value,
                schema,
                path,
                &mut findings.errors,
            );
            if let Some(name) = schema["format"].as_str().filter(|name| !format::fits(value, name)) {
                let message = format!("Checked value must be of type integer with format {name} in {path}");
                findings.push(about_the_whole(&message));
            }
        }
        Value::Array(items) => validate_list(items, schema, path, findings),
        Value::Object(fields) => validate_object(fields, schema, path, findings),
        Value::Null | Value::Bool(_) => {}
    }
    validate_combinations(value, schema, path, findings);
}

/// Kubernetes reports an error about the whole value without a field.
fn about_the_whole(message: &str) -> FieldError {
    FieldError::invalid("<nil>", &"".into(), message)
}

/// `oneOf`, `anyOf`, `allOf` and `not`. If no alternative matches, the errors of the closest one are reported.
fn validate_combinations<'s>(value: &Value, schema: &'s Value, path: &str, findings: &mut Findings<'s>) {
    let outcomes = |name: &str, findings: &mut Findings<'s>| -> Option<Vec<Vec<FieldError>>> {
        let schemas = schema[name].as_array().filter(|schemas| !schemas.is_empty())?;
        let check = |schema| findings.aside(value, schema, path);
        Some(schemas.iter().map(check).collect())
    };
    let closest = |outcomes: Vec<Vec<FieldError>>| outcomes.into_iter().min_by_key(Vec::len).unwrap_or_default();
    if let Some(outcomes) = outcomes("anyOf", findings)
        && outcomes.iter().all(|errors| !errors.is_empty())
    {
        let message = format!("{path:?} must validate at least one schema (anyOf)");
        findings.push(about_the_whole(&message));
        findings.errors.extend(closest(outcomes));
    }
    if let Some(outcomes) = outcomes("oneOf", findings) {
        let rule = format!("{path:?} must validate one and only one schema (oneOf)");
        match outcomes.iter().filter(|errors| errors.is_empty()).count() {
            1 => {}
            0 => {
                findings.push(about_the_whole(&format!("{rule}. Found none valid")));
                findings.errors.extend(closest(outcomes));
            }
            valid => findings.push(about_the_whole(&format!("{rule}. Found {valid} valid alternatives"))),
        }
    }
    if let Some(outcomes) = outcomes("allOf", findings) {
        let broken: Vec<_> = outcomes.into_iter().flatten().collect();
        if !broken.is_empty() {
            findings.errors.extend(broken);
            let message = format!("{path:?} must validate all the schemas (allOf)");
            findings.push(about_the_whole(&message));
        }
    }
    if schema["not"].is_object() && findings.aside(value, &schema["not"], path).is_empty() {
        let message = format!("{path:?} must not validate the schema (not)");
        findings.push(about_the_whole(&message));
    }
}

fn has_type(value: &Value, schema: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn validate_text<'s>(text: &str, schema: &'s Value, path: &str, findings: &mut Findings<'s>) {
    let length = text.chars().count() as u64;
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| length > *max) {
        findings.push(FieldError::too_long_for_schema(path, max));
    }
    if let Some(min) = schema["minLength"].as_u64().filter(|min| length < *min) {
        let body = format!("{path} in body should be at least {min} chars long");
        findings.push(FieldError::invalid_text(path, &format!("\"{text}\""), &body));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && let Some(why) = findings.mismatch(text, pattern)
    {
        let body = format!("{path} in body {why}");
        findings.push(FieldError::invalid_text(path, &format!("\"{text}\""), &body));
    }
    if let Some(name) = schema["format"].as_str().filter(|name| !format::has(text, name)) {
        let body = format!("{path} in body must be of type {name}: \"{text}\"");
        findings.push(FieldError::type_invalid(path, &text.into(), &body));
    }
}

fn validate_number(number: f64, value: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut invalid = |rule: String| {
        errors.push(FieldError::invalid(path, value, &format!("{path} in body {rule}")));
    };
    if let Some(minimum) = schema["minimum"].as_f64() {
        let exclusive = schema["exclusiveMinimum"] == true;
        if number < minimum || (exclusive && number <= minimum) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            invalid(format!("should be greater than{or_equal} {}", schema["minimum"]));
        }
    }
    if let Some(maximum) = schema["maximum"].as_f64() {
        let exclusive = schema["exclusiveMaximum"] == true;
        if number > maximum || (exclusive && number >= maximum) {
            let or_equal = if exclusive { "" } else { " or equal to" };
            invalid(format!("should be less than{or_equal} {}", schema["maximum"]));
        }
    }
    let step = schema["multipleOf"].as_f64().filter(|step| *step > 0.0);
    if step.is_some_and(|step| (number / step).fract() != 0.0) {
        invalid(format!("should be a multiple of {}", schema["multipleOf"]));
    }
}

fn validate_list<'s>(items: &[Value], schema: &'s Value, path: &str, findings: &mut Findings<'s>) {
    let count = items.len() as u64;
    if let Some(max) = schema["maxItems"].as_u64().filter(|max| count > *max) {
        findings.push(FieldError::too_many(path, count, max));
    }
    if let Some(min) = schema["minItems"].as_u64().filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        findings.push(FieldError::invalid(path, &count.into(), &detail));
    }
    for (index, item) in items.iter().enumerate() {
        validate_value(item, &schema["items"], &format!("{path}[{index}]"), findings);
    }
    validate_uniqueness(items, schema, path, &mut findings.errors);
}

/// In a set, values are unique; in a map, keys.
fn validate_uniqueness(items: &[Value], schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => Vec::new(),
        Some("map") => schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
        _ => return,
    };
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let identity = if keys.is_empty() {
            item.to_string()
        } else {
            let fields = keys
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone())));
            Value::Object(fields.collect()).to_string()
        };
        if !seen.insert(identity.clone()) {
            errors.push(FieldError::duplicate_text(format!("{path}[{index}]"), &identity));
        }
    }
}

fn validate_object<'s>(fields: &Map<String, Value>, schema: &'s Value, path: &str, findings: &mut Findings<'s>) {
    let count = fields.len() as u64;
    if let Some(max) = schema["maxProperties"].as_u64().filter(|max| count > *max) {
        findings.push(FieldError::too_many(path, count, max));
    }
    if let Some(min) = schema["minProperties"].as_u64().filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        findings.push(FieldError::invalid(path, &count.into(), &detail));
    }
    for required in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fields.contains_key(required) {
            findings.push(FieldError::required(join(path, required), ""));
        }
    }
    for (name, value) in fields {
        let property = schema["properties"].get(name);
        let element = schema
            .get("additionalProperties")
            .filter(|elements| elements.is_object());
        if let Some(schema) = property.or(element) {
            validate_value(value, schema, &join(path, name), findings);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {
        "type": "object", "required": ["image"], "properties": {
            "image": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]*$"},
            "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "port": {"x-kubernetes-int-or-string": true},
            "note": {"type": "string", "nullable": true},
            "items": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {
                "on": {"type": "boolean", "default": true}}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }}}})
    }

    #[test]
    fn errors_name_field_and_rule() {
        let check = |object: Value, expect: &[&str]| {
            let errors: Vec<_> = validate(&object, &schema()).iter().map(FieldError::to_string).collect();
            assert_eq!(errors, expect, "{object}");
        };
        let spec = |more: Value| {
            let mut spec = json!({"image": "a"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"spec": spec})
        };
        check(
            spec(json!({"size": 3, "mode": "b", "port": "x", "note": null, "items": [{}], "map": {"a": 1}})),
            &[],
        );
        check(json!({}), &["spec: Required value"]);
        check(json!({"spec": {}}), &["spec.image: Required value"]);
        check(
            spec(json!({"size": "x"})),
            &["spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""],
        );
        check(
            spec(json!({"size": 15})),
            &["spec.size: Invalid value: 15: spec.size in body should be less than or equal to 10"],
        );
        check(
            spec(json!({"mode": "c"})),
            &["spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\""],
        );
        check(
            spec(json!({"image": "A"})),
            &["spec.image: Invalid value: \"A\": spec.image in body should match '^[a-z]*$'"],
        );
        check(
            spec(json!({"image": "abcdef"})),
            &["spec.image: Too long: may not be more than 5 bytes"],
        );
        check(
            spec(json!({"items": [{}, {}, {"on": 1}]})),
            &[
                "spec.items: Too many: 3: must have at most 2 items",
                "spec.items[2].on: Invalid value: \"integer\": spec.items[2].on in body must be of type boolean: \"integer\"",
            ],
        );
        check(
            spec(json!({"map": {"a": "x"}})),
            &["spec.map.a: Invalid value: \"string\": spec.map.a in body must be of type integer: \"string\""],
        );
        check(
            spec(json!({"port": 1.5})),
            &["spec.port: Invalid value: \"number\": spec.port in body must be of type integer or string: \"number\""],
        );
    }

    #[test]
    fn defaults_are_filled_in() {
        let mut object = json!({"spec": {"image": "a", "mode": null, "items": [{}, {"on": false}]}});
        apply_defaults(&mut object, &schema());
        let expect = json!({"spec": {"image": "a", "mode": "a", "size": 3, "items": [{"on": true}, {"on": false}]}});
        assert_eq!(object, expect);
        let once = object.clone();
        apply_defaults(&mut object, &schema());
        assert_eq!(object, once);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-c0-9\\\\d.*+(){}\\[-]{0,6}".prop_map(Value::from),
            prop::sample::select(vec![
                "object", "array", "string", "integer", "number", "set", "map", "a"
            ])
            .prop_map(Value::from),
        ];
        let names = vec![
            "type",
            "properties",
            "items",
            "additionalProperties",
            "required",
            "enum",
            "pattern",
            "format",
            "default",
            "minimum",
            "maximum",
            "multipleOf",
            "maxLength",
            "minItems",
            "maxProperties",
            "anyOf",
            "oneOf",
            "allOf",
            "not",
            "nullable",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-int-or-string",
            "a",
            "b",
        ];
        leaf.prop_recursive(5, 60, 6, move |inner| {
            let fields = prop::collection::vec((prop::sample::select(names.clone()), inner.clone()), 0..6);
            let fields = fields.prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
            prop_oneof![3 => fields.prop_map(Value::Object), 1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
        })
    }

    proptest! {
        /// Any schema and any object are accepted without a panic, and filling in defaults twice changes nothing.
        #[test]
        fn any_schema_is_looked_through(object in value(), schema in value()) {
            let _ = validate(&object, &schema);
            let mut completed = object;
            apply_defaults(&mut completed, &schema);
            let _ = validate(&completed, &schema);
        }
    }
}
