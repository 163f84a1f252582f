//! Advice that is followed leads to a placement on crowded nodes: host ports, cpu, memory, pod limits, affinity, anti-affinity of both
//! sides, and spread, several of them at once. Of the rules of one plugin, the first hides the others.

use super::obeyed::*;
use super::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

/// What a pod asks for.
#[derive(Clone, Debug)]
struct Wishes {
    port: bool,
    cpu: u32,
    memory_gi: u32,
    /// The topology keys of its rules, if it has them.
    near_friends: Option<&'static str>,
    apart_from_foes: Option<&'static str>,
    spread: Option<&'static str>,
    disk: bool,
}

/// What is on a node.
#[derive(Clone, Debug)]
struct Crowd {
    zone: Option<&'static str>,
    broken: u8,
    port: bool,
    cpu: u32,
    memory_gi: u32,
    friend: bool,
    foe: bool,
    /// The topology key by which a pod there avoids the target.
    avoiding: Option<&'static str>,
    /// Pods that the target is spread with.
    siblings: usize,
    disk: bool,
    /// How many pods more than it runs the node may run.
    spare: usize,
}

fn key() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![Just(None), Just(Some("kubernetes.io/hostname")), Just(Some("zone"))]
}

fn wishes() -> impl Strategy<Value = Wishes> {
    let rules = (key(), key(), key());
    (any::<bool>(), 1..6_u32, 1..12_u32, rules, any::<bool>()).prop_map(|(port, cpu, memory_gi, rules, disk)| Wishes {
        port,
        cpu,
        memory_gi,
        near_friends: rules.0,
        apart_from_foes: rules.1,
        spread: rules.2,
        disk,
    })
}

fn crowd() -> impl Strategy<Value = Crowd> {
    let zone = prop_oneof![Just(Some("a")), Just(Some("b")), Just(None)];
    let taken = (any::<bool>(), 0..4_u32, 0..8_u32);
    let pods = (any::<bool>(), any::<bool>(), key(), 0..3_usize);
    (zone, 0..12_u8, taken, pods, any::<bool>(), 0..2_usize).prop_map(|(zone, broken, taken, pods, disk, spare)| {
        Crowd {
            zone,
            broken,
            port: taken.0,
            cpu: taken.1,
            memory_gi: taken.2,
            friend: pods.0,
            foe: pods.1,
            avoiding: pods.2,
            siblings: pods.3,
            disk,
            spare,
        }
    })
}

/// A rule about pods of an app.
fn near(app: &str, key: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]})
}

fn running(name: &str, app: &str, host: &str) -> Value {
    let mut pod = pod_object(name, Some(host), &[]);
    pod["metadata"]["labels"] = json!({"app": app});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {}});
    pod
}

fn target_with(wishes: &Wishes) -> Value {
    let mut pod = pod_object("target", None, if wishes.disk { &["data"] } else { &[] });
    pod["metadata"]["labels"] = json!({"app": "web"});
    let requests = json!({"cpu": wishes.cpu.to_string(), "memory": format!("{}Gi", wishes.memory_gi)});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": requests});
    if wishes.port {
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    }
    if let Some(key) = wishes.near_friends {
        pod["spec"]["affinity"]["podAffinity"] = near("friend", key);
    }
    if let Some(key) = wishes.apart_from_foes {
        pod["spec"]["affinity"]["podAntiAffinity"] = near("foe", key);
    }
    if let Some(key) = wishes.spread {
        pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}}]);
    }
    pod
}

/// A node with its pods and disk.
fn crowded(host: &str, crowd: &Crowd, claim: &Value) -> Vec<Value> {
    let mut node = broken_node(host, crowd.broken);
    if let Some(zone) = crowd.zone {
        node["metadata"]["labels"]["zone"] = json!(zone);
    }
    let mut hog = running(&format!("hog-{host}"), "hog", host);
    let requests = json!({"cpu": crowd.cpu.to_string(), "memory": format!("{}Gi", crowd.memory_gi)});
    hog["spec"]["containers"][0]["resources"]["requests"] = requests;
    let mut pods = vec![hog];
    if crowd.port {
        let mut pod = running(&format!("port-{host}"), "port", host);
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        pods.push(pod);
    }
    pods.extend(crowd.friend.then(|| running(&format!("friend-{host}"), "friend", host)));
    pods.extend(crowd.foe.then(|| running(&format!("foe-{host}"), "foe", host)));
    if let Some(key) = crowd.avoiding {
        let mut pod = running(&format!("shy-{host}"), "shy", host);
        pod["spec"]["affinity"]["podAntiAffinity"] = near("web", key);
        pods.push(pod);
    }
    pods.extend((0..crowd.siblings).map(|index| running(&format!("web-{index}-{host}"), "web", host)));
    node["status"]["allocatable"]["pods"] = json!((pods.len() + crowd.spare).to_string());
    let mut objects = vec![node];
    objects.extend(pods);
    objects.extend(crowd.disk.then(|| disk(&format!("disk-{host}"), host, claim)));
    objects
}

proptest! {
    // The same cases each time: rules that entangle several nodes are too many to be explored in a test run.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(250) })]

    #[test]
    fn crowded_nodes(wishes in wishes(), crowds in proptest::collection::vec(crowd(), 1..4)) {
        let claim = claim_object("data", "local", "ReadWriteOnce");
        let mut objects = vec![class_object("local", LOCAL), target_with(&wishes)];
        for (place, crowd) in crowds.iter().enumerate() {
            objects.extend(crowded(&format!("n{place}"), crowd, &claim));
        }
        objects.push(claim);
        let found = obeyed(&objects);
        prop_assert!(found.is_ok(), "{}", found.unwrap_err());
    }
}

#[test]
fn a_rule_that_another_one_hides_is_part_of_the_advice() {
    let wishes = Wishes {
        port: false,
        cpu: 1,
        memory_gi: 1,
        near_friends: Some("kubernetes.io/hostname"),
        apart_from_foes: Some("kubernetes.io/hostname"),
        spread: None,
        disk: false,
    };
    let mut objects = vec![target_with(&wishes), node_object("n1"), running("foe-1", "foe", "n1")];
    let mut shy = running("shy-1", "shy", "n1");
    shy["spec"]["affinity"]["podAntiAffinity"] = near("web", "kubernetes.io/hostname");
    objects.push(shy);
    let report = asked(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
    assert_eq!(
        report.advice,
        [
            "on n1, all of: relax the pod's affinity (wants pods with app=friend in the same kubernetes.io/hostname); relax the pod's \
          anti-affinity (apart by kubernetes.io/hostname from default/foe-1); relax the anti-affinity of pods near it (of default/shy-1)"
        ]
    );
}
