//! Compares an object with its schema: unknown fields, and values of the wrong type.
//!
//! The messages are those of a Kubernetes API server, which decodes JSON into Go structs.

use berth_core::quantity::Quantity;
use serde_json::{Number, Value};

use super::document;
use super::node::{Cursor, Schema, Shape};

/// A value that cannot be decoded into its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// The path of the value, for example `spec.containers[0].name`.
    pub path: String,
    /// The message, without the kind that precedes it in a response.
    pub message: String,
}

/// The paths of the unknown fields, for example `spec.containers[0].foo`.
pub fn unknown_fields(value: &Value, schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    collect_unknown(value, schema.cursor(), &Path::ROOT, &mut found);
    found
}

fn collect_unknown(value: &Value, cursor: Cursor<'_>, path: &Path<'_>, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = path.below(Step::Field(name));
                match known_field(cursor, name) {
                    Some(cursor) => collect_unknown(value, cursor, &below, found),
                    None => found.push(below.text()),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_unknown(item, cursor.items(), &path.below(Step::Item(index)), found);
            }
        }
        _ => {}
    }
}

/// The path of a value. It is formatted only if the value is reported, which is rare.
struct Path<'p> {
    above: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Field(&'p str),
    /// A free key of a map.
    Key(&'p str),
    Item(usize),
}

impl<'p> Path<'p> {
    const ROOT: Path<'static> = Path {
        above: None,
        step: Step::Root,
    };

    fn below(&'p self, step: Step<'p>) -> Self {
        Path {
            above: Some(self),
            step,
        }
    }

    /// `spec.containers[0].name`.
    fn text(&self) -> String {
        let above = self.above.map(Path::text).unwrap_or_default();
        match self.step {
            Step::Root => above,
            Step::Field(name) | Step::Key(name) => join(&above, name),
            Step::Item(index) => format!("{above}[{index}]"),
        }
    }

    /// The path as written by Go's decoder, which omits list positions and map keys.
    fn go_text(&self) -> String {
        let above = self.above.map(Path::go_text).unwrap_or_default();
        match self.step {
            Step::Field(name) => join(&above, name),
            Step::Root | Step::Key(_) | Step::Item(_) => above,
        }
    }
}

/// The schema of a field, if the field is known, preserved or part of an embedded object. A value of the wrong type has
/// no unknown fields: it is reported as such.
fn known_field<'a>(cursor: Cursor<'a>, name: &str) -> Option<Cursor<'a>> {
    let is_struct = matches!(cursor.shape(), Shape::Struct(_));
    let implied = cursor.preserves_unknown()
        || !is_struct
        || (cursor.is_embedded_resource() && matches!(name, "apiVersion" | "kind" | "metadata"));
    cursor.field(name).or(implied.then(Cursor::any))
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Removes unknown fields.
pub fn prune_unknown_fields(value: &mut Value, schema: &Schema) {
    prune(value, schema.cursor());
}

fn prune(value: &mut Value, cursor: Cursor<'_>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let known = known_field(cursor, name);
            if let Some(cursor) = known {
                prune(value, cursor);
            }
            known.is_some()
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| prune(item, cursor.items())),
        _ => {}
    }
}

/// Unknown and duplicate fields of an object, for example `unknown field "spec.foo"` or `duplicate field "data.a"`, in
/// the order of `document`: the object as sent, or empty if it was not sent as a whole.
pub(crate) fn odd_fields(value: &Value, schema: &Schema, document: &[u8], has_duplicates: bool) -> Vec<String> {
    let mut unknown = unknown_fields(value, schema);
    let unknown_text = |path: &String| format!("unknown field \"{path}\"");
    if (unknown.is_empty() && !has_duplicates) || document.is_empty() {
        return unknown.iter().map(unknown_text).collect();
    }
    let mut odd = Vec::new();
    for (path, twice) in document::fields(document) {
        if twice {
            odd.push(format!("duplicate field \"{path}\""));
        } else if let Some(index) = unknown.iter().position(|found| *found == path) {
            odd.push(unknown_text(&unknown.remove(index)));
        }
    }
    odd.extend(unknown.iter().map(unknown_text));
    odd
}

/// The values that do not have their field's type. Null has every type.
pub fn type_errors(value: &Value, schema: &Schema) -> Vec<TypeError> {
    let mut errors = Vec::new();
    let owner = schema.cursor().definition;
    collect_type_errors(value, schema.cursor(), owner, &Path::ROOT, &mut errors);
    errors
}

/// `owner` is the definition of the struct that holds the field.
fn collect_type_errors(
    value: &Value,
    cursor: Cursor<'_>,
    owner: Option<&str>,
    path: &Path<'_>,
    errors: &mut Vec<TypeError>,
) {
    match (cursor.shape(), value) {
        (_, Value::Null) | (Shape::Any | Shape::Reference(_), _) => {}
        (Shape::Struct(_) | Shape::Map(_), Value::Object(fields)) => {
            for (name, value) in fields {
                let Some(field) = cursor.field(name) else {
                    continue;
                };
                let (owner, step) = match cursor.shape() {
                    Shape::Map(_) => (owner, Step::Key(name)),
                    _ => (cursor.definition.or(owner), Step::Field(name)),
                };
                collect_type_errors(value, field, owner, &path.below(step), errors);
            }
        }
        (Shape::List(_), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let below = path.below(Step::Item(index));
                collect_type_errors(item, cursor.items(), owner, &below, errors);
            }
        }
        (shape, value) => {
            let message = scalar_error(shape, value).map(|problem| match problem {
                Problem::Mismatch => mismatch(value, cursor, owner, &path.go_text()),
                Problem::Message(message) => message,
            });
            errors.extend(message.map(|message| TypeError {
                path: path.text(),
                message,
            }));
        }
    }
}

enum Problem {
    /// The value has another JSON type than the field.
    Mismatch,
    /// The value has the right JSON type, but is invalid.
    Message(String),
}

fn scalar_error(shape: &Shape, value: &Value) -> Option<Problem> {
    match (shape, value) {
        (Shape::String, Value::String(_)) | (Shape::Boolean, Value::Bool(_)) => None,
        (Shape::Number, Value::Number(_)) => None,
        (Shape::Bytes, Value::String(text)) => base64_error(text).map(Problem::Message),
        (Shape::Time, Value::String(text)) => time_error(text).map(Problem::Message),
        (Shape::Integer(bits), Value::Number(number)) => (!fits(number, *bits)).then_some(Problem::Mismatch),
        (Shape::IntOrString, Value::String(_)) => None,
        (Shape::IntOrString, Value::Number(number)) => (!fits(number, 32)).then_some(Problem::Mismatch),
        (Shape::Quantity, Value::Number(_)) => None,
        (Shape::Quantity, Value::String(text)) => (!is_quantity(text)).then(|| Problem::Message(QUANTITY.to_owned())),
        (Shape::Quantity, _) => Some(Problem::Message(QUANTITY.to_owned())),
        _ => Some(Problem::Mismatch),
    }
}

fn fits(number: &Number, bits: u8) -> bool {
    let range = if bits == 32 {
        i64::from(i32::MIN)..=i64::from(i32::MAX)
    } else {
        i64::MIN..=i64::MAX
    };
    number.as_i64().is_some_and(|n| range.contains(&n))
}

/// The name of a value's type in Go's decoder.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(value: &Value, cursor: Cursor<'_>, owner: Option<&str>, go_path: &str) -> String {
    let found = match value {
        // A number of the wrong kind is quoted, one in the wrong place is not.
        Value::Number(n) if matches!(cursor.shape(), Shape::Integer(_) | Shape::IntOrString) => {
            format!("number {n}")
        }
        other => json_type(other).to_owned(),
    };
    let expected = go_type(cursor);
    match owner.and_then(|owner| owner.rsplit('.').next()) {
        Some(owner) if !go_path.is_empty() => {
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{go_path} of type {expected}")
        }
        _ => format!("json: cannot unmarshal {found} into Go value of type {expected}"),
    }
}

/// The Go type of a field, as far as the schema shows it.
fn go_type(cursor: Cursor<'_>) -> String {
    match cursor.shape() {
        Shape::String => "string".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Time => "string".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Integer(bits) => format!("int{bits}"),
        Shape::Number => "float64".to_owned(),
        // The decoder of this type accepts an integer or a string.
        Shape::IntOrString => "int32".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::Map(_) => format!("map[string]{}", go_type(cursor.field_or_any(""))),
        Shape::List(_) => format!("[]{}", go_type(cursor.items())),
        Shape::Struct(_) => cursor
            .definition
            .map_or_else(|| "map[string]interface {}".to_owned(), go_struct),
        Shape::Any | Shape::Reference(_) => "interface {}".to_owned(),
    }
}

/// `v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn go_struct(definition: &str) -> String {
    let mut parts = definition.rsplit('.');
    match (parts.next(), parts.next()) {
        (Some(name), Some(package)) => format!("{package}.{name}"),
        _ => definition.to_owned(),
    }
}

const QUANTITY: &str = "quantities must match the regular expression \
     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Whether a text is a quantity: a signed decimal number with a suffix or an exponent.
fn is_quantity(text: &str) -> bool {
    text.parse::<Quantity>().is_ok()
}

/// Why a text is not base64, with the position where Go's decoder stops.
fn base64_error(text: &str) -> Option<String> {
    // Line breaks are not part of the encoding.
    let letters: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !"\r\n".contains(*c)).collect();
    let padding = letters.iter().rev().take_while(|(_, c)| *c == '=').count();
    let body = &letters[..letters.len() - padding];
    let bad = body
        .iter()
        .find(|(_, c)| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '/')));
    let position = match bad {
        Some((position, _)) => Some(*position),
        None if !letters.len().is_multiple_of(4) || padding > 2 => Some(text.len()),
        None => None,
    };
    position.map(|position| format!("illegal base64 data at input byte {position}"))
}

fn time_error(text: &str) -> Option<String> {
    text.parse::<jiff::Timestamp>().err().map(|_| {
        format!("parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{text}\" as \"2006\"")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema(group: &str, kind: &str) -> &'static Schema {
        Schema::builtin(group, "v1", kind).unwrap()
    }

    #[test]
    fn unknown_fields_are_named_by_path() {
        let check = |group: &str, kind: &str, object: Value, expect: &[&str]| {
            assert_eq!(unknown_fields(&object, schema(group, kind)), expect, "{object}");
        };
        check(
            "",
            "Pod",
            json!({"spec": {"foo": 1, "containers": [{"name": "a"}, {"imagePullPolic": 1}]}}),
            &["spec.containers[1].imagePullPolic", "spec.foo"],
        );
        check(
            "",
            "Pod",
            json!({"metadata": {"labels": {"any": "x"}, "nam": 1}, "x": 1}),
            &["metadata.nam", "x"],
        );
        check(
            "",
            "Pod",
            json!({"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}}),
            &[],
        );
        check(
            "",
            "ConfigMap",
            json!({"data": {"a.b": "1"}, "binaryData": {"x": ""}}),
            &[],
        );
        check(
            "apps",
            "ControllerRevision",
            json!({"data": {"any": {"thing": 1}}, "revision": 1}),
            &[],
        );
        check(
            "storage.k8s.io",
            "StorageClass",
            json!({"provisioner": "p", "bindingMode": "x", "bindMode": "y"}),
            &["bindMode"],
        );
        let crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "additionalProperties": {"type": "string"},
                     "x-kubernetes-preserve-unknown-fields": true}}}}, "foo": 1}]}});
        check(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            crd,
            &["spec.versions[0].foo"],
        );
    }

    #[test]
    fn fields_of_the_storage_pools_are_known() {
        let driver = json!({
            "spec": {"capacityTracking": true, "storageCapacity": true},
            "status": {"storage": [{"storageClassName": "<fallback>", "pools": [
                {"name": "p", "capacity": "1Gi", "nodeList": ["n"], "expiryTime": "2020-01-01T00:00:00Z",
                 "nodeTopology": {"nodeSelectorTerms": []}}]}]},
        });
        assert!(unknown_fields(&driver, schema("storage.k8s.io", "CSIDriver")).is_empty());
        assert!(type_errors(&driver, schema("storage.k8s.io", "CSIDriver")).is_empty());
        let pod = json!({"spec": {"volumes": [{"name": "v", "csi": {"driver": "d", "fsSize": "1Gi"}}]}});
        assert!(unknown_fields(&pod, schema("", "Pod")).is_empty());
    }

    #[test]
    fn odd_fields_come_in_the_order_of_the_document() {
        let document = br#"{"spec": {"b": 1, "a": 2}, "data": {"x": "1", "x": "2"}}"#;
        let value: Value = serde_json::from_slice(document).unwrap();
        let odd = |document, twice| odd_fields(&value, schema("", "ConfigMap"), document, twice);
        assert_eq!(
            odd(document, true),
            ["unknown field \"spec\"", "duplicate field \"data.x\""]
        );
        assert_eq!(odd(b"", false), ["unknown field \"spec\""]);
    }

    #[test]
    fn pruning_leaves_nothing_unknown() {
        let mut pod = json!({"spec": {"foo": 1, "containers": [{"name": "a", "bar": {}}]}});
        prune_unknown_fields(&mut pod, schema("", "Pod"));
        assert_eq!(pod, json!({"spec": {"containers": [{"name": "a"}]}}));
    }

    fn check(group: &str, kind: &str, object: Value, expect: &str) {
        let errors: Vec<_> = type_errors(&object, schema(group, kind))
            .into_iter()
            .map(|e| e.message)
            .collect();
        assert_eq!(errors.join("; "), expect, "{object}");
    }

    #[test]
    fn wrong_types_are_told_as_go_tells_them() {
        check(
            "apps",
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": [{"env": [{"name": "a", "value": 1}]}]}}}}),
            "json: cannot unmarshal number into Go struct field EnvVar.spec.template.spec.containers.env.value \
             of type string",
        );
        check(
            "apps",
            "Deployment",
            json!({"spec": {"replicas": "3"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        );
        check(
            "",
            "Pod",
            json!({"metadata": {"labels": {"a": true}}}),
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        );
        check(
            "",
            "Pod",
            json!({"spec": {"containers": {}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        );
        check(
            "",
            "Pod",
            json!({"spec": []}),
            "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec",
        );
        check(
            "",
            "Pod",
            json!({"spec": {"priority": 1.5, "terminationGracePeriodSeconds": 5_000_000_000_i64}}),
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        );
    }

    #[test]
    fn types_that_read_their_own_json_have_their_own_words() {
        check(
            "",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi", "x": 5, "y": "0.5"}}}),
            "",
        );
        check(
            "",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Qi"}}}),
            QUANTITY,
        );
        check("", "Secret", json!({"data": {"a": "aGVsbG8="}}), "");
        check(
            "",
            "Secret",
            json!({"data": {"a": "not base64"}}),
            "illegal base64 data at input byte 3",
        );
        check(
            "",
            "Pod",
            json!({"metadata": {"creationTimestamp": null}, "spec": {"x": {"y": 1}}}),
            "",
        );
        check(
            "",
            "Service",
            json!({"spec": {"ports": [{"targetPort": "http"}, {"targetPort": 80}]}}),
            "",
        );
    }

    #[test]
    fn quantities_are_recognized() {
        for good in ["1", "1.5Gi", ".5", "5.", "-3m", "+1k", "1e3", "12E-2", "100n"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", ".", "1.2.3", "Gi", "1 Gi", "1gb", "0x1", "1e", "--1", "1Kii"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let _ = (is_quantity(&text), base64_error(&text), time_error(&text));
        }
    }
}
