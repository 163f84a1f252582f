//! Pods that wait together: which are scheduled, and which give way.

use crate::world::World;
use berth_testing::{Manifest, claim, local_class, node, pod, sized, volume};
use serde_json::{Value, json};

/// A node with two large disks, and one with a small disk.
fn disks() -> Vec<Value> {
    let mut objects = vec![node("n1"), node("n2"), local_class()];
    objects.extend(["n1-a", "n1-b"].map(|name| volume(name, "local", 100).on("n1")));
    objects.push(volume("n2-a", "local", 10).on("n2"));
    objects
}

/// A pod that uses both large disks, then two that need one each.
fn greedy_one_and_two_others() -> [Value; 7] {
    [
        claim("greedy-a", "local", 50),
        claim("greedy-b", "local", 50),
        claim("first", "local", 50),
        claim("second", "local", 50),
        pod("greedy", &["greedy-a", "greedy-b"]),
        pod("first", &["first"]),
        pod("second", &["second"]),
    ]
}

#[test]
fn a_pod_that_takes_the_place_of_two_others_gives_way() {
    let mut world = World::of(disks().into_iter().chain(greedy_one_and_two_others()));
    world.settle();
    world.assert_placed("default/first");
    world.assert_placed("default/second");
    world.assert_waits("default/greedy", "didn't find available persistent volumes to bind");
    let look = world.scheduler.last_look().expect("several pods waited");
    assert_eq!((look.pods, look.one_by_one, look.placed), (3, 1, 2));
    assert!(look.is_optimal(), "{look:?}");
    world.check();
}

#[test]
fn a_pod_of_higher_priority_never_gives_way() {
    let pods = greedy_one_and_two_others().map(|object| match object["metadata"]["name"].as_str() {
        Some("greedy") if object["kind"] == "Pod" => object.priority(10),
        _ => object,
    });
    let mut world = World::of(disks().into_iter().chain(pods));
    world.settle();
    world.assert_placed("default/greedy");
    world.assert_waits("default/first", "didn't find available persistent volumes to bind");
    world.assert_waits("default/second", "didn't find available persistent volumes to bind");
}

#[test]
fn a_pod_moves_to_where_nobody_else_can_go() {
    // By scores alone the first pod goes to the node with more room, the only one that fits the second.
    let objects = [
        node("small").allocatable("cpu", "2"),
        node("large").allocatable("cpu", "8"),
        sized("first", 1),
        sized("second", 8),
    ];
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(world.api.node_of("default/first"), "small");
    assert_eq!(world.api.node_of("default/second"), "large");
}

#[test]
fn a_pod_that_comes_later_and_is_more_important_goes_first() {
    let mut world = World::of(disks().into_iter().chain(greedy_one_and_two_others()));
    world.deliver();
    // The look happens in the first step, and one of the two pods is being bound.
    world.scheduler.step(world.now);
    let data = claim("urgent", "local", 50);
    world.create([data, pod("urgent", &["urgent"]).priority(10)]);
    world.settle();
    world.assert_placed("default/urgent");
    let placed = ["first", "second"].map(|name| !world.api.node_of(&format!("default/{name}")).is_empty());
    assert_eq!(placed.into_iter().filter(|placed| *placed).count(), 1);
    world.check();
}

#[test]
fn pods_that_belong_near_each_other_are_placed_whoever_comes_first() {
    let near = json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let follower = pod("follower", &[]).with(
        "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution",
        near,
    );
    let objects = [
        node("n1"),
        node("n2"),
        follower,
        pod("leader", &[]).label("app", "web"),
        sized("big", 9),
    ];
    let mut world = World::of(objects);
    world.settle();
    assert_eq!(
        world.api.node_of("default/follower"),
        world.api.node_of("default/leader")
    );
    world.assert_placed("default/leader");
    world.assert_waits("default/big", "Insufficient cpu");
}

#[test]
fn one_pod_alone_is_not_looked_at() {
    let mut world = World::of([node("n1"), sized("alone", 9)]);
    world.settle();
    assert_eq!(world.scheduler.last_look(), None);
}
