//! The lease, the recorder and the endpoint, on the embedded API server and a socket.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_kube::CancellationToken;
use berth_kube::component::ProcessOptions;
use berth_kube::endpoint::{Health, serve};
use berth_kube::lease::{Lease, LeaseOptions};
use berth_kube::recorder::{About, Told, recorder};
use berth_kube::resource::Resource;
use common::{Cluster, eventually};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn lease(cluster: &Cluster, identity: &str) -> Lease {
    let options = LeaseOptions {
        duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(700),
        retry: Duration::from_millis(10),
        ..LeaseOptions::new("kube-system", "berth-controller", identity)
    };
    Lease::new(cluster.api.clone(), options)
}

async fn holder(cluster: &Cluster) -> String {
    let bytes = cluster
        .api
        .get(Resource::LEASES, "kube-system", "berth-controller")
        .await
        .unwrap();
    let lease: Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_takes_over_when_it_stops() {
    let cluster = Cluster::new();
    let cancel = CancellationToken::new();
    let mut first = lease(&cluster, "first");
    assert!(first.acquire(&cancel).await);
    assert_eq!(holder(&cluster).await, "first");
    let mut second = lease(&cluster, "second");
    let waiting = tokio::spawn(async move {
        let cancel = CancellationToken::new();
        second.acquire(&cancel).await
    });
    let stop = CancellationToken::new();
    let holding = tokio::spawn({
        let stop = stop.clone();
        async move { first.hold(&stop).await }
    });
    // Longer than the lease lasts, on the paused clock: renewing keeps the other out.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    stop.cancel();
    assert!(holding.await.unwrap(), "it was given up, not lost");
    assert!(waiting.await.unwrap());
    assert_eq!(holder(&cluster).await, "second");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_fell_silent_is_deposed_and_notices() {
    let cluster = Cluster::new();
    let cancel = CancellationToken::new();
    let mut silent = lease(&cluster, "silent");
    assert!(silent.acquire(&cancel).await);
    let mut next = lease(&cluster, "next");
    assert!(next.acquire(&cancel).await, "after the lease ran out");
    assert!(!silent.hold(&cancel).await, "the lease is another's");
}

fn told(message: &str) -> Told {
    Told {
        about: About {
            api_version: "v1".to_owned(),
            kind: "PersistentVolumeClaim",
            namespace: "default".to_owned(),
            name: "c".to_owned(),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
        },
        event_type: "Normal",
        reason: "Testing".to_owned(),
        message: message.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_is_written_once_and_many_similar_ones_are_combined() {
    let cluster = Cluster::new();
    let (recorder, writer) = recorder(cluster.api.clone(), "tester", "tester-1");
    let cancel = CancellationToken::new();
    let writing = tokio::spawn(writer.run(cancel.clone()));
    for _ in 0..5 {
        recorder.tell(told("again"));
    }
    for number in 0..30 {
        recorder.tell(told(&format!("message {number}")));
    }
    // Stopping writes what still waits.
    cancel.cancel();
    writing.await.unwrap();
    let events = cluster.list(Resource::EVENTS).await;
    let again: Vec<_> = events.iter().filter(|event| event["message"] == "again").collect();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0]["source"]["component"], "tester");
    assert_eq!(again[0]["involvedObject"]["name"], "c");
    assert_eq!(events.len(), 11, "ten different messages and a combined one");
    assert_eq!(recorder.dropped(), 0);
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_endpoint_tells_health_and_metrics() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut registry = Registry::default();
    let counter: Counter = Counter::default();
    registry.register("claims_bound", "Claims that were bound", counter.clone());
    counter.inc();
    let health = Health::default();
    let cancel = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, health.clone(), Arc::new(registry), cancel.clone()));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
    health.set_ready(true);
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/metrics").await.contains("claims_bound_total 1"));
    assert!(get(address, "/else").await.starts_with("HTTP/1.1 404"));
    cancel.cancel();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_with_a_lease_works_and_gives_it_up() {
    let cluster = Cluster::new();
    let health = Health::default();
    let options = berth_kube::controller::Options {
        process: ProcessOptions {
            leader_election: Some(LeaseOptions::new("kube-system", "berth-controller", "only")),
            listen: Some(([127, 0, 0, 1], 0).into()),
            health: health.clone(),
        },
        ..berth_kube::controller::Options::default()
    };
    let running = cluster.start(options);
    common::create_pair(&cluster, "a").await;
    eventually("the claim is bound", || async {
        let claim = cluster.get(Kind::PersistentVolumeClaim, "default", "a").await.unwrap();
        claim["status"]["phase"] == "Bound"
    })
    .await;
    assert!(health.is_ready());
    assert_eq!(holder(&cluster).await, "only");
    running.stop().await;
    assert_eq!(holder(&cluster).await, "");
    assert!(!health.is_ready());
}
