//! The end-to-end tests of KEP-490 (Testing, E2E tests), on the real runners.

use crate::world::World;
use berth_testing::{Manifest, claim, class, local_class, member, node, pod, volume};
use serde_json::Value;

/// Three nodes, and local volumes on some of them.
async fn cluster(volumes_on: &[&str]) -> World {
    let nodes = ["n1", "n2", "n3"].map(node);
    let volumes = volumes_on.iter().enumerate();
    let volumes = volumes.map(|(index, node)| volume(&format!("pv{index}"), "local", 10).on(node));
    World::of(nodes.into_iter().chain([local_class()]).chain(volumes)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_with_anti_affinity_and_local_volumes_on_each_node() {
    let world = cluster(&["n1", "n2", "n3"]).await;
    let scheduler = world.scheduler();
    let mut nodes = Vec::new();
    for index in 0..3 {
        world.create(member(index, "podAntiAffinity")).await;
        nodes.push(world.placed(&format!("web-{index}")).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    world.check().await;
    let metrics = scheduler.metrics.clone();
    scheduler.stop().await;
    assert_eq!(metrics.writes(), 6, "two writes for a pod with one claim");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_with_anti_affinity_and_local_volumes_on_two_of_three_nodes() {
    let world = cluster(&["n1", "n2", "n2"]).await;
    let scheduler = world.scheduler();
    let mut nodes = Vec::new();
    for index in 0..2 {
        world.create(member(index, "podAntiAffinity")).await;
        nodes.push(world.placed(&format!("web-{index}")).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2"]);
    world.create(member(2, "podAntiAffinity")).await;
    world.waits("web-2", "didn't match pod anti-affinity rules").await;
    let why = "2 node(s) didn't find available persistent volumes to bind";
    world.waits("web-2", why).await;
    world.check().await;
    scheduler.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_with_affinity_and_several_local_volumes_on_a_node() {
    let world = cluster(&["n2", "n2", "n2"]).await;
    let scheduler = world.scheduler();
    for index in 0..3 {
        world.create(member(index, "podAffinity")).await;
        assert_eq!(world.placed(&format!("web-{index}")).await, "n2");
    }
    world.check().await;
    scheduler.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_with_affinity_and_one_local_volume_per_node() {
    let world = cluster(&["n1", "n2", "n3"]).await;
    let scheduler = world.scheduler();
    world.create(member(0, "podAffinity")).await;
    world.placed("web-0").await;
    world.create(member(1, "podAffinity")).await;
    let why = "didn't find available persistent volumes to bind";
    world.waits("web-1", why).await;
    world.create(member(2, "podAffinity")).await;
    world.waits("web-2", "didn't match pod affinity rules").await;
    world.check().await;
    scheduler.stop().await;
    world.stop().await;
}

fn two_claims() -> [Value; 3] {
    [claim("a", "local", 5), claim("b", "local", 5), pod("db", &["a", "b"])]
}

#[tokio::test(flavor = "multi_thread")]
async fn several_claims_in_a_pod_with_enough_volumes_on_one_node() {
    let world = cluster(&["n1", "n2", "n2"]).await;
    let scheduler = world.scheduler();
    world.create(two_claims()).await;
    assert_eq!(world.placed("db").await, "n2");
    world.check().await;
    scheduler.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_claims_in_a_pod_with_too_few_volumes_on_each_node() {
    let world = cluster(&["n1", "n2", "n3"]).await;
    let scheduler = world.scheduler();
    world.create(two_claims()).await;
    let why = "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.";
    world.waits("db", why).await;
    let metrics = scheduler.metrics.clone();
    scheduler.stop().await;
    assert_eq!(metrics.writes(), 1, "just the condition that says so");
    world.check().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fallback_to_provisioning_when_the_existing_volumes_do_not_suit() {
    let objects = [
        node("n1"),
        class("made", "berth.dev/local"),
        volume("too-small", "made", 1).on("n1"),
    ];
    let world = World::of(objects).await;
    let scheduler = world.scheduler();
    world.create([claim("data", "made", 5), pod("db", &["data"])]).await;
    assert_eq!(world.placed("db").await, "n1");
    world.check().await;
    let claim = world
        .cluster
        .get(berth_core::api::Kind::PersistentVolumeClaim, "default", "data")
        .await
        .unwrap();
    assert_ne!(claim["spec"]["volumeName"], "too-small");
    scheduler.stop().await;
    world.stop().await;
}
