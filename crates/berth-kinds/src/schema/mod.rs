//! Defaults and validation of custom resources by the schema of their definition.

mod format;
mod pattern;
pub mod rules;
mod validate;

pub(crate) use format::is_known as is_known_format;
pub(crate) use pattern::compile as compile_pattern;
pub use validate::{apply_defaults, validate};
