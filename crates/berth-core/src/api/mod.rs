//! The Kubernetes objects that Berth reads, reduced to the fields that decisions need.
//!
//! These types are the boundary: they are decoded from user files or API server responses, validated, and converted to
//! the compact model. Unlisted fields are skipped while decoding, so `managedFields` costs nothing but for the few
//! kinds whose times count. As in Kubernetes, `null` means "not set".

mod capacity;
mod matching;
mod meta;
mod node;
mod object;
mod pod;
mod storage;
mod validate;
mod workload;

pub use capacity::*;
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
