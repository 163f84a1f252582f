//! The three kinds of patches: JSON patch, merge patch, strategic merge patch.
//!
//! A patch is applied to a whole object in memory. Whether the result may be stored is not decided here.

pub mod json;
pub mod merge;
pub mod strategic;
