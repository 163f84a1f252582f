//! Network policies. They are stored and served; traffic is not filtered.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, selecting};
use crate::kind::{Generation, Kind};
use crate::meta;

/// Network policies.
pub const KIND: Kind = Kind {
    short_names: &["netpol"],
    generation: Generation::Counted,
    columns: &[NAME, selecting("Pod-Selector", &["spec", "podSelector"]), AGE],
    defaults,
    ..Kind::namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
};

fn defaults(policy: &mut Value) {
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
