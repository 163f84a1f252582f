//! A controller that requires a scheduler for delayed claims, with and without one.

use crate::common::{Cluster, eventually};
use crate::world::{Scheduler, quick};
use berth_core::api::Kind;
use berth_kube::announce::{self, RequiredScheduler, announcing};
use berth_kube::component::ProcessOptions;
use berth_kube::controller;
use berth_kube::lease::LeaseOptions;
use berth_kube::resource::Resource;
use berth_kube::scheduler::Options;
use berth_testing::{Manifest, claim, local_class, node, pod, volume};
use serde_json::{Value, json};
use std::time::Duration;

fn lease(name: &str) -> LeaseOptions {
    let lease = LeaseOptions {
        retry: Duration::from_millis(20),
        ..LeaseOptions::new("kube-system", name, "the-scheduler")
    };
    announcing(lease, ["default-scheduler"])
}

fn announced_scheduler(cluster: &Cluster) -> Scheduler {
    let options = Options {
        announcement: Some(lease("berth-scheduler.default-scheduler")),
        ..quick()
    };
    Scheduler::start(cluster.client.clone(), options)
}

fn requiring(grace: Duration) -> controller::Options {
    controller::Options {
        required_scheduler: Some(RequiredScheduler {
            poll: Duration::from_millis(10),
            grace,
            ..RequiredScheduler::new("kube-system")
        }),
        ..controller::Options::default()
    }
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new();
    let objects = [node("n1"), local_class(), volume("pv1", "local", 10).on("n1")];
    for object in objects {
        cluster.create(&object).await;
    }
    cluster
}

async fn phase(cluster: &Cluster, claim: &str) -> Value {
    let claim = cluster.get(Kind::PersistentVolumeClaim, "default", claim).await;
    claim.unwrap()["status"]["phase"].clone()
}

async fn told(cluster: &Cluster, claim: &str, reason: &str) -> bool {
    let events = cluster.list(Resource::EVENTS).await;
    let about = |event: &&Value| event["involvedObject"]["name"] == claim;
    events.iter().filter(about).any(|event| event["reason"] == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_scheduler_delayed_claims_are_bound_at_once_with_a_warning() {
    let cluster = cluster().await;
    let options = requiring(Duration::from_millis(200));
    let metrics = options.metrics.clone();
    let controller = cluster.start(options);
    cluster.create(&claim("data", "local", 5)).await;
    // At first it assumes a scheduler: what is bound stays bound.
    eventually("it is waited for a pod", || {
        told(&cluster, "data", "WaitForFirstConsumer")
    })
    .await;
    eventually("it is bound", async || phase(&cluster, "data").await == "Bound").await;
    eventually("it is told", || told(&cluster, "data", "DelayedBindingUnavailable")).await;
    assert!(metrics.undelayed() > 0);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_scheduler_that_announces_itself_claims_are_delayed() {
    let cluster = cluster().await;
    let scheduler = announced_scheduler(&cluster);
    // Longer than a slow machine takes to renew a lease, and no longer than the test can wait.
    let grace = Duration::from_secs(2);
    let options = requiring(grace);
    let metrics = options.metrics.clone();
    let controller = cluster.start(options);
    cluster.create(&claim("data", "local", 5)).await;
    eventually("it is waited for a pod", || {
        told(&cluster, "data", "WaitForFirstConsumer")
    })
    .await;
    let begin = tokio::time::Instant::now();
    eventually("the grace is over", async || begin.elapsed() > grace * 2).await;
    assert_eq!(phase(&cluster, "data").await, "Pending");
    assert_eq!(metrics.undelayed(), 0);
    cluster.create(&pod("db", &["data"])).await;
    eventually("the pod is placed", async || {
        let pod = cluster.get(Kind::Pod, "default", "db").await.unwrap();
        pod["spec"]["nodeName"] == "n1"
    })
    .await;
    // When it is gone for good, claims are bound again without it.
    scheduler.stop().await;
    cluster.create(&volume("pv2", "local", 10).on("n1")).await;
    cluster.create(&claim("later", "local", 5)).await;
    eventually("it is bound", async || phase(&cluster, "later").await == "Bound").await;
    assert!(told(&cluster, "later", "DelayedBindingUnavailable").await);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announcement_counts_only_for_the_holder_that_wrote_it() {
    let cluster = cluster().await;
    let scheduler = announced_scheduler(&cluster);
    let read = async || {
        let path = Resource::LEASES.object("kube-system", "berth-scheduler.default-scheduler");
        let bytes = cluster.api.get_path(&path).await.ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    };
    eventually("the lease is there", async || read().await.is_some()).await;
    scheduler.stop().await;
    let mut lease = read().await.unwrap();
    let annotations = &lease["metadata"]["annotations"];
    assert_eq!(annotations[announce::CAPABILITIES], announce::DELAYED_BINDING);
    assert_eq!(annotations[announce::VERSION], env!("CARGO_PKG_VERSION"));
    assert_eq!(annotations[announce::ANNOUNCED_BY], lease["spec"]["holderIdentity"]);
    let controller = cluster.start(requiring(Duration::from_millis(200)));
    cluster.create(&claim("data", "local", 5)).await;
    // Another scheduler takes over the lease, without announcements.
    lease["spec"]["holderIdentity"] = json!("older");
    let mut renewals = 0;
    eventually("it is bound", || {
        renewals += 1;
        let mut lease = lease.clone();
        lease["spec"]["leaseTransitions"] = json!(renewals);
        lease["metadata"]["resourceVersion"] = Value::Null;
        let cluster = &cluster;
        async move {
            let name = "berth-scheduler.default-scheduler";
            let api = &cluster.api;
            let spec = json!({"spec": lease["spec"]});
            let renewed = api
                .merge_patch(Resource::LEASES, "kube-system", name, None, &spec)
                .await;
            assert!(renewed.is_ok(), "{renewed:?}");
            phase(cluster, "data").await == "Bound"
        }
    })
    .await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_an_election_announces_too() {
    let cluster = cluster().await;
    let options = Options {
        process: ProcessOptions {
            leader_election: Some(lease("berth-scheduler")),
            ..ProcessOptions::default()
        },
        ..quick()
    };
    let scheduler = Scheduler::start(cluster.client.clone(), options);
    eventually("it leads", async || scheduler.metrics.is_leader()).await;
    let path = Resource::LEASES.object("kube-system", "berth-scheduler");
    let lease: Value = serde_json::from_slice(&cluster.api.get_path(&path).await.unwrap()).unwrap();
    let annotations = &lease["metadata"]["annotations"];
    assert_eq!(annotations[announce::CAPABILITIES], announce::DELAYED_BINDING);
    assert_eq!(annotations[announce::ANNOUNCED_BY], lease["spec"]["holderIdentity"]);
    scheduler.stop().await;
}
