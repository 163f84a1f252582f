//! Whatever happens in whatever order: no pod sleeps that would fit.
//!
//! A pod in the unschedulable state waits for an event that could help it. If one was missed, it sleeps until it is
//! retried after minutes. After every event, when the scheduler is idle, every sleeping pod is therefore examined: none
//! may fit.

use crate::world::{World, named};
use berth_core::api::Kind;
use berth_core::names;
use berth_testing::{Fault, Manifest, capacity, claim, class, local_class, node, pod, sized, volume};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An event.
#[derive(Clone, Debug)]
enum Happening {
    Create(usize),
    Delete(usize),
    Taint(usize, bool),
    Cordon(usize, bool),
    Zone(usize, &'static str),
    Disk(usize, bool),
    Cpu(usize, u32),
    Finish(usize),
    /// A pod is being deleted with a grace period.
    Terminate(usize),
    Relabel(usize, &'static str),
    Team(bool),
    Controller(bool),
    Kubelet(bool),
    Faults(Vec<Fault>),
    Restart,
}

const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn happening() -> impl Strategy<Value = Happening> {
    let fault = prop_oneof![
        2 => Just(Fault::None),
        1 => Just(Fault::Conflict),
        1 => Just(Fault::Refused),
    ];
    let objects = objects().len();
    let node = || 0..NODES.len();
    prop_oneof![
        14 => (0..objects).prop_map(Happening::Create),
        6 => (0..objects).prop_map(Happening::Delete),
        2 => (node(), any::<bool>()).prop_map(|(node, on)| Happening::Taint(node, on)),
        2 => (node(), any::<bool>()).prop_map(|(node, on)| Happening::Cordon(node, on)),
        1 => (node(), prop_oneof![Just("a"), Just("b"), Just("")]).prop_map(|(node, zone)| Happening::Zone(node, zone)),
        1 => (node(), any::<bool>()).prop_map(|(node, on)| Happening::Disk(node, on)),
        1 => (node(), prop_oneof![Just(2), Just(4), Just(8)]).prop_map(|(node, cpu)| Happening::Cpu(node, cpu)),
        2 => (0..objects).prop_map(Happening::Finish),
        2 => (0..objects).prop_map(Happening::Terminate),
        1 => (0..objects, prop_oneof![Just("web"), Just("away"), Just("none")])
            .prop_map(|(pod, app)| Happening::Relabel(pod, app)),
        1 => any::<bool>().prop_map(Happening::Team),
        1 => any::<bool>().prop_map(Happening::Controller),
        1 => any::<bool>().prop_map(Happening::Kubelet),
        1 => proptest::collection::vec(fault, 1..5).prop_map(Happening::Faults),
        1 => Just(Happening::Restart),
    ]
}

fn labelled(mut pod: Value, app: &str) -> Value {
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

fn spread(mut pod: Value, key: &str, more: &Value) -> Value {
    let app = pod["metadata"]["labels"]["app"].clone();
    let mut constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        constraint[field] = value.clone();
    }
    pod["spec"]["topologySpreadConstraints"] = json!([constraint]);
    pod
}

fn affine(mut pod: Value, side: &str, app: &str, key: &str) -> Value {
    pod["spec"]["affinity"][side] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}]});
    pod
}

fn with_port(mut pod: Value) -> Value {
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    pod
}

/// A bound CSI volume, its claim, and a pod that uses it.
fn attached(name: &str, node: &str) -> [Value; 3] {
    let data = format!("data-{name}");
    let mut disk = volume(&format!("disk-{name}"), "fast", 10).on(node);
    disk["spec"]["local"] = Value::Null;
    disk["spec"]["csi"] = json!({"driver": "disk.example.com", "volumeHandle": name});
    disk["spec"]["claimRef"] = json!({"namespace": "default", "name": data, "uid": format!("uid-of-{data}")});
    disk["status"]["phase"] = json!("Bound");
    let mut bound = claim(&data, "fast", 5);
    bound["metadata"]["uid"] = json!(format!("uid-of-{data}"));
    bound["spec"]["volumeName"] = disk["metadata"]["name"].clone();
    bound["metadata"]["annotations"] = json!({names::BIND_COMPLETED: "yes"});
    [disk, bound, pod(name, &[&data])]
}

fn volumes() -> Vec<Value> {
    let alone = |mut object: Value| {
        object["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        object
    };
    let mut objects = vec![
        local_class(),
        class("fast", "disk.example.com"),
        class("slow", "slow.example.com"),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "slow.example.com"},
               "spec": {"storageCapacity": true}}),
        capacity("slow", "slow", 10).on("n1"),
        volume("pv1", "local", 10).on("n1"),
        volume("pv2", "local", 20).on("n2"),
        alone(volume("pv3", "local", 10).on("n2")),
        claim("a", "local", 5),
        claim("b", "local", 15),
        claim("c", "fast", 5),
        claim("d", "slow", 8),
        alone(claim("alone", "local", 5)),
    ];
    objects.extend(attached("first", "n1"));
    objects.extend(attached("second", "n1"));
    let limited = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "x", "allocatable": {"count": 1}}]}});
    objects.push(limited);
    objects
}

/// The objects that are created and deleted: first the nodes, then what pods use, then pods.
fn objects() -> Vec<Value> {
    let zoned = |name: &str, zone: &str| {
        let mut node = node(name);
        node["metadata"]["labels"][names::ZONE] = json!(zone);
        node
    };
    let mut objects = vec![zoned("n1", "a"), zoned("n2", "b"), zoned("n3", "b")];
    objects.extend(volumes());
    let web = |name: &str| labelled(sized(name, 1), "web");
    let mut picky = labelled(pod("picky", &[]), "web");
    picky["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    let mut of_team = affine(pod("of-team", &[]), "podAffinity", "web", names::ZONE);
    of_team["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] =
        json!({"matchLabels": {"team": "x"}});
    objects.extend([
        pod("uses-a", &["a"]),
        pod("uses-a-and-b", &["a", "b"]),
        pod("uses-b-and-c", &["b", "c"]),
        pod("uses-c", &["c"]),
        pod("uses-d", &["d"]),
        pod("alone-1", &["alone"]),
        pod("alone-2", &["alone"]),
        spread(web("spread-1"), names::HOSTNAME, &json!({})),
        spread(web("spread-2"), names::HOSTNAME, &json!({})),
        spread(web("spread-3"), names::ZONE, &json!({"nodeTaintsPolicy": "Honor"})),
        spread(web("spread-4"), names::ZONE, &json!({"minDomains": 2})),
        affine(labelled(sized("near", 1), "near"), "podAffinity", "web", names::ZONE),
        affine(labelled(pod("self", &[]), "self"), "podAffinity", "self", names::ZONE),
        affine(labelled(pod("self-2", &[]), "self"), "podAffinity", "self", names::ZONE),
        affine(
            labelled(pod("away-1", &[]), "away"),
            "podAntiAffinity",
            "away",
            names::ZONE,
        ),
        affine(
            labelled(pod("away-2", &[]), "away"),
            "podAntiAffinity",
            "away",
            names::HOSTNAME,
        ),
        affine(
            labelled(sized("shuns", 1).priority(5), "none"),
            "podAntiAffinity",
            "web",
            names::ZONE,
        ),
        of_team,
        picky,
        with_port(pod("port-1", &[])),
        with_port(labelled(pod("port-2", &[]), "web")),
        sized("large-1", 3),
        labelled(sized("large-2", 3).priority(3), "web"),
        sized("urgent-1", 4).priority(10),
        affine(
            labelled(sized("urgent-2", 3).priority(20), "away"),
            "podAntiAffinity",
            "away",
            names::ZONE,
        ),
        labelled(sized("fixed-1", 2), "web").on("n1"),
        labelled(sized("fixed-2", 2), "away").on("n2"),
        with_port(pod("fixed-3", &["alone"])).on("n3"),
    ]);
    objects
}

fn happen(world: &mut World, objects: &[Value], happening: Happening) {
    let edit = |world: &mut World, kind: Kind, name: &str, change: &dyn Fn(&mut Value)| {
        if world.api.get(kind, name).is_some() {
            world.api.edit(kind, name, change);
        }
    };
    let edit_running = |world: &mut World, index: usize, change: &dyn Fn(&mut Value)| {
        world.edit_if(Kind::Pod, &objects[index], |pod| {
            if pod["spec"]["nodeName"].is_string() {
                change(pod);
            }
        });
    };
    match happening {
        Happening::Create(index) => world.create_if_absent(&objects[index]),
        Happening::Delete(index) => world.delete(&objects[index]),
        Happening::Taint(node, on) => edit(world, Kind::Node, NODES[node], &|node| {
            let taints = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
            node["spec"]["taints"] = if on { taints } else { Value::Null };
        }),
        Happening::Cordon(node, on) => edit(world, Kind::Node, NODES[node], &|node| {
            node["spec"]["unschedulable"] = json!(on);
        }),
        Happening::Zone(node, zone) => edit(world, Kind::Node, NODES[node], &|node| {
            if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
                labels.remove(names::ZONE);
                if !zone.is_empty() {
                    labels.insert(names::ZONE.to_owned(), json!(zone));
                }
            }
        }),
        Happening::Disk(node, ssd) => edit(world, Kind::Node, NODES[node], &|node| {
            node["metadata"]["labels"]["disk"] = json!(if ssd { "ssd" } else { "tape" });
        }),
        Happening::Cpu(node, cpu) => edit(world, Kind::Node, NODES[node], &|node| {
            node["status"]["allocatable"]["cpu"] = json!(cpu.to_string());
        }),
        Happening::Finish(index) => edit_running(world, index, &|pod| pod["status"]["phase"] = json!("Succeeded")),
        Happening::Terminate(index) => {
            let (kind, name) = named(&objects[index]);
            if kind == Kind::Pod && !world.api.node_of(&name).is_empty() {
                world.api.start_deletion(kind, &name);
            }
        }
        Happening::Relabel(index, app) => edit_running(world, index, &|pod| {
            pod["metadata"]["labels"] = json!({"app": app});
        }),
        Happening::Team(on) => {
            let labels = if on { json!({"team": "x"}) } else { json!({}) };
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                                   "metadata": {"name": "default", "labels": labels}});
            world.api.put(namespace);
        }
        Happening::Controller(on) => world.controller = on,
        Happening::Kubelet(on) => world.kubelet = on,
        Happening::Faults(faults) => world.meet(faults),
        Happening::Restart => world.restart(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn nobody_sleeps_who_would_fit(
        start in 0..24_usize,
        happenings in proptest::collection::vec(happening(), 1..80),
    ) {
        let objects = objects();
        let mut world = World::of(objects[..start].iter().cloned());
        for happening in happenings {
            let told = format!("{happening:?}");
            happen(&mut world, &objects, happening);
            world.settle();
            prop_assert_eq!(world.oversleeper(), None, "after {}", &told);
            // Long enough for every backoff to pass, so that every pod that does not fit sleeps.
            world.advance(11);
            prop_assert_eq!(world.oversleeper(), None, "some time after {}", &told);
        }
    }
}
