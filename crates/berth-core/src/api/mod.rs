//! The Kubernetes objects that Berth reads, reduced to the fields that decisions need.
//!
//! These types are the edge: they are decoded from what a user or an API server gives, checked, and
//! turned into the compact model. Fields that are not listed are skipped while decoding, so a
//! `managedFields` costs nothing. As in Kubernetes, `null` means "not given".

mod matching;
mod meta;
mod node;
mod object;
mod pod;
mod storage;
mod validate;
mod workload;

pub use meta::*;
pub use node::*;
pub use object::*;
pub use pod::*;
pub use storage::*;
pub use workload::*;

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
