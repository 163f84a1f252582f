//! Each write of a binding fails in each way, the scheduler dies between any two, another writer is faster.
//!
//! Afterwards no volume is bound twice, the pod is scheduled or reports the true reason why not, and nothing is leaked:
//! the remaining volumes and CPUs can all be used.

use crate::common::eventually;
use crate::interposer::{Fault, Interposer};
use crate::world::{Scheduler, World, quick};
use berth_core::api::Kind;
use berth_kube::Client;
use berth_kube::resource::Resource;
use berth_testing::{Manifest, claim, class, local_class, node, pod, sized, volume};
use http::StatusCode;
use serde_json::{Value, json};
use std::future::Future;
use tokio::task::JoinSet;

const REFUSALS: [StatusCode; 3] = [
    StatusCode::FORBIDDEN,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::INTERNAL_SERVER_ERROR,
];

fn objects() -> Vec<Value> {
    vec![
        node("n1"),
        node("n2"),
        local_class(),
        class("made", "berth.dev/local"),
        volume("pv1", "local", 10).on("n1"),
        volume("pv2", "local", 10).on("n1"),
        volume("pv3", "local", 10).on("n2"),
    ]
}

/// A pod with an existing volume, one to be provisioned, and one of a node's four CPUs.
fn database() -> [Value; 3] {
    let mut pod = pod("db", &["kept", "made"]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    [claim("kept", "local", 5), claim("made", "made", 5), pod]
}

fn client(interposer: &Interposer) -> Client {
    Client::new(interposer.clone(), "default")
}

/// The pod is scheduled, and everything that it does not use is available to others.
async fn check_nothing_is_left(world: &World, scheduler: &Scheduler) {
    world.placed("db").await;
    world.check().await;
    eventually("no binding is under way", async || {
        scheduler.metrics.assumed_pods() == 0
    })
    .await;
    for number in 0..2 {
        let name = format!("probe-{number}");
        world.create([claim(&name, "local", 5), pod(&name, &[&name])]).await;
    }
    world.create([sized("four", 4), sized("three", 3)]).await;
    for name in ["probe-0", "probe-1", "four", "three"] {
        world.placed(name).await;
    }
    world.check().await;
}

/// Runs scenarios, a few at a time.
async fn all<F: Future<Output = ()> + Send + 'static>(scenarios: impl IntoIterator<Item = F>) {
    let mut running = JoinSet::new();
    for scenario in scenarios {
        if running.len() >= 4 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(scenario);
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Number of writes of the scheduler for the pod, if everything succeeds.
async fn writes_of_scheduler() -> usize {
    let world = World::of(objects()).await;
    let interposer = Interposer::new(&world.cluster.server, None);
    let scheduler = Scheduler::start(client(&interposer), quick());
    world.create(database()).await;
    world.placed("db").await;
    let writes = interposer.writes();
    assert_eq!(writes.len(), 3, "a volume, a claim and the pod: {writes:?}");
    scheduler.stop().await;
    world.stop().await;
    writes.len()
}

async fn scheduler_write_fails(number: usize, fault: Fault) {
    let world = World::of(objects()).await;
    let interposer = Interposer::new(&world.cluster.server, Some((number, fault)));
    let scheduler = Scheduler::start(client(&interposer), quick());
    world.create(database()).await;
    if let Fault::Refused(_) = fault {
        eventually("the pod says why it waits", async || {
            let events = world.cluster.list(Resource::EVENTS).await;
            let told = |event: &Value| event["message"].as_str().unwrap().contains("refused by the test");
            events
                .iter()
                .any(|event| event["involvedObject"]["name"] == "db" && told(event))
        })
        .await;
        // If another volume is suitable, it may have one by now.
        world.check().await;
        interposer.heal();
    }
    check_nothing_is_left(&world, &scheduler).await;
    if fault == Fault::Busy {
        let events = world.cluster.list(Resource::EVENTS).await;
        let failed = events
            .iter()
            .find(|event| event["involvedObject"]["name"] == "db" && event["type"] == "Warning");
        assert_eq!(failed, None, "a busy server is no failure");
    }
    assert!(interposer.has_struck(), "write {number} met {fault:?}");
    scheduler.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_of_the_scheduler_fails_in_each_way() {
    let faults = [Fault::Busy, Fault::Conflict, Fault::AnswerLost, Fault::TimedOut];
    let faults: Vec<_> = faults.into_iter().chain(REFUSALS.map(Fault::Refused)).collect();
    let writes = 1..=writes_of_scheduler().await;
    all(writes.flat_map(|number| {
        let each = faults.clone().into_iter();
        each.map(move |fault| scheduler_write_fails(number, fault))
    }))
    .await;
}

/// The scheduler dies while this write is in flight: before it arrives, or after it was carried out.
async fn scheduler_dies(number: usize, fault: Fault) {
    let world = World::of(objects()).await;
    let interposer = Interposer::new(&world.cluster.server, Some((number, fault)));
    let first = Scheduler::start(client(&interposer), quick());
    world.create(database()).await;
    eventually("the write is on its way", async || interposer.has_struck()).await;
    first.running.task.abort();
    assert!(first.running.task.await.unwrap_err().is_cancelled());
    let second = world.scheduler();
    check_nothing_is_left(&world, &second).await;
    second.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_dies_between_any_two_writes() {
    let writes = 1..=writes_of_scheduler().await;
    all(writes.flat_map(|number| {
        let each = [Fault::Held, Fault::AnswerLost].into_iter();
        each.map(move |fault| scheduler_dies(number, fault))
    }))
    .await;
}

/// One of the writes of volume controller and provisioner fails. Returns how many there were.
async fn other_write_fails(fault: Option<(usize, Fault)>) -> usize {
    let mut interposer = None;
    let world = World::through(objects(), |cluster| {
        client(interposer.insert(Interposer::new(&cluster.server, fault)))
    });
    let world = world.await;
    let interposer = interposer.unwrap();
    let scheduler = world.scheduler();
    world.create(database()).await;
    world.placed("db").await;
    let writes = interposer.writes().len();
    check_nothing_is_left(&world, &scheduler).await;
    scheduler.stop().await;
    world.stop().await;
    writes
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_of_controller_and_provisioner_fails_once() {
    let writes = 1..=other_write_fails(None).await;
    all(writes.flat_map(|number| {
        let each = [Fault::Conflict, Fault::AnswerLost, Fault::TimedOut].into_iter();
        each.map(move |fault| async move {
            other_write_fails(Some((number, fault))).await;
        })
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_writer_steals_the_volume() {
    let world = World::of(objects()).await;
    let interposer = Interposer::new(&world.cluster.server, None);
    let scheduler = Scheduler::start(client(&interposer), quick());
    world.create([claim("thief", "local", 5)]).await;
    let thief = world
        .cluster
        .get(Kind::PersistentVolumeClaim, "default", "thief")
        .await
        .unwrap();
    interposer.hold(1);
    world.create([claim("kept", "local", 5), pod("db", &["kept"])]).await;
    eventually("the write is on its way", async || interposer.has_struck()).await;
    let wanted = interposer.writes()[0].rsplit('/').next().unwrap().to_owned();
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
        "name": "thief", "uid": thief["metadata"]["uid"]});
    let patch = json!({"spec": {"claimRef": reference}});
    let volumes = Resource::of(Kind::PersistentVolume);
    let api = &world.cluster.api;
    api.merge_patch(volumes, "", &wanted, None, &patch).await.unwrap();
    interposer.heal();
    world.placed("db").await;
    let bound = async |claim: &str| {
        let claim = world.cluster.get(Kind::PersistentVolumeClaim, "default", claim).await;
        claim.unwrap()["spec"]["volumeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    eventually("the thief has it", async || bound("thief").await == wanted).await;
    assert_ne!(bound("kept").await, wanted);
    world.check().await;
    eventually("no binding is under way", async || {
        scheduler.metrics.assumed_pods() == 0
    })
    .await;
    scheduler.stop().await;
    world.stop().await;
}
