//! No request may make the server hold, walk or store more than its limits.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use berth_apiserver::{Patience, Server, Tls};
use bytes::Bytes;
use common::{ask, send};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const BOATS: &str = "/apis/example.com/v1/boats";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A server with one map and one custom object, which may hold anything.
async fn server() -> Server {
    let server = Server::builder().build().unwrap();
    let definition = json!({"metadata": {"name": "boats.example.com"}, "spec": {"group": "example.com",
        "scope": "Cluster", "names": {"plural": "boats", "kind": "Boat"}, "versions": [{"name": "v1", "served": true,
            "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let boat = json!({"metadata": {"name": "a"}, "spec": {}});
    let map = json!({"metadata": {"name": "a"}, "data": {"a": "b"}});
    for (path, object) in [(definitions, definition), (BOATS, boat), (MAPS, map)] {
        let (code, made) = ask(&server.service(), "POST", path, object).await;
        assert_eq!(code, 201, "{made}");
    }
    server
}

async fn patch(server: &Server, path: &str, media_type: &str, patch: &Value) -> (u16, Value) {
    let body = Bytes::from(patch.to_string());
    let (code, answer) = send(&server.service(), "PATCH", path, media_type, body).await;
    (code, serde_json::from_slice(&answer).unwrap())
}

#[tokio::test]
async fn a_small_patch_that_doubles_the_object_forty_times_is_refused() {
    let server = server().await;
    let doubling: Vec<_> = (0..40)
        .map(|number| json!({"op": "copy", "from": "", "path": format!("/spec/{number}")}))
        .collect();
    for path in [format!("{BOATS}/a"), format!("{MAPS}/a")] {
        let (code, status) = patch(&server, &path, JSON_PATCH, &doubling.clone().into()).await;
        assert!(code == 413 || code == 422, "{status}");
    }
    let (_, boat) = ask(&server.service(), "GET", &format!("{BOATS}/a"), Value::Null).await;
    assert_eq!(boat["spec"], json!({}), "the object is as it was");
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({"a": inner}))
}

/// Everything that is stored can be read again: alone, in a list and by a watch.
#[tokio::test]
async fn no_way_leads_to_an_object_that_is_too_deep_to_be_read() {
    let server = server().await;
    let path = format!("{BOATS}/a");
    let deep = |depth| json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "a"}, "spec": nested(depth)});
    for depth in [50, 90, 100, 105, 110, 115, 117, 118, 119, 120] {
        let deeper = json!([{"op": "add", "path": format!("/spec{}", "/a".repeat(40)), "value": nested(depth)}]);
        for (method, path, media_type, body) in [
            ("PATCH", path.as_str(), MERGE_PATCH, json!({"spec": nested(depth)})),
            ("PATCH", path.as_str(), JSON_PATCH, deeper),
            (
                "PATCH",
                &format!("{path}?fieldManager=me&force=true"),
                APPLY_PATCH,
                deep(depth),
            ),
            ("PUT", path.as_str(), "application/json", deep(depth)),
        ] {
            let body = Bytes::from(body.to_string());
            let (code, _) = send(&server.service(), method, path, media_type, body).await;
            assert!(code < 500, "{method} {media_type}: {code}");
            for reading in [
                path,
                BOATS,
                &format!("{BOATS}?watch=1&timeoutSeconds=1&resourceVersion=0"),
            ] {
                let (code, text) = send(&server.service(), "GET", reading, "", Bytes::new()).await;
                assert_eq!(code, 200);
                for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    serde_json::from_slice::<Value>(line).unwrap();
                }
            }
        }
    }
    let (code, status) = ask(&server.service(), "PUT", &path, deep(125)).await;
    assert_eq!(code, 400, "{status}");
}

#[tokio::test]
async fn what_is_stored_has_a_bound() {
    let server = server().await;
    let boat = |bytes: usize| json!({"metadata": {"name": "large"}, "spec": {"text": "x".repeat(bytes)}});
    let (code, status) = ask(&server.service(), "POST", BOATS, boat(1_600_000)).await;
    assert_eq!(
        (code, &status["reason"]),
        (413, &json!("RequestEntityTooLarge")),
        "{status}"
    );
    let (code, _) = ask(&server.service(), "POST", BOATS, boat(1_000_000)).await;
    assert_eq!(code, 201);
    let path = format!("{BOATS}/large");
    let more = json!({"spec": {"more": "x".repeat(600_000)}});
    let (code, status) = patch(&server, &path, MERGE_PATCH, &more).await;
    assert_eq!(code, 413, "{status}");
    let copy = json!([{"op": "copy", "from": "/spec/text", "path": "/spec/more"}]);
    let (code, status) = patch(&server, &path, JSON_PATCH, &copy).await;
    assert_eq!(code, 413, "{status}");
    let dense = json!({"metadata": {"name": "dense"}, "spec": {"list": vec![json!({}); 300_000]}});
    let (code, status) = ask(&server.service(), "POST", BOATS, dense).await;
    assert_eq!(code, 413, "{status}");
}

/// Each of these took quadratic time: minutes for what fits into one body.
#[tokio::test]
async fn long_lists_merge_in_time_that_grows_with_their_length() {
    let server = server().await;
    let path = format!("{MAPS}/a");
    let names: Vec<_> = (0..30_000).map(|number| format!("e.io/{number:05}")).collect();
    let backwards: Vec<_> = names.iter().rev().collect();
    let change = json!({"metadata": {"finalizers": names, "$setElementOrder/finalizers": names}});
    let (code, status) = patch(&server, &path, STRATEGIC_PATCH, &change).await;
    assert_eq!(code, 200, "{}", status["message"]);
    let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": backwards,
        "$setElementOrder/finalizers": backwards}});
    let (code, status) = patch(&server, &path, STRATEGIC_PATCH, &change).await;
    assert_eq!(code, 200, "{}", status["message"]);
    let owners: Vec<_> = (0..6_000)
        .map(|number| json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": format!("{number:05}")}))
        .collect();
    let change = json!({"metadata": {"ownerReferences": owners}});
    let (code, status) = patch(&server, &path, STRATEGIC_PATCH, &change).await;
    assert_eq!(code, 200, "{}", status["message"]);
    let change = json!({"metadata": {"ownerReferences": owners.iter().rev().collect::<Vec<_>>()}});
    let (code, status) = patch(&server, &path, STRATEGIC_PATCH, &change).await;
    assert_eq!(code, 200, "{}", status["message"]);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "finalizers": names}});
    for _ in 0..2 {
        let (code, status) = patch(&server, &format!("{MAPS}/b?fieldManager=me"), APPLY_PATCH, &applied).await;
        assert!(code < 300, "{code} {}", status["message"]);
    }
}

#[tokio::test]
async fn a_watch_may_ask_for_any_time() {
    let server = server().await;
    server.shutdown();
    for seconds in ["9223372036854775807", "99999999999", "1", "-1"] {
        let path = format!("{MAPS}?watch=1&timeoutSeconds={seconds}");
        let (code, _) = send(&server.service(), "GET", &path, "", Bytes::new()).await;
        assert_eq!(code, 200, "{seconds}");
    }
}

/// A listening server, and how to reach it.
struct Listening {
    server: Arc<Server>,
    tls: Tls,
    address: std::net::SocketAddr,
}

impl Listening {
    async fn start(patience: Patience) -> Self {
        let server = Arc::new(Server::builder().token("secret").patience(patience).build().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Tls::generate(&[address.ip()]).unwrap();
        let (serving, serving_tls) = (server.clone(), tls.clone());
        tokio::spawn(async move { serving.serve(listener, &serving_tls, std::future::pending()).await });
        Self { server, tls, address }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.tls.authority_pem().as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::from(self.address.ip());
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap()
    }

    /// A request with the token, sent only in part.
    async fn send(&self, request: &str) -> TlsStream<TcpStream> {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }
}

/// Waits for something that happens soon or never.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(60), future).await;
    answer.unwrap_or_else(|_| panic!("still not so: {what}"))
}

/// Reads to the end, however the peer ends.
async fn read(mut stream: impl AsyncReadExt + Unpin) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_shows_no_token_goes() {
    let listening = Listening::start(Patience {
        token: SHORT,
        ..Patience::default()
    })
    .await;
    let silent = TcpStream::connect(listening.address).await.unwrap();
    soon("a connection that says nothing ends", read(silent)).await;
    let half = listening.send("GET /api/v1/pods HTTP/1.1\r\nhost: a\r\nauthor").await;
    soon("half a request ends", read(half)).await;
    let probe = listening.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = soon("a probe is answered, and then ends", read(probe)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let sending = "POST /api/v1/namespaces HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\ncontent-length: 3000000\r\n\r\n{";
    let answer = soon(
        "a stranger's body is not waited for",
        read(listening.send(sending).await),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    listening.server.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_body_is_not_waited_for_and_idle_connections_end() {
    let listening = Listening::start(Patience {
        body: SHORT,
        idle: SHORT,
        ..Patience::default()
    })
    .await;
    let sending =
        "POST /api/v1/namespaces HTTP/1.1\r\nhost: a\r\nauthorization: Bearer secret\r\ncontent-length: 3000\r\n\r\n{";
    let answer = soon("half a body is refused", read(listening.send(sending).await)).await;
    assert!(
        answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive in time"),
        "{answer}"
    );
    let asking = "GET /version HTTP/1.1\r\nhost: a\r\nauthorization: Bearer secret\r\n\r\n";
    let answer = soon("a connection without requests ends", read(listening.send(asking).await)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    listening.server.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_are_not_kept() {
    let listening = Listening::start(Patience {
        reading: SHORT,
        ..Patience::default()
    })
    .await;
    for number in 0..20 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(900_000)}});
        let (code, _) = ask(&listening.server.service(), "POST", MAPS, map).await;
        assert_eq!(code, 201);
    }
    let asking = format!("GET {MAPS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer secret\r\n\r\n");
    let mut stream = listening.send(&asking).await;
    soon("the connection is cut", async {
        // Writing fails once the peer has disconnected; nothing is read.
        while stream.get_mut().0.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // A client that reads is not disconnected, however rarely a watch sends events.
    let asking = asking.replace("configmaps", "configmaps?watch=1&timeoutSeconds=2");
    let asking = asking.replace("host: a", "host: a\r\nconnection: close");
    let answer = soon("the watch ends in its time", read(listening.send(&asking).await)).await;
    assert!(
        answer.contains("\"m19\"") && answer.ends_with("0\r\n\r\n"),
        "the whole answer was read"
    );
    listening.server.shutdown();
}

#[tokio::test]
async fn more_pods_than_a_cluster_can_have_are_refused() {
    let server = server().await;
    let spec = |counts: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}}});
        spec.as_object_mut()
            .unwrap()
            .extend(counts.as_object().unwrap().clone());
        json!({"metadata": {"name": "a"}, "spec": spec})
    };
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let job = |count: &str| {
        let mut job = spec(json!({count: 1_000_000}));
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
        job["spec"].as_object_mut().unwrap().remove("selector");
        job
    };
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (path, object, field) in [
        (deployments, spec(json!({"replicas": 1_000_000})), "spec.replicas"),
        (jobs, job("parallelism"), "spec.parallelism"),
        (jobs, job("completions"), "spec.completions"),
    ] {
        let (code, status) = ask(&server.service(), "POST", path, object).await;
        let message = status["message"].as_str().unwrap();
        assert_eq!(code, 422, "{status}");
        assert!(message.contains(field) && message.contains("150000"), "{message}");
    }
    let (code, made) = ask(
        &server.service(),
        "POST",
        deployments,
        spec(json!({"replicas": 150_000})),
    )
    .await;
    assert_eq!(code, 201, "{made}");
    for part in ["", "/scale"] {
        let more = json!({"spec": {"replicas": 1_000_000}});
        let (code, status) = patch(&server, &format!("{deployments}/a{part}"), MERGE_PATCH, &more).await;
        assert_eq!(code, 422, "{status}");
    }
}
