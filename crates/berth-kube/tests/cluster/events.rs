//! Events wake the pods that they can help, through watches and runners; pods that they cannot help stay asleep.

use crate::common::eventually;
use crate::world::World;
use berth_core::api::Kind;
use berth_core::names;
use berth_kube::resource::Resource;
use berth_testing::{Manifest, claim, class, local_class, node, pod, sized, volume};
use serde_json::{Value, json};

/// Number of pods that the event cannot help. If they were woken, it would show in the retries of the one it helps.
const OTHERS: usize = 6;
/// The controller processes a new volume before it can be used: the pod may be woken for both.
const RETRIES: u64 = 2;

/// `helped` and the pods created by `other` wait; the event happens; `helped` is scheduled and the others stay asleep.
async fn check(
    objects: impl IntoIterator<Item = Value>,
    helped: Value,
    other: impl Fn(&str) -> Value,
    event: impl AsyncFnOnce(&World),
) {
    let world = World::of(objects).await;
    let scheduler = world.scheduler();
    let others: Vec<_> = (0..OTHERS).map(|number| format!("other-{number}")).collect();
    world.create([helped]).await;
    world.create(others.iter().map(|name| other(name))).await;
    for name in others.iter().map(String::as_str).chain(["helped"]) {
        world.waits(name, "0/").await;
    }
    let unhelped = OTHERS as i64 + 1;
    eventually("all sleep", async || {
        scheduler.metrics.pending("unschedulable") == unhelped
    })
    .await;
    let woken = scheduler.metrics.woken();
    event(&world).await;
    world.placed("helped").await;
    let woken = scheduler.metrics.woken() - woken;
    assert!((1..=RETRIES).contains(&woken), "woken {woken} times");
    for name in &others {
        assert_eq!(world.node_of(name).await, "");
    }
    world.check().await;
    scheduler.stop().await;
    world.stop().await;
}

async fn patch(world: &World, kind: Kind, name: &str, patch: Value) {
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    let api = &world.cluster.api;
    api.merge_patch(Resource::of(kind), namespace, name, None, &patch)
        .await
        .unwrap();
}

fn claims() -> Vec<Value> {
    vec![
        node("n1"),
        local_class(),
        class("other", names::NO_PROVISIONER),
        claim("a", "local", 5),
        claim("b", "other", 5),
    ]
}

fn other_claim(name: &str) -> Value {
    pod(name, &["b"])
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_added() {
    let objects = [node("n1"), local_class(), volume("pv1", "local", 10).on("n1")];
    let other = |name: &str| pod(name, &["never"]);
    check(objects, pod("helped", &["late"]), other, async |world| {
        world.create([claim("late", "local", 5)]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_added() {
    check(claims(), pod("helped", &["a"]), other_claim, async |world| {
        world.create([volume("pv1", "local", 10).on("n1")]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_updated() {
    let mut objects = claims();
    let mut elsewhere = volume("pv1", "local", 10).on("n1");
    elsewhere["metadata"]["labels"] = json!({"disk": "slow"});
    objects.push(elsewhere);
    objects[3]["spec"]["selector"] = json!({"matchLabels": {"disk": "fast"}});
    check(objects, pod("helped", &["a"]), other_claim, async |world| {
        let labels = json!({"metadata": {"labels": {"disk": "fast"}}});
        patch(world, Kind::PersistentVolume, "pv1", labels).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn class_added() {
    let mut objects = claims();
    objects.push(claim("late", "made", 5));
    check(objects, pod("helped", &["late"]), other_claim, async |world| {
        world.create([class("made", "berth.dev/local")]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_added_and_its_labels_changed() {
    let selecting = |name: &str, disk: &str| {
        let mut pod = pod(name, &[]);
        pod["spec"]["nodeSelector"] = json!({"disk": disk});
        pod
    };
    let other = |name: &str| selecting(name, "none");
    check([node("n1")], selecting("helped", "ssd"), other, async |world| {
        let mut fast = node("n2");
        fast["metadata"]["labels"]["disk"] = json!("ssd");
        world.create([fast]).await;
    })
    .await;
    check([node("n1")], selecting("helped", "ssd"), other, async |world| {
        let labels = json!({"metadata": {"labels": {"disk": "ssd"}}});
        patch(world, Kind::Node, "n1", labels).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_gone() {
    let mut running = sized("running", 3);
    running["spec"]["nodeName"] = json!("n1");
    let other = |name: &str| sized(name, 5);
    check([node("n1"), running], sized("helped", 4), other, async |world| {
        // There is no kubelet to terminate it.
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        let api = &world.cluster.api;
        let deleted = api.delete_with(Resource::of(Kind::Pod), "default", "running", &options);
        deleted.await.unwrap();
    })
    .await;
}
