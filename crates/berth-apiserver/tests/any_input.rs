//! Any request gets a response: no panic, and a `Status` with every error.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use berth_apiserver::Server;
use bytes::Bytes;
use common::{ask, send};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use serde_json::{Map, Value, json};

/// Names that are meaningful to the server, so that random objects pass the first check.
const NAMES: [&str; 40] = [
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "spec",
    "status",
    "containers",
    "volumes",
    "nodeName",
    "tolerations",
    "accessModes",
    "capacity",
    "storage",
    "resources",
    "requests",
    "nodeAffinity",
    "required",
    "nodeSelectorTerms",
    "matchExpressions",
    "key",
    "values",
    "template",
    "selector",
    "matchLabels",
    "replicas",
    "versions",
    "names",
    "plural",
    "schema",
    "openAPIV3Schema",
    "managedFields",
    "fieldsV1",
    "deletionTimestamp",
    "target",
    "csi",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9./-]{0,8}".prop_map(Value::from),
        Just(json!("10Gi")),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let fields = prop::collection::vec((prop::sample::select(NAMES.to_vec()), inner.clone()), 0..6);
        let fields = fields.prop_map(|fields| {
            let fields: Map<String, Value> = fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            Value::Object(fields)
        });
        prop_oneof![3 => fields, 1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

/// An object with a valid outer structure and arbitrary content.
fn object() -> impl Strategy<Value = Value> {
    (value(), value(), value()).prop_map(
        |(spec, status, labels)| json!({"metadata": {"name": "a", "labels": labels}, "spec": spec, "status": status}),
    )
}

fn body() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => object().prop_map(|value| Bytes::from(value.to_string())),
        2 => value().prop_map(|value| Bytes::from(value.to_string())),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(|bytes| [b"k8s\0", &bytes[..]].concat().into()),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/api/v1/namespaces/default/pods/a/binding",
        "/api/v1/namespaces/default/pods/a/eviction",
        "/api/v1/persistentvolumes",
        "/api/v1/persistentvolumes/a",
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/api/v1/namespaces/default/persistentvolumeclaims/a",
        "/api/v1/namespaces/a",
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/api/v1/namespaces/default/services",
        "/apis/storage.k8s.io/v1/storageclasses",
        "/apis/storage.k8s.io/v1/csidrivers",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/deployments/a",
        "/apis/apps/v1/namespaces/default/deployments/a/scale",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/openapi/v2",
        "/apis",
    ]);
    let query = prop_oneof![
        4 => Just(String::new()),
        1 => "[a-zA-Z=&%,!0-9]{0,20}".prop_map(|query| format!("?{query}")),
        2 => prop::sample::select(vec![
            "?dryRun=All", "?fieldManager=me&force=true", "?fieldManager=me", "?fieldValidation=Strict",
            "?limit=1", "?limit=2&continue=abc", "?resourceVersion=99999", "?resourceVersion=x",
            "?labelSelector=a%20in%20(b", "?fieldSelector=a%3D%5C", "?watch=1&timeoutSeconds=0&resourceVersion=x",
            "?propagationPolicy=Foreground", "?includeObject=Object",
        ]).prop_map(str::to_owned),
    ];
    let any_path = "/[a-z0-9/%.-]{0,30}";
    (prop_oneof![6 => known.prop_map(str::to_owned), 1 => any_path], query)
        .prop_map(|(path, query)| format!("{path}{query}"))
}

fn request() -> impl Strategy<Value = (&'static str, String, &'static str, Bytes)> {
    let methods = prop::sample::select(vec![
        "GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "POST", "OPTIONS",
    ]);
    let media_types = prop::sample::select(vec![
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "text/plain",
    ]);
    (methods, path(), media_types, body())
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 400, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_request_is_answered(requests in prop::collection::vec(request(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let server = Server::builder().seed(1).build().unwrap();
            // Something to work on.
            let spec = json!({"containers": [{"name": "c", "image": "i"}]});
            for (path, spec) in [
                ("/api/v1/namespaces/default/pods", spec.clone()),
                ("/apis/apps/v1/namespaces/default/deployments", json!({"selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}})),
            ] {
                let (code, _) = ask(&server.service(), "POST", path, json!({"metadata": {"name": "a"}, "spec": spec})).await;
                assert_eq!(code, 201);
            }
            for (method, path, media_type, body) in requests {
                let (code, answer) = send(&server.service(), method, &path, media_type, body).await;
                if code >= 400 && answer != "404 page not found\n" {
                    let status: Value = serde_json::from_slice(&answer).unwrap();
                    assert_eq!(status["kind"], "Status");
                    assert_eq!(status["code"], code);
                    // Kubernetes answers some bad requests with a 500 without a reason. Internal errors have one.
                    let is_fault = code >= 500 && code != 504 && !status["reason"].is_null();
                    assert!(!is_fault, "{method} {path}: {code} {answer:?}");
                }
            }
            server.collect_garbage().await;
        });
    }
}
