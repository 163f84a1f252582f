//! Two controllers at once on an API server that refuses requests, answers and then claims it had
//! not, and cuts watches: in the end all is bound, and nothing twice.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_apiserver::Server;
use berth_core::api::Kind;
use berth_kube::Client;
use berth_kube::api::Api;
use berth_kube::controller::Options;
use berth_kube::resource::Resource;
use common::faulty::Faulty;
use common::{Cluster, create_pair, eventually};
use serde_json::Value;
use std::time::Duration;

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
