//! Device claims. They are stored and served; the pod's scheduler allocates devices.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, made};
use crate::fields;
use crate::kind::{Kind, STATUS};
use crate::meta;

/// Device claims.
pub const KIND: Kind = Kind {
    subresources: &[STATUS],
    columns: &[NAME, made("State", |claim, _| json!(state(claim))), AGE],
    defaults: |claim| {
        default_requests(claim, &["spec"]);
        meta::default(claim, &["status"], json!({}));
    },
    validate_update: |old, new| fields::check_fixed(old, new, &["spec"]),
    ..Kind::namespaced("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
};

/// A request for devices defaults to one device.
pub(super) fn default_requests(object: &mut Value, spec: &[&str]) {
    for request in meta::items_mut(object, &[spec, &["devices", "requests"]].concat()) {
        if request["exactly"].is_object() {
            default_count(&mut request["exactly"]);
        }
        meta::items_mut(request, &["firstAvailable"])
            .iter_mut()
            .for_each(default_count);
    }
}

fn default_count(request: &mut Value) {
    meta::default(request, &["allocationMode"], "ExactCount");
    if request["allocationMode"] == "ExactCount" {
        meta::default(request, &["count"], 1);
    }
}

fn state(claim: &Value) -> String {
    let is_allocated = claim["status"]["allocation"].is_object();
    let is_reserved = !meta::items(claim, &["status", "reservedFor"]).is_empty();
    let states = [
        ("deleted", meta::is_deleting(claim)),
        ("pending", !is_allocated && !meta::is_deleting(claim)),
        ("allocated", is_allocated),
        ("reserved", is_allocated && is_reserved),
    ];
    let holding = states.iter().filter(|(_, holds)| *holds).map(|(name, _)| *name);
    holding.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_ask_for_one_device() {
        let mut claim = json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}},
            {"name": "b", "firstAvailable": [{"name": "c"}, {"name": "d", "allocationMode": "All"}]}]}}});
        (KIND.defaults)(&mut claim);
        let requests = &claim["spec"]["devices"]["requests"];
        assert_eq!(
            requests[0]["exactly"],
            json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1})
        );
        assert_eq!(requests[1]["firstAvailable"][0]["count"], 1);
        assert_eq!(
            requests[1]["firstAvailable"][1],
            json!({"name": "d", "allocationMode": "All"})
        );
    }

    #[test]
    fn the_state_says_how_far_a_claim_is() {
        fn check(status: Value, expected: &str) {
            assert_eq!(state(&json!({"metadata": {"name": "c"}, "status": status})), expected);
        }
        check(json!({}), "pending");
        check(json!({"allocation": {}}), "allocated");
        check(
            json!({"allocation": {}, "reservedFor": [{"name": "p"}]}),
            "allocated,reserved",
        );
        let deleted = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
        assert_eq!(state(&deleted), "deleted");
    }
}
