//! Nodes.
//!
//! Kubernetes taints a new node as not ready, and its node controller takes the taint away again. There is no such controller
//! here, and a node would never take a pod: the taint is left out.

use serde_json::{Value, json};

use super::metadata::check_qualified_name;
use crate::error::FieldError;
use crate::meta;

pub(super) fn default_node(node: &mut Value) {
    // What a node has can be used, unless it says otherwise.
    let capacity = meta::at(node, &["status", "capacity"]).clone();
    for (resource, quantity) in capacity.as_object().into_iter().flatten() {
        meta::default(node, &["status", "allocatable", resource], quantity.clone());
    }
    meta::default(
        node,
        &["status", "daemonEndpoints"],
        json!({"kubeletEndpoint": {"Port": 0}}),
    );
    for field in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        meta::default(node, &["status", "nodeInfo", field], "");
    }
}

pub(super) fn validate(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, taint) in meta::items(node, &["spec", "taints"]).iter().enumerate() {
        // Kubernetes says so, although taints are in the spec.
        let field = format!("metadata.taints[{index}]");
        check_qualified_name(meta::text(taint, &["key"]), &format!("{field}.key"), &mut errors);
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        match meta::text(taint, &["effect"]) {
            "" => errors.push(FieldError::required(format!("{field}.effect"), "")),
            effect if effects.contains(&effect) => {}
            effect => errors.push(FieldError::not_supported(
                format!("{field}.effect"),
                &effect.into(),
                &effects,
            )),
        }
    }
    errors
}
