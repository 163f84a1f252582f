//! Where volumes are provisioned: in the pool with the most room, unless an existing volume fits.

use crate::world::World;
use berth_testing::{Manifest, capacity, claim, class, csi_node, node, object, pod, volume};
use serde_json::{Value, json};

const DRIVER: &str = "disk.example.com";

/// A node with a pool of its own.
fn node_with_pool(name: &str, gi: u32) -> [Value; 3] {
    let topology = json!({"matchLabels": {"kubernetes.io/hostname": name}});
    [
        node(name),
        csi_node(name, &[(DRIVER, &["kubernetes.io/hostname"])]),
        capacity(name, "fast", gi).with("/nodeTopology", topology),
    ]
}

fn world() -> World {
    let driver = object("storage.k8s.io/v1", "CSIDriver", DRIVER).with("/spec/storageCapacity", true);
    let mut world = World::of([class("fast", DRIVER), driver]);
    for (name, gi) in [("n1", 20), ("n2", 200), ("n3", 40)] {
        world.create(node_with_pool(name, gi));
    }
    world
}

#[test]
fn the_pool_with_the_most_room_is_used() {
    let mut world = world();
    world.create([claim("c", "fast", 10), pod("p", &["c"])]);
    world.settle();
    world.assert_on("default/p", "n2");
}

#[test]
fn an_existing_volume_is_better_than_any_pool() {
    let mut world = world();
    world.create([
        volume("v", "fast", 1000).on("n3"),
        claim("c", "fast", 10),
        pod("p", &["c"]),
    ]);
    world.settle();
    world.assert_on("default/p", "n3");
}
