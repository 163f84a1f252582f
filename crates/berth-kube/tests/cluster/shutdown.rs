//! A scheduler that is asked to stop finishes its work in progress, or leaves it so that the next one can continue.

use crate::common::eventually;
use crate::interposer::{Fault, Interposer};
use crate::world::{Scheduler, World, quick};
use berth_kube::Client;
use berth_testing::{Manifest, claim, local_class, node, pod, volume};

/// Stops the scheduler while this write is in flight; the write then succeeds.
async fn stopped_at(number: usize) -> (World, Vec<String>) {
    let world = World::of([node("n1"), local_class(), volume("pv1", "local", 10).on("n1")]).await;
    let interposer = Interposer::new(&world.cluster.server, Some((number, Fault::Held)));
    let client = Client::new(interposer.clone(), "default");
    let scheduler = Scheduler::start(client, quick());
    world.create([claim("data", "local", 5), pod("db", &["data"])]).await;
    eventually("the write is on its way", async || interposer.has_struck()).await;
    scheduler.running.cancel.cancel();
    interposer.heal();
    scheduler.running.task.await.unwrap().unwrap();
    (world, interposer.writes())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binding_of_a_pod_that_is_on_its_way_is_finished() {
    let (world, writes) = stopped_at(2).await;
    assert_eq!(writes.len(), 2);
    assert_eq!(world.node_of("db").await, "n1");
    world.check().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_is_on_its_way_is_made_and_the_next_scheduler_uses_it() {
    let (world, writes) = stopped_at(1).await;
    assert_eq!(writes.len(), 1, "nothing new is begun: {writes:?}");
    assert_eq!(world.node_of("db").await, "");
    let next = world.scheduler();
    assert_eq!(world.placed("db").await, "n1");
    let metrics = next.metrics.clone();
    next.stop().await;
    assert_eq!(metrics.writes(), 1, "just the pod is left to be bound");
    world.check().await;
    world.stop().await;
}
