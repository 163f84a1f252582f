//! A cluster in memory, as far as provisioning touches it: versions, conflicts, finalizers and events.
#![allow(dead_code, unreachable_pub)]

pub mod cluster;
pub mod faulty;
pub mod provisioner;

use serde_json::Value;

/// All objects of a YAML text with several documents.
pub fn yaml(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
