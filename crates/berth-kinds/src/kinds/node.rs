//! Nodes.
//!
//! Kubernetes taints a new node as not ready, and its node controller removes the taint. There is no such controller here,
//! and a tainted node would never accept a pod, so the taint is not set.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, UNKNOWN, made, text, text_of};
use crate::error::FieldError;
use crate::fields;
use crate::kind::{Kind, STATUS, SelectableField, Writes};
use crate::meta;
use crate::metadata::check_qualified_name;

/// Nodes.
pub const KIND: Kind = Kind {
    short_names: &["no"],
    subresources: &[STATUS],
    writes: Writes {
        // A kubelet registers itself with its status.
        creates_with_status: true,
        ..Writes::USUAL
    },
    columns: &[
        NAME,
        made("Status", |node, _| json!(shown_status(node))),
        made("Roles", |node, _| json!(roles(node))),
        AGE,
        text("Version", &["status", "nodeInfo", "kubeletVersion"], ""),
        made("Internal-IP", |node, _| json!(address(node, "InternalIP"))).wide(),
        made("External-IP", |node, _| json!(address(node, "ExternalIP"))).wide(),
        text("OS-Image", &["status", "nodeInfo", "osImage"], UNKNOWN).wide(),
        text("Kernel-Version", &["status", "nodeInfo", "kernelVersion"], UNKNOWN).wide(),
        text(
            "Container-Runtime",
            &["status", "nodeInfo", "containerRuntimeVersion"],
            UNKNOWN,
        )
        .wide(),
    ],
    selectable: &[SelectableField::new("spec.unschedulable").unset("false")],
    defaults,
    validate,
    ..Kind::cluster("", "v1", "Node", "nodes")
};

fn defaults(node: &mut Value) {
    for list in ["capacity", "allocatable"] {
        fields::canonicalize(node, &["status", list]);
    }
    // The capacity is allocatable unless the node says otherwise.
    let capacity = meta::at(node, &["status", "capacity"]).clone();
    meta::default(node, &["status", "allocatable"], capacity);
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

fn validate(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, taint) in meta::items(node, &["spec", "taints"]).iter().enumerate() {
        // Kubernetes reports this path, although taints are in the spec.
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

fn address<'n>(node: &'n Value, kind: &str) -> &'n str {
    let addresses = meta::items(node, &["status", "addresses"]).iter();
    let mut found = addresses.filter(|address| address["type"] == kind);
    found.find_map(|address| text_of(&address["address"])).unwrap_or(NONE)
}

fn shown_status(node: &Value) -> String {
    let conditions = meta::items(node, &["status", "conditions"]);
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role).filter(|role| !role.is_empty()),
            None if key == "kubernetes.io/role" => text_of(value),
            None => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        NONE.to_owned()
    } else {
        roles.join(",")
    }
}
