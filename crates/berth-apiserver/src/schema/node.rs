//! The schema tree and a cursor that walks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

/// The schema of one kind of object.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(super) definitions: Arc<Definitions>,
    pub(super) root: Node,
}

/// Named nodes that others refer to.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) nodes: BTreeMap<String, Node>,
}

/// What a value may look like.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Anything: unrestricted.
    Any,
    String,
    /// A base64 string.
    Bytes,
    /// An RFC 3339 string.
    Time,
    Boolean,
    /// An integer of this many bits.
    Integer(u8),
    Number,
    IntOrString,
    Quantity,
    /// An object with known fields.
    Struct(BTreeMap<String, Node>),
    /// An object with free keys.
    Map(Box<Node>),
    List(Box<Node>),
    /// A reference to the definition with that name.
    Reference(String),
}

/// How list elements are identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is atomic.
    Atomic,
    /// By their value.
    Set,
    /// By the values of these fields.
    Map(Vec<String>),
}

/// One node of the tree: its shape, and the markers of the field.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(super) shape: Shape,
    pub(super) required: BTreeSet<String>,
    pub(super) list_type: Option<ListType>,
    /// Whether an object is atomic; the type's marker applies if the field has none.
    pub(super) atomic: Option<bool>,
    pub(super) preserve_unknown: bool,
    pub(super) embedded_resource: bool,
    pub(super) patch_merge_key: Option<String>,
    pub(super) patch_merge: bool,
    pub(super) default: Option<Value>,
}

impl Node {
    pub(super) fn of(shape: Shape) -> Self {
        Node {
            shape,
            required: BTreeSet::new(),
            list_type: None,
            atomic: None,
            preserve_unknown: false,
            embedded_resource: false,
            patch_merge_key: None,
            patch_merge: false,
            default: None,
        }
    }

    /// Reads a node from JSON schema with Kubernetes' extensions.
    pub(super) fn from_json(json: &Value) -> Self {
        let mut node = Node::of(shape_of(json));
        let flag = |name: &str| json[name].as_bool().unwrap_or(false);
        node.required = strings(&json["required"]).into_iter().collect();
        node.list_type = match json["x-kubernetes-list-type"].as_str() {
            Some("map") => Some(ListType::Map(strings(&json["x-kubernetes-list-map-keys"]))),
            Some("set") => Some(ListType::Set),
            Some(_) => Some(ListType::Atomic),
            None => None,
        };
        node.atomic = json["x-kubernetes-map-type"]
            .as_str()
            .map(|map_type| map_type == "atomic");
        node.preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
        node.embedded_resource = flag("x-kubernetes-embedded-resource");
        node.patch_merge_key = json["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned);
        let strategy = json["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        node.patch_merge = strategy.split(',').any(|s| s == "merge");
        node.default = json.get("default").cloned();
        node
    }
}

fn strings(json: &Value) -> Vec<String> {
    let items = json.as_array().into_iter().flatten();
    items.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

/// The name of the definition that a `$ref`, direct or within `allOf`, refers to.
pub(super) fn reference_name(json: &Value) -> Option<&str> {
    let reference = json["$ref"]
        .as_str()
        .or_else(|| match json["allOf"].as_array()?.as_slice() {
            [only] => only["$ref"].as_str(),
            _ => None,
        })?;
    reference.rsplit('/').next()
}

fn shape_of(json: &Value) -> Shape {
    if let Some(name) = reference_name(json) {
        return Shape::Reference(name.to_owned());
    }
    if json["x-kubernetes-int-or-string"] == true {
        return Shape::IntOrString;
    }
    let format = json["format"].as_str().unwrap_or_default();
    match json["type"].as_str().unwrap_or_default() {
        "string" => match format {
            "byte" => Shape::Bytes,
            "date-time" => Shape::Time,
            "int-or-string" => Shape::IntOrString,
            "quantity" => Shape::Quantity,
            _ => Shape::String,
        },
        "boolean" => Shape::Boolean,
        "integer" => Shape::Integer(if format == "int32" { 32 } else { 64 }),
        "number" => Shape::Number,
        "array" => Shape::List(Box::new(Node::from_json(&json["items"]))),
        "object" => object_shape(json),
        _ if json["properties"].is_object() => object_shape(json),
        _ => Shape::Any,
    }
}

fn object_shape(json: &Value) -> Shape {
    if let Some(properties) = json["properties"].as_object() {
        let fields = properties
            .iter()
            .map(|(name, json)| (name.clone(), Node::from_json(json)));
        return Shape::Struct(fields.collect());
    }
    match &json["additionalProperties"] {
        elements @ Value::Object(_) => Shape::Map(Box::new(Node::from_json(elements))),
        Value::Bool(true) => Shape::Map(Box::new(Node::of(Shape::Any))),
        // An object without known fields: no field is known to be allowed in it.
        _ => Shape::Struct(BTreeMap::new()),
    }
}

impl Schema {
    /// An unrestricted schema: any field is known, lists are atomic.
    pub fn untyped() -> Self {
        Schema {
            definitions: Arc::new(Definitions::default()),
            root: Node::of(Shape::Any),
        }
    }

    /// A cursor at the whole object.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.definitions, &self.root)
    }
}

/// A place in a schema, with references resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    definitions: &'a Definitions,
    /// The node as declared by the field: it has the field's markers.
    declared: &'a Node,
    /// The node that the declaration finally refers to.
    resolved: &'a Node,
    /// The name of the definition, if there is one.
    pub(crate) definition: Option<&'a str>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(definitions: &'a Definitions, declared: &'a Node) -> Self {
        let mut resolved = declared;
        let mut definition = None;
        // A longer chain of references is a cycle, which has no shape.
        for _ in 0..8 {
            let Shape::Reference(name) = &resolved.shape else {
                break;
            };
            definition = Some(name.as_str());
            match definitions.nodes.get(name) {
                Some(node) => resolved = node,
                None => break,
            }
        }
        Cursor {
            definitions,
            declared,
            resolved,
            definition,
        }
    }

    /// The shape; never [`Shape::Reference`] unless the reference is broken.
    pub(crate) fn shape(&self) -> &'a Shape {
        &self.resolved.shape
    }

    /// The schema of a field, if it is known. Below a node without a schema, every field is known.
    pub(crate) fn field(&self, name: &str) -> Option<Cursor<'a>> {
        match &self.resolved.shape {
            Shape::Struct(fields) => fields.get(name).map(|node| Cursor::new(self.definitions, node)),
            Shape::Map(elements) => Some(Cursor::new(self.definitions, elements)),
            Shape::Any | Shape::Reference(_) => Some(*self),
            _ => None,
        }
    }

    /// The schema of a field, or an unrestricted one.
    pub(crate) fn field_or_any(&self, name: &str) -> Cursor<'a> {
        self.field(name).unwrap_or(Cursor::any())
    }

    /// The schema of a list's elements.
    pub(crate) fn items(&self) -> Cursor<'a> {
        match &self.resolved.shape {
            Shape::List(items) => Cursor::new(self.definitions, items),
            _ => Cursor::any(),
        }
    }

    /// An unrestricted node.
    pub(crate) fn any() -> Cursor<'static> {
        static ANY: std::sync::LazyLock<(Definitions, Node)> =
            std::sync::LazyLock::new(|| (Definitions::default(), Node::of(Shape::Any)));
        Cursor::new(&ANY.0, &ANY.1)
    }

    /// Whether the value is replaced and owned as a whole.
    pub(crate) fn is_atomic(&self) -> bool {
        self.declared.atomic.or(self.resolved.atomic).unwrap_or(false)
    }

    /// How list elements are identified: atomic unless the schema says otherwise.
    pub(crate) fn list_type(&self) -> &'a ListType {
        let declared = self.declared.list_type.as_ref();
        declared
            .or(self.resolved.list_type.as_ref())
            .unwrap_or(&ListType::Atomic)
    }

    pub(crate) fn preserves_unknown(&self) -> bool {
        self.declared.preserve_unknown || self.resolved.preserve_unknown
    }

    pub(crate) fn is_embedded_resource(&self) -> bool {
        self.declared.embedded_resource || self.resolved.embedded_resource
    }

    /// The field by which strategic merge patch identifies elements, if it merges the list.
    pub(crate) fn patch_merge_key(&self) -> Option<&'a str> {
        self.declared.patch_merge_key.as_deref()
    }

    /// Whether strategic merge patch merges the list rather than replacing it.
    pub(crate) fn patch_merges(&self) -> bool {
        self.declared.patch_merge
    }

    pub(crate) fn is_required(&self, field: &str) -> bool {
        self.resolved.required.contains(field)
    }

    pub(crate) fn default_of(&self, field: &str) -> Option<&'a Value> {
        match &self.resolved.shape {
            Shape::Struct(fields) => fields.get(field).and_then(|node| node.default.as_ref()),
            _ => None,
        }
    }
}
