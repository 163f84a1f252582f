//! The lease, the recorder and the endpoint, on the embedded API server and a socket.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_core::effect::{Event, EventType, ObjectKey, Target};
use berth_kube::api::{Api, ApiError};
use berth_kube::component::ProcessOptions;
use berth_kube::endpoint::{Health, serve};
use berth_kube::lease::{Lease, LeaseOptions};
use berth_kube::recorder::recorder;
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client};
use common::gate::{Gate, Verdict};
use common::{Cluster, eventually};
use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

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

/// A suspended process resumes: none of its tasks has run yet, and it is about to write.
#[tokio::test(start_paused = true)]
async fn who_was_stopped_while_it_led_writes_nothing_when_it_goes_on() {
    let cluster = Cluster::new();
    let mut leading = lease(&cluster, "first");
    let api = cluster.api.clone().gated(leading.gate());
    let name = |name: &str| serde_json::json!({"metadata": {"name": name}});
    let early = api.create(Resource::of(Kind::Namespace), "", &name("early")).await;
    assert!(matches!(early, Err(ApiError::NotLeading { .. })), "{early:?}");
    assert!(leading.acquire(&CancellationToken::new()).await);
    api.create(Resource::of(Kind::Namespace), "", &name("now"))
        .await
        .unwrap();
    tokio::time::advance(Duration::from_millis(701)).await;
    let late = api.create(Resource::of(Kind::Namespace), "", &name("late")).await;
    assert!(matches!(late, Err(ApiError::NotLeading { .. })), "{late:?}");
    assert!(cluster.get(Kind::Namespace, "", "late").await.is_none());
    assert!(
        api.get(Resource::of(Kind::Namespace), "", "now")
            .await
            .unwrap()
            .is_some(),
        "it may look"
    );
    assert!(leading.acquire(&CancellationToken::new()).await);
    api.create(Resource::of(Kind::Namespace), "", &name("again"))
        .await
        .unwrap();
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
    // Longer than the lease duration, on the paused clock: renewing keeps the other one out.
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

/// A lease through a gate, with the durations of Kubernetes.
fn gated_lease(gate: &Gate) -> Lease {
    let api = Api::new(Client::new(gate.clone(), "default"), "test");
    Lease::new(api, LeaseOptions::new("kube-system", "berth-controller", "leader"))
}

const REFUSED: Verdict = Verdict::Answer(StatusCode::INTERNAL_SERVER_ERROR, "out of order");

#[tokio::test(start_paused = true)]
async fn a_leader_steps_down_before_another_can_take_over_whatever_its_requests_meet() {
    // Errors for some time, then no responses at all; no responses from the start; a late response to the last renewal.
    for errors in [4, 2, 0] {
        let cluster = Cluster::new();
        let gate = Gate::new(&cluster.server);
        let mut lease = gated_lease(&gate);
        let cancel = CancellationToken::new();
        assert!(lease.acquire(&cancel).await);
        let mut left = errors;
        gate.decide(move |_| {
            if left == 0 {
                return Verdict::Hang;
            }
            left -= 1;
            REFUSED
        });
        let acquired = Instant::now();
        assert!(!lease.hold(&cancel).await);
        let believed = acquired.elapsed();
        assert!(believed <= Duration::from_secs(10), "{errors} errors: {believed:?}");
        assert!(believed >= Duration::from_secs(9), "{errors} errors: {believed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_tried_again_in_time() {
    let cluster = Cluster::new();
    let gate = Gate::new(&cluster.server);
    let mut lease = gated_lease(&gate);
    let cancel = CancellationToken::new();
    assert!(lease.acquire(&cancel).await);
    let mut puts = 0;
    gate.decide(move |asked| {
        if !asked.starts_with("PUT ") {
            return Verdict::Pass;
        }
        puts += 1;
        match puts % 3 {
            1 => Verdict::Silent,
            2 => Verdict::Answer(StatusCode::CONFLICT, "changed"),
            _ => Verdict::Pass,
        }
    });
    let stop = CancellationToken::new();
    let holding = tokio::spawn({
        let stop = stop.clone();
        async move { lease.hold(&stop).await }
    });
    // Minutes of the paused clock.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!holding.is_finished(), "neither a conflict nor a lost answer ends it");
    stop.cancel();
    assert!(holding.await.unwrap());
}

/// A leading controller with a claim to bind, where every write to a volume hangs.
async fn controller_in_the_middle_of_a_write() -> (Cluster, Gate, common::Running) {
    let cluster = Cluster::new();
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| match asked.starts_with("PATCH /api/v1/persistentvolumes") {
        true => Verdict::Hang,
        false => Verdict::Pass,
    });
    let options = berth_kube::controller::Options {
        process: ProcessOptions {
            leader_election: Some(LeaseOptions::new("kube-system", "berth-controller", "only")),
            ..ProcessOptions::default()
        },
        ..berth_kube::controller::Options::default()
    };
    let cancel = CancellationToken::new();
    let client = Client::new(gate.clone(), "default");
    let task = tokio::spawn(berth_kube::controller::run(client, options, cancel.clone()));
    common::create_pair(&cluster, "a").await;
    eventually("a write is on its way", || async {
        gate.asked("PATCH /api/v1/persistentvolumes") > 0
    })
    .await;
    (cluster, gate, common::Running { cancel, task })
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_held_until_the_last_write_has_ended() {
    let (cluster, gate, running) = controller_in_the_middle_of_a_write().await;
    running.cancel.cancel();
    // The write may take ten seconds of the paused clock; the lease is renewed meanwhile.
    let renewals = gate.asked("PUT /apis/coordination.k8s.io");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!running.task.is_finished());
    assert_eq!(holder(&cluster).await, "only");
    assert!(gate.asked("PUT /apis/coordination.k8s.io") > renewals);
    running.task.await.unwrap().unwrap();
    assert_eq!(holder(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn who_has_lost_the_lease_does_not_wait_for_its_writes() {
    let (cluster, _gate, running) = controller_in_the_middle_of_a_write().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/berth-controller";
    let patch = serde_json::json!({"spec": {"holderIdentity": "thief"}});
    cluster.api.merge_patch_path(path, &patch).await.unwrap();
    let stolen = Instant::now();
    let ended = running.task.await.unwrap();
    assert!(ended.unwrap_err().to_string().contains("lost the lease"));
    assert!(stolen.elapsed() <= Duration::from_secs(3), "{:?}", stolen.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_read_the_lease_is_not_ready() {
    let cluster = Cluster::new();
    let gate = Gate::new(&cluster.server);
    gate.decide(|_| Verdict::Answer(StatusCode::UNAUTHORIZED, "who are you"));
    let health = Health::default();
    let options = berth_kube::controller::Options {
        process: ProcessOptions {
            leader_election: Some(LeaseOptions::new("kube-system", "berth-controller", "standby")),
            health: health.clone(),
            ..ProcessOptions::default()
        },
        ..berth_kube::controller::Options::default()
    };
    let cancel = CancellationToken::new();
    let client = Client::new(gate.clone(), "default");
    let task = tokio::spawn(berth_kube::controller::run(client, options, cancel.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!health.is_ready(), "it could not take over");
    // Another replica leads: this one is on standby.
    let mut leader = lease(&cluster, "leader");
    assert!(leader.acquire(&cancel).await);
    let holding = tokio::spawn({
        let cancel = cancel.clone();
        async move { leader.hold(&cancel).await }
    });
    gate.decide(|_| Verdict::Pass);
    eventually("it is ready", || async { health.is_ready() }).await;
    gate.decide(|_| REFUSED);
    eventually("it is not", || async { !health.is_ready() }).await;
    assert!(health.is_healthy());
    cancel.cancel();
    task.await.unwrap().unwrap();
    holding.await.unwrap();
}

fn event(message: &str) -> Event {
    Event {
        about: Target {
            api_version: "v1".into(),
            key: ObjectKey::new("PersistentVolumeClaim", "default", "c"),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
        },
        event_type: EventType::Normal,
        reason: "Testing",
        message: message.to_owned(),
        source: "".into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_is_written_once_and_many_similar_ones_are_combined() {
    let cluster = Cluster::new();
    let (recorder, writer) = recorder(cluster.api.clone(), "tester", "tester-1");
    let cancel = CancellationToken::new();
    let writing = tokio::spawn(writer.run(cancel.clone()));
    for _ in 0..5 {
        recorder.tell(event("again"));
    }
    for number in 0..30 {
        recorder.tell(event(&format!("message {number}")));
    }
    // Stopping writes the remaining events.
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
    assert!(
        get(address, "/healthz/leader-election")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
    health.set_ready(true);
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/metrics").await.contains("claims_bound_total 1"));
    assert!(get(address, "/else").await.starts_with("HTTP/1.1 404"));
    cancel.cancel();
    serving.await.unwrap();
}

/// More of them than the maximum number of connections, each with a response that exceeds any socket buffer.
#[tokio::test]
async fn clients_that_never_read_keep_nobody_from_health_and_from_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut registry = Registry::default();
    registry.register("large", "x".repeat(8 << 20), Counter::<u64>::default());
    let cancel = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, Health::default(), Arc::new(registry), cancel.clone()));
    let mut idle = Vec::new();
    for _ in 0..80 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n";
        stream.write_all(request).await.unwrap();
        idle.push(stream);
    }
    let deadline = Duration::from_secs(60);
    let health = tokio::time::timeout(deadline, get(address, "/healthz")).await;
    assert!(health.unwrap().starts_with("HTTP/1.1 200"));
    cancel.cancel();
    tokio::time::timeout(deadline, serving).await.unwrap().unwrap();
}

/// All of them connect before the first one sends a request.
#[tokio::test]
async fn a_crowd_that_comes_at_once_is_answered_to_the_last() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancel = CancellationToken::new();
    let registry = Arc::new(Registry::default());
    let serving = tokio::spawn(serve(listener, Health::default(), registry, cancel.clone()));
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(address).await.unwrap());
    }
    for stream in &mut crowd {
        let request = b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";
        stream.write_all(request).await.unwrap();
    }
    for mut stream in crowd {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    cancel.cancel();
    serving.await.unwrap();
}

/// With one core there is one thread for the work of a component. A long turn must not look like a hanging process.
#[tokio::test]
async fn health_is_told_while_the_component_is_busy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancel = CancellationToken::new();
    let registry = Arc::new(Registry::default());
    let serving = tokio::spawn(serve(listener, Health::default(), registry, cancel.clone()));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    // From here on nothing else runs in this thread, which is the only one of the runtime.
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
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
            ..ProcessOptions::default()
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
