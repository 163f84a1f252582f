//! A stored object: its JSON, and the few parts of its metadata that are read often.
//!
//! The body is stored as bytes, not as a tree: a list is then a copy of bytes, a watch event is encoded once for all
//! watchers, and an object takes little more than its JSON. To change an object, decode it first.
//!
//! Kind and API version come first in the body, because list elements omit them.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// One version of one object. Immutable.
#[derive(Debug)]
pub struct Object {
    key: Arc<str>,
    version: u64,
    body: Bytes,
    /// The offset of the rest of the body, after kind and API version. 0 if it does not start with them.
    rest: usize,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    owners: Box<[Box<str>]>,
}

/// The JSON of a stored object could not be read back.
#[derive(Debug, thiserror::Error)]
#[error("object {key} is not valid JSON: {source}")]
pub struct DecodeError {
    key: String,
    source: serde_json::Error,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Head {
    kind: String,
    api_version: String,
    metadata: HeadMetadata,
}

impl Head {
    /// The start of a body: kind and API version.
    fn text(kind: &str, api_version: &str) -> String {
        format!(
            "{{\"kind\":{},\"apiVersion\":{}",
            Value::from(kind),
            Value::from(api_version)
        )
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadMetadata {
    uid: String,
    labels: Option<std::collections::BTreeMap<String, String>>,
    owner_references: Option<Vec<HeadOwner>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HeadOwner {
    uid: String,
}

impl Object {
    /// Writes `version` to the object's metadata and encodes it.
    ///
    /// # Errors
    /// If the metadata does not have the structure of a Kubernetes object.
    pub fn encode(key: Arc<str>, version: u64, mut value: Value) -> Result<Self, DecodeError> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), Value::String(version.to_string()));
        }
        let (body, rest) = encode_body(&mut value).map_err(|source| DecodeError {
            key: key.to_string(),
            source,
        })?;
        let metadata = value.get("metadata");
        let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().into();
        let labels = metadata
            .and_then(|m| m.get("labels"))
            .and_then(Value::as_object)
            .map(|labels| labels.iter().map(|(k, v)| (k.as_str().into(), text(Some(v)))).collect())
            .unwrap_or_default();
        let owners = metadata
            .and_then(|m| m.get("ownerReferences"))
            .and_then(Value::as_array)
            .map(|owners| owners.iter().map(|owner| text(owner.get("uid"))).collect())
            .unwrap_or_default();
        let uid = text(metadata.and_then(|m| m.get("uid")));
        Ok(Self {
            key,
            version,
            body: body.into(),
            rest,
            uid,
            labels,
            owners,
        })
    }

    /// Decodes an object from the bytes of a journal.
    ///
    /// # Errors
    /// If the bytes are not the JSON of an object.
    pub fn decode(key: Arc<str>, version: u64, body: Bytes) -> Result<Self, DecodeError> {
        let head: Head = serde_json::from_slice(&body).map_err(|source| DecodeError {
            key: key.to_string(),
            source,
        })?;
        let text = Head::text(&head.kind, &head.api_version);
        let rest = if body.starts_with(text.as_bytes()) {
            text.len()
        } else {
            0
        };
        let metadata = head.metadata;
        let boxed = |(k, v): (String, String)| (k.into_boxed_str(), v.into_boxed_str());
        Ok(Self {
            key,
            version,
            body,
            rest,
            uid: metadata.uid.into(),
            labels: metadata.labels.unwrap_or_default().into_iter().map(boxed).collect(),
            owners: metadata
                .owner_references
                .unwrap_or_default()
                .into_iter()
                .map(|o| o.uid.into())
                .collect(),
        })
    }

    /// The key within its table: `namespace/name`, or `name` for cluster-scoped kinds.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The resource version of this state.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The object as JSON.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body after its kind and API version: `,"metadata":...}`. `None` if it does not start with them.
    pub fn body_without_kind(&self) -> Option<Bytes> {
        (self.rest > 0 && self.body.get(self.rest) == Some(&b',')).then(|| self.body.slice(self.rest + 1..))
    }

    /// The object's uid, empty if it has none.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The object's labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    /// The uids of the object's owners.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.owners.iter().map(|uid| &**uid)
    }

    /// The namespace part of the key, empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name part of the key.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// The whole object as a tree.
    pub fn value(&self) -> Value {
        // The body came from a `Value` or was validated on load, so this cannot fail; null means "nothing".
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The scalar at a path of map keys, as text, without decoding the rest of the object.
    pub fn field(&self, path: &[&str]) -> Option<String> {
        let mut deserializer = serde_json::Deserializer::from_slice(&self.body);
        PathSeed(path).deserialize(&mut deserializer).ok().flatten()
    }
}

/// The object as JSON with kind and API version first, and where they end.
fn encode_body(value: &mut Value) -> Result<(Vec<u8>, usize), serde_json::Error> {
    let texts = ["kind", "apiVersion"].map(|name| value.get(name).and_then(Value::as_str).map(str::to_owned));
    let ([Some(kind), Some(api_version)], Some(fields)) = (texts, value.as_object_mut()) else {
        return Ok((serde_json::to_vec(value)?, 0));
    };
    fields.remove("kind");
    fields.remove("apiVersion");
    let mut body = Head::text(&kind, &api_version).into_bytes();
    let rest = body.len();
    // The rest starts with a brace, where the field separator must be.
    serde_json::to_writer(&mut body, fields)?;
    match body.get_mut(rest) {
        Some(brace) if !fields.is_empty() => *brace = b',',
        _ => {
            body.truncate(rest);
            body.push(b'}');
        }
    }
    Ok((body, rest))
}

/// Follows a path of map keys and skips everything else.
struct PathSeed<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for PathSeed<'_> {
    type Value = Option<String>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return Ok(match Value::deserialize(deserializer)? {
                Value::String(text) => Some(text),
                Value::Bool(flag) => Some(flag.to_string()),
                Value::Number(number) => Some(number.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            });
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathSeed<'_> {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a map on the way to a field")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.split_first() {
                Some((first, rest)) if *first == key => {
                    found = map.next_value_seed(PathSeed(rest))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({"kind": "Pod", "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "labels": {"app": "web"},
            "ownerReferences": [{"uid": "o1"}]}, "spec": {"nodeName": "n1", "hostNetwork": true}})
    }

    #[test]
    fn encoded_and_decoded_objects_agree() {
        let encoded = Object::encode("ns/a".into(), 7, pod()).unwrap();
        let decoded = Object::decode("ns/a".into(), 7, encoded.body().clone()).unwrap();
        for object in [&encoded, &decoded] {
            assert_eq!(object.uid(), "u1");
            assert_eq!(object.label("app"), Some("web"));
            assert_eq!(object.owners().collect::<Vec<_>>(), ["o1"]);
            assert_eq!((object.namespace(), object.name()), ("ns", "a"));
            assert_eq!(object.value()["metadata"]["resourceVersion"], "7");
        }
    }

    #[test]
    fn the_kind_stands_first_and_can_be_left_out() {
        let mut whole = pod();
        whole["apiVersion"] = "v1".into();
        let encoded = Object::encode("ns/a".into(), 7, whole.clone()).unwrap();
        let decoded = Object::decode("ns/a".into(), 7, encoded.body().clone()).unwrap();
        whole["metadata"]["resourceVersion"] = "7".into();
        for object in [&encoded, &decoded] {
            assert!(
                object
                    .body()
                    .starts_with(b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":")
            );
            assert_eq!(object.value(), whole);
            let rest = [b"{", &*object.body_without_kind().unwrap()].concat();
            let rest: Value = serde_json::from_slice(&rest).unwrap();
            assert_eq!(rest["metadata"], whole["metadata"]);
            assert!(rest["kind"].is_null() && rest["apiVersion"].is_null());
        }
        // A body that another version of the store wrote.
        let older = Object::decode("ns/a".into(), 7, serde_json::to_vec(&whole).unwrap().into()).unwrap();
        assert_eq!((older.value(), older.body_without_kind()), (whole, None));
    }

    #[test]
    fn a_field_is_found_without_the_rest() {
        let object = Object::encode("ns/a".into(), 1, pod()).unwrap();
        assert_eq!(object.field(&["spec", "nodeName"]).as_deref(), Some("n1"));
        assert_eq!(object.field(&["spec", "hostNetwork"]).as_deref(), Some("true"));
        assert_eq!(object.field(&["status", "phase"]), None);
        assert_eq!(object.field(&["spec"]), None);
        assert_eq!(object.field(&["kind", "nothing"]), None);
    }
}
