//! Objects from files: an existing cluster is the same cluster after loading.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use berth_apiserver::{LoadError, Server};
use common::ask;
use serde_json::{Value, json};

fn uid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn object(api_version: &str, kind: &str, name: &str, number: u32, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "uid": uid(number),
        "creationTimestamp": "2024-01-01T00:00:00Z", "resourceVersion": "77", "managedFields": [{"manager": "x"}]}});
    if !matches!(kind, "PersistentVolume" | "Namespace" | "StorageClass") {
        object["metadata"]["namespace"] = json!("shop");
    }
    for (key, value) in rest.as_object().unwrap() {
        if key == "owner" {
            object["metadata"]["ownerReferences"] = json!([value]);
        } else {
            object[key] = value.clone();
        }
    }
    object
}

fn owner(api_version: &str, kind: &str, name: &str, number: u32) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid(number), "controller": true})
}

/// The output of `kubectl get -o yaml` for a deployment and a stateful set with storage, in an order in which no one
/// would create it.
fn dump() -> Vec<Value> {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let set = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let pod_spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "i:1"}], "priority": 1000,
        "priorityClassName": "not-in-the-files"});
    let running = json!({"phase": "Running", "podIP": "10.0.0.1"});
    let claim_spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "pv-1", "storageClassName": "fast"});
    let claim_ref = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data-db-0",
        "uid": uid(6)});
    let volume_spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim_ref,
        "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast", "hostPath": {"path": "/x"}});
    vec![
        object(
            "v1",
            "Pod",
            "web-1",
            3,
            json!({"spec": pod_spec, "status": running, "owner": owner("apps/v1", "ReplicaSet", "web", 2)}),
        ),
        object(
            "v1",
            "Pod",
            "db-0",
            5,
            json!({"spec": pod_spec, "status": running, "owner": owner("apps/v1", "StatefulSet", "db", 4)}),
        ),
        object(
            "v1",
            "Pod",
            "lonely",
            9,
            json!({"spec": pod_spec, "status": running, "owner": owner("apps/v1", "ReplicaSet", "elsewhere", 99)}),
        ),
        object(
            "v1",
            "Pod",
            "operated",
            10,
            json!({"spec": pod_spec, "status": running, "owner": owner("example.com/v1", "Operator", "o", 98)}),
        ),
        object(
            "apps/v1",
            "ReplicaSet",
            "web",
            2,
            json!({"spec": set, "status": {"replicas": 1, "readyReplicas": 1},
            "owner": owner("apps/v1", "Deployment", "web", 1)}),
        ),
        object(
            "v1",
            "PersistentVolumeClaim",
            "data-db-0",
            6,
            json!({"spec": claim_spec,
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}),
        ),
        object(
            "v1",
            "PersistentVolume",
            "pv-1",
            7,
            json!({"spec": volume_spec, "status": {"phase": "Bound"}}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            "db",
            4,
            json!({"spec": set, "status": {"replicas": 1}}),
        ),
        object(
            "apps/v1",
            "Deployment",
            "web",
            1,
            json!({"spec": set, "status": {"replicas": 1, "observedGeneration": 3}}),
        ),
        object("example.com/v1", "Operator", "o", 98, json!({})),
    ]
}

async fn get(server: &Server, path: &str) -> Value {
    let (code, object) = ask(&server.service(), "GET", path, Value::Null).await;
    assert_eq!(code, 200, "{path}: {object}");
    object
}

#[tokio::test]
async fn a_dump_is_the_same_cluster() {
    for journaled in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let builder = Server::builder();
        let server = if journaled {
            builder.data_dir(directory.path())
        } else {
            builder
        }
        .build()
        .unwrap();
        let loaded = server.load(dump()).await.unwrap();
        assert_eq!((loaded.created, loaded.without_owners), (9, 1));
        assert_eq!(loaded.left_out[0].kind, "Operator");
        server.collect_garbage().await;
        for (path, number) in [
            ("apps/v1/namespaces/shop/deployments/web", 1),
            ("apps/v1/namespaces/shop/replicasets/web", 2),
            ("apps/v1/namespaces/shop/statefulsets/db", 4),
        ] {
            let found = get(&server, &format!("/apis/{path}")).await;
            assert_eq!(found["metadata"]["uid"], uid(number), "{path}");
            assert_eq!(found["status"]["replicas"], 1, "{path}");
            assert_eq!(found["metadata"]["creationTimestamp"], "2024-01-01T00:00:00Z");
        }
        for (name, owner) in [
            ("web-1", Some(2)),
            ("db-0", Some(4)),
            ("lonely", None),
            ("operated", Some(98)),
        ] {
            let pod = get(&server, &format!("/api/v1/namespaces/shop/pods/{name}")).await;
            assert_eq!(pod["status"]["phase"], "Running", "{name}");
            assert_eq!(pod["spec"]["priority"], 1000, "{name}");
            let found = &pod["metadata"]["ownerReferences"][0]["uid"];
            assert_eq!(*found, owner.map_or(Value::Null, |number| json!(uid(number))), "{name}");
        }
        let claim = get(&server, "/api/v1/namespaces/shop/persistentvolumeclaims/data-db-0").await;
        let volume = get(&server, "/api/v1/persistentvolumes/pv-1").await;
        assert_eq!(
            (&claim["status"]["phase"], &volume["status"]["phase"]),
            (&json!("Bound"), &json!("Bound"))
        );
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);

        // Loading it again changes nothing.
        let again = server.load(dump()).await.unwrap();
        assert_eq!((again.created, again.existing), (0, 9));
    }
}

/// A claim that was bound before there was a default class has no class.
#[tokio::test]
async fn a_bound_claim_gets_no_class_that_it_did_not_have() {
    let server = Server::builder().build().unwrap();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "std",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "example.com/p"});
    let claim = |name: &str, volume: Value| {
        let resources = json!({"requests": {"storage": "1Gi"}});
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": resources, "volumeName": volume}})
    };
    let claims = [claim("bound", json!("pv")), claim("new", Value::Null)];
    server.load([claims.to_vec(), vec![class]].concat()).await.unwrap();
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    assert_eq!(
        get(&server, &format!("{path}/bound")).await["spec"]["storageClassName"],
        Value::Null
    );
    assert_eq!(
        get(&server, &format!("{path}/new")).await["spec"]["storageClassName"],
        "std"
    );
}

#[tokio::test]
async fn references_lead_to_what_is_there_already() {
    let server = Server::builder().build().unwrap();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let (_, here) = ask(
        &server.service(),
        "POST",
        claims,
        json!({"metadata": {"name": "data"}, "spec": spec}),
    )
    .await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "uid": uid(1)}, "spec": spec});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        "claimRef": {"namespace": "default", "name": "data", "uid": uid(1)}}});
    let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "uid": uid(1)}]}});
    server.load(vec![volume, owned, claim]).await.unwrap();
    let volume = get(&server, "/api/v1/persistentvolumes/pv").await;
    assert_eq!(volume["spec"]["claimRef"]["uid"], here["metadata"]["uid"]);
    let owned = get(&server, "/api/v1/namespaces/default/configmaps/owned").await;
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], here["metadata"]["uid"]);
}

#[tokio::test]
async fn what_was_on_its_way_out_still_is() {
    let server = Server::builder().build().unwrap();
    let map = |name: &str, finalizers: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default",
            "deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0, "finalizers": finalizers}})
    };
    let held = map("held", json!(["example.com/hold"]));
    server.load(vec![held, map("gone", json!([]))]).await.unwrap();
    let found = get(&server, "/api/v1/namespaces/default/configmaps/held").await;
    assert_eq!(found["metadata"]["deletionTimestamp"], "2024-01-01T00:00:00Z");
    let (code, _) = ask(
        &server.service(),
        "GET",
        "/api/v1/namespaces/default/configmaps/gone",
        Value::Null,
    )
    .await;
    assert_eq!(code, 404, "nothing held it");
}

#[tokio::test]
async fn definitions_come_before_what_they_define() {
    let server = Server::builder().build().unwrap();
    let boat = json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "ada", "namespace": "sea"}, "size": 3});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "boats", "kind": "Boat"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer"}}}}}]}});
    server.load(vec![boat, definition]).await.unwrap();
    let boat = get(&server, "/apis/example.com/v1/namespaces/sea/boats/ada").await;
    assert_eq!(boat["size"], 3);
}

#[tokio::test]
async fn a_refusal_names_the_object() {
    let server = Server::builder().build().unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": []}});
    match server.load(vec![pod]).await {
        Err(LoadError::Refused { kind, name, reason }) => {
            assert_eq!((kind.as_str(), name.as_str()), ("Pod", "shop/p"));
            assert_eq!(reason, "spec.containers: Required value");
        }
        other => panic!("{other:?}"),
    }
}
