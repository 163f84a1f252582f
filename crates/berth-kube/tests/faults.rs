//! Two controllers at once on an API server that refuses requests, carries them out and reports failure, and cuts
//! watches: in the end everything is bound, and nothing twice. Responses that are not the API server's own delete
//! nothing.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_apiserver::Server;
use berth_core::api::Kind;
use berth_kube::Client;
use berth_kube::api::Api;
use berth_kube::controller::Options;
use berth_kube::resource::Resource;
use common::faulty::Faulty;
use common::gate::{Gate, HTML, Verdict};
use common::{Cluster, create_pair, eventually};
use http::StatusCode;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PAIRS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn two_controllers_on_a_faulty_server_bind_everything_once() {
    let server = Server::builder().build().unwrap();
    let client = Client::new(server.service(), "default");
    let api = Api::new(client.clone(), "test");
    let through_faults = Client::new(Faulty::new(&server, false), "default");
    let cluster = Cluster { server, client, api };
    let options = || Options {
        resync: Duration::from_millis(100),
        ..Options::default()
    };
    let start = || {
        let cancel = berth_kube::CancellationToken::new();
        let task = tokio::spawn(berth_kube::controller::run(
            through_faults.clone(),
            options(),
            cancel.clone(),
        ));
        common::Running { cancel, task }
    };
    let running = [start(), start()];
    for number in 0..PAIRS {
        create_pair(&cluster, &format!("p{number}")).await;
    }
    eventually("all claims are bound", || async {
        let claims = cluster.list(Resource::of(Kind::PersistentVolumeClaim)).await;
        claims.iter().all(|claim| claim["status"]["phase"] == "Bound") && claims.len() == PAIRS
    })
    .await;
    for controller in running {
        controller.stop().await;
    }
    for volume in cluster.list(Resource::of(Kind::PersistentVolume)).await {
        let name = &volume["metadata"]["name"];
        assert_eq!(volume["status"]["phase"], "Bound");
        assert_eq!(&volume["spec"]["claimRef"]["name"], name);
        let claim = cluster
            .get(Kind::PersistentVolumeClaim, "default", name.as_str().unwrap())
            .await
            .unwrap();
        assert_eq!(&claim["spec"]["volumeName"], name);
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    }
    let lost: Vec<Value> = cluster
        .list(Resource::EVENTS)
        .await
        .into_iter()
        .filter(|event| matches!(event["reason"].as_str(), Some("ClaimLost" | "ClaimMisbound")))
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// A controller whose requests pass through a gate.
fn start(gate: &Gate, options: Options) -> common::Running {
    let cancel = berth_kube::CancellationToken::new();
    let client = Client::new(gate.clone(), "default");
    let task = tokio::spawn(berth_kube::controller::run(client, options, cancel.clone()));
    common::Running { cancel, task }
}

async fn phase(cluster: &Cluster, kind: Kind, namespace: &str, name: &str) -> Value {
    let object = cluster.get(kind, namespace, name).await.unwrap();
    object["status"]["phase"].clone()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_the_api_servers_releases_no_volume() {
    for answer in [HTML, Verdict::Answer(StatusCode::OK, "{}")] {
        nothing_is_released_by(answer).await;
    }
}

async fn nothing_is_released_by(answer: Verdict) {
    let cluster = Cluster::new();
    create_pair(&cluster, "kept").await;
    let gate = Gate::new(&cluster.server);
    // Watches end as soon as they are opened, so that each is soon opened again.
    let watch = Verdict::Answer(StatusCode::OK, "");
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    gate.decide(move |asked| match asked.starts_with("GET ") {
        true if is_down.load(Ordering::Relaxed) => answer.clone(),
        true if asked.contains("watch=true") => watch.clone(),
        _ => Verdict::Pass,
    });
    let running = start(&gate, Options::default());
    let bound = async || phase(&cluster, Kind::PersistentVolume, "", "kept").await == "Bound";
    eventually("it is bound", &bound).await;
    down.store(true, Ordering::Relaxed);
    let before = gate.asked("GET /api/v1/persistentvolumeclaims");
    // Minutes of the paused clock, in which each kind is listed again and again, and everything is resynced.
    sleep(Duration::from_secs(300)).await;
    assert!(
        gate.asked("GET /api/v1/persistentvolumeclaims") > before + 5,
        "it is asked for soon"
    );
    assert!(bound().await);
    down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(120)).await;
    assert!(bound().await);
    assert_eq!(
        phase(&cluster, Kind::PersistentVolumeClaim, "default", "kept").await,
        "Bound"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_not_taken_for_gone_by_a_404_of_something_else() {
    let cluster = Cluster::new();
    create_pair(&cluster, "kept").await;
    let gate = Gate::new(&cluster.server);
    let api = Api::new(Client::new(gate.clone(), "default"), "test");
    let claims = Resource::of(Kind::PersistentVolumeClaim);
    assert!(api.get(claims, "default", "kept").await.unwrap().is_some());
    assert!(api.get(claims, "default", "other").await.unwrap().is_none());
    let status = |details: &'static str| Verdict::Answer(StatusCode::NOT_FOUND, details);
    for wrong in [
        HTML,
        status("404 page not found"),
        status(r#"{"kind":"Status","code":404,"reason":"NotFound","message":"no such resource","details":{}}"#),
        status(
            r#"{"kind":"Status","code":404,"reason":"NotFound","details":{"name":"x","kind":"persistentvolumeclaims"}}"#,
        ),
        status(r#"{"kind":"Status","code":404,"reason":"NotFound","details":{"name":"kept","kind":"pods"}}"#),
        status(r#"{"reason":"NotFound","details":{"name":"kept","kind":"persistentvolumeclaims"}}"#),
    ] {
        let answer = wrong.clone();
        gate.decide(move |_| answer.clone());
        let found = api.get(claims, "default", "kept").await;
        assert!(found.is_err(), "{wrong:?}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_in_an_outage_is_done_soon_after_it() {
    let cluster = Cluster::new();
    let names: Vec<String> = (0..5).map(|number| format!("p{number}")).collect();
    for name in &names {
        create_pair(&cluster, name).await;
    }
    let gate = Gate::new(&cluster.server);
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    gate.decide(move |asked| match asked.starts_with("PATCH ") {
        true if !is_up.load(Ordering::Relaxed) => Verdict::Answer(StatusCode::SERVICE_UNAVAILABLE, "down"),
        _ => Verdict::Pass,
    });
    let running = start(
        &gate,
        Options {
            // Only the retries themselves bring claims back.
            resync: Duration::from_secs(86400),
            ..Options::default()
        },
    );
    sleep(Duration::from_secs(600)).await;
    let tries = gate.asked("PATCH ");
    assert!(tries < 2000, "each of five waits about five seconds: {tries}");
    up.store(true, Ordering::Relaxed);
    let back = Instant::now();
    eventually("all claims are bound", || async {
        let claims = cluster.list(Resource::of(Kind::PersistentVolumeClaim)).await;
        claims.iter().all(|claim| claim["status"]["phase"] == "Bound")
    })
    .await;
    assert!(back.elapsed() < Duration::from_secs(8), "{:?}", back.elapsed());
    running.stop().await;
}
