//! Claims that no pod has used and that keep a pod from every node: they are given back.

use crate::world::World;
use berth_core::api::Kind;
use berth_core::names;
use berth_scheduler::scheduler::Write;
use berth_testing::{Fault, Manifest, claim, class, node, pod, volume};
use serde_json::{Value, json};

const CLAIM: &str = "default/data-web-0";

/// The pod of a stateful set with one claim template.
fn member(claims: &[&str]) -> Value {
    let mut pod = pod("web-0", claims);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "set", "controller": true}]);
    pod
}

fn set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "set"},
        "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}})
}

/// A claim that is bound to a volume on a node, and that no pod has used.
fn clean(name: &str, volume: &str) -> Value {
    let mut claim = claim(name, "fast", 5);
    let uid = format!("uid-of-{name}");
    claim["metadata"]["uid"] = json!(uid);
    claim["metadata"]["annotations"] =
        json!({names::BIND_COMPLETED: "yes", names::CLEAN: uid, names::ROLLBACK: "true"});
    claim["spec"]["volumeName"] = json!(volume);
    claim["status"] = json!({"phase": "Pending"});
    claim
}

fn unmark(claim: &mut Value, key: &str) {
    let annotations = claim["metadata"]["annotations"].as_object_mut();
    annotations.expect("it has some").remove(key);
}

fn bound(name: &str, claim: &str, node: &str) -> Value {
    let mut volume = volume(name, "fast", 5).on(node);
    volume["spec"]["claimRef"] = json!({"namespace": "default", "name": claim, "uid": format!("uid-of-{claim}")});
    volume["status"] = json!({"phase": "Bound"});
    volume
}

/// A pod whose claim is bound on a node that is closed by now.
fn stuck(claim: Value) -> World {
    let world = World::of([
        node("n1"),
        node("n2"),
        class("fast", "disk.example.com"),
        set(),
        bound("v", "data-web-0", "n1"),
        claim,
        member(&["data-web-0"]),
    ]);
    close(world)
}

fn close(mut world: World) -> World {
    world
        .api
        .edit(Kind::Node, "n1", |node| node["spec"]["unschedulable"] = json!(true));
    world
}

fn rollbacks(world: &World) -> Vec<String> {
    let rollbacks = world.writes.iter().filter_map(|write| match write {
        Write::RollBack { claim, .. } => Some(claim.clone()),
        _ => None,
    });
    rollbacks.collect()
}

/// The controller deletes the claim that is given back, and the set makes another one.
fn make_anew(world: &mut World) {
    world.api.delete(Kind::PersistentVolume, "v");
    world.api.delete(Kind::PersistentVolumeClaim, CLAIM);
    world.settle();
    let mut new = claim("data-web-0", "fast", 5);
    new["metadata"]["uid"] = json!("uid-of-the-next");
    world.create([new]);
    world.settle();
}

#[test]
fn a_pod_goes_elsewhere_when_its_clean_claim_is_given_back() {
    let mut world = stuck(clean("data-web-0", "v"));
    world.controller = false;
    world.settle();
    assert_eq!(rollbacks(&world), ["data-web-0"]);
    let told = world
        .said
        .iter()
        .any(|(_, _, message)| message.contains("rollback: claim \"data-web-0\" given back"));
    assert!(told, "{:?}", world.said);
    world.assert_waits("default/web-0", "rollback: claim \"data-web-0\" given back");
    world.controller = true;
    make_anew(&mut world);
    world.assert_on("default/web-0", "n2");
    assert_eq!(rollbacks(&world).len(), 1);
    world.check();
}

#[test]
fn a_pod_with_a_claim_that_is_given_back_is_placed_nowhere() {
    let mut world = stuck(clean("data-web-0", "v"));
    world.controller = false;
    world.settle();
    world
        .api
        .edit(Kind::Node, "n1", |node| node["spec"]["unschedulable"] = json!(false));
    world.advance(11);
    world.assert_waits("default/web-0", "is being deleted");
    // Whoever takes over sees it too.
    world.restart();
    world.settle();
    world.assert_waits("default/web-0", "is being deleted");
}

#[test]
fn everything_that_is_not_certain_to_be_unused_stays() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut claim = clean("data-web-0", "v");
        change(&mut claim);
        claim
    };
    let kept = [
        changed(&|claim| claim["status"]["phase"] = json!("Bound")),
        changed(&|claim| claim["metadata"]["annotations"][names::CLEAN] = json!("uid-of-another")),
        changed(&|claim| unmark(claim, names::CLEAN)),
        changed(&|claim| claim["metadata"]["annotations"][names::ROLLBACK] = json!("false")),
        changed(&|claim| unmark(claim, names::ROLLBACK)),
    ];
    for claim in kept {
        let mut world = stuck(claim);
        world.controller = false;
        world.settle();
        world.advance(11);
        assert_eq!(
            rollbacks(&world),
            [""; 0],
            "{:?}",
            world.api.get(Kind::PersistentVolumeClaim, CLAIM)
        );
        world.assert_waits("default/web-0", "0/2 nodes are available");
    }
}

#[test]
fn a_class_opts_in_for_its_claims() {
    let mut claim = clean("data-web-0", "v");
    unmark(&mut claim, names::ROLLBACK);
    let mut world = stuck(claim);
    world.controller = false;
    world.api.edit(Kind::StorageClass, "fast", |class| {
        class["metadata"]["annotations"] = json!({names::ROLLBACK: "true"});
    });
    world.settle();
    assert_eq!(rollbacks(&world), ["data-web-0"]);
}

#[test]
fn a_claim_that_nobody_makes_anew_stays() {
    let of_user = "shared";
    let mut world = close(World::of([
        node("n1"),
        node("n2"),
        class("fast", "disk.example.com"),
        set(),
        bound("v", of_user, "n1"),
        clean(of_user, "v"),
        member(&[of_user]),
    ]));
    world.controller = false;
    world.settle();
    assert_eq!(rollbacks(&world), [""; 0]);
    // Nor is one whose template is gone, or that another pod waits for too.
    let mut world = stuck(clean("data-web-0", "v"));
    world.controller = false;
    world.api.delete(Kind::StatefulSet, "default/web");
    world.settle();
    assert_eq!(rollbacks(&world), [""; 0]);
    let mut world = stuck(clean("data-web-0", "v"));
    world.controller = false;
    world.create([pod("other", &["data-web-0"])]);
    world.settle();
    assert_eq!(rollbacks(&world), [""; 0]);
}

#[test]
fn claims_stay_if_the_pod_fits_nowhere_without_them_either() {
    let mut world = stuck(clean("data-web-0", "v"));
    world.controller = false;
    world
        .api
        .edit(Kind::Node, "n2", |node| node["spec"]["unschedulable"] = json!(true));
    world.settle();
    assert_eq!(rollbacks(&world), [""; 0]);
    // They go when another node would take the pod.
    world
        .api
        .edit(Kind::Node, "n2", |node| node["spec"]["unschedulable"] = json!(false));
    world.advance(11);
    assert_eq!(rollbacks(&world), ["data-web-0"]);
}

#[test]
fn only_the_claims_that_are_in_the_way_are_given_back() {
    let mut set = set();
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}]);
    let mut world = close(World::of([
        node("n1"),
        node("n2"),
        class("fast", "disk.example.com"),
        set,
        bound("v", "data-web-0", "n1"),
        bound("w", "logs-web-0", "n2"),
        clean("data-web-0", "v"),
        clean("logs-web-0", "w"),
        member(&["data-web-0", "logs-web-0"]),
    ]));
    world.controller = false;
    world.settle();
    assert_eq!(rollbacks(&world), ["data-web-0"]);
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_given_back() {
    let mut of_pod = pod("web", &[]);
    of_pod["metadata"]["uid"] = json!("uid-of-web");
    of_pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    let mut claim = clean("web-scratch", "v");
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-of-web", "controller": true}]);
    let mut world = close(World::of([
        node("n1"),
        node("n2"),
        class("fast", "disk.example.com"),
        bound("v", "web-scratch", "n1"),
        claim,
        of_pod,
    ]));
    world.controller = false;
    world.settle();
    assert_eq!(rollbacks(&world), ["web-scratch"]);
}

#[test]
fn a_rollback_that_is_not_taken_is_tried_again() {
    for fault in [Fault::Conflict, Fault::Refused, Fault::AnswerLost] {
        let mut world = stuck(clean("data-web-0", "v"));
        world.controller = false;
        world.meet(vec![fault]);
        world.settle();
        world.advance(11);
        let marked = world.api.text(
            Kind::PersistentVolumeClaim,
            CLAIM,
            "/metadata/annotations/binding.berth.dev~1rolled-back-for",
        );
        assert_eq!(marked.split('/').next(), Some("web-0"), "{fault:?}");
    }
}

/// The node did not admit the pod: its claim is as clean as before, and holds the next pod there.
#[test]
fn a_pod_that_its_only_node_refused_goes_elsewhere_with_a_new_claim() {
    let mut world = World::of([
        node("n1"),
        node("n2"),
        class("fast", "disk.example.com"),
        set(),
        bound("v", "data-web-0", "n1"),
        clean("data-web-0", "v"),
        member(&["data-web-0"]),
    ]);
    world.controller = false;
    world.settle();
    world.assert_on("default/web-0", "n1");
    world.api.edit(Kind::Pod, "default/web-0", |pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "OutOfcpu"});
    });
    world.deliver();
    world.api.delete(Kind::Pod, "default/web-0");
    world.create([member(&["data-web-0"])]);
    world.settle();
    world.advance(10);
    assert_eq!(rollbacks(&world), ["data-web-0"]);
    world.controller = true;
    make_anew(&mut world);
    world.advance(10);
    world.assert_on("default/web-0", "n2");
}
