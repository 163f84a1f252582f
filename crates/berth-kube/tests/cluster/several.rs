//! Several schedulers on one cluster: sharing one lease, and side by side under different names.

use crate::common::eventually;
use crate::world::{Scheduler, World, quick};
use berth_kube::component::ProcessOptions;
use berth_kube::lease::LeaseOptions;
use berth_kube::scheduler::Options;
use berth_scheduler::profile::Profile;
use berth_testing::{Manifest, claim, local_class, node, pod, volume};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: usize = 4;

/// Nodes with this many local volumes each.
fn objects(volumes_per_node: usize) -> Vec<Value> {
    let mut objects = vec![local_class()];
    for number in 0..NODES {
        let name = format!("n{number}");
        let disks = 0..volumes_per_node;
        objects.extend(disks.map(|disk| volume(&format!("pv{number}-{disk}"), "local", 10).on(&name)));
        objects.push(node(&name));
    }
    objects
}

fn database(name: &str) -> [Value; 2] {
    [claim(name, "local", 5), pod(name, &[name])]
}

fn copy(identity: &str) -> Options {
    let lease = LeaseOptions {
        duration: Duration::from_secs(5),
        renew_deadline: Duration::from_secs(4),
        retry: Duration::from_millis(20),
        ..LeaseOptions::new("kube-system", "berth-scheduler", identity)
    };
    Options {
        process: ProcessOptions {
            leader_election: Some(lease),
            ..ProcessOptions::default()
        },
        ..quick()
    }
}

/// The leader stops in the middle of its work, in order or not; the other one continues.
async fn fails_over(in_order: bool) {
    const PODS: usize = 40;
    let world = World::of(objects(PODS / NODES)).await;
    let first = Scheduler::start(world.cluster.client.clone(), copy("first"));
    let leading = async || first.metrics.is_leader();
    eventually("the first leads", leading).await;
    let second = Scheduler::start(world.cluster.client.clone(), copy("second"));
    for number in 0..PODS {
        world.create(database(&format!("db-{number}"))).await;
    }
    eventually("it works", async || first.metrics.writes() > 10).await;
    assert_eq!(second.metrics.writes(), 0, "the second stands by");
    if in_order {
        first.stop().await;
    } else {
        first.running.task.abort();
    }
    for number in 0..PODS {
        world.placed(&format!("db-{number}")).await;
    }
    world.check().await;
    assert!(second.metrics.is_leader());
    eventually("no binding is under way", async || second.metrics.assumed_pods() == 0).await;
    second.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_behind_one_lease_the_other_takes_over_in_the_middle_of_bindings() {
    fails_over(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_behind_one_lease_the_other_takes_over_from_one_that_died() {
    fails_over(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_schedulers_race_for_the_same_volumes() {
    const EACH: usize = 30;
    const VOLUMES: usize = 40;
    let world = World::of(objects(VOLUMES / NODES)).await;
    let named = |name: &str, seed: u64| {
        let mut options = Options { seed, ..quick() };
        options.settings.profiles = BTreeMap::from([(name.to_owned(), Profile::default())]);
        options
    };
    let client = || world.cluster.client.clone();
    let schedulers = [
        Scheduler::start(client(), named("one", 1)),
        Scheduler::start(client(), named("two", 2)),
    ];
    let mut names = Vec::new();
    for number in 0..EACH {
        for scheduler in ["one", "two"] {
            let name = format!("{scheduler}-{number}");
            let [claim, mut pod] = database(&name);
            pod["spec"]["schedulerName"] = json!(scheduler);
            world.create([claim, pod]).await;
            names.push(name);
        }
    }
    let refusal = "didn't find available persistent volumes to bind";
    eventually("as many pods are placed as there are volumes", async || {
        let (mut placed, mut waiting) = (0, 0);
        for name in &names {
            if !world.node_of(name).await.is_empty() {
                placed += 1;
            } else if world.message_of(name).await.contains(refusal) {
                waiting += 1;
            }
        }
        placed == VOLUMES && waiting == names.len() - VOLUMES
    })
    .await;
    world.check().await;
    for scheduler in schedulers {
        eventually("no binding is under way", async || {
            scheduler.metrics.assumed_pods() == 0
        })
        .await;
        scheduler.stop().await;
    }
    world.stop().await;
}
