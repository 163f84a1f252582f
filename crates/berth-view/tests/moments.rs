//! What a timeline tells.
#![allow(clippy::unwrap_used)]

use berth_view::{Model, Moment};
use serde_json::{Value, json};

fn pod(node: &str, phase: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": "db-0", "namespace": "shop"}, "spec": {"nodeName": node}, "status": {"phase": phase}})
}

fn moments(model: &mut Model, now: i64) -> Vec<Moment> {
    model.tick(now).map(|tick| tick.moments).unwrap_or_default()
}

#[test]
fn a_pod_waits_is_placed_and_goes() {
    let mut model = Model::default();
    model.go_live();
    model.apply(&pod("", "Pending"), 1000);
    model.apply(&pod("n1", "Pending"), 3500);
    model.apply(&pod("n1", "Running"), 4000);
    model.remove(&pod("", ""), 9000);
    let (pod, node) = ("shop/db-0".to_owned(), "n1".to_owned());
    let placed = Moment::PodPlaced {
        pod: pod.clone(),
        node: node.clone(),
        waited: Some(2500),
    };
    let expected = [
        Moment::PodWaits { pod: pod.clone() },
        placed,
        Moment::PodGone { pod, node },
    ];
    assert_eq!(moments(&mut model, 9000), expected);
}

#[test]
fn what_was_there_before_is_no_news() {
    let mut model = Model::default();
    model.apply(&pod("", "Pending"), 1000);
    assert_eq!(moments(&mut model, 1000), []);
    model.go_live();
    model.apply(&pod("", "Pending"), 2000);
    assert_eq!(model.tick(2000), None, "and what does not change is none either");
}

#[test]
fn nodes_come_fall_silent_are_cordoned_and_go() {
    let node = |ready: &str, cordoned: bool| {
        json!({"kind": "Node", "metadata": {"name": "n1"}, "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    let mut model = Model::default();
    model.go_live();
    model.apply(&node("True", false), 0);
    model.apply(&node("Unknown", true), 0);
    model.remove(&node("", false), 0);
    let node = || "n1".to_owned();
    let expected = [
        Moment::NodeAdded { node: node() },
        Moment::NodeReady {
            node: node(),
            ready: false,
        },
        Moment::NodeCordoned {
            node: node(),
            cordoned: true,
        },
        Moment::NodeGone { node: node() },
    ];
    assert_eq!(moments(&mut model, 0), expected);
}

#[test]
fn a_claim_gets_a_node_then_a_volume() {
    let claim = |node: &str, volume: &str, phase: &str| {
        json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop",
                "annotations": {"volume.kubernetes.io/selected-node": node}},
            "spec": {"volumeName": volume}, "status": {"phase": phase}})
    };
    let mut model = Model::default();
    model.go_live();
    model.apply(&claim("", "", "Pending"), 0);
    model.apply(&claim("n1", "", "Pending"), 0);
    model.apply(&json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}}), 0);
    model.apply(&claim("n1", "pv", "Bound"), 0);
    let (claim, volume) = ("shop/data".to_owned(), "pv".to_owned());
    let expected = [
        Moment::NodeSelected {
            claim: claim.clone(),
            node: "n1".to_owned(),
        },
        Moment::VolumeMade { volume: volume.clone() },
        Moment::ClaimBound { claim, volume },
    ];
    assert_eq!(moments(&mut model, 0), expected);
}

#[test]
fn rows_are_small_json_with_what_a_page_shows() {
    let mut model = Model::default();
    model.apply(&pod("n1", "Running"), 0);
    model.apply(
        &json!({"kind": "Node", "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "a"}},
            "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"}}}),
        0,
    );
    model.apply(
        &json!({"kind": "CSIStorageCapacity", "metadata": {"name": "cap", "namespace": "kube-system"}, "storageClassName": "fast",
            "capacity": "5Gi", "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": "a"}}}),
        0,
    );
    let tick = serde_json::to_value(model.tick(7).unwrap()).unwrap();
    let update = json!({
        "nodes": {"n1": {"zone": "a", "rack": "", "ready": true, "taints": ["k=v:NoSchedule"],
            "cpu": {"requested": 0, "allocatable": 2000}, "memory": {"requested": 0, "allocatable": 1 << 30},
            "pods": {"requested": 1, "allocatable": 110}}},
        "pods": {"shop/db-0": {"node": "n1", "phase": "Running", "created": "", "cpu": 0, "memory": 0}},
        "pools": {"CSIStorageCapacity/kube-system/cap/": {"class": "fast", "capacity": 5_i64 << 30, "place": {"zones": ["a"]}}},
    });
    assert_eq!(tick, json!({"number": 1, "at": 7, "update": update, "moments": []}));
}
