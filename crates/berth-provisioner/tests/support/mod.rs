//! The parts of a cluster in memory that provisioning touches: versions, conflicts, finalizers and events.
#![allow(dead_code, unreachable_pub)]

pub mod cluster;
pub mod faulty;
pub mod provisioner;

use serde_json::Value;

/// All objects of a multi-document YAML text.
pub fn yaml(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
