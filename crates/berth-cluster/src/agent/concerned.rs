//! Which nodes and pods an object concerns.

use crate::names::NODE_LEASES;
use crate::{field, key_for, key_of};
use berth_core::effect::ObjectKey;
use serde_json::Value;

/// The nodes and pods whose agent must act when an object was created, changed or deleted (pass its last state). A node
/// stands for its pods.
///
/// `waiting` are pods on nodes that do not run yet: they may wait for a claim, a volume, a Secret or a `ConfigMap`.
#[must_use]
pub fn concerned<'a>(object: &Value, waiting: impl IntoIterator<Item = &'a ObjectKey>) -> Vec<ObjectKey> {
    match field::kind(object) {
        "Node" => vec![key_of(object)],
        "Pod" if !field::text(object, "/spec/nodeName").is_empty() => vec![key_of(object)],
        "Lease" if field::namespace(object) == NODE_LEASES => vec![key_for("Node", "", field::name(object))],
        "PersistentVolumeClaim" | "PersistentVolume" => waiting.into_iter().cloned().collect(),
        "Secret" | "ConfigMap" => {
            let namespace = field::namespace(object);
            let here = waiting.into_iter().filter(|pod| pod.namespace == namespace);
            here.cloned().collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(object: &Value) -> Vec<String> {
        let waiting = [key_for("Pod", "a", "one"), key_for("Pod", "b", "two")];
        let keys = concerned(object, &waiting);
        keys.iter().map(|key| format!("{}/{}", key.kind, key.name)).collect()
    }

    fn object(kind: &str, namespace: &str) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": namespace}})
    }

    #[test]
    fn what_pods_wait_for_wakes_those_that_could_use_it() {
        for kind in ["PersistentVolumeClaim", "PersistentVolume"] {
            assert_eq!(names(&object(kind, "a")), ["Pod/one", "Pod/two"]);
        }
        for kind in ["Secret", "ConfigMap"] {
            assert_eq!(names(&object(kind, "b")), ["Pod/two"], "only of its namespace");
        }
        assert!(names(&object("Service", "a")).is_empty());
    }

    #[test]
    fn a_heartbeat_concerns_its_node_and_a_pod_itself_once_it_has_a_node() {
        assert_eq!(names(&object("Lease", NODE_LEASES)), ["Node/x"]);
        assert!(names(&object("Lease", "kube-system")).is_empty(), "that of a component");
        assert!(names(&object("Pod", "a")).is_empty());
        let mut pod = object("Pod", "a");
        pod["spec"] = json!({"nodeName": "n"});
        assert_eq!(names(&pod), ["Pod/x"]);
    }
}
