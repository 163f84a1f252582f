//! Kinds that are stored and shown, and that nothing here acts on: only what clients read back of their defaults.

use serde_json::{Value, json};

use super::pods;
use crate::meta;

pub(super) fn default_stored(kind: &str, object: &mut Value) {
    match kind {
        "EndpointSlice" => {
            for port in meta::items_mut(object, &["ports"]) {
                meta::default(port, &["name"], "");
                meta::default(port, &["protocol"], "TCP");
            }
            for endpoint in meta::items_mut(object, &["endpoints"]) {
                meta::default(endpoint, &["conditions"], json!({}));
            }
        }
        "HorizontalPodAutoscaler" => {
            meta::default(object, &["spec", "minReplicas"], 1);
            let metric = json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80}}});
            meta::default(object, &["spec", "metrics"], json!([metric]));
            meta::default(object, &["status", "desiredReplicas"], 0);
        }
        "Ingress" => meta::default(object, &["status", "loadBalancer"], json!({})),
        "IngressClass" if object["spec"]["parameters"].is_object() => {
            meta::default(object, &["spec", "parameters", "scope"], "Cluster");
        }
        "LimitRange" => meta::items_mut(object, &["spec", "limits"])
            .iter_mut()
            .for_each(default_limit),
        "NetworkPolicy" => default_policy(object),
        "PodTemplate" if object["template"].is_object() => {
            pods::default_pod_spec(object, &["template", "spec"]);
        }
        "ResourceQuota" => meta::default(object, &["status"], json!({})),
        _ => {}
    }
}

fn default_policy(policy: &mut Value) {
    let has_egress = !meta::items(policy, &["spec", "egress"]).is_empty();
    let kinds = if has_egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    meta::default(policy, &["spec", "policyTypes"], kinds);
    for direction in ["ingress", "egress"] {
        for rule in meta::items_mut(policy, &["spec", direction]) {
            for port in meta::items_mut(rule, &["ports"]) {
                meta::default(port, &["protocol"], "TCP");
            }
        }
    }
}

/// For containers, what is not said is taken from what is: the default from the largest, the request from the default.
fn default_limit(limit: &mut Value) {
    if limit["type"] != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let given = limit[from].clone();
        for (resource, quantity) in given.as_object().into_iter().flatten() {
            meta::default(limit, &[to, resource], quantity.clone());
        }
    }
}
