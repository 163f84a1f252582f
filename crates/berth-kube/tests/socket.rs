//! The controller against the embedded API server over TLS, as with any other cluster.

// Helpers of tests fail loudly too; the lints spare only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_apiserver::{Server, Tls};
use berth_core::api::Kind;
use berth_kube::CancellationToken;
use berth_kube::api::Api;
use berth_kube::connect::from_kubeconfig;
use berth_kube::controller::Options;
use common::{Cluster, create_pair, eventually};
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_over_tls() {
    let server = Server::builder().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Tls::generate(&[address.ip()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(&tls, address)).unwrap();
    let stop = CancellationToken::new();
    let client = from_kubeconfig(&kubeconfig).await.unwrap();
    let api = Api::new(client.clone(), "test");
    let cluster = Cluster { server, client, api };
    let serving = cluster.server.serve(listener, &tls, stop.cancelled());
    let story = async {
        // No resync helps out: the claim is bound because of what the watches bring.
        let running = cluster.start(Options {
            resync: Duration::from_secs(3600),
            ..Options::default()
        });
        create_pair(&cluster, "a").await;
        eventually("the claim is bound", || async {
            let claim = cluster.get(Kind::PersistentVolumeClaim, "default", "a").await.unwrap();
            claim["status"]["phase"] == "Bound"
        })
        .await;
        running.stop().await;
        stop.cancel();
    };
    let (served, ()) = tokio::join!(serving, story);
    served.unwrap();
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let error = from_kubeconfig(Path::new("nowhere/kubeconfig")).await.err().unwrap();
    assert!(error.to_string().contains("nowhere/kubeconfig"), "{error}");
}
