//! Schemas of custom resources, from their definitions.

use serde_json::Value;

use super::builtin;
use super::node::{Node, Schema, Shape};

/// Why a CustomResourceDefinition's schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CustomSchemaError {
    /// The version has no `schema.openAPIV3Schema`.
    #[error("schemas are required")]
    Missing,
}

impl Schema {
    /// The schema of one version of a CustomResourceDefinition (an element of `spec.versions`). `apiVersion`, `kind`
    /// and `metadata` are those of every object, whatever the definition says about them.
    pub fn from_crd_version(version: &Value) -> Result<Schema, CustomSchemaError> {
        let json = &version["schema"]["openAPIV3Schema"];
        if !json.is_object() {
            return Err(CustomSchemaError::Missing);
        }
        let mut root = Node::from_json(json);
        if let Shape::Struct(fields) = &mut root.shape {
            fields.insert("apiVersion".to_owned(), Node::of(Shape::String));
            fields.insert("kind".to_owned(), Node::of(Shape::String));
            let metadata = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".to_owned();
            fields.insert("metadata".to_owned(), Node::of(Shape::Reference(metadata)));
        }
        Ok(Schema {
            definitions: builtin::nodes(),
            root,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use crate::apply::{Writer, apply};
    use crate::schema::{prune_unknown_fields, unknown_fields};

    use super::*;

    fn schema() -> Schema {
        let json = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
                    "name": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        }}}});
        Schema::from_crd_version(&json!({"name": "v1", "schema": {"openAPIV3Schema": json}})).unwrap()
    }

    #[test]
    fn definitions_without_a_schema_are_refused() {
        let error = Schema::from_crd_version(&json!({"name": "v1"})).unwrap_err();
        assert_eq!(error.to_string(), "schemas are required");
    }

    #[test]
    fn fields_are_known_as_the_definition_says() {
        let check = |object: Value, expect: &[&str]| {
            assert_eq!(unknown_fields(&object, &schema()), expect, "{object}");
        };
        check(
            json!({"apiVersion": "v", "kind": "k", "metadata": {"name": "x", "labels": {"a": "b"}}}),
            &[],
        );
        check(
            json!({"metadata": {"nam": "x"}, "status": {}}),
            &["metadata.nam", "status"],
        );
        check(
            json!({"spec": {"size": 1, "ports": [{"port": 1, "x": 1}]}}),
            &["spec.ports[0].x"],
        );
        check(
            json!({"spec": {"free": {"any": {"thing": 1}, "known": {"b": 1}}}}),
            &["spec.free.known.b"],
        );
        check(
            json!({"spec": {"template": {"kind": "Pod", "metadata": {"name": "p"}, "foo": 1}}}),
            &["spec.template.foo"],
        );
    }

    #[test]
    fn unknown_fields_are_pruned() {
        let mut object = json!({"spec": {"size": 1, "nope": 2, "free": {"any": 1}}, "foo": {}});
        prune_unknown_fields(&mut object, &schema());
        assert_eq!(object, json!({"spec": {"size": 1, "free": {"any": 1}}}));
    }

    #[test]
    fn lists_merge_by_the_keys_of_the_definition() {
        let writer = |manager| Writer {
            manager,
            api_version: "example.com/v1",
            subresource: "",
            time: Timestamp::UNIX_EPOCH,
            reset: &[],
        };
        let one = json!({"spec": {"ports": [{"port": 80, "name": "a"}]}});
        let two = json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}]}});
        let live = apply(None, &one, writer("one"), false, &schema()).unwrap();
        let live = apply(Some(&live), &two, writer("two"), false, &schema()).unwrap();
        let expect = json!([{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "a"}]);
        assert_eq!(live["spec"]["ports"], expect);
    }
}
