//! Label and field selectors: parsing, and matching objects.
//!
//! The messages of the errors are those that a Kubernetes API server puts into its `BadRequest` answers.

pub(crate) mod check;
mod field;
mod label;
mod text;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub(crate) use text::requirements;
pub use text::text_of;

/// Why a selector cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The label selector is not of the grammar.
    #[error("unable to parse requirement: {0}")]
    Label(String),
    /// The field selector is not of the grammar.
    #[error("invalid selector: '{selector}'; can't understand '{part}'")]
    Field {
        /// The whole selector.
        selector: String,
        /// The part that is not understood.
        part: String,
    },
    /// The field is not one that this kind can be selected by.
    #[error("field label not supported: {0}")]
    FieldNotSupported(String),
    /// The kind can be selected by its name alone.
    #[error("\"{0}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    FieldNotKnown(String),
    /// A `matchExpressions` entry has an operator that does not exist.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
}
