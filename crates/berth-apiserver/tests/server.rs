//! The server as a whole: restarts, time, limits, TLS and shutdown.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use berth_apiserver::{Authority, BuildError, Clock, ServeError, Server, Tls};
use bytes::Bytes;
use common::{ask, send};
use futures_util::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A clock that is advanced manually.
#[derive(Default)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Server::builder().data_dir(directory.path()).build().unwrap();
    let first = open();
    let (code, created) = ask(&first.service(), "POST", MAPS, map("a")).await;
    assert_eq!(code, 201);
    let (_, definition) = ask(
        &first.service(),
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        json!({"metadata": {"name": "boats.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
            "names": {"plural": "boats", "kind": "Boat"}, "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
    )
    .await;
    assert_eq!(definition["status"]["conditions"][1]["type"], "Established");
    let (code, _) = ask(
        &first.service(),
        "POST",
        "/apis/example.com/v1/boats",
        json!({"metadata": {"name": "ada"}}),
    )
    .await;
    assert_eq!(code, 201);
    let version = first.store().version();
    drop(first);

    let second = open();
    assert_eq!(second.store().version(), version, "a restart writes nothing");
    let (code, found) = ask(&second.service(), "GET", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, found), (200, created));
    let (code, _) = ask(&second.service(), "GET", "/apis/example.com/v1/boats/ada", Value::Null).await;
    assert_eq!(code, 200);
    let (_, next) = ask(&second.service(), "POST", MAPS, map("b")).await;
    assert_eq!(next["metadata"]["resourceVersion"], (version + 1).to_string());
}

#[tokio::test]
async fn a_deletion_that_was_cut_off_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Server::builder().data_dir(directory.path()).build().unwrap();
    let first = open();
    let (_, owner) = ask(&first.service(), "POST", MAPS, map("owner")).await;
    let mut child = map("child");
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    ask(&first.service(), "POST", MAPS, child).await;
    // As if the process had ended between the deletion of the owner and that of its dependents.
    let stored = first.store().get("configmaps", "default/owner").unwrap();
    let ticket = first
        .store()
        .delete("configmaps", "default/owner", stored.version(), stored.value())
        .unwrap();
    ticket.wait().unwrap();
    drop(first);

    let second = open();
    second.collect_garbage().await;
    let (code, _) = ask(&second.service(), "GET", &format!("{MAPS}/child"), Value::Null).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn time_and_names_are_parameters() {
    let run = async || {
        let clock = Arc::new(ManualClock::default());
        let server = Server::builder().clock(clock.clone()).seed(7).build().unwrap();
        clock.0.store(1_000_000, Ordering::Relaxed);
        let made = json!({"metadata": {"generateName": "made-"}});
        let (_, created) = ask(&server.service(), "POST", MAPS, made).await;
        assert_eq!(created["metadata"]["creationTimestamp"], "1970-01-12T13:46:40Z");
        created
    };
    assert_eq!(
        run().await,
        run().await,
        "the same seed and the same time make the same objects"
    );
}

#[tokio::test]
async fn events_are_forgotten_after_an_hour() {
    let clock = Arc::new(ManualClock::default());
    let server = Server::builder().clock(clock.clone()).build().unwrap();
    let event = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "default"}, "reason": "R", "type": "Normal",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "lastTimestamp": "1970-01-01T00:00:00Z"})
    };
    let events = "/api/v1/namespaces/default/events";
    for name in ["once", "again"] {
        let (code, made) = ask(&server.service(), "POST", events, event(name)).await;
        assert_eq!(code, 201, "{made}");
    }
    clock.0.store(3000, Ordering::Relaxed);
    let seen = Bytes::from_static(b"{\"count\": 2, \"lastTimestamp\": \"1970-01-01T00:50:00Z\"}");
    let path = format!("{events}/again");
    send(&server.service(), "PATCH", &path, "application/merge-patch+json", seen).await;
    assert_eq!(server.expire_events().await, 0);
    clock.0.store(3601, Ordering::Relaxed);
    assert_eq!(server.expire_events().await, 1, "the other was seen since");
    let (code, _) = ask(&server.service(), "GET", &path, Value::Null).await;
    assert_eq!(code, 200);
    clock.0.store(3000 + 3601, Ordering::Relaxed);
    assert_eq!(server.expire_events().await, 1);
}

#[tokio::test]
async fn yaml_is_read_where_clients_may_send_it() {
    let server = Server::builder().build().unwrap();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"1\"\n";
    let path = format!("{MAPS}/a?fieldManager=me");
    let (code, _) = send(
        &server.service(),
        "PATCH",
        &path,
        "application/apply-patch+yaml",
        yaml.into(),
    )
    .await;
    assert_eq!(code, 201);
    let other = yaml.replace("name: a", "name: b");
    let (code, _) = send(&server.service(), "POST", MAPS, "application/yaml", other.into()).await;
    assert_eq!(code, 201);
    let (_, found) = ask(&server.service(), "GET", &format!("{MAPS}/b"), Value::Null).await;
    assert_eq!(found["data"], json!({"x": "1"}));
    let (code, _) = send(&server.service(), "POST", MAPS, "application/yaml", "a: [".into()).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn a_large_body_is_refused() {
    let server = Server::builder().body_bytes_max(1000).build().unwrap();
    let body = Bytes::from(vec![b' '; 1001]);
    let (code, _) = send(&server.service(), "POST", MAPS, "application/json", body).await;
    assert_eq!(code, 413);
}

#[tokio::test]
async fn requests_and_watches_are_counted() {
    let server = Server::builder().build().unwrap();
    ask(&server.service(), "POST", MAPS, map("a")).await;
    ask(
        &server.service(),
        "GET",
        &format!("{MAPS}?watch=1&timeoutSeconds=1"),
        Value::Null,
    )
    .await;
    let (_, text) = send(&server.service(), "GET", "/metrics", "", Bytes::new()).await;
    let text = String::from_utf8(text.to_vec()).unwrap();
    for expected in [
        "berth_apiserver_requests_total{verb=\"create\",resource=\"configmaps\",code=\"201\"} 1",
        "berth_apiserver_watch_events_total{resource=\"configmaps\"} 1",
        "berth_apiserver_watches{resource=\"configmaps\"} 0",
        "berth_apiserver_objects{resource=\"configmaps\"} 1",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

async fn client_of(server: &Server, tls: &Tls, listener: &TcpListener) -> Client {
    let kubeconfig = server.kubeconfig(tls, listener.local_addr().unwrap());
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_asks_for_the_token_and_ends_in_good_order() {
    let server = Arc::new(Server::builder().build().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Tls::generate(&[address.ip()]).unwrap();
    let client = client_of(&server, &tls, &listener).await;
    let stranger = {
        let other = Server::builder().token("wrong").build().unwrap();
        client_of(&other, &tls, &listener).await
    };
    let (serving, serving_tls) = (server.clone(), tls.clone());
    let task = tokio::spawn(async move { serving.serve(listener, &serving_tls, std::future::pending()).await });

    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let created = maps
        .create(&PostParams::default(), &serde_json::from_value(map("a")).unwrap())
        .await
        .unwrap();
    let strange: Api<ConfigMap> = Api::namespaced(stranger, "default");
    match strange.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
        }
        other => panic!("{other:?}"),
    }

    let from = created.resource_version().unwrap();
    let mut watch = pin!(maps.watch(&WatchParams::default(), &from).await.unwrap());
    server.shutdown();
    assert!(
        watch.try_next().await.unwrap().is_none(),
        "the watch ends with the server"
    );
    tokio::time::timeout(Duration::from_secs(10), task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "nobody listens any more"
    );
}

/// The kubeconfig of the last run works for the next one, under every name in the certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_kept_is_trusted_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["berth.example".to_owned(), "10.1.2.3".to_owned()];
    let open = || Server::builder().data_dir(directory.path()).build().unwrap();
    let issue = || Tls::issue(&Authority::kept_in(directory.path()).unwrap(), &names).unwrap();
    let (first, before) = (open(), issue());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = first.kubeconfig(&before, listener.local_addr().unwrap());
    drop(first);

    let (server, tls) = (Arc::new(open()), issue());
    assert_eq!(before.authority_pem(), tls.authority_pem());
    let serving = server.clone();
    let task = tokio::spawn(async move { serving.serve(listener, &tls, std::future::pending()).await });
    for name in names {
        let mut kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        kubeconfig.clusters[0].cluster.as_mut().unwrap().tls_server_name = Some(name);
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let maps: Api<ConfigMap> = Api::namespaced(Client::try_from(config.unwrap()).unwrap(), "default");
        maps.list(&ListParams::default()).await.unwrap();
    }
    server.shutdown();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn other_addresses_need_a_token_of_the_users_own() {
    let server = Server::builder().build().unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let tls = Tls::generate(&[]).unwrap();
    let answer = server.serve(listener, &tls, std::future::pending()).await;
    assert!(matches!(answer, Err(ServeError::TokenRequired(_))), "{answer:?}");
    assert!(matches!(Server::builder().token("").build(), Err(BuildError::BadToken)));
    assert!(matches!(
        Server::builder().token("a\nb").build(),
        Err(BuildError::BadToken)
    ));
}
