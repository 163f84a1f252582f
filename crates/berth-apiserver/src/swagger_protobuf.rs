//! The Swagger document as protobuf.
//!
//! kubectl up to 1.27 reads OpenAPI in this form alone. Only what such documents hold is written: definitions, and
//! operations with their parameters and answers. The numbers are those of the message `openapi.v2.Document`.

use serde_json::Value;

/// The media type, as kubectl asks for it, is this with a version.
pub(crate) const MEDIA_TYPE_PREFIX: &str = "application/com.github.proto-openapi.spec.v2";
/// The media type of the answer.
pub(crate) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u64, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u64, values: &Value) {
        for value in values.as_array().into_iter().flatten() {
            self.text(number, value);
        }
    }

    fn flag(&mut self, number: u64, value: &Value) {
        if value == true {
            self.varint(number << 3);
            self.varint(1);
        }
    }

    fn message(&mut self, number: u64, message: &Message) {
        self.bytes(number, &message.0);
    }

    /// Every pair of a map as a message of a name and a value.
    fn named(&mut self, number: u64, map: &Value, write: impl Fn(&Value) -> Message) {
        for (name, value) in map.as_object().into_iter().flatten() {
            let mut pair = Message::default();
            pair.bytes(1, name.as_bytes());
            pair.message(2, &write(value));
            self.message(number, &pair);
        }
    }

    /// Every field whose name starts with `x-`.
    fn extensions(&mut self, number: u64, object: &Value) {
        for (name, value) in object.as_object().into_iter().flatten() {
            if name.starts_with("x-") {
                let mut pair = Message::default();
                pair.bytes(1, name.as_bytes());
                pair.message(2, &any(value));
                self.message(number, &pair);
            }
        }
    }
}

/// The document in its binary form.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    let mut message = Message::default();
    message.text(1, &document["swagger"]);
    let mut about = Message::default();
    about.text(1, &document["info"]["title"]);
    about.text(2, &document["info"]["version"]);
    message.message(2, &about);
    let mut paths = Message::default();
    paths.named(2, &document["paths"], path_item);
    message.message(8, &paths);
    let mut definitions = Message::default();
    definitions.named(1, &document["definitions"], schema);
    message.message(9, &definitions);
    message.0
}

/// Any value, as YAML. JSON is YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.bytes(2, value.to_string().as_bytes());
    message
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    let methods = [
        ("get", 2),
        ("put", 3),
        ("post", 4),
        ("delete", 5),
        ("patch", 8),
    ];
    for (method, number) in methods {
        if item[method].is_object() {
            message.message(number, &operation(&item[method]));
        }
    }
    message.0.extend(parameters(9, &item["parameters"]).0);
    message
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, &operation["tags"]);
    message.text(3, &operation["description"]);
    message.text(5, &operation["operationId"]);
    message.texts(6, &operation["produces"]);
    message.texts(7, &operation["consumes"]);
    message.0.extend(parameters(8, &operation["parameters"]).0);
    let mut responses = Message::default();
    responses.named(1, &operation["responses"], response);
    message.message(9, &responses);
    message.extensions(13, operation);
    message
}

fn response(response: &Value) -> Message {
    let mut inner = Message::default();
    inner.text(1, &response["description"]);
    if response["schema"].is_object() {
        let mut item = Message::default();
        item.message(1, &schema(&response["schema"]));
        inner.message(2, &item);
    }
    let mut message = Message::default();
    message.message(1, &inner);
    message
}

fn parameters(number: u64, parameters: &Value) -> Message {
    let mut message = Message::default();
    for parameter in parameters.as_array().into_iter().flatten() {
        let mut choice = Message::default();
        if parameter["in"] == "body" {
            let mut body = Message::default();
            body.text(2, &parameter["name"]);
            body.text(3, &parameter["in"]);
            body.flag(4, &parameter["required"]);
            body.message(5, &schema(&parameter["schema"]));
            choice.message(1, &body);
        } else {
            // Query and path parameters differ in the place of their type.
            let (kind, type_number) = if parameter["in"] == "path" {
                (4, 5)
            } else {
                (3, 6)
            };
            let mut plain = Message::default();
            plain.flag(1, &parameter["required"]);
            plain.text(2, &parameter["in"]);
            plain.text(3, &parameter["description"]);
            plain.text(4, &parameter["name"]);
            plain.text(type_number, &parameter["type"]);
            let mut of_kind = Message::default();
            of_kind.message(kind, &plain);
            choice.message(2, &of_kind);
        }
        let mut item = Message::default();
        item.message(1, &choice);
        message.message(number, &item);
    }
    message
}

fn schema(schema_json: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &schema_json["$ref"]);
    message.text(2, &schema_json["format"]);
    message.text(4, &schema_json["description"]);
    if let Some(default) = schema_json.get("default") {
        message.message(5, &any(default));
    }
    message.text(13, &schema_json["pattern"]);
    message.texts(19, &schema_json["required"]);
    for value in schema_json["enum"].as_array().into_iter().flatten() {
        message.message(20, &any(value));
    }
    match &schema_json["additionalProperties"] {
        elements @ Value::Object(_) => {
            let mut item = Message::default();
            item.message(1, &schema(elements));
            message.message(21, &item);
        }
        allowed @ Value::Bool(true) => {
            let mut item = Message::default();
            item.flag(2, allowed);
            message.message(21, &item);
        }
        _ => {}
    }
    if !schema_json["type"].is_null() {
        let mut item = Message::default();
        item.text(1, &schema_json["type"]);
        message.message(22, &item);
    }
    if schema_json["items"].is_object() {
        let mut item = Message::default();
        item.message(1, &schema(&schema_json["items"]));
        message.message(23, &item);
    }
    for part in schema_json["allOf"].as_array().into_iter().flatten() {
        message.message(24, &schema(part));
    }
    if schema_json["properties"].is_object() {
        let mut properties = Message::default();
        properties.named(1, &schema_json["properties"], schema);
        message.message(25, &properties);
    }
    message.extensions(31, schema_json);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_written_field_by_field() {
        let document = json!({"swagger": "2.0", "info": {"title": "T", "version": "v"},
            "definitions": {"D": {"type": "object", "x-a": 1}}, "paths": {}});
        let any = b"\x0a\x03x-a\x12\x03\x12\x011";
        let mut schema = b"\xb2\x01\x08\x0a\x06object\xfa\x01".to_vec();
        schema.push(any.len() as u8);
        schema.extend_from_slice(any);
        let mut pair = b"\x0a\x01D\x12".to_vec();
        pair.push(schema.len() as u8);
        pair.extend(schema);
        let mut definitions = b"\x0a".to_vec();
        definitions.push(pair.len() as u8);
        definitions.extend(pair);
        let mut expected = b"\x0a\x032.0\x12\x06\x0a\x01T\x12\x01v\x42\x00\x4a".to_vec();
        expected.push(definitions.len() as u8);
        expected.extend(definitions);
        assert_eq!(encode(&document), expected);
    }
}
