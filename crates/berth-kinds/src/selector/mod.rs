//! Label and field selectors: parsing and matching.
//!
//! The error messages are those of `BadRequest` responses of a Kubernetes API server.

pub(crate) mod check;
mod field;
mod label;
mod text;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub(crate) use text::requirements;
pub use text::text_of;

/// Why a selector is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The label selector has a syntax error.
    #[error("unable to parse requirement: {0}")]
    Label(String),
    /// The field selector has a syntax error.
    #[error("invalid selector: '{selector}'; can't understand '{part}'")]
    Field {
        /// The whole selector.
        selector: String,
        /// The part that was not understood.
        part: String,
    },
    /// Objects of this kind cannot be selected by the field.
    #[error("field label not supported: {0}")]
    FieldNotSupported(String),
    /// Objects of this kind can be selected only by name.
    #[error("\"{0}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    FieldNotKnown(String),
    /// A `matchExpressions` entry has an unknown operator.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
}
