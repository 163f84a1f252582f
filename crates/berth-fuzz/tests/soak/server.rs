//! The embedded API server, as hostile clients meet it.

use super::Victim;
use super::users::{self, Names};
use berth_apiserver::store::Limits;
use berth_apiserver::{ApiService, ResponseBody, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::runtime::Runtime;
use tower_service::Service as _;

/// Watches and lists that nobody reads, at a time.
const UNREAD_MAX: usize = 100;

/// A server, and clients who create, patch and delete under new names, and leave responses unread.
pub(crate) struct ApiServer {
    runtime: Runtime,
    server: Server,
    unread: VecDeque<ResponseBody>,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        // History is bounded by number. With a small one, the bound is reached in the first quarter.
        let limits = Limits {
            history_events: 100,
            ..Limits::default()
        };
        Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap(),
            server: Server::builder().seed(1).limits(limits).build().unwrap(),
            unread: VecDeque::new(),
        }
    }
}

impl Victim for ApiServer {
    fn round(&mut self, number: u64) {
        let (server, unread) = (&self.server, &mut self.unread);
        self.runtime.block_on(async {
            let names = Names::new(number);
            come_and_go(&server.service(), &names).await;
            let pods = "/api/v1/pods";
            for path in [
                format!("{pods}?watch=true"),
                format!("{pods}?watch=true&fieldSelector=spec.nodeName={number}"),
                pods.to_owned(),
            ] {
                let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
                let Ok(response) = server.service().call(request).await;
                assert_eq!(response.status(), 200);
                unread.push_back(response.into_body());
            }
            unread.drain(..unread.len().saturating_sub(UNREAD_MAX));
            server.collect_garbage().await;
        });
    }
}

/// Creates a namespace with a pod and a claim, changes them in every way, refused ones included, and deletes it all.
async fn come_and_go(service: &ApiService, names: &Names) {
    let (namespace, pod) = (names.short("ns"), names.short("pod"));
    let inside = format!("/api/v1/namespaces/{namespace}");
    let object = json!({"metadata": {"name": namespace}});
    expect(service, "POST", "/api/v1/namespaces", "json", &object, 201).await;
    let mut object = users::pod(names);
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    object["spec"].as_object_mut().unwrap().remove("affinity");
    // Quantities of resources without a domain are refused.
    expect(service, "POST", &format!("{inside}/pods"), "json", &object, 201).await;
    let place = format!("{inside}/pods/{pod}");
    let labels = json!({"metadata": {"labels": {names.short("merged"): names.long("merged")}}});
    expect(service, "PATCH", &place, "merge-patch+json", &labels, 200).await;
    let annotations = json!({"metadata": {"annotations": {names.short("strategic"): names.long("x")}}});
    expect(
        service,
        "PATCH",
        &place,
        "strategic-merge-patch+json",
        &annotations,
        200,
    )
    .await;
    let copies: Vec<Value> = (0..40)
        .map(|_| json!({"op": "copy", "from": "/metadata", "path": "/metadata/annotations"}))
        .collect();
    refused(service, "PATCH", &place, "json-patch+json", &json!(copies)).await;
    let applied =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": {names.short("applied"): "x"}}});
    let apply = format!("{place}?fieldManager={}", names.short("manager"));
    expect(service, "PATCH", &apply, "apply-patch+yaml", &applied, 200).await;
    expect(
        service,
        "DELETE",
        &place,
        "json",
        &json!({"gracePeriodSeconds": 0}),
        200,
    )
    .await;
    expect(
        service,
        "DELETE",
        &format!("/api/v1/namespaces/{namespace}"),
        "json",
        &json!({}),
        200,
    )
    .await;
}

async fn refused(service: &ApiService, method: &str, path: &str, media_type: &str, body: &Value) {
    let (code, answer) = send(service, method, path, media_type, body).await;
    assert!((400..500).contains(&code), "{method} {path}: {code} {answer}");
}

async fn expect(service: &ApiService, method: &str, path: &str, media_type: &str, body: &Value, expected: u16) {
    let (code, answer) = send(service, method, path, media_type, body).await;
    assert_eq!(code, expected, "{method} {path}: {answer}");
}

async fn send(service: &ApiService, method: &str, path: &str, media_type: &str, body: &Value) -> (u16, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", format!("application/{media_type}"));
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let Ok(response) = service.clone().call(request).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    (code, String::from_utf8_lossy(&body.to_bytes()).into_owned())
}
