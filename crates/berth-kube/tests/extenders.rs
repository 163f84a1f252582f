//! The scheduler with extenders: HTTP servers on loopback that take part in its decisions.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_apiserver::Tls;
use berth_core::api::Kind;
use berth_kube::CancellationToken;
use berth_kube::resource::Resource;
use berth_kube::scheduler::{Options, RunError, run};
use berth_scheduler::extender::{self, Extender};
use berth_scheduler::scheduler::Settings;
use berth_testing::{Manifest, node, pod, sized};
use bytes::Bytes;
use common::{Cluster, eventually};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

type Calls = Arc<Mutex<Vec<(String, Value)>>>;
type Answers = Arc<dyn Fn(&str, &Value) -> Option<Value> + Send + Sync>;

/// An extender that remembers its calls. It answers with status 500 to those without an answer.
struct Service {
    address: SocketAddr,
    calls: Calls,
    task: JoinHandle<()>,
}

impl Service {
    async fn start(tls: Option<&Tls>, answers: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (calls, answers) = (Calls::default(), Arc::new(answers) as Answers);
        let acceptor = tls.map(|tls| TlsAcceptor::from(tls.for_http1()));
        let seen = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (calls, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                match &acceptor {
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            tokio::spawn(serve(stream, calls, answers));
                        }
                    }
                    None => {
                        tokio::spawn(serve(stream, calls, answers));
                    }
                }
            }
        });
        Self { address, calls, task }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}/scheduler/", self.address)
    }

    fn calls(&self) -> Vec<(String, Value)> {
        self.calls.lock().unwrap().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, calls: Calls, answers: Answers) {
    let service = service_fn(|request: Request<Incoming>| {
        let (calls, answers) = (Arc::clone(&calls), Arc::clone(&answers));
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            calls.lock().unwrap().push((path.clone(), body.clone()));
            let (status, text) = match answers(&path, &body) {
                Some(answer) => (StatusCode::OK, answer.to_string()),
                None => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
            };
            let response = Response::builder().status(status).body(Full::new(Bytes::from(text)));
            Ok::<_, Infallible>(response.unwrap())
        }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = served.await;
}

struct Scheduler {
    cancel: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl Scheduler {
    fn start(cluster: &Cluster, extenders: Vec<Extender>) -> Self {
        let options = Options {
            settings: Settings {
                extenders: extenders.into(),
                ..Settings::default()
            },
            ..Options::default()
        };
        let cancel = CancellationToken::new();
        let task = tokio::spawn(run(cluster.client.clone(), options, cancel.clone()));
        Self { cancel, task }
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn with_nodes(count: usize) -> Cluster {
    let cluster = Cluster::new();
    for number in 1..=count {
        cluster.create(&node(&format!("n{number}"))).await;
    }
    cluster
}

async fn wait_for_node(cluster: &Cluster, name: &str) -> String {
    eventually("the pod has a node", || async {
        let pod = cluster.get(Kind::Pod, "default", name).await.unwrap();
        pod["spec"]["nodeName"].is_string()
    })
    .await;
    let pod = cluster.get(Kind::Pod, "default", name).await.unwrap();
    pod["spec"]["nodeName"].as_str().unwrap().to_owned()
}

async fn wait_for_condition(cluster: &Cluster, name: &str, reason: &str, words: &str) {
    eventually("the condition tells", || async {
        let pod = cluster.get(Kind::Pod, "default", name).await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["reason"] == reason && condition["message"].as_str().unwrap().contains(words))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_filtered_and_scored_by_name() {
    let cluster = with_nodes(3).await;
    let service = Service::start(None, |path, _| {
        Some(match path {
            "/scheduler/filter" => json!({"NodeNames": ["n2", "n3"], "FailedNodes": {"n1": "no"}, "Error": ""}),
            _ => json!([{"Host": "n2", "Score": 1}, {"Host": "n3", "Score": 10}]),
        })
    })
    .await;
    let scheduler = Scheduler::start(
        &cluster,
        vec![Extender {
            url_prefix: service.url("http"),
            filter_verb: "filter".to_owned(),
            prioritize_verb: "prioritize".to_owned(),
            weight: 5,
            node_cache_capable: true,
            ..Extender::default()
        }],
    );
    cluster
        .create(&pod("p", &[]).annotation("example.com/model", "large"))
        .await;
    assert_eq!(wait_for_node(&cluster, "p").await, "n3");
    scheduler.stop().await;
    let calls = service.calls();
    let paths: Vec<_> = calls.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/scheduler/filter", "/scheduler/prioritize"]);
    let (_, filter) = &calls[0];
    assert_eq!(filter["Pod"]["metadata"]["annotations"]["example.com/model"], "large");
    assert_eq!(filter["Pod"]["metadata"]["managedFields"], Value::Null);
    assert_eq!(filter["NodeNames"].as_array().unwrap().len(), 3);
    assert_eq!(filter["Nodes"], Value::Null);
    let (_, prioritize) = &calls[1];
    assert_eq!(prioritize["NodeNames"], json!(["n2", "n3"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn extenders_without_a_cache_get_whole_nodes_and_their_reasons_are_told() {
    let cluster = with_nodes(2).await;
    let service = Service::start(None, |_, body| {
        let nodes = body["Nodes"]["items"].as_array().unwrap();
        let names: Vec<_> = nodes
            .iter()
            .map(|node| node["metadata"]["name"].as_str().unwrap())
            .collect();
        let failed: serde_json::Map<_, _> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!("no license")))
            .collect();
        let complete = nodes.iter().all(|node| node["status"]["capacity"]["cpu"] == "4");
        complete.then(|| json!({"Nodes": {"items": []}, "FailedNodes": failed}))
    })
    .await;
    let scheduler = Scheduler::start(
        &cluster,
        vec![Extender {
            url_prefix: service.url("http"),
            filter_verb: "filter".to_owned(),
            ..Extender::default()
        }],
    );
    cluster.create(&pod("p", &[])).await;
    wait_for_condition(&cluster, "p", "Unschedulable", "0/2 nodes are available: 2 no license.").await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_binds_the_pods_that_it_is_concerned_with() {
    let cluster = with_nodes(1).await;
    let service = Service::start(None, |_, _| Some(json!({"Error": ""}))).await;
    let scheduler = Scheduler::start(
        &cluster,
        vec![Extender {
            url_prefix: service.url("http"),
            bind_verb: "bind".to_owned(),
            managed_resources: ["example.com/gpu".to_owned()].into(),
            ..Extender::default()
        }],
    );
    cluster
        .api
        .merge_patch(
            Resource::of(Kind::Node),
            "",
            "n1",
            Some("status"),
            &json!({"status": {"allocatable": {"example.com/gpu": "1"}, "capacity": {"example.com/gpu": "1"}}}),
        )
        .await
        .unwrap();
    cluster.create(&sized("plain", 1)).await;
    wait_for_node(&cluster, "plain").await;
    let gpu = pod("p", &[])
        .requests("example.com/gpu", "1")
        .with("/spec/containers/0/resources/limits", json!({"example.com/gpu": "1"}));
    cluster.create(&gpu).await;
    eventually("the extender is asked to bind", || async {
        !service.calls().is_empty()
    })
    .await;
    let stored = cluster.get(Kind::Pod, "default", "p").await.unwrap();
    let expected =
        json!({"PodName": "p", "PodNamespace": "default", "PodUID": stored["metadata"]["uid"], "Node": "n1"});
    assert_eq!(service.calls(), [("/scheduler/bind".to_owned(), expected)]);
    eventually("the event tells", || async {
        let events = cluster.list(Resource::EVENTS).await;
        let of_pod = |event: &&Value| event["involvedObject"]["name"] == "p" || event["regarding"]["name"] == "p";
        events.iter().filter(of_pod).any(|event| event["reason"] == "Scheduled")
    })
    .await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_extender_stops_its_pods_unless_it_can_be_ignored() {
    let cluster = with_nodes(1).await;
    let service = Service::start(None, |_, _| None).await;
    let failing = |ignorable| Extender {
        url_prefix: service.url("http"),
        filter_verb: "filter".to_owned(),
        bind_verb: "bind".to_owned(),
        ignorable,
        ..Extender::default()
    };
    let scheduler = Scheduler::start(&cluster, vec![failing(false)]);
    cluster.create(&pod("p", &[])).await;
    let words = format!(
        "failed filter with extender at URL http://{}/scheduler/filter, code 500",
        service.address
    );
    wait_for_condition(&cluster, "p", "SchedulerError", &words).await;
    scheduler.stop().await;
    let scheduler = Scheduler::start(&cluster, vec![failing(true)]);
    assert_eq!(wait_for_node(&cluster, "p").await, "n1");
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_is_reached_over_tls_with_its_authority() {
    let cluster = with_nodes(2).await;
    let tls = Tls::generate(&[]).unwrap();
    let service = Service::start(Some(&tls), |_, _| Some(json!({"nodeNames": ["n2"]}))).await;
    let secure = |authorities: Option<Vec<u8>>| Extender {
        url_prefix: service.url("https"),
        filter_verb: "filter".to_owned(),
        node_cache_capable: true,
        tls: extender::Tls {
            server_name: Some("localhost".to_owned()),
            authorities,
            ..extender::Tls::default()
        },
        ..Extender::default()
    };
    let stranger = Tls::generate(&[]).unwrap().authority_pem().as_bytes().to_vec();
    let scheduler = Scheduler::start(&cluster, vec![secure(Some(stranger))]);
    cluster.create(&pod("p", &[])).await;
    wait_for_condition(&cluster, "p", "SchedulerError", "/scheduler/filter").await;
    assert_eq!(service.calls(), []);
    scheduler.stop().await;
    let authority = tls.authority_pem().as_bytes().to_vec();
    let scheduler = Scheduler::start(&cluster, vec![secure(Some(authority))]);
    assert_eq!(wait_for_node(&cluster, "p").await, "n2");
    scheduler.stop().await;
}
