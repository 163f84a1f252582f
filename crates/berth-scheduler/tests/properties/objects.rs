//! Small random clusters in which everything is scarce, so that every plugin refuses something.

use berth_core::api::Object;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";

fn decoded(value: &Value) -> Object {
    let object = Object::decode(value).unwrap_or_else(|error| panic!("{error}: {value}"));
    object.expect("the kind is known")
}

/// An optional one of some values.
fn maybe(values: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    proptest::option::weighted(0.75, select(values))
}

fn taint() -> impl Strategy<Value = Value> {
    let effect = select(&["NoSchedule", "PreferNoSchedule", "NoExecute"][..]);
    (select(&["gpu", "spot"][..]), select(&["", "x"][..]), effect)
        .prop_map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
}

fn node(index: usize) -> impl Strategy<Value = Object> {
    let labels = (
        maybe(&["a", "b"]),
        maybe(&["a", "b"]),
        maybe(&["r1", "r2"]),
        proptest::bool::weighted(0.9),
    );
    let taints = prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(taint(), 1..3)];
    let sizes = (1..9_u32, 1..9_u32, 2..7_u32, 0..4_u32);
    (labels, taints, sizes, proptest::bool::weighted(0.1)).prop_map(
        move |((zone, zone_beta, rack, host), taints, (cpu, memory, pods, gpus), cordoned)| {
            let name = format!("n{index}");
            let mut labels = json!({});
            for (key, value) in [
                (ZONE, zone),
                (ZONE_BETA, zone_beta),
                ("rack", rack),
                (HOSTNAME, host.then_some(name.as_str())),
            ] {
                if let Some(value) = value {
                    labels[key] = json!(value);
                }
            }
            decoded(&json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                "spec": {"taints": taints, "unschedulable": cordoned},
                "status": {
                    "allocatable": {"cpu": cpu, "memory": format!("{memory}Gi"), "pods": pods, "example.com/gpu": gpus},
                    "images": [{"names": [format!("app{}:latest", cpu % 2)], "sizeBytes": 500_000_000}],
                },
            }))
        },
    )
}

fn csi_node(index: usize) -> impl Strategy<Value = Object> {
    (0..3_u32, any::<bool>()).prop_map(move |(count, limited)| {
        let allocatable = if limited { json!({"count": count}) } else { json!({}) };
        decoded(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": format!("n{index}")},
            "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "x", "topologyKeys": [], "allocatable": allocatable}]},
        }))
    })
}

fn label_selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(&["x", "y"][..]).prop_map(|app| json!({"matchLabels": {"app": app}})),
        select(&["Exists", "DoesNotExist"][..])
            .prop_map(|operator| json!({"matchExpressions": [{"key": "tier", "operator": operator}]})),
        select(&["In", "NotIn"][..]).prop_map(
            |operator| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": ["x", "z"]}]})
        ),
        Just(json!({})),
        Just(Value::Null),
    ]
}

fn topology_key() -> impl Strategy<Value = &'static str> {
    select(&[HOSTNAME, ZONE, "rack"][..])
}

fn pod_term() -> impl Strategy<Value = Value> {
    let namespaces = select(vec![vec![], vec!["default"], vec!["default", "other"]]);
    let namespace_selector = prop_oneof![
        3 => Just(Value::Null),
        1 => Just(json!({})),
        1 => Just(json!({"matchLabels": {"team": "a"}})),
    ];
    (label_selector(), topology_key(), namespaces, namespace_selector).prop_map(
        |(selector, key, namespaces, namespace_selector)| {
            json!({"labelSelector": selector, "topologyKey": key, "namespaces": namespaces,
                   "namespaceSelector": namespace_selector})
        },
    )
}

fn pod_affinity() -> impl Strategy<Value = Value> {
    let weighted =
        (1..100_u32, pod_term()).prop_map(|(weight, term)| json!({"weight": weight, "podAffinityTerm": term}));
    (
        proptest::collection::vec(pod_term(), 0..2),
        proptest::collection::vec(weighted, 0..2),
    )
        .prop_map(|(required, preferred)| {
            json!({"requiredDuringSchedulingIgnoredDuringExecution": required,
                   "preferredDuringSchedulingIgnoredDuringExecution": preferred})
        })
}

fn node_affinity() -> impl Strategy<Value = Value> {
    let term = prop_oneof![
        Just(json!({"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]})),
        Just(json!({"matchExpressions": [{"key": ZONE, "operator": "Exists"}]})),
        Just(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})),
    ];
    (term.clone(), term, any::<bool>()).prop_map(|(required, preferred, both)| {
        let preferred = json!([{"weight": 7, "preference": preferred}]);
        match both {
            true => json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [required]},
                           "preferredDuringSchedulingIgnoredDuringExecution": preferred}),
            false => json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred}),
        }
    })
}

fn spread_constraint() -> impl Strategy<Value = Value> {
    let action = select(&["DoNotSchedule", "ScheduleAnyway"][..]);
    let policies = (maybe(&["Honor", "Ignore"]), maybe(&["Honor", "Ignore"]));
    (
        topology_key(),
        1..3_u32,
        action,
        label_selector(),
        proptest::option::of(1..4_u32),
        policies,
    )
        .prop_map(|(key, skew, action, selector, domains, (affinity, taints))| {
            json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action, "labelSelector": selector,
                   "minDomains": domains, "nodeAffinityPolicy": affinity, "nodeTaintsPolicy": taints,
                   "matchLabelKeys": ["tier"]})
        })
}

fn volume() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0..6_u32).prop_map(|claim| json!({"persistentVolumeClaim": {"claimName": format!("c{claim}")}})),
        1 => any::<bool>().prop_map(|read| json!({"gcePersistentDisk": {"pdName": "pd", "readOnly": read}})),
        1 => Just(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})),
        1 => any::<bool>().prop_map(
            |read| json!({"rbd": {"monitors": ["m1", "m2"], "pool": "p", "image": "i", "readOnly": read}})
        ),
    ]
}

fn volumes() -> impl Strategy<Value = Value> {
    proptest::collection::vec(volume(), 0..3).prop_map(|volumes| {
        let named = volumes.into_iter().enumerate().map(|(index, mut volume)| {
            volume["name"] = json!(format!("v{index}"));
            volume
        });
        named.collect()
    })
}

fn container() -> impl Strategy<Value = Value> {
    let port = (select(&[80, 443][..]), select(&["", "10.0.0.1"][..]));
    let port = port.prop_map(|(port, ip)| json!([{"containerPort": port, "hostPort": port, "hostIP": ip}]));
    let ports = prop_oneof![3 => Just(json!([])), 1 => port];
    (0..1500_u32, 0..2_u32, 0..2_u32, 0..3_usize, ports).prop_map(|(cpu, memory, gpus, image, ports)| {
        json!({"name": "main", "image": format!("app{image}"), "ports": ports, "resources": {"requests": {
            "cpu": format!("{cpu}m"), "memory": format!("{memory}Gi"), "example.com/gpu": gpus}}})
    })
}

/// A pod; on a node if `running`, which may not exist.
pub(crate) fn pod(name: String, running: bool) -> impl Strategy<Value = Object> {
    let identity = (
        select(&["default", "default", "other"][..]),
        maybe(&["x", "y", "z"]),
        maybe(&["web"]),
        proptest::bool::weighted(0.1),
    );
    let near = (
        proptest::option::of(pod_affinity()),
        proptest::option::of(pod_affinity()),
        proptest::option::of(node_affinity()),
    );
    let tolerations = select(vec![
        vec![],
        vec![("", "Exists")],
        vec![("gpu", "Exists")],
        vec![("spot", "Equal")],
    ]);
    let spread = proptest::collection::vec(spread_constraint(), 0..3);
    (identity, container(), near, tolerations, spread, volumes(), 0..7_usize).prop_map(
        move |(
            (namespace, app, tier, deleting),
            container,
            (affinity, anti, nodes),
            tolerations,
            spread,
            volumes,
            node,
        )| {
            let mut metadata = json!({"name": name, "namespace": namespace, "uid": name});
            for (key, value) in [("app", app), ("tier", tier)] {
                if let Some(value) = value {
                    metadata["labels"][key] = json!(value);
                }
            }
            if deleting && running {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let tolerations = tolerations
                .iter()
                .map(|(key, operator)| json!({"key": key, "operator": operator}));
            let mut spec = json!({
                "containers": [container], "volumes": volumes, "topologySpreadConstraints": spread,
                "tolerations": tolerations.collect::<Vec<_>>(),
                "affinity": {"podAffinity": affinity, "podAntiAffinity": anti, "nodeAffinity": nodes},
            });
            if running {
                spec["priority"] = json!(name.len() as i32 + node as i32 * 2 - 4);
                spec["nodeName"] = json!(format!("n{node}"));
            }
            decoded(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
        },
    )
}

/// A claim, usually with its volume.
fn claim(index: usize) -> impl Strategy<Value = Vec<Object>> {
    let mode = select(&["ReadWriteOnce", "ReadWriteOncePod"][..]);
    (
        mode,
        any::<bool>(),
        maybe(&["a", "a__b"]),
        proptest::bool::weighted(0.9),
        0..4_u32,
    )
        .prop_map(move |(mode, bound, zone, exists, handle)| {
            let volume = format!("pv{index}");
            let mut claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": format!("c{index}"), "namespace": "default"},
                "spec": {"accessModes": [mode], "storageClassName": "late",
                         "resources": {"requests": {"storage": "1Gi"}}},
            });
            if bound {
                claim["spec"]["volumeName"] = json!(volume);
                claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            }
            let mut labels = json!({});
            if let Some(zone) = zone {
                labels[ZONE] = json!(zone);
                labels[ZONE_BETA] = json!(zone);
            }
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume, "labels": labels},
                "spec": {"capacity": {"storage": "1Gi"}, "accessModes": [mode], "storageClassName": "late",
                         "csi": {"driver": "disk.example.com", "volumeHandle": format!("h{handle}")}},
                "status": {"phase": "Bound"},
            });
            let objects = [claim, volume].iter().map(decoded).collect::<Vec<_>>();
            objects.into_iter().take(if exists { 2 } else { 1 }).collect()
        })
}

fn attachment(index: usize) -> impl Strategy<Value = Object> {
    (0..6_usize, 0..6_usize).prop_map(move |(volume, node)| {
        decoded(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": format!("va{index}")},
            "spec": {"attacher": "disk.example.com", "nodeName": format!("n{node}"),
                     "source": {"persistentVolumeName": format!("pv{volume}")}},
        }))
    })
}

fn fixed() -> Vec<Object> {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "a"}}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
               "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
               "spec": {"selector": {"matchLabels": {"tier": "web"}}}, "status": {"disruptionsAllowed": 1}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"},
               "spec": {"selector": {"app": "x"}}}),
    ]
    .iter()
    .map(decoded)
    .collect()
}

/// The objects of a cluster of up to six nodes.
pub(crate) fn objects() -> impl Strategy<Value = Vec<Object>> {
    let nodes: Vec<_> = (0..6)
        .map(|index| proptest::option::weighted(0.8, node(index)))
        .collect();
    let csi_nodes: Vec<_> = (0..6)
        .map(|index| proptest::option::weighted(0.7, csi_node(index)))
        .collect();
    let pods: Vec<_> = (0..8)
        .map(|index| proptest::option::weighted(0.7, pod(format!("p{index}"), true)))
        .collect();
    let claims: Vec<_> = (0..6)
        .map(|index| proptest::option::weighted(0.9, claim(index)))
        .collect();
    let attachments: Vec<_> = (0..3).map(|index| proptest::option::of(attachment(index))).collect();
    (nodes, csi_nodes, pods, claims, attachments).prop_map(|(nodes, csi_nodes, pods, claims, attachments)| {
        let single = nodes
            .into_iter()
            .chain(csi_nodes)
            .chain(pods)
            .chain(attachments)
            .flatten();
        let claims = claims.into_iter().flatten().flatten();
        single.chain(claims).chain(fixed()).collect()
    })
}

/// A pod that is to be placed.
pub(crate) fn target() -> impl Strategy<Value = Object> {
    pod("target".to_owned(), false)
}
