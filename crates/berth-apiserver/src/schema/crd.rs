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
    /// The schema of one version of a CustomResourceDefinition (an element of `spec.versions`).
    /// `apiVersion`, `kind` and `metadata` are those of every object, whatever the definition says of them.
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
