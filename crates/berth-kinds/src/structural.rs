//! Validates the schema of a CustomResourceDefinition. A schema that cannot be enforced is refused, so that it is not
//! silently ignored later.

use serde_json::Value;

use crate::error::FieldError;
use crate::meta;
use crate::schema;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Maximum depth of a schema: no practical definition is deeper.
const DEPTH_MAX: usize = 64;
const RULES: &str = "x-kubernetes-validations";

/// Validates the schemas of a definition.
pub(crate) fn validate(definition: &Value, errors: &mut Vec<FieldError>) {
    let versions = meta::items(definition, &["spec", "versions"]);
    for (index, version) in versions.iter().enumerate() {
        let root = &version["schema"]["openAPIV3Schema"];
        if !root.is_object() {
            continue;
        }
        // Kubernetes reports a schema that all versions share under its former path.
        let path = if versions.len() == 1 {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{index}].schema.openAPIV3Schema")
        };
        match meta::text(root, &["type"]) {
            "" => errors.push(FieldError::required(
                format!("{path}.type"),
                "must not be empty at the root",
            )),
            "object" => {}
            other => {
                let detail = "must be object at the root";
                errors.push(FieldError::invalid(format!("{path}.type"), &other.into(), detail));
            }
        }
        let mut walk = Walk { errors };
        walk.schema(root, &path, DEPTH_MAX);
    }
}

/// Warnings for the user about an otherwise valid definition.
pub(crate) fn warnings(definition: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for version in meta::items(definition, &["spec", "versions"]) {
        let mut found = Found::default();
        found.look(&version["schema"]["openAPIV3Schema"], DEPTH_MAX);
        for format in found.formats {
            warnings.push(format!("unrecognized format {format:?}"));
        }
    }
    warnings.dedup();
    warnings
}

struct Walk<'e> {
    errors: &'e mut Vec<FieldError>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, path: &str, depth: usize) {
        let Some(below) = depth.checked_sub(1) else {
            return;
        };
        self.check_type(schema, path);
        self.check_pattern(schema, path);
        self.check_rules(schema, path);
        self.check_list(schema, path);
        self.check_default(schema, path);
        let additional = &schema["additionalProperties"];
        let has_properties = schema["properties"]
            .as_object()
            .is_some_and(|fields| !fields.is_empty());
        if additional.is_object() {
            let path = format!("{path}.additionalProperties");
            if has_properties {
                let detail = "additionalProperties and properties are mutual exclusive";
                self.errors.push(FieldError::forbidden(&path, detail));
            } else {
                self.require_type(additional, &path, "specified object fields");
                self.schema(additional, &path, below);
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.properties[{name}]");
            // Metadata has a fixed schema, whatever a definition says about it.
            self.require_type(property, &path, "specified object fields");
            self.schema(property, &path, below);
        }
        if schema["items"].is_object() {
            let path = format!("{path}.items");
            self.require_type(&schema["items"], &path, "specified array items");
            self.schema(&schema["items"], &path, below);
        }
    }

    fn check_type(&mut self, schema: &Value, path: &str) {
        let found = meta::text(schema, &["type"]);
        if !found.is_empty() && !TYPES.contains(&found) {
            let path = format!("{path}.type");
            self.errors.push(FieldError::not_supported(path, &found.into(), &TYPES));
        }
    }

    fn require_type(&mut self, schema: &Value, path: &str, place: &str) {
        let may_be_anything = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"]
            .iter()
            .any(|marker| schema[*marker] == true);
        if meta::text(schema, &["type"]).is_empty() && !may_be_anything {
            let detail = format!("must not be empty for {place}");
            self.errors.push(FieldError::required(format!("{path}.type"), &detail));
        }
    }

    fn check_pattern(&mut self, schema: &Value, path: &str) {
        let pattern = &schema["pattern"];
        if let Some(Err(error)) = pattern.as_str().map(schema::compile_pattern) {
            let path = format!("{path}.pattern");
            self.errors.push(FieldError::invalid(path, pattern, &error.to_string()));
        }
    }

    fn check_rules(&mut self, schema: &Value, path: &str) {
        for (index, error) in schema::rules::check(schema) {
            let rule = &schema[RULES][index]["rule"];
            let path = format!("{path}.{RULES}[{index}].rule");
            self.errors.push(FieldError::invalid(path, rule, &error.to_string()));
        }
    }

    fn check_list(&mut self, schema: &Value, path: &str) {
        if schema["uniqueItems"] == true {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors
                .push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
        }
        let items = format!("{path}.items");
        if schema["items"].is_array() {
            let detail = "items must be a schema object and not an array";
            self.errors.push(FieldError::forbidden(items, detail));
        } else if schema["type"] == "array" && !schema["items"].is_object() {
            self.errors.push(FieldError::required(items, "must be specified"));
        }
        let list_type = &schema["x-kubernetes-list-type"];
        let keys = meta::items(schema, &["x-kubernetes-list-map-keys"]);
        match list_type.as_str() {
            None | Some("atomic" | "set") => {}
            Some("map") if keys.is_empty() => {
                let detail = "must not be empty if x-kubernetes-list-type is map";
                let path = format!("{path}.x-kubernetes-list-map-keys");
                self.errors.push(FieldError::required(path, detail));
            }
            Some("map") => {}
            Some(_) => {
                let path = format!("{path}.x-kubernetes-list-type");
                let supported = ["atomic", "set", "map"];
                self.errors.push(FieldError::not_supported(path, list_type, &supported));
            }
        }
    }

    /// A default must match its schema.
    fn check_default(&mut self, schema: &Value, path: &str) {
        let Some(default) = schema.get("default").filter(|default| !default.is_null()) else {
            return;
        };
        // Missing fields may have their own defaults.
        let mut completed = default.clone();
        schema::apply_defaults(&mut completed, schema);
        for error in schema::validate(&completed, schema) {
            let place = match error.field.as_str() {
                "" => format!("{path}.default"),
                field => format!("{path}.default.{field}"),
            };
            self.errors.push(error.at(place));
        }
    }
}

/// Parts of a schema that are ignored.
#[derive(Default)]
struct Found {
    formats: Vec<String>,
}

impl Found {
    fn look(&mut self, schema: &Value, depth: usize) {
        let Some(below) = depth.checked_sub(1) else {
            return;
        };
        if let Some(format) = schema["format"].as_str()
            && !schema::is_known_format(format)
        {
            self.formats.push(format.to_owned());
        }
        let fields = schema["properties"].as_object().into_iter().flatten();
        let nested = fields.map(|(_, schema)| schema);
        for schema in nested.chain([&schema["items"], &schema["additionalProperties"]]) {
            if schema.is_object() {
                self.look(schema, below);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(spec: Value) -> Vec<FieldError> {
        let root = json!({"type": "object", "properties": {"spec": spec}});
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": root}});
        let mut errors = Vec::new();
        validate(&json!({"spec": {"versions": [version]}}), &mut errors);
        errors
    }

    #[test]
    fn what_definitions_of_others_say_is_accepted() {
        let text = json!({"type": "string"});
        for spec in [
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "additionalProperties": true}),
            json!({"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"},
                {"type": "string"}], "default": 80}}}),
            json!({"type": "object", "default": {}, "required": ["mode"], "properties": {"mode": {"type": "string",
                "default": "a", "enum": ["a", "b"]}}}),
            json!({"type": "object", "properties": {"note": {"type": "string", "nullable": true, "default": null}}}),
            json!({"type": "string", "pattern": r"^(\/[a-z0-9-_]+)*\/?$"}),
            json!({"type": "string", "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?)$", "format": "nonsense"}),
            json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"}),
            json!({"type": "object", "properties": {"template": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}}}),
        ] {
            assert_eq!(errors(spec.clone()), [], "{spec}");
        }
    }
}
