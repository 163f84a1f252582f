//! Whoever applies every update has what somebody sees who looks for the first time, whatever happened in between.
#![allow(clippy::unwrap_used)]

use berth_view::{History, Model, ROWS_MAX, State};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Something that happens to an object.
#[derive(Clone, Debug)]
enum Step {
    Applied(Value),
    Removed(Value),
    /// Somebody looks.
    Looked,
}

fn node() -> impl Strategy<Value = Value> {
    (0..3, 0..2, any::<bool>(), any::<bool>(), 0..3).prop_map(|(name, zone, ready, cordoned, cpu)| {
        let status = if ready { "True" } else { "Unknown" };
        json!({"kind": "Node", "metadata": {"name": format!("n{name}"), "labels": {"topology.kubernetes.io/zone": format!("z{zone}")}},
            "spec": {"unschedulable": cordoned}, "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": 10},
                "conditions": [{"type": "Ready", "status": status}]}})
    })
}

fn pod() -> impl Strategy<Value = Value> {
    let phase = prop::sample::select(vec!["", "Pending", "Running", "Succeeded", "Failed"]);
    (0..4, 0..4, phase, 0..3).prop_map(|(name, node, phase, cpu)| {
        // The last one is no node.
        let node = if node == 3 { String::new() } else { format!("n{node}") };
        json!({"kind": "Pod", "metadata": {"name": format!("p{name}"), "namespace": "ns"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": format!("c{name}")}}]},
            "status": {"phase": phase}})
    })
}

fn storage() -> impl Strategy<Value = Value> {
    let claim = (0..3, 0..3).prop_map(|(name, volume)| {
        json!({"kind": "PersistentVolumeClaim", "metadata": {"name": format!("c{name}"), "namespace": "ns"},
            "spec": {"volumeName": format!("pv{volume}")}, "status": {"phase": "Bound"}})
    });
    let volume = (0..3, 1..3).prop_map(|(name, size)| {
        json!({"kind": "PersistentVolume", "metadata": {"name": format!("pv{name}")},
            "spec": {"capacity": {"storage": format!("{size}Gi")}}})
    });
    // One of the names begins with the other.
    let driver = (prop::sample::select(vec!["d", "d.x"]), vec(0..3, 0..3)).prop_map(|(name, pools)| {
        let pools: Vec<Value> = pools
            .iter()
            .map(|pool| json!({"name": format!("pool{pool}"), "capacity": format!("{pool}Gi"), "nodeList": ["n0"]}))
            .collect();
        json!({"kind": "CSIDriver", "metadata": {"name": name}, "status": {"storage": [{"storageClassName": "s", "pools": pools}]}})
    });
    let limits = (0..3, 0..3).prop_map(|(name, count)| {
        json!({"kind": "CSINode", "metadata": {"name": format!("n{name}")},
            "spec": {"drivers": [{"name": "d", "allocatable": {"count": count}}]}})
    });
    let workload = (0..2, any::<bool>()).prop_map(|(replicas, owned)| {
        let owners = if owned {
            json!([{"kind": "Deployment", "name": "d", "controller": true}])
        } else {
            json!([])
        };
        json!({"kind": "ReplicaSet", "metadata": {"name": "r", "namespace": "ns", "ownerReferences": owners},
            "spec": {"replicas": replicas}})
    });
    prop_oneof![claim, volume, driver, limits, workload]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let object = || prop_oneof![node(), pod(), storage()];
    let step = prop_oneof![
        6 => object().prop_map(Step::Applied),
        2 => object().prop_map(Step::Removed),
        1 => Just(Step::Looked),
    ];
    vec(step, 0..60)
}

fn name(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn updates_lead_where_a_first_look_does(steps in steps()) {
        let (mut model, mut shown) = (Model::default(), State::default());
        let mut history = History::default();
        let mut objects: BTreeMap<String, Value> = BTreeMap::new();
        model.go_live();
        for (now, step) in (0..).zip(steps.into_iter().chain([Step::Looked])) {
            match step {
                Step::Applied(object) => {
                    model.apply(&object, now);
                    objects.insert(name(&object), object);
                }
                Step::Removed(object) => {
                    model.remove(&object, now);
                    objects.remove(&name(&object));
                }
                Step::Looked => {
                    if let Some(tick) = model.tick(now) {
                        shown.apply(&tick.update);
                        history.push(tick);
                    }
                    prop_assert_eq!(&shown, model.state());
                }
            }
        }
        let mut fresh = Model::default();
        objects.values().rev().for_each(|object| fresh.apply(object, 0));
        prop_assert_eq!(fresh.state(), &shown);
        prop_assert_eq!(history.state_after(history.ticks().len()), shown);
    }
}

#[test]
fn a_long_history_forgets_its_beginning_and_still_ends_well() {
    let (mut model, mut history) = (Model::default(), History::default());
    for now in 0..i64::try_from(ROWS_MAX / 2).unwrap() + 10 {
        for name in ["a", "b"] {
            let cpu = now % 7;
            model.apply(
                &json!({"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}),
                now,
            );
        }
        history.push(model.tick(now).unwrap());
    }
    let rows: usize = history.ticks().map(|tick| tick.update.len()).sum();
    assert!(rows <= ROWS_MAX, "{rows}");
    assert_eq!(&history.state_after(history.ticks().len()), model.state());
    let first = history.ticks().next().unwrap();
    assert!(first.number > 1, "the beginning is forgotten");
    assert_eq!(history.state_after(0).nodes.len(), 2, "but what it led to is not");
}
