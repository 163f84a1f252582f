//! Decodes objects that clients send as protobuf (`application/vnd.kubernetes.protobuf`).
//!
//! Go clients, including kubectl's `create` and `auth` commands, send built-in kinds in this form whatever the server
//! prefers. They accept JSON responses, so that nothing here encodes protobuf. The messages are decoded with the same
//! schemas as JSON; `fields.txt` adds the field numbers.

mod pointers;
mod wire;

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Number, Value, json};

use self::wire::{Field, Payload};
use crate::schema::{Cursor, Schema, Shape, builtin_cursor};

/// The content type.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The prefix of every body.
const PREFIX: &[u8] = b"k8s\0";
/// Maximum depth of a message: deeper than any meaningful object.
const DEPTH_MAX: usize = 64;
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is of another form.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// The body is truncated, or contains invalid data.
    #[error("proto: illegal wireType or unexpected EOF")]
    Malformed,
    /// The kind has no protobuf form.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// The `apiVersion`.
        api_version: String,
    },
}

/// The field numbers, by the short name of the message.
static FIELDS: LazyLock<HashMap<&'static str, HashMap<u32, &'static str>>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines();
    let messages = lines.filter_map(|line| {
        let (message, fields) = line.split_once(' ')?;
        let fields = fields.split(' ').filter_map(|field| {
            let (name, number) = field.split_once('=')?;
            Some((number.parse().ok()?, name))
        });
        Some((message, fields.collect()))
    });
    messages.collect()
});

/// Decodes a body to the object that a client would have sent as JSON.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(PREFIX).ok_or(ProtobufError::Prefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in wire::fields(envelope) {
        match field.map_err(|_| ProtobufError::Malformed)? {
            Field {
                number: 1,
                payload: Payload::Bytes(type_meta),
            } => {
                for field in wire::fields(type_meta) {
                    match field.map_err(|_| ProtobufError::Malformed)? {
                        Field {
                            number: 1,
                            payload: Payload::Bytes(text),
                        } => api_version = string(text)?,
                        Field {
                            number: 2,
                            payload: Payload::Bytes(text),
                        } => kind = string(text)?,
                        _ => {}
                    }
                }
            }
            Field {
                number: 2,
                payload: Payload::Bytes(message),
            } => raw = message,
            _ => {}
        }
    }
    let schema = schema_of(&api_version, &kind).ok_or_else(|| ProtobufError::UnknownKind {
        kind: kind.clone(),
        api_version: api_version.clone(),
    })?;
    let mut object = message(raw, schema, DEPTH_MAX)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn schema_of(api_version: &str, kind: &str) -> Option<Cursor<'static>> {
    // Options have the version of the object that they are sent to.
    if kind == "DeleteOptions" {
        return builtin_cursor(&format!("{META}DeleteOptions"));
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Schema::builtin(group, version, kind).map(Schema::cursor)
}

/// `core.v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn short_name(definition: &str) -> &str {
    let prefixes = [
        "io.k8s.apiextensions-apiserver.pkg.apis.",
        "io.k8s.apimachinery.pkg.apis.",
        "io.k8s.api.",
    ];
    let short = prefixes.iter().find_map(|prefix| definition.strip_prefix(prefix));
    short.unwrap_or(definition)
}

fn string(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed)
}

fn message(bytes: &[u8], schema: Cursor<'_>, depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    let name = schema.definition.map(short_name).unwrap_or_default();
    let mut object = Map::new();
    message_into(&mut object, bytes, name, schema, depth)?;
    Ok(object)
}

/// Decodes the fields of a message into an object. Unknown numbers are skipped.
fn message_into(
    object: &mut Map<String, Value>,
    bytes: &[u8],
    message_name: &str,
    schema: Cursor<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(ProtobufError::Malformed);
    };
    let Some(numbers) = FIELDS.get(message_name) else {
        return Ok(());
    };
    for field in wire::fields(bytes) {
        let field = field.map_err(|_| ProtobufError::Malformed)?;
        let Some(name) = numbers.get(&field.number) else {
            continue;
        };
        if let Some(inlined) = name.strip_prefix('+') {
            // In JSON, the fields of this message are inlined into the message that contains it.
            let package = message_name.rsplit_once('.').map_or("", |(package, _)| package);
            let bytes = field.payload.bytes().ok_or(ProtobufError::Malformed)?;
            message_into(object, bytes, &format!("{package}.{inlined}"), schema, below)?;
            continue;
        }
        let field_schema = schema.field_or_any(name);
        match field_schema.shape() {
            Shape::List(_) => {
                let items = object.entry(*name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = items {
                    push_items(items, &field.payload, field_schema.items(), below)?;
                }
            }
            Shape::Map(_) => {
                let entries = object.entry(*name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = entries {
                    insert_entry(entries, &field.payload, field_schema, below)?;
                }
            }
            _ => {
                let keep_zero = schema.is_required(name) || pointers::is_pointer(message_name, name);
                let value = value(&field.payload, field_schema, below)?;
                if keep_zero || !is_zero(&value) {
                    object.insert((*name).to_owned(), value);
                }
            }
        }
    }
    Ok(())
}

/// Whether JSON omits the value: Go writes zeros of plain fields in protobuf, but not in JSON.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

fn push_items(
    items: &mut Vec<Value>,
    payload: &Payload<'_>,
    schema: Cursor<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    match (payload, schema.shape()) {
        // Numbers may be packed in one field.
        (Payload::Bytes(packed), Shape::Integer(_)) => {
            for number in wire::varints(packed) {
                let number = number.map_err(|_| ProtobufError::Malformed)?;
                items.push(value(&Payload::Varint(number), schema, depth)?);
            }
        }
        (payload, Shape::List(_)) => {
            // A list of lists has a separate message for each inner list.
            let mut inner = Vec::new();
            for field in wire::fields(payload.bytes().ok_or(ProtobufError::Malformed)?) {
                let field = field.map_err(|_| ProtobufError::Malformed)?;
                push_items(&mut inner, &field.payload, schema.items(), depth)?;
            }
            items.push(Value::Array(inner));
        }
        (payload, _) => items.push(value(payload, schema, depth)?),
    }
    Ok(())
}

fn insert_entry(
    entries: &mut Map<String, Value>,
    payload: &Payload<'_>,
    schema: Cursor<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(ProtobufError::Malformed);
    };
    let element = schema.field_or_any("");
    let (mut key, mut found) = (String::new(), None);
    for field in wire::fields(payload.bytes().ok_or(ProtobufError::Malformed)?) {
        match field.map_err(|_| ProtobufError::Malformed)? {
            Field {
                number: 1,
                payload: Payload::Bytes(bytes),
            } => key = string(bytes)?,
            Field { number: 2, payload } => {
                found = Some(match element.shape() {
                    Shape::List(_) => {
                        let mut list = Vec::new();
                        push_items(&mut list, &payload, element, below)?;
                        list.pop().unwrap_or_default()
                    }
                    _ => value(&payload, element, below)?,
                });
            }
            _ => {}
        }
    }
    entries.insert(key, found.unwrap_or_else(|| zero(element)));
    Ok(())
}

fn zero(schema: Cursor<'_>) -> Value {
    match schema.shape() {
        Shape::String | Shape::Bytes => json!(""),
        Shape::Integer(_) | Shape::Number => json!(0),
        Shape::Boolean => json!(false),
        Shape::Quantity => json!("0"),
        _ => Value::Null,
    }
}

fn value(payload: &Payload<'_>, schema: Cursor<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let bytes = || payload.bytes().ok_or(ProtobufError::Malformed);
    let varint = || payload.varint().ok_or(ProtobufError::Malformed);
    let name = schema
        .definition
        .and_then(|name| name.rsplit('.').next())
        .unwrap_or_default();
    match schema.shape() {
        Shape::String => Ok(json!(string(bytes()?)?)),
        Shape::Bytes => Ok(json!(wire::base64(bytes()?))),
        Shape::Boolean => Ok(json!(varint()? != 0)),
        Shape::Integer(_) => Ok(json!(varint()?.cast_signed())),
        Shape::Number => {
            let number = payload.double().ok_or(ProtobufError::Malformed)?;
            Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
        }
        Shape::Quantity => {
            let text = text_field(bytes()?, 1)?;
            Ok(json!(if text.is_empty() { "0".to_owned() } else { text }))
        }
        Shape::IntOrString => int_or_string(bytes()?),
        Shape::Time => time(bytes()?, name == "MicroTime"),
        Shape::Struct(_) => message(bytes()?, schema, depth).map(Value::Object),
        Shape::Any => special(bytes()?, name, depth),
        Shape::List(_) | Shape::Map(_) | Shape::Reference(_) => Err(ProtobufError::Malformed),
    }
}

fn text_field(bytes: &[u8], wanted: u32) -> Result<String, ProtobufError> {
    let mut text = String::new();
    for field in wire::fields(bytes) {
        let field = field.map_err(|_| ProtobufError::Malformed)?;
        if let (true, Payload::Bytes(bytes)) = (field.number == wanted, field.payload) {
            text = string(bytes)?;
        }
    }
    Ok(text)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_string, mut number) = (false, 0);
    for field in wire::fields(bytes) {
        let field = field.map_err(|_| ProtobufError::Malformed)?;
        match (field.number, field.payload.varint()) {
            (1, Some(kind)) => is_string = kind == 1,
            (2, Some(value)) => number = value.cast_signed(),
            _ => {}
        }
    }
    if is_string {
        Ok(json!(text_field(bytes, 3)?))
    } else {
        Ok(json!(number))
    }
}

fn time(bytes: &[u8], microseconds: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanoseconds) = (None, 0);
    for field in wire::fields(bytes) {
        let field = field.map_err(|_| ProtobufError::Malformed)?;
        match (field.number, field.payload.varint()) {
            (1, Some(value)) => seconds = Some(value.cast_signed()),
            (2, Some(value)) => nanoseconds = i32::try_from(value.cast_signed()).unwrap_or(0),
            _ => {}
        }
    }
    // A message without fields is an unset time.
    let Some(seconds) = seconds else {
        return Ok(Value::Null);
    };
    let time = Timestamp::new(seconds, nanoseconds).map_err(|_| ProtobufError::Malformed)?;
    Ok(json!(if microseconds {
        berth_core::time::micros(time)
    } else {
        berth_core::time::seconds(time)
    }))
}

/// Types whose JSON has no single type: they wrap JSON, or one of several types.
fn special(bytes: &[u8], name: &str, depth: usize) -> Result<Value, ProtobufError> {
    let Some(below) = depth.checked_sub(1) else {
        return Err(ProtobufError::Malformed);
    };
    let schema = || {
        let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        builtin_cursor(props).ok_or(ProtobufError::Malformed)
    };
    let mut result = Value::Null;
    for field in wire::fields(bytes) {
        let field = field.map_err(|_| ProtobufError::Malformed)?;
        let push = |result: &mut Value, item: Value| match result {
            Value::Array(items) => items.push(item),
            other => *other = json!([item]),
        };
        match (name, field.number, &field.payload) {
            ("FieldsV1" | "RawExtension" | "JSON", 1, Payload::Bytes(raw)) => {
                result = serde_json::from_slice(raw).map_err(|_| ProtobufError::Malformed)?;
            }
            ("JSONSchemaPropsOrBool", 1, Payload::Varint(allows)) if result.is_null() => {
                result = json!(*allows != 0);
            }
            ("JSONSchemaPropsOrBool", 2, Payload::Bytes(bytes))
            | ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", 1, Payload::Bytes(bytes)) => {
                result = Value::Object(message(bytes, schema()?, below)?);
            }
            ("JSONSchemaPropsOrArray", 2, Payload::Bytes(bytes)) => {
                let item = Value::Object(message(bytes, schema()?, below)?);
                push(&mut result, item);
            }
            ("JSONSchemaPropsOrStringArray", 2, Payload::Bytes(bytes)) => {
                push(&mut result, json!(string(bytes)?));
            }
            _ => {}
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests;
