//! The behaviour of Kubernetes, tested through kube-rs. Every case takes a client of any API server.
//!
//! A cluster for it needs an API server whose admission does not require service accounts for pods
//! (`--disable-admission-plugins=ServiceAccount`), and the controllers for garbage collection and namespaces: the cases of
//! `deletion` wait for them. Further controllers or a scheduler would interfere.

pub(crate) mod deletion;
pub(crate) mod kinds;
pub(crate) mod lists;
pub(crate) mod objects;
pub(crate) mod patches;
pub(crate) mod pods;
pub(crate) mod stories;
pub(crate) mod volumes;
pub(crate) mod watches;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, PostParams};
use kube::core::Status;
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Timeout for a condition, on any server.
const DEADLINE: Duration = Duration::from_secs(30);

/// A separate namespace for each case.
pub(crate) async fn namespace(client: &Client) -> String {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted = object(json!({"metadata": {"generateName": "suite-"}}));
    namespaces
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap()
        .name_any()
}

/// A name that no other case uses.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}

/// A typed object from JSON.
pub(crate) fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"value": value}}))
}

pub(crate) fn pod(name: &str) -> Pod {
    object(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "busybox:1.36"}]}}))
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < DEADLINE, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The `Status` of an error.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> Status {
    match answer {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// The fields in an error.
pub(crate) fn causes(status: &Status) -> Vec<String> {
    let details = status.details.as_ref().unwrap();
    details.causes.iter().map(|cause| cause.field.clone()).collect()
}
