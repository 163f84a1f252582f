//! Schemas: the fields of each kind, and how they merge.
//!
//! One tree serves field validation, strategic merge patch, server-side apply and the OpenAPI documents, so that they
//! cannot disagree. The trees of the built-in kinds come from the published API types; what those lack (list types,
//! merge keys, a few fields of our own) is added from small tables. The tree of a custom resource comes from its
//! definition. Stored objects and semantics are out of scope here: admission checks rules like "must be positive".

mod builtin;
mod canonical;
mod check;
mod crd;
pub(crate) mod document;
mod extension;
mod markers;
mod node;

pub use builtin::definitions as builtin_definitions;
pub(crate) use builtin::{
    definition_cursor as builtin_cursor, definition_name_of as builtin_definition_name, list_definition,
};
pub(crate) use canonical::canonicalize;
pub use check::{TypeError, prune_unknown_fields, type_errors, unknown_fields};
pub(crate) use check::{json_type, odd_fields};
pub use crd::CustomSchemaError;
pub use node::Schema;
pub(crate) use node::{Cursor, ListType, Shape};
