//! What arrives over connections: lines of watches, protobuf, responses of extenders.

use crate::Shape;
use berth_apiserver::protobuf;
use berth_core::api::{
    CsiNode, CsiStorageCapacity, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, StorageClass,
};
use berth_kube::api::Api;
use berth_kube::resource::Watched;
use berth_kube::scheduler::extenders::wire as extenders;
use berth_kube::watch::{Change, Difference, Sink, watch as follow};
use berth_kube::{CancellationToken, Client};
use berth_scheduler::extender::NodeVictims;
use berth_scheduler::scheduler::PodRef;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::Value;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

/// Answers with a list, with the input to the first watches and lists after that, and then with what can be read.
#[derive(Clone)]
struct Server {
    input: Bytes,
    lists: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
}

const FIRST: &str = r#"{"metadata": {"resourceVersion": "5"}, "items": [
    {"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "4"}}]}"#;
const READABLE: &str = r#"{"metadata": {"resourceVersion": "99"}, "items": [
    {"metadata": {"name": "last", "namespace": "default", "resourceVersion": "98"}}]}"#;
/// Leads to a list.
const EXPIRED: &str = r#"{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}"#;

const LAST: &str = "last";

impl<B> tower_service::Service<Request<B>> for Server {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let asked = if is_watch { &self.watches } else { &self.lists };
        let count = asked.fetch_add(1, Ordering::Relaxed);
        // One input is read as lines of a watch, and as a list.
        let body = match (is_watch, count) {
            (true, 0..2) | (false, 1..3) => self.input.clone(),
            (true, _) => EXPIRED.into(),
            (false, 0) => FIRST.into(),
            (false, _) => READABLE.into(),
        };
        ready(Ok(Response::new(Full::new(body))))
    }
}

/// Collects the kinds of changes until the readable list arrives.
struct Collect {
    kinds: Arc<Mutex<String>>,
    done: CancellationToken,
}

impl<T: Watched> Sink<T> for Collect {
    async fn take(&mut self, difference: Difference<T>) -> bool {
        let mut last = false;
        if let Ok(mut kinds) = self.kinds.lock() {
            for change in &difference.changes {
                kinds.push(match change {
                    Change::Applied(_) => 'a',
                    Change::Removed { .. } => 'r',
                    Change::Broken { .. } => 'b',
                });
                last |= match change {
                    Change::Applied(object) => object.metadata().name == LAST,
                    // Some kinds need more than a name.
                    Change::Broken { name, .. } => name.1 == LAST,
                    Change::Removed { .. } => false,
                };
            }
        }
        if last {
            self.done.cancel();
        }
        true
    }
}

/// Watches a kind of objects through answers that an input holds.
type Watcher = fn(&[u8]) -> Shape;

/// Watches the kind that an input names first, or else pods.
pub(super) fn watch(input: &[u8]) -> Shape {
    let names = |kind: &str| input.windows(kind.len()).position(|found| found == kind.as_bytes());
    let kinds: [(&str, Watcher); 8] = [
        ("Pod\"", watched::<Pod>),
        ("Node\"", watched::<Node>),
        ("PersistentVolume\"", watched::<PersistentVolume>),
        ("PersistentVolumeClaim\"", watched::<PersistentVolumeClaim>),
        ("StorageClass\"", watched::<StorageClass>),
        ("CSINode\"", watched::<CsiNode>),
        ("CSIStorageCapacity\"", watched::<CsiStorageCapacity>),
        ("PodDisruptionBudget\"", watched::<PodDisruptionBudget>),
    ];
    let named = kinds.iter().filter_map(|(kind, read)| Some((names(kind)?, read)));
    let first = named.min_by_key(|(at, _)| *at);
    first.map_or(watched::<Pod> as Watcher, |(_, read)| *read)(input)
}

/// Whatever a server sends, the next readable list is applied, in virtual time.
fn watched<T: Watched>(input: &[u8]) -> Shape {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let Ok(runtime) = runtime else {
        return Shape::of("no runtime");
    };
    let kinds = Arc::new(Mutex::new(String::new()));
    let server = Server {
        input: Bytes::copy_from_slice(input),
        lists: Arc::default(),
        watches: Arc::default(),
    };
    runtime.block_on(async {
        let api = Api::new(Client::new(server, "default"), "fuzz");
        let done = CancellationToken::new();
        let sink = Collect {
            kinds: kinds.clone(),
            done: done.clone(),
        };
        let hour = Duration::from_secs(3600);
        let ended = tokio::time::timeout(hour, follow::<T>(api, sink, done)).await;
        assert!(ended.is_ok(), "the readable list was not applied within an hour");
    });
    let kinds = kinds.lock().map(|kinds| kinds.clone()).unwrap_or_default();
    Shape::of(&kinds[..kinds.len().min(6)])
}

pub(super) fn protobuf(input: &[u8]) -> Shape {
    let result = protobuf::decode(input);
    if let Ok(object) = &result {
        let text = object.to_string();
        let again: Result<Value, _> = serde_json::from_str(&text);
        assert!(
            again.is_ok(),
            "a decoded object is too deep to be read: {} bytes",
            text.len()
        );
    }
    Shape::of_result(&result)
}

/// An answer of an extender, read as one to each call. What is wrong with it is said in a few words, however long it is.
pub(super) fn extender(input: &[u8]) -> Shape {
    let answer: Value = match serde_json::from_slice(input) {
        Ok(answer) => answer,
        Err(error) => return Shape::of(&error.to_string()),
    };
    let asked = [NodeVictims {
        node: "n1".to_owned(),
        pods: vec![PodRef {
            key: "default/victim".into(),
            uid: "u1".to_owned(),
        }],
        violations: 0,
    }];
    let read = [
        extenders::filtered(&answer, true),
        extenders::filtered(&answer, false),
        extenders::scores(&answer),
        extenders::victims(&answer, &asked),
    ];
    let mut shape = Shape::of_result(&extenders::bound(&answer));
    for answer in &read {
        let own = answer
            .as_ref()
            .err()
            .is_some_and(|problem| problem.starts_with("found "));
        let length = answer.as_ref().err().map_or(0, |problem| problem.chars().count());
        assert!(!own || length < 300, "a problem of {length} characters");
        shape = shape.and(&Shape::of_result(answer));
    }
    shape
}
