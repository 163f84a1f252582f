//! Drivers that are not running are simulated as their CSINode objects describe them.

use super::*;

const DRIVER: &str = "disks.example.com";

fn csi_node(name: &str, driver: &str, keys: &[&str], count: Option<u32>) -> Value {
    let mut entry = json!({"name": driver, "nodeID": name, "topologyKeys": keys});
    if let Some(count) = count {
        entry["allocatable"] = json!({"count": count});
    }
    object(
        "storage.k8s.io/v1",
        "CSINode",
        name,
        json!({"spec": {"drivers": [entry]}}),
    )
}

fn labelled(name: &str, zone: &str) -> Value {
    let mut node = node(name, zone);
    node["metadata"]["labels"]["disks.example.com/node"] = json!(name);
    node
}

fn places(outcome: &Value) -> Vec<&Value> {
    let volumes = outcome["volumes"].as_array().unwrap().iter();
    volumes.map(|volume| &volume["place"]).collect()
}

#[test]
fn attach_limits_count_for_what_is_made() {
    for mode in ["WaitForFirstConsumer", "Immediate"] {
        let objects = [
            node("n1", "a"),
            csi_node("n1", DRIVER, &["topology.kubernetes.io/zone"], Some(1)),
            class("disks", DRIVER, mode),
            claim("c1", "disks"),
            claim("c2", "disks"),
            pod("p1", json!({}), claims(&["c1"])),
            pod("p2", json!({}), claims(&["c2"])),
        ];
        let outcome = simulated(&objects, &[]);
        assert_eq!(outcome["summary"]["placed"], 1, "{mode}: {outcome}");
        let pending = outcome["pending"][0]["message"].as_str().unwrap();
        assert!(pending.contains("exceed max volume count"), "{mode}: {pending}");
    }
}

#[test]
fn a_volume_on_a_node_keeps_its_pod_there() {
    let template = json!([{"metadata": {"name": "data"}, "spec": claim("x", "disks")["spec"]}]);
    let mut objects = vec![
        class("disks", DRIVER, "WaitForFirstConsumer"),
        workload(
            "StatefulSet",
            "db",
            json!({"serviceName": "db", "volumeClaimTemplates": template}),
        ),
    ];
    for name in ["n1", "n2"] {
        objects.push(labelled(name, "a"));
        objects.push(csi_node(name, DRIVER, &["disks.example.com/node"], None));
    }
    let before = simulated(&objects, &[]);
    let node = before["pods"][0]["node"].as_str().unwrap();
    assert_eq!(places(&before), [&json!({"nodes": [node]})]);
    let drained = scenario(json!([{"at": "10m", "do": [{"drain": {"nodes": [node]}}]}]));
    let after = simulated(&objects, &["--scenario", drained.path().to_str().unwrap()]);
    assert_eq!(pods(&after), ["db-0 -"], "it cannot leave its volume");
}

#[test]
fn volumes_of_a_driver_without_topology_can_be_used_everywhere() {
    let objects = [
        node("n1", "a"),
        node("n2", "b"),
        csi_node("n1", DRIVER, &[], None),
        csi_node("n2", DRIVER, &[], None),
        class("files", DRIVER, "WaitForFirstConsumer"),
        claim("c", "files"),
        pod("p", json!({}), claims(&["c"])),
    ];
    let outcome = simulated(&objects, &[]);
    assert_eq!(places(&outcome), [&json!({})]);
    assert_eq!(outcome["summary"]["placed"], 1);
}

#[test]
fn nothing_is_made_on_a_node_that_lacks_the_driver() {
    let objects = [
        node("n1", "a"),
        node("n2", "a"),
        csi_node("n1", DRIVER, &["topology.kubernetes.io/zone"], None),
        csi_node("n2", "other.example.com", &[], None),
        class("disks", DRIVER, "WaitForFirstConsumer"),
        claim("c", "disks"),
        pod(
            "p",
            json!({}),
            merged(
                claims(&["c"]),
                json!({"nodeSelector": {"kubernetes.io/hostname": "n2"}}),
            ),
        ),
    ];
    let outcome = simulated(&objects, &[]);
    assert_eq!(outcome["volumes"], json!([]));
    let told = outcome["events"].as_array().unwrap().iter();
    let mut told = told.filter(|event| event["reason"] == "ProvisioningFailed");
    let failed = told.next().unwrap()["message"].as_str().unwrap();
    assert!(
        failed.contains("driver \"disks.example.com\" is not registered on node \"n2\""),
        "{failed}"
    );
}

#[test]
fn of_a_driver_that_no_node_tells_of_the_zone_is_taken() {
    let objects = [
        node("n1", "a"),
        class("disks", DRIVER, "WaitForFirstConsumer"),
        claim("c", "disks"),
        pod("p", json!({}), claims(&["c"])),
    ];
    assert_eq!(places(&simulated(&objects, &[])), [&json!({"zones": ["a"]})]);
}

/// The space of a deleted volume is available to the next one.
#[test]
fn a_volume_goes_with_its_claim_and_gives_its_room_back() {
    let pool = object(
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        "pool",
        json!({"storageClassName": "disks", "capacity": "1Gi",
            "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": "a"}}}),
    );
    let objects = [
        node("n1", "a"),
        class("disks", DRIVER, "WaitForFirstConsumer"),
        pool,
        claim("c1", "disks"),
        pod("p1", json!({}), claims(&["c1"])),
    ];
    let next = [claim("c2", "disks"), pod("p2", json!({}), claims(&["c2"]))];
    let steps = scenario(json!([
        {"at": "1m", "do": [{"delete": {"kind": "Pod", "name": "p1"}}]},
        {"at": "2m", "do": [{"delete": {"kind": "PersistentVolumeClaim", "name": "c1"}}]},
        {"at": "3m", "do": [{"apply": {"objects": next}}]}]));
    let outcome = simulated(&objects, &["--scenario", steps.path().to_str().unwrap()]);
    assert_eq!(pods(&outcome), ["p2 n1"], "{outcome}");
    assert_eq!(outcome["volumes"].as_array().unwrap().len(), 1);
}

fn pool(name: &str, zone: Value, capacity: &str) -> Value {
    object(
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        name,
        json!({"metadata": {"namespace": "default"}, "storageClassName": "disks", "capacity": capacity,
            "nodeTopology": {"matchLabels": zone}}),
    )
}

fn publishing_driver() -> Value {
    object(
        "storage.k8s.io/v1",
        "CSIDriver",
        DRIVER,
        json!({"spec": {"storageCapacity": true}}),
    )
}

#[test]
fn a_volume_that_is_made_at_once_takes_room_and_is_refused_without() {
    let objects = [
        node("n1", "a"),
        publishing_driver(),
        class("disks", DRIVER, "Immediate"),
        pool("pool", json!({}), "1536Mi"),
        claim("c1", "disks"),
        claim("c2", "disks"),
        pod("p1", json!({}), claims(&["c1"])),
        pod("p2", json!({}), claims(&["c2"])),
    ];
    let output = run("simulate", &objects, &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let outcome = json_of(&output);
    assert_eq!(outcome["summary"]["boundClaims"], 1, "{outcome}");
    let refused = outcome["claims"][1]["message"].as_str().unwrap();
    assert!(
        refused.contains("not enough room for 1Gi: 512Mi left in pool"),
        "{refused}"
    );
}

#[test]
fn a_volume_that_is_made_at_once_is_made_where_there_is_room() {
    let zone = "topology.kubernetes.io/zone";
    for full in ["a", "b"] {
        let room = |place: &str| if place == full { "0" } else { "10Gi" };
        let objects = [
            node("n1", "a"),
            node("n2", "b"),
            csi_node("n1", DRIVER, &[zone], None),
            csi_node("n2", DRIVER, &[zone], None),
            publishing_driver(),
            class("disks", DRIVER, "Immediate"),
            pool("pool-a", json!({zone: "a"}), room("a")),
            pool("pool-b", json!({zone: "b"}), room("b")),
            claim("c", "disks"),
        ];
        let other = if full == "a" { "b" } else { "a" };
        assert_eq!(places(&simulated(&objects, &[])), [&json!({"zones": [other]})]);
    }
}

/// The scheduler refuses such a node, too; but this pod does not ask it.
#[test]
fn nothing_is_made_where_a_driver_publishes_no_capacity() {
    let objects = [
        node("n1", "a"),
        publishing_driver(),
        class("disks", DRIVER, "WaitForFirstConsumer"),
        claim("c", "disks"),
        pod("p", json!({}), merged(claims(&["c"]), json!({"nodeName": "n1"}))),
    ];
    let outcome = simulated(&objects, &[]);
    assert_eq!(outcome["volumes"], json!([]));
    let message = outcome["claims"][0]["message"].as_str().unwrap();
    assert!(message.contains("has published no capacity for node n1"), "{message}");
}

fn merged(mut below: Value, top: Value) -> Value {
    merge(&mut below, top);
    below
}

#[test]
fn a_retained_volume_that_somebody_deletes_gives_its_room_back() {
    let mut class = class("local", "berth.dev/local", "WaitForFirstConsumer");
    class["parameters"] = json!({"berth.dev/capacity": "1Gi"});
    class["reclaimPolicy"] = json!("Retain");
    let objects = [
        node("n1", "a"),
        class,
        claim("c1", "local"),
        claim("c2", "local"),
        pod("p1", json!({}), claims(&["c1"])),
        pod("p2", json!({}), claims(&["c2"])),
    ];
    let before = simulated(&objects, &[]);
    assert_eq!(pods(&before), ["p1 n1", "p2 -"], "there is room for one");
    let delete = |kind: &str, name: &Value| json!({"delete": {"kind": kind, "name": name}});
    let leave =
        json!({"at": "10m", "do": [delete("Pod", &json!("p1")), delete("PersistentVolumeClaim", &json!("c1"))]});
    let retained = scenario(json!([leave]));
    let retained = simulated(&objects, &["--scenario", retained.path().to_str().unwrap()]);
    assert_eq!(pods(&retained), ["p2 -"], "the data is still there");
    let free = json!({"at": "20m", "do": [delete("PersistentVolume", &before["volumes"][0]["volume"])]});
    let freed = scenario(json!([leave, free]));
    let freed = simulated(&objects, &["--scenario", freed.path().to_str().unwrap()]);
    assert_eq!(pods(&freed), ["p2 n1"]);
}
