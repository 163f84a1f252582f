//! The cluster summed up.
#![allow(clippy::unwrap_used)]

use berth_view::{Model, Overview, Storage};
use serde_json::{Value, json};

fn overview(objects: &[Value]) -> Overview {
    let mut model = Model::default();
    for object in objects {
        model.apply(object, 0);
    }
    Overview::of(model.state())
}

fn node(name: &str, zone: &str, rack: &str) -> Value {
    let labels = json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/rack": rack, "kubernetes.io/hostname": name});
    json!({"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})
}

fn volume(name: &str, labels: &[(&str, &[&str])], claim: &str) -> Value {
    let expressions: Vec<Value> = labels
        .iter()
        .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}))
        .collect();
    let mut volume = json!({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"capacity": {"storage": "10"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}});
    if !claim.is_empty() {
        volume["spec"]["claimRef"] = json!({"namespace": "shop", "name": claim});
    }
    volume
}

fn claim(name: &str, volume: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"volumeName": volume, "resources": {"requests": {"storage": "7"}}}, "status": {"phase": "Bound"}})
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const RACK: &str = "topology.kubernetes.io/rack";

#[test]
fn volumes_count_where_they_can_be_used() {
    let overview = overview(&[
        node("n1", "a", "r1"),
        node("n2", "a", "r1"),
        node("n3", "b", "r1"),
        volume("local", &[(HOST, &["n1"])], "bound"),
        claim("bound", "local"),
        volume("rack", &[(ZONE, &["a"]), (RACK, &["r1"])], ""),
        volume("zone", &[(ZONE, &["b"])], "reserved"),
        volume("two", &[(ZONE, &["a", "b"])], ""),
        volume("gone", &[(HOST, &["n9"])], ""),
    ]);
    let free = |count: usize| Storage {
        free: 10 * i64::try_from(count).unwrap(),
        free_volumes: count,
        ..Storage::default()
    };
    let bound = Storage {
        asked: 7,
        used: 10,
        ..Storage::default()
    };
    let (a, b) = (&overview.zones["a"], &overview.zones["b"]);
    assert_eq!(a.racks["r1"].nodes["n1"].volumes, bound);
    assert_eq!(a.racks["r1"].nodes["n2"].volumes, Storage::default());
    assert_eq!(
        a.sum.volumes,
        Storage {
            asked: 7,
            used: 10,
            ..free(1)
        }
    );
    assert_eq!(
        b.sum.volumes,
        Storage {
            used: 10,
            ..Storage::default()
        },
        "reserved, and nothing is asked for yet"
    );
    assert_eq!(overview.shared, free(2), "of two zones, and of a node that is gone");
    assert_eq!(
        overview.total.volumes,
        Storage {
            asked: 7,
            used: 20,
            ..free(3)
        }
    );
    assert_eq!(
        (a.sum.nodes, overview.total.nodes, overview.total.cpu.allocatable),
        (2, 3, 12_000)
    );
    assert_eq!(overview.claims, (1, 1));
}

#[test]
fn pods_with_the_most_frequent_reason_come_first() {
    let pod = |name: &str, message: &str, claim: &str| {
        let condition = json!({"type": "PodScheduled", "status": "False", "message": message});
        let volumes = match claim {
            "" => json!([]),
            claim => json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]),
        };
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {"volumes": volumes},
            "status": {"phase": "Pending", "conditions": [condition]}})
    };
    let overview = overview(&[
        pod("a", "no room", ""),
        pod("b", "", "missing"),
        pod("c", "", ""),
        pod("d", "", ""),
        claim("there", ""),
        json!({"kind": "Pod", "metadata": {"name": "e", "namespace": "shop"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}),
    ]);
    let told: Vec<(&str, &str)> = overview.waiting.iter().map(|pod| (&*pod.name, &*pod.reason)).collect();
    let expected = [
        ("shop/c", "not tried yet"),
        ("shop/d", "not tried yet"),
        ("shop/a", "no room"),
        ("shop/b", "waiting for claim shop/missing"),
    ];
    assert_eq!(told, expected);
    assert_eq!(overview.placed, 1);
}
