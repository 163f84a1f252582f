//! The controller against the embedded API server over TLS, like any other cluster.

// Test helpers may panic too; the lints exempt only the test functions themselves.
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
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
        // No resync helps: the claim is bound because of what the watches deliver.
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

/// A busy server is asked once: the caller decides whether to retry.
#[tokio::test]
async fn a_request_is_sent_once_and_says_from_whom_it_comes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        // The client continues once it has a response; whatever it sends on the same connection comes first.
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 4096];
        while let Ok(length) = stream.read(&mut buffer).await
            && length > 0
        {
            requests.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\ndown";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let client = from_kubeconfig(&path).await.unwrap();
    let api = Api::new(client, "berth-tester");
    let refused = api.get_path("/api/v1/nodes").await.unwrap_err();
    assert!(refused.is_outage(), "{refused}");
    if cfg!(target_os = "linux") {
        // The timer of an idle connection is the keepalive timer, number 2.
        let to_server = format!(" 0100007F:{:04X} 01 ", address.port());
        eventually("the system looks after the connection", || async {
            let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let mut ours = sockets.lines().filter(|line| line.contains(&to_server));
            ours.any(|line| line.contains(" 02:"))
        })
        .await;
    }
    drop(api);
    let requests = requests.await.unwrap();
    assert_eq!(requests.len(), 1, "{requests:?}");
    let agent = format!("user-agent: berth-tester/{}", env!("CARGO_PKG_VERSION"));
    assert!(requests[0].contains(&agent), "{requests:?}");
}
