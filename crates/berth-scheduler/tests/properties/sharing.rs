//! Equivalent pods share their verdicts without any visible effect: whatever is added, changed, deleted or placed in
//! between, a decision is the same as without cached verdicts.

use super::{as_pod, check_decision, cluster_of, profile};
use crate::objects::{objects, pod};
use berth_core::api::{Kind, Object};
use berth_scheduler::cluster::Cluster;
use berth_scheduler::decide::{Decision, Scratch, decide};
use berth_scheduler::examine::examine;
use berth_scheduler::profile::Profile;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use std::num::NonZero;

pub(crate) fn decoded(value: &Value) -> Object {
    let object = Object::decode(value).unwrap_or_else(|error| panic!("{error}: {value}"));
    object.expect("the kind is known")
}

/// A volume that claims may use: on one of some nodes, in a zone, or anywhere.
fn free_volume(nodes: usize) -> impl Strategy<Value = Object> {
    let place = prop_oneof![
        4 => (0..nodes).prop_map(|node| Some(("kubernetes.io/hostname", format!("n{node}")))),
        1 => select(&["a", "b"][..]).prop_map(|zone| Some(("topology.kubernetes.io/zone", zone.to_owned()))),
        1 => Just(None),
    ];
    let phase = select(&["Available", "Available", "Available", "Released"][..]);
    (0..nodes + 2, place, 1..5_u32, phase).prop_map(|(index, place, size, phase)| {
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("free{index}")},
            "spec": {"capacity": {"storage": format!("{size}Gi")}, "accessModes": ["ReadWriteOnce"],
                     "storageClassName": "local", "local": {"path": "/d"}},
            "status": {"phase": phase},
        });
        if let Some((key, value)) = place {
            let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
        }
        decoded(&volume)
    })
}

/// A claim that waits for its pod.
fn open_claim() -> impl Strategy<Value = Object> {
    (6..10_usize, 1..5_u32, select(&["local", "local", "late"][..])).prop_map(|(index, size, class)| {
        decoded(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("c{index}"), "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "resources": {"requests": {"storage": format!("{size}Gi")}}},
        }))
    })
}

fn class() -> impl Strategy<Value = Object> {
    let topologies = select(vec![
        json!([]),
        json!([{"matchLabelExpressions": [{"key": "rack", "values": ["r1"]}]}]),
    ]);
    prop_oneof![
        Just(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
                    "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
        ),
        topologies.prop_map(
            |topologies| json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
                    "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
                    "allowedTopologies": topologies})
        ),
    ]
    .prop_map(|class| decoded(&class))
}

/// The capacity that a driver reports.
fn capacity() -> impl Strategy<Value = Object> {
    let driver = any::<bool>().prop_map(|publishes| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
               "spec": {"storageCapacity": publishes}})
    });
    let published = (0..3_usize, select(&["r1", "r2"][..]), 1..6_u32).prop_map(|(index, rack, size)| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
               "metadata": {"name": format!("cap{index}"), "namespace": "default"}, "storageClassName": "late",
               "nodeTopology": {"matchLabels": {"rack": rack}}, "capacity": format!("{size}Gi")})
    });
    prop_oneof![1 => driver, 2 => published].prop_map(|object| decoded(&object))
}

/// One of a few similar pods, with its own or shared claims.
fn replica() -> impl Strategy<Value = Object> {
    let alike = (select(&["500m", "1"][..]), proptest::collection::vec(6..10_usize, 0..3)).prop_map(|(cpu, claims)| {
        let volumes: Vec<_> = claims
            .iter()
            .enumerate()
            .map(|(index, claim)| {
                json!({"name": format!("v{index}"), "persistentVolumeClaim": {"claimName": format!("c{claim}")}})
            })
            .collect();
        decoded(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "replica", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "app1", "resources": {"requests": {"cpu": cpu}}}],
                     "volumes": volumes},
        }))
    });
    prop_oneof![3 => alike, 1 => pod("replica".to_owned(), false)]
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Upsert(Object),
    /// One of the objects of another cluster.
    Change(Index),
    Remove(Index),
    Decide(Object),
}

/// A step on a cluster of six nodes.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    step_among(6)
}

fn step_among(nodes: usize) -> impl Strategy<Value = Step> {
    let object = prop_oneof![4 => free_volume(nodes), 3 => open_claim(), 1 => class(), 1 => capacity()];
    prop_oneof![
        3 => object.prop_map(Step::Upsert),
        2 => any::<Index>().prop_map(Step::Change),
        1 => any::<Index>().prop_map(Step::Remove),
        6 => replica().prop_map(Step::Decide),
    ]
}

/// More nodes than one row of cached scores has, of a few sizes, most with a volume of their own.
fn many_nodes() -> impl Strategy<Value = Vec<Object>> {
    let node = (
        1..4_u32,
        1..3_u32,
        select(&["a", "b"][..]),
        select(&["r1", "r2"][..]),
        0..6_u32,
        any::<bool>(),
    );
    let nodes = proptest::collection::vec(node, 65..200);
    nodes.prop_map(|nodes| {
        let numbered = nodes.into_iter().enumerate();
        let objects = numbered.flat_map(|(index, (cpu, pods, zone, rack, disk, tainted))| {
            let name = format!("n{index}");
            let taints = if tainted && index % 16 == 0 {
                json!([{"key": "gpu", "effect": "PreferNoSchedule"}])
            } else {
                json!([])
            };
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {
                    "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "rack": rack}},
                "spec": {"taints": taints},
                "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": pods}},
            });
            let term =
                json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]});
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("disk{index}")},
                "spec": {"capacity": {"storage": format!("{disk}Gi")}, "accessModes": ["ReadWriteOnce"],
                         "storageClassName": "local", "local": {"path": "/d"},
                         "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
                "status": {"phase": "Available"},
            });
            [Some(node), (disk > 0).then_some(volume)].into_iter().flatten()
        });
        objects.map(|object| decoded(&object)).collect()
    })
}

/// The classes of the claims, and claims that wait.
fn classes_and_claims() -> impl Strategy<Value = Vec<Object>> {
    (
        proptest::collection::vec(class(), 4),
        proptest::collection::vec(open_claim(), 4..8),
    )
        .prop_map(|(classes, claims)| classes.into_iter().chain(claims).collect())
}

/// Places a pod like a scheduler.
fn assume(cluster: &mut Cluster, pod: &berth_scheduler::pod::Pod, decision: &Decision) {
    let Decision::Place(placement) = decision else {
        return;
    };
    let assumption = cluster.assume_volumes(placement.node, &placement.volumes);
    assumption.expect("nothing changed since").keep();
    let _ = cluster.assume_pod(pod, placement.node);
}

fn check(before: &[Object], other: &[Object], steps: &[Step], profile: &Profile) -> Result<(), TestCaseError> {
    let mut cluster = cluster_of(before);
    let mut known: Vec<(Kind, String, String)> = Vec::new();
    let name = |object: &Object| {
        let metadata = object.metadata();
        (object.kind(), metadata.namespace.clone(), metadata.name.clone())
    };
    known.extend(before.iter().map(name));
    let mut scratch = Scratch::new(1);
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Upsert(object) => {
                known.push(name(object));
                cluster.upsert(object);
            }
            Step::Change(index) => {
                let object = index.get(other);
                known.push(name(object));
                cluster.upsert(object);
            }
            Step::Remove(index) => {
                let (kind, namespace, name) = index.get(&known);
                cluster.remove(*kind, namespace, name);
            }
            Step::Decide(object) => {
                let mut pod = as_pod(object).clone();
                pod.metadata.name = format!("replica-{number}");
                let pod = cluster.compile(&pod);
                let (mut without, mut alone) = (cluster.clone(), scratch.clone());
                alone.forget_verdicts(&mut without);
                let expected = decide(&mut without, &pod, profile, &mut alone);
                let decision = decide(&mut cluster, &pod, profile, &mut scratch);
                prop_assert_eq!(&decision, &expected, "step {}", number);
                if profile.percentage_of_nodes_to_score.is_none() {
                    // Each node by itself.
                    check_decision(&decision, &examine(&mut without, &pod, profile))?;
                }
                assume(&mut cluster, &pod, &decision);
                cluster.release(&pod);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// With and without cached verdicts: the same node, the same total, the same reasons.
    #[test]
    fn sharing_changes_no_decision(
        before in objects(),
        other in objects(),
        steps in proptest::collection::vec(step(), 1..40),
        scoring: bool,
        percentage in proptest::option::of(1..100_u8),
    ) {
        let mut profile = if scoring { profile() } else { Profile::default() };
        profile.percentage_of_nodes_to_score = percentage.and_then(NonZero::new);
        check(&before, &other, &steps, &profile)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Cached scores are kept in rows of 64 nodes with the best of each: the same holds for several rows, and on their borders.
    #[test]
    fn sharing_changes_no_decision_among_many_nodes(
        nodes in many_nodes(),
        others in many_nodes(),
        claims in classes_and_claims(),
        steps in proptest::collection::vec(step_among(200), 20..60),
        scoring: bool,
    ) {
        let profile = if scoring { profile() } else { Profile::default() };
        let before: Vec<Object> = claims.into_iter().chain(nodes).collect();
        check(&before, &others, &steps, &profile)?;
    }
}
