//! The scheduler on the embedded API server, with the volume controller.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_kube::component::ProcessOptions;
use berth_kube::endpoint::Health;
use berth_kube::lease::{Lease, LeaseOptions};
use berth_kube::resource::Resource;
use berth_kube::scheduler::{Metrics, Options, RunError, run};
use berth_kube::{CancellationToken, Client};
use berth_testing::{Manifest, claim, class, local_class, node, pod, sized, volume};
use common::gate::{Gate, Verdict};
use common::{Cluster, eventually};
use prometheus_client::registry::Registry;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

struct Scheduler {
    cancel: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
    metrics: Metrics,
}

impl Scheduler {
    fn start(cluster: &Cluster, options: Options) -> Self {
        Self::through(cluster.client.clone(), options)
    }

    fn through(client: Client, options: Options) -> Self {
        let cancel = CancellationToken::new();
        let metrics = options.metrics.clone();
        let task = tokio::spawn(run(client, options, cancel.clone()));
        Self { cancel, task, metrics }
    }

    fn samples(&self) -> String {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn create_volume(cluster: &Cluster, name: &str, node: &str) {
    cluster.create(&volume(name, "local", 10).on(node)).await;
}

async fn node_of(cluster: &Cluster, pod: &str) -> String {
    let pod = cluster.get(Kind::Pod, "default", pod).await.unwrap();
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
}

async fn wait_for_node(cluster: &Cluster, pod: &str) {
    eventually("the pod has a node", || async {
        !node_of(cluster, pod).await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_delayed_local_claim_is_bound_at_once() {
    let cluster = Cluster::new();
    cluster.create(&local_class()).await;
    for number in 0..20 {
        cluster.create(&node(&format!("n{number}"))).await;
        create_volume(&cluster, &format!("v{number}"), &format!("n{number}")).await;
    }
    let controller = cluster.start(berth_kube::controller::Options::default());
    // Until the controller has made the volumes available, a write to one of them can conflict with the controller's.
    for number in 0..20 {
        eventually("the volume is available", || async {
            let volume = cluster
                .get(Kind::PersistentVolume, "", &format!("v{number}"))
                .await
                .unwrap();
            volume["status"]["phase"] == "Available"
        })
        .await;
    }
    let scheduler = Scheduler::start(&cluster, Options::default());
    cluster.create(&claim("c0", "local", 1)).await;
    cluster.create(&pod("p0", &["c0"])).await;
    wait_for_node(&cluster, "p0").await;
    let mut times = Vec::new();
    for number in 1..20 {
        let (pod_name, claim_name) = (format!("p{number}"), format!("c{number}"));
        cluster.create(&claim(&claim_name, "local", 1)).await;
        let begin = Instant::now();
        cluster.create(&pod(&pod_name, &[&claim_name])).await;
        wait_for_node(&cluster, &pod_name).await;
        times.push(begin.elapsed());
        let bound = cluster
            .get(Kind::PersistentVolumeClaim, "default", &claim_name)
            .await
            .unwrap();
        let volume = bound["spec"]["volumeName"].as_str().unwrap().to_owned();
        assert_eq!(volume.replace('v', "n"), node_of(&cluster, &pod_name).await);
    }
    times.sort();
    // kube-scheduler polls once a second: a loaded machine gets half of that.
    assert!(times[times.len() / 2] < Duration::from_millis(500), "{times:?}");
    let metrics = scheduler.metrics.clone();
    scheduler.stop().await;
    // The volume's claimRef and the pod's binding. The class has no provisioner, so no node is selected for the claim.
    assert_eq!(metrics.writes(), 20 * 2);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_says_why_and_is_placed_when_it_can_be() {
    let cluster = Cluster::new();
    cluster.create(&local_class()).await;
    cluster.create(&node("n1")).await;
    let controller = cluster.start(berth_kube::controller::Options::default());
    let scheduler = Scheduler::start(&cluster, Options::default());
    cluster.create(&claim("c", "local", 1)).await;
    cluster.create(&pod("p", &["c"])).await;
    eventually("the condition tells", || async {
        let pod = cluster.get(Kind::Pod, "default", "p").await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "PodScheduled"
                && condition["status"] == "False"
                && condition["reason"] == "Unschedulable"
                && condition["message"]
                    .as_str()
                    .unwrap()
                    .contains("didn't find available persistent volumes to bind")
        })
    })
    .await;
    create_volume(&cluster, "v", "n1").await;
    wait_for_node(&cluster, "p").await;
    let bound = cluster.get(Kind::Pod, "default", "p").await.unwrap();
    let conditions = bound["status"]["conditions"].as_array().cloned().unwrap();
    let scheduled: Vec<_> = conditions.iter().filter(|one| one["type"] == "PodScheduled").collect();
    assert_eq!(scheduled.len(), 1);
    assert_eq!(scheduled[0]["status"], "True");
    eventually("the events tell", || async {
        let events = cluster.list(berth_kube::resource::Resource::EVENTS).await;
        let told = |reason: &str| events.iter().any(|event| event["reason"] == reason);
        told("FailedScheduling") && told("Scheduled")
    })
    .await;
    scheduler.stop().await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_behind_one_lease_the_other_goes_on() {
    let cluster = Cluster::new();
    cluster.create(&node("n1")).await;
    let copy = |identity: &str| Options {
        process: ProcessOptions {
            leader_election: Some(LeaseOptions {
                duration: Duration::from_secs(1),
                renew_deadline: Duration::from_millis(700),
                retry: Duration::from_millis(20),
                ..LeaseOptions::new("kube-system", "berth-scheduler", identity)
            }),
            ..ProcessOptions::default()
        },
        ..Options::default()
    };
    let first = Scheduler::start(&cluster, copy("first"));
    cluster.create(&pod("p1", &[])).await;
    wait_for_node(&cluster, "p1").await;
    let second = Scheduler::start(&cluster, copy("second"));
    cluster.create(&pod("p2", &[])).await;
    wait_for_node(&cluster, "p2").await;
    assert_eq!(second.metrics.writes(), 0, "it stands by");
    first.stop().await;
    cluster.create(&pod("p3", &[])).await;
    wait_for_node(&cluster, "p3").await;
    // A write is counted when its response arrives, which can be after the watch has shown it.
    let metrics = second.metrics.clone();
    second.stop().await;
    assert_eq!(metrics.writes(), 1);
}

/// A second replica through a gate, while a first one leads until the token is cancelled.
async fn behind_a_leader(cluster: &Cluster, cold_standby: bool) -> (Gate, Scheduler, Health, CancellationToken) {
    let lease = |identity: &str| LeaseOptions::new("kube-system", "berth-scheduler", identity);
    let mut first = Lease::new(cluster.api.clone(), lease("first"));
    let stop = CancellationToken::new();
    assert!(first.acquire(&stop).await);
    tokio::spawn({
        let stop = stop.clone();
        async move { first.hold(&stop).await }
    });
    let (gate, health) = (Gate::new(&cluster.server), Health::default());
    let options = Options {
        cold_standby,
        process: ProcessOptions {
            leader_election: Some(lease("second")),
            health: health.clone(),
            ..ProcessOptions::default()
        },
        ..Options::default()
    };
    let second = Scheduler::through(Client::new(gate.clone(), "default"), options);
    eventually("it stands by", || async { health.is_ready() }).await;
    (gate, second, health, stop)
}

fn writes(gate: &Gate) -> usize {
    ["POST ", "PUT ", "PATCH ", "DELETE "]
        .map(|verb| gate.asked(verb))
        .iter()
        .sum()
}

#[tokio::test(start_paused = true)]
async fn a_standby_follows_its_watches_and_decides_as_soon_as_it_leads() {
    let cluster = Cluster::new();
    for name in ["n1", "n2"] {
        cluster.create(&node(name)).await;
    }
    let (gate, second, health, stop) = behind_a_leader(&cluster, false).await;
    // A kind that the server does not have is looked for now and then.
    let lists = || gate.asked("limit=") - gate.asked("csidrivercapacities");
    let listed = lists();
    assert!(listed > 0, "it is ready because it has listed everything");
    cluster.create(&sized("there", 4).on("n1")).await;
    cluster.create(&sized("waits", 4)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node_of(&cluster, "waits").await, "");
    assert_eq!(writes(&gate), 0);
    assert_eq!(second.metrics.pending("active"), 0, "the leader reports it");
    assert!(health.is_ready() && health.is_healthy());
    stop.cancel();
    eventually("it leads", || async { gate.asked("PUT ") > 0 }).await;
    let leads = tokio::time::Instant::now();
    wait_for_node(&cluster, "waits").await;
    assert!(leads.elapsed() < Duration::from_secs(1), "{:?}", leads.elapsed());
    assert_eq!(
        node_of(&cluster, "waits").await,
        "n2",
        "it saw the pod of the leader on n1"
    );
    assert_eq!(lists(), listed, "it listed nothing again");
    let samples = second.samples();
    assert!(samples.contains("event=\"PodAdd\"} 1\n"), "{samples}");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cold_standby_reads_only_the_lease_until_it_leads() {
    let cluster = Cluster::new();
    cluster.create(&node("n1")).await;
    let (gate, second, health, stop) = behind_a_leader(&cluster, true).await;
    cluster.create(&pod("waits", &[])).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(gate.asked("/api/v1/"), 0);
    assert!(health.is_ready());
    stop.cancel();
    wait_for_node(&cluster, "waits").await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_another_scheduler_are_left_alone() {
    let cluster = Cluster::new();
    cluster.create(&node("n1")).await;
    let scheduler = Scheduler::start(&cluster, Options::default());
    let mut foreign = pod("foreign", &[]);
    foreign["spec"]["schedulerName"] = json!("other");
    cluster.create(&foreign).await;
    cluster.create(&pod("own", &[])).await;
    wait_for_node(&cluster, "own").await;
    assert_eq!(node_of(&cluster, "foreign").await, "");
    scheduler.stop().await;
}

async fn events(cluster: &Cluster, reason: &str) -> usize {
    let events = cluster.list(Resource::EVENTS).await;
    events.iter().filter(|event| event["reason"] == reason).count()
}

/// Another scheduler binds the pod to the node that this one chose, and the watch reports it before the refusal
/// arrives.
#[tokio::test(start_paused = true)]
async fn a_pod_that_another_scheduler_bound_is_not_counted_as_ours() {
    let cluster = Cluster::new();
    cluster.create(&node("n1")).await;
    let gate = Gate::new(&cluster.server);
    gate.decide(
        |asked| match asked.starts_with("POST ") && asked.contains("/pods/lost/binding") {
            true => Verdict::Late(http::StatusCode::CONFLICT, "already assigned", Duration::from_secs(5)),
            false => Verdict::Pass,
        },
    );
    let scheduler = Scheduler::through(Client::new(gate.clone(), "default"), Options::default());
    cluster.create(&pod("lost", &[])).await;
    eventually("a binding is on its way", || async {
        gate.asked("/pods/lost/binding") == 1
    })
    .await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "lost"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let pods = Resource::of(Kind::Pod);
    let bound = cluster
        .api
        .post_subresource(pods, "default", "lost", "binding", &binding)
        .await;
    bound.unwrap();
    eventually("it is counted as failed", || async {
        scheduler
            .samples()
            .contains("scheduler_schedule_attempts_total{result=\"error\",profile=\"default-scheduler\"} 1\n")
    })
    .await;
    // The next one is ours, although the watch may report it first.
    cluster.create(&pod("won", &[])).await;
    eventually("it is told", || async { events(&cluster, "Scheduled").await == 1 }).await;
    let samples = scheduler.samples();
    let scheduled = "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1\n";
    assert!(samples.contains(scheduled), "{samples}");
    scheduler.stop().await;
    assert_eq!(events(&cluster, "Scheduled").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_have_succeeded_are_not_read_and_their_room_is_free() {
    let cluster = Cluster::new();
    cluster.create(&node("n1")).await;
    let gate = Gate::new(&cluster.server);
    let scheduler = Scheduler::through(Client::new(gate.clone(), "default"), Options::default());
    cluster.create(&sized("first", 3)).await;
    wait_for_node(&cluster, "first").await;
    cluster.create(&sized("second", 3)).await;
    eventually("the second waits", || async {
        scheduler.metrics.pending("unschedulable") == 1
    })
    .await;
    let ended = json!({"status": {"phase": "Succeeded"}});
    let pods = Resource::of(Kind::Pod);
    let written = cluster
        .api
        .merge_patch(pods, "default", "first", Some("status"), &ended)
        .await;
    written.unwrap();
    wait_for_node(&cluster, "second").await;
    let selector = "fieldSelector=status.phase%21%3DSucceeded";
    assert_eq!(gate.asked(&format!("/api/v1/pods?limit=1000&{selector}")), 1);
    assert!(gate.asked("/api/v1/pods?watch=true") >= 1);
    assert_eq!(
        gate.asked("/api/v1/pods?watch=true"),
        gate.asked(&format!("timeoutSeconds=290&{selector}"))
    );
    scheduler.stop().await;
}

/// The writes of a decision take turns with those of others. Every write takes a while here, so that those of the first pod would take far longer
/// than the second one may wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_thousands_of_claims_does_not_hold_up_the_next() {
    const CLAIMS: usize = 4000;
    const WRITE: &str = "/persistentvolumeclaims/c";
    let cluster = Cluster::new();
    cluster.create(&node("n1")).await;
    cluster.create(&class("remote", "disk.example.com")).await;
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("c{number}")).collect();
    for name in &names {
        cluster.create(&claim(name, "remote", 1)).await;
    }
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| match asked.contains(WRITE) {
        true => Verdict::Slow(Duration::from_millis(50)),
        false => Verdict::Pass,
    });
    let scheduler = Scheduler::through(Client::new(gate.clone(), "default"), Options::default());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    cluster.create(&pod("large", &names)).await;
    eventually("claims are being written", || async { gate.asked(WRITE) > 0 }).await;
    cluster.create(&pod("next", &[])).await;
    wait_for_node(&cluster, "next").await;
    let written = gate.asked(WRITE);
    assert!(
        written < CLAIMS / 2,
        "{written} claims were written before the next pod was bound"
    );
    gate.decide(|_| Verdict::Pass);
    scheduler.stop().await;
}
