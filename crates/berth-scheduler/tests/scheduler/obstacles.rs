//! Pods that wait for several reasons: obstacles that are removed one after the other, nominations that fail, invalid objects,
//! and pods for other schedulers.

use crate::events::{bound, limited, selecting};
use crate::world::World;
use berth_core::api::Kind;
use berth_core::names;
use berth_scheduler::queue::Place;
use berth_testing::{Fault, Manifest, claim, class, node, pod, sized, volume};
use serde_json::{Value, json};

/// A node that joins as those of an autoscaler do: first with a taint, and without it some seconds later.
#[test]
fn a_node_that_joins_with_a_taint() {
    let mut world = World::of([node("n1"), sized("large", 6)]);
    world.settle();
    world.advance(30);
    let mut large = node("n2");
    large["status"]["allocatable"]["cpu"] = json!("8");
    large["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    world.api.put(large);
    world.settle();
    assert_eq!(world.scheduler.counts().woken, 0, "it would not fit yet");
    world
        .api
        .edit(Kind::Node, "n2", |node| node["spec"]["taints"] = json!([]));
    world.settle();
    world.assert_on("default/large", "n2");
}

#[test]
fn a_node_whose_labels_and_drivers_come_after_it() {
    let mut objects = vec![class("fast", "disk.example.com")];
    objects.extend(limited("n1"));
    objects.retain(|object| object["kind"] != json!("Node") && object["kind"] != json!("CSINode"));
    objects.extend([node("elsewhere"), pod("waits", &["new-n1"])]);
    let mut world = World::of(objects);
    world.settle();
    world.advance(30);
    let mut bare = node("n1");
    bare["metadata"]["labels"] = json!({});
    bare["spec"]["unschedulable"] = json!(true);
    world.api.put(bare);
    world.settle();
    world.api.put(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "x", "allocatable": {"count": 1}}]}}),
    );
    world.api.edit(Kind::Node, "n1", |node| {
        node["metadata"]["labels"] = json!({names::HOSTNAME: "n1"});
    });
    world.settle();
    world
        .api
        .edit(Kind::Node, "n1", |node| node["spec"]["unschedulable"] = json!(false));
    world.settle();
    assert_eq!(world.scheduler.counts().woken, 0, "it holds one volume already");
    world.api.edit(Kind::CsiNode, "n1", |node| {
        node["spec"]["drivers"][0]["allocatable"]["count"] = json!(2);
    });
    world.settle();
    world.assert_on("default/waits", "n1");
}

#[test]
fn the_first_node() {
    let mut world = World::of([pod("early", &[])]);
    world.settle();
    assert_eq!(world.message("default/early"), "no nodes available to schedule pods");
    world.advance(30);
    world.api.put(node("n1"));
    world.settle();
    world.assert_on("default/early", "n1");
}

/// A pod that is nominated to `n1` and cannot use it, and one that waits for that room.
fn promised() -> World {
    let mut urgent = sized("urgent", 4).priority(10);
    urgent["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
    urgent["status"]["nominatedNodeName"] = json!("n1");
    let mut waits = selecting(sized("waits", 2).priority(5), names::HOSTNAME, "n1");
    waits["spec"]["preemptionPolicy"] = json!("Never");
    let mut world = World::of([
        node("n1"),
        node("n2"),
        sized("running", 1).priority(100).on("n1"),
        urgent,
        waits,
    ]);
    world.settle();
    world.advance(30);
    world.assert_waits("default/waits", "Insufficient cpu");
    world
}

#[test]
fn promised_room_is_not_wanted_since_its_pod_is_placed_elsewhere() {
    let mut world = promised();
    world.api.edit(Kind::Pod, "default/urgent", |pod| {
        pod["spec"]["schedulingGates"] = json!([]);
    });
    world.settle();
    world.assert_on("default/urgent", "n2");
    world.assert_on("default/waits", "n1");
}

#[test]
fn promised_room_is_not_wanted_since_its_pod_is_seen_elsewhere() {
    let mut world = promised();
    world
        .api
        .edit(Kind::Pod, "default/urgent", |pod| pod["spec"]["nodeName"] = json!("n2"));
    world.settle();
    world.assert_on("default/waits", "n1");
}

#[test]
fn a_node_is_not_selected_for_a_claim_after_all() {
    let mut world = World::of([
        node("n1"),
        node("n2"),
        class("fast", "disk.example.com"),
        claim("shared", "fast", 5),
        selecting(pod("first", &["shared"]), names::HOSTNAME, "n1"),
        selecting(pod("second", &["shared"]), names::HOSTNAME, "n2"),
    ]);
    world.fault = Box::new(|number, _| if number == 0 { Fault::Refused } else { Fault::None });
    world.deliver();
    assert!(world.scheduler.step(world.now) && world.scheduler.step(world.now));
    assert_eq!(world.place("default/second"), Some(Place::Unschedulable));
    world.settle();
    // The claim may now go to its node, and no other pod is to be tried.
    world.assert_on("default/second", "n2");
}

/// A pod with that many claims must not delay all others: each bound claim requires checking only that claim.
#[test]
fn work_for_a_pod_with_thousands_of_claims_grows_with_their_number_alone() {
    let work = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("c{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let claims = names.iter().map(|name| claim(name, "fast", 1));
        let mut world = World::of([node("n1"), class("fast", "disk.example.com")]);
        world.create(claims);
        world.create([pod("db", &names)]);
        world.settle();
        world.assert_on("default/db", "n1");
        world.scheduler.counts().claims_checked
    };
    let (some, many) = (work(500), work(4000));
    // A pod takes a few checks more or less, however many claims it has; a hundredth is more than that.
    assert!(
        many <= 8 * (some + some / 100),
        "{some} looks at 500 claims, {many} at 4000"
    );
    assert!(many <= 8 * 4000, "{many} looks at 4000 claims");
}

#[test]
fn a_broken_object_is_an_error_and_is_tried_again() {
    // Its driver does not recognize this disk ID.
    let mut broken = volume("disk", "fast", 10).on("n1");
    broken["spec"]["local"] = Value::Null;
    broken["spec"]["awsElasticBlockStore"] = json!({"volumeID": "aws://zone/disk"});
    broken["spec"]["nodeAffinity"] = Value::Null;
    broken["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    broken["status"]["phase"] = json!("Bound");
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": "n1", "annotations": {names::MIGRATED_PLUGINS: "kubernetes.io/aws-ebs"}},
        "spec": {"drivers": []}});
    let mut world = World::of([
        node("n1"),
        csi_node,
        class("fast", "disk.example.com"),
        broken,
        bound(claim("data", "fast", 5), "disk"),
        pod("db", &["data"]),
    ]);
    world.settle();
    let message = world.message("default/db").to_owned();
    assert!(message.starts_with("running "), "{message}");
    assert_eq!(world.place("default/db"), Some(Place::Backoff), "{message}");
    let counts = world.scheduler.counts();
    assert_eq!((counts.errors, counts.unschedulable), (1, 0));
    assert_eq!(world.conditions, [("default/db".to_owned(), "SchedulerError")]);
}

#[test]
fn pods_that_only_kube_scheduler_can_place_are_left_to_it() {
    let with = |name: &str, field: &str, value: Value| {
        let mut pod = pod(name, &[]);
        pod["spec"][field] = value;
        pod
    };
    let mut world = World::of([
        node("n1"),
        with(
            "device",
            "resourceClaims",
            json!([{"name": "gpu", "resourceClaimName": "gpu"}]),
        ),
        with(
            "gang",
            "workloadRef",
            json!({"name": "training", "podGroup": "workers"}),
        ),
        with("group", "schedulingGroup", json!({"podGroupName": "workers"})),
        with("plain", "resourceClaims", json!([])),
    ]);
    world.settle();
    let claims = "0/1 nodes are available: Berth does not allocate resource claims (spec.resourceClaims): \
                  leave this pod to kube-scheduler.";
    let group = "Berth does not place pods as a group (spec.workloadRef, spec.schedulingGroup): \
                 leave this pod to kube-scheduler.";
    world.assert_waits("default/device", claims);
    world.assert_waits("default/gang", group);
    world.assert_waits("default/group", group);
    world.assert_placed("default/plain");
    assert_eq!(world.scheduler.counts().victims, 0);
}
