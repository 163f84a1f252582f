//! Nodes that reject pods that were bound to them.

use crate::world::World;
use berth_core::api::Kind;
use berth_scheduler::scheduler::Write;
use berth_testing::{node, pod};
use serde_json::{Value, json};

/// The next pod of one owner, named like those of StatefulSets.
fn member(uid: &str) -> Value {
    let mut pod = pod("web-0", &[]);
    pod["metadata"]["uid"] = json!(uid);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "set", "controller": true}]);
    pod
}

/// The node rejects the pod, and its owner creates another one.
fn refuse(world: &mut World, next: usize) {
    world.api.edit(Kind::Pod, "default/web-0", |pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu"});
    });
    world.deliver();
    world.api.delete(Kind::Pod, "default/web-0");
    world.create([member(&format!("uid-of-{next}"))]);
    world.settle();
}

fn placements(world: &World) -> usize {
    world
        .writes
        .iter()
        .filter(|write| matches!(write, Write::BindPod { .. }))
        .count()
}

#[test]
fn a_refused_pod_goes_elsewhere() {
    let mut world = World::of([node("n1"), node("n2"), node("n3"), member("uid-of-0")]);
    world.settle();
    let mut seen = vec![world.api.node_of("default/web-0").to_owned()];
    for next in 1..3 {
        refuse(&mut world, next);
        world.advance(10);
        let node = world.api.node_of("default/web-0").to_owned();
        assert!(!node.is_empty() && !seen.contains(&node), "{node} after {seen:?}");
        seen.push(node);
    }
    // All of them rejected it, so none is better than another.
    refuse(&mut world, 3);
    world.advance(10);
    world.assert_placed("default/web-0");
}

#[test]
fn a_pod_that_can_go_nowhere_else_is_tried_again_later_each_time() {
    let mut world = World::of([node("n1"), member("uid-of-0")]);
    world.settle();
    let mut next = 0;
    for _ in 0..60 {
        world.advance(1);
        if !world.api.node_of("default/web-0").is_empty() {
            next += 1;
            refuse(&mut world, next);
        }
    }
    let in_a_minute = placements(&world);
    assert!((5..=10).contains(&in_a_minute), "{in_a_minute} placements in a minute");
}

#[test]
fn a_refusal_is_forgotten_after_a_while() {
    let mut world = World::of([node("n1"), node("n2"), member("uid-of-0")]);
    world.settle();
    refuse(&mut world, 1);
    world.advance(300);
    let other = world.api.node_of("default/web-0").to_owned();
    world.api.delete(Kind::Pod, "default/web-0");
    world.create([member("another")]);
    world.settle();
    assert_eq!(
        placements(&world),
        3,
        "nothing is held against the owner any more, first on {other}"
    );
}

/// A pod whose containers ran and failed says nothing about its node.
#[test]
fn a_pod_that_ran_was_not_refused() {
    let mut world = World::of([node("n1"), member("uid-of-0")]);
    world.settle();
    world.api.edit(Kind::Pod, "default/web-0", |pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "main"}]});
    });
    world.deliver();
    world.api.delete(Kind::Pod, "default/web-0");
    world.create([member("uid-of-1")]);
    world.settle();
    assert_eq!(placements(&world), 2);
}
