//! The end-to-end tests of KEP-490 (Testing, E2E tests).

use crate::world::World;
use berth_core::api::Kind;
use berth_testing::{Manifest, claim, class, local_class, member, node, pod, volume};
use serde_json::{Value, json};

/// Three nodes, and local volumes on some of them.
fn cluster(volumes_on: &[&str]) -> World {
    let nodes = ["n1", "n2", "n3"].map(node);
    let volumes = volumes_on.iter().enumerate();
    let volumes = volumes.map(|(index, node)| volume(&format!("pv{index}"), "local", 10).on(node));
    World::of(nodes.into_iter().chain([local_class()]).chain(volumes))
}

/// As in a StatefulSet: one after the other.
fn replicas(world: &mut World, affinity: &str) {
    for index in 0..3 {
        world.create(member(index, affinity));
        world.settle();
    }
    world.check();
}

fn nodes_of(world: &World) -> Vec<&str> {
    (0..3)
        .map(|index| world.api.node_of(&format!("default/web-{index}")))
        .collect()
}

#[test]
fn stateful_set_with_anti_affinity_and_local_volumes_on_each_node() {
    let mut world = cluster(&["n1", "n2", "n3"]);
    replicas(&mut world, "podAntiAffinity");
    let mut nodes = nodes_of(&world);
    nodes.sort_unstable();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    assert_eq!(
        world.writes.len(),
        6,
        "two writes for a pod with one claim: {:?}",
        world.writes
    );
}

#[test]
fn stateful_set_with_anti_affinity_and_local_volumes_on_two_of_three_nodes() {
    let mut world = cluster(&["n1", "n2", "n2"]);
    replicas(&mut world, "podAntiAffinity");
    let mut nodes = nodes_of(&world);
    nodes.sort_unstable();
    assert_eq!(nodes, ["", "n1", "n2"]);
    world.assert_waits("default/web-2", "didn't match pod anti-affinity rules");
    world.assert_waits(
        "default/web-2",
        "2 node(s) didn't find available persistent volumes to bind",
    );
}

#[test]
fn stateful_set_with_affinity_and_several_local_volumes_on_a_node() {
    let mut world = cluster(&["n2", "n2", "n2"]);
    replicas(&mut world, "podAffinity");
    assert_eq!(nodes_of(&world), ["n2", "n2", "n2"]);
}

#[test]
fn stateful_set_with_affinity_and_one_local_volume_per_node() {
    let mut world = cluster(&["n1", "n2", "n3"]);
    replicas(&mut world, "podAffinity");
    world.assert_placed("default/web-0");
    world.assert_waits("default/web-1", "didn't find available persistent volumes to bind");
    world.assert_waits("default/web-2", "didn't match pod affinity rules");
}

fn two_claims() -> [Value; 3] {
    [claim("a", "local", 5), claim("b", "local", 5), pod("db", &["a", "b"])]
}

#[test]
fn several_claims_in_a_pod_with_enough_volumes_on_one_node() {
    let mut world = cluster(&["n1", "n2", "n2"]);
    world.create(two_claims());
    world.settle();
    world.assert_on("default/db", "n2");
    world.check();
}

#[test]
fn several_claims_in_a_pod_with_too_few_volumes_on_each_node() {
    let mut world = cluster(&["n1", "n2", "n3"]);
    world.create(two_claims());
    world.settle();
    world.assert_waits(
        "default/db",
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
    );
    assert_eq!(world.writes, []);
    world.check();
}

#[test]
fn fallback_to_provisioning_when_the_existing_volumes_do_not_suit() {
    let mut world = World::of([
        node("n1"),
        class("fast", "disk.example.com"),
        volume("too-small", "fast", 1).on("n1"),
        claim("data", "fast", 5),
        pod("db", &["data"]),
    ]);
    world.settle();
    world.assert_on("default/db", "n1");
    assert_eq!(world.api.volume_of("default/data"), "made-for-data");
    world.check();
}

#[test]
fn nothing_is_remembered_of_jobs_that_are_over() {
    let mut world = World::of([node("n1")]);
    let run = |world: &mut World, numbers: std::ops::Range<usize>| {
        for number in numbers {
            let name = format!("job-{number}");
            let mut job = pod(&name, &[]);
            job["metadata"]["labels"] =
                json!({"app": "batch", "job-name": name, "controller-uid": format!("uid-{number}")});
            world.create([job]);
            world.settle();
            world.assert_placed(&format!("default/{name}"));
            world.api.delete(Kind::Pod, &format!("default/{name}"));
            world.settle();
        }
        world.scheduler.sweep();
        world.scheduler.cluster().symbols().len()
    };
    let before = run(&mut world, 0..3);
    assert_eq!(run(&mut world, 3..30), before);
}
