//! Responses specific to this server: unsupported features and refusals.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use berth_apiserver::{Server, Tls};
use bytes::Bytes;
use common::{ask, ask_with, send};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn nobody_acts_as_somebody_else() {
    let server = Server::builder().build().unwrap();
    let (code, status) = ask_with(
        &server.service(),
        "GET",
        MAPS,
        Value::Null,
        &[("impersonate-user", "joe")],
    )
    .await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert!(status["message"].as_str().unwrap().contains("\"joe\""), "{status}");
    let (code, _) = ask_with(
        &server.service(),
        "GET",
        MAPS,
        Value::Null,
        &[("impersonate-extra-a", "b")],
    )
    .await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn reviews_know_one_user() {
    let server = Server::builder().token("right").build().unwrap();
    let token = async |token: &str| {
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        ask(&server.service(), "POST", path, json!({"spec": {"token": token}})).await
    };
    assert_eq!(token("right").await.1["status"]["authenticated"], true);
    let (code, wrong) = token("wrong").await;
    assert_eq!(
        (code, &wrong["status"]),
        (201, &json!({"user": {}, "error": "invalid bearer token"}))
    );
    assert_eq!(token("").await.0, 400);
    let access = async |spec: Value| {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        ask(&server.service(), "POST", path, json!({"spec": spec})).await.1["status"]["allowed"].clone()
    };
    let what = json!({"verb": "get", "resource": "pods"});
    assert_eq!(access(json!({"user": "joe", "resourceAttributes": what})).await, false);
    assert_eq!(
        access(json!({"user": "berth-admin", "resourceAttributes": what})).await,
        true
    );
    assert_eq!(
        access(json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": what})).await,
        true
    );
}

#[tokio::test]
async fn a_version_that_is_not_there_yet_is_told_of() {
    let server = Server::builder().build().unwrap();
    ask(&server.service(), "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    for path in [
        format!("{MAPS}?resourceVersion=9999"),
        format!("{MAPS}/a?resourceVersion=9999"),
    ] {
        let (code, status) = ask(&server.service(), "GET", &path, Value::Null).await;
        assert_eq!((code, &status["reason"]), (504, &json!("Timeout")), "{path}");
    }
    // A watch reports it in a way that makes every client list again.
    let path = format!("{MAPS}?watch=1&resourceVersion=9999");
    let (code, event) = ask(&server.service(), "GET", &path, Value::Null).await;
    assert_eq!(
        (code, &event["type"], &event["object"]["code"]),
        (200, &json!("ERROR"), &json!(410))
    );
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.starts_with("Too large resource version: 9999"), "{message}");
    let path = format!("{MAPS}?watch=1&resourceVersion=9999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    assert_eq!(ask(&server.service(), "GET", &path, Value::Null).await.0, 504);
}

#[tokio::test]
async fn less_than_nothing_is_no_limit() {
    let server = Server::builder().build().unwrap();
    let (code, list) = ask(&server.service(), "GET", "/api/v1/namespaces?limit=-1", Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 4));
}

/// What a repeated write does to an object.
#[tokio::test]
async fn a_write_that_changes_nothing_is_none() {
    let server = Server::builder().build().unwrap();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"serviceName": "db",
        "selector": {"matchLabels": {"a": "b"}}, "template": template, "volumeClaimTemplates": [claim]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "strategy": {}, "template": template}});
    for (plural, object) in [("statefulsets", set), ("deployments", deployment)] {
        let collection = format!("/apis/apps/v1/namespaces/default/{plural}");
        let (code, created) = ask(&server.service(), "POST", &collection, object.clone()).await;
        assert_eq!(code, 201, "{created}");
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
        let version = server.store().version();
        let (code, replaced) = ask(&server.service(), "PUT", &path, object.clone()).await;
        assert_eq!(
            (code, &replaced["metadata"]["generation"]),
            (200, &json!(1)),
            "{plural}"
        );
        for media_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
            let patch = Bytes::from(json!({"spec": object["spec"]}).to_string());
            let (code, patched) = send(&server.service(), "PATCH", &path, media_type, patch).await;
            let patched: Value = serde_json::from_slice(&patched).unwrap();
            assert_eq!(
                (code, &patched["metadata"]["generation"]),
                (200, &json!(1)),
                "{plural} {media_type}"
            );
        }
        let apply = || async {
            let body = Bytes::from(object.to_string());
            let path = format!("{path}?fieldManager=me&force=true");
            send(&server.service(), "PATCH", &path, "application/apply-patch+yaml", body).await
        };
        assert_eq!(server.store().version(), version, "{plural}: nothing is stored");
        apply().await;
        let version = server.store().version();
        let (code, applied) = apply().await;
        let applied: Value = serde_json::from_slice(&applied).unwrap();
        assert_eq!((code, &applied["metadata"]["generation"]), (200, &json!(1)), "{plural}");
        assert_eq!(
            server.store().version(),
            version,
            "{plural}: an apply stores nothing either"
        );
        let change = Bytes::from_static(b"{\"spec\":{\"replicas\":3}}");
        let (_, changed) = send(
            &server.service(),
            "PATCH",
            &path,
            "application/merge-patch+json",
            change,
        )
        .await;
        let changed: Value = serde_json::from_slice(&changed).unwrap();
        assert_eq!(changed["metadata"]["generation"], 2, "{plural}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_services_get_the_same_address() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::builder().data_dir(directory.path()).build().unwrap();
    let services = "/api/v1/namespaces/default/services";
    let made = (0..40).map(|number| {
        let service = server.service();
        let body =
            json!({"metadata": {"name": format!("s{number}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        tokio::spawn(async move { ask(&service, "POST", services, body).await })
    });
    let mut taken = std::collections::BTreeSet::new();
    for made in made.collect::<Vec<_>>() {
        let (code, service) = made.await.unwrap();
        assert_eq!(code, 201, "{service}");
        assert!(taken.insert(service["spec"]["clusterIP"].to_string()), "{service}");
        assert!(
            taken.insert(service["spec"]["ports"][0]["nodePort"].to_string()),
            "{service}"
        );
    }
    let (_, gone) = ask(&server.service(), "GET", &format!("{services}/s7"), Value::Null).await;
    ask(&server.service(), "DELETE", &format!("{services}/s7"), Value::Null).await;
    let again = json!({"metadata": {"name": "again"}, "spec": {"clusterIP": gone["spec"]["clusterIP"], "ports": [{"port": 80}]}});
    let (code, _) = ask(&server.service(), "POST", services, again).await;
    assert_eq!(code, 201, "what is deleted gives back its address");
}

/// A gauge of existing objects shows when there are none any more.
#[tokio::test]
async fn the_number_of_objects_returns_to_nothing() {
    let server = Server::builder().build().unwrap();
    ask(&server.service(), "POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    ask(&server.service(), "GET", "/metrics", Value::Null).await;
    ask(&server.service(), "DELETE", &format!("{MAPS}/a"), Value::Null).await;
    let (_, text) = send(&server.service(), "GET", "/metrics", "", Bytes::new()).await;
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(
        text.contains("berth_apiserver_objects{resource=\"configmaps\"} 0"),
        "{text}"
    );
}

/// Waits until a path answers with a status.
async fn until(server: &Server, path: &str, wanted: u16) {
    let start = Instant::now();
    while ask(&server.service(), "GET", path, Value::Null).await.0 != wanted {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{path} never answers {wanted}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts a request and disconnects before the response, as a client with a broken connection does.
async fn begin(server: &Server, method: &str, path: &str, body: Value) {
    let service = server.service();
    let mut request = Box::pin(ask(&service, method, path, body));
    assert!(
        futures_util::poll!(request.as_mut()).is_pending(),
        "it was answered already"
    );
}

#[tokio::test]
async fn what_follows_from_a_write_does_not_need_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::builder().data_dir(directory.path()).build().unwrap();
    let (_, owner) = ask(&server.service(), "POST", MAPS, json!({"metadata": {"name": "owner"}})).await;
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let child = json!({"metadata": {"name": "child", "ownerReferences": owners}});
    ask(&server.service(), "POST", MAPS, child).await;
    // Pending work for the child must not hide what follows from the deletion.
    server.collect_garbage().await;
    begin(&server, "DELETE", &format!("{MAPS}/owner"), Value::Null).await;
    until(&server, &format!("{MAPS}/child"), 404).await;

    ask(
        &server.service(),
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "doomed"}}),
    )
    .await;
    let inside = "/api/v1/namespaces/doomed/configmaps";
    ask(&server.service(), "POST", inside, json!({"metadata": {"name": "a"}})).await;
    begin(&server, "DELETE", "/api/v1/namespaces/doomed", Value::Null).await;
    until(&server, "/api/v1/namespaces/doomed", 404).await;

    let definition = json!({"metadata": {"name": "boats.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "boats", "kind": "Boat"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    begin(
        &server,
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    )
    .await;
    until(&server, "/apis/example.com/v1/boats", 200).await;
}

#[tokio::test]
async fn what_needs_containers_says_that_there_are_none() {
    let server = Server::builder().build().unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    ask(&server.service(), "POST", pods, pod).await;
    for (method, path, said) in [
        ("GET", "p/log", "pods have no logs"),
        ("POST", "p/exec", "nothing to run a command in"),
        ("GET", "p/exec", "nothing to run a command in"),
        ("POST", "p/attach", "nothing to attach to"),
        ("POST", "p/portforward", "no port to forward to"),
        ("PATCH", "p/ephemeralcontainers", "none can be added"),
    ] {
        let (code, status) = ask(&server.service(), method, &format!("{pods}/{path}"), Value::Null).await;
        assert_eq!((code, &status["reason"]), (501, &json!("NotImplemented")), "{path}");
        assert!(status["message"].as_str().unwrap().contains(said), "{status}");
    }
    let (code, _) = ask(&server.service(), "GET", &format!("{pods}/other/log"), Value::Null).await;
    assert_eq!(code, 404, "there is no such pod");
    let (code, _) = ask(&server.service(), "GET", &format!("{pods}/p/nonsense"), Value::Null).await;
    assert_eq!(code, 404, "nobody has such a thing");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ask(&server.service(), "POST", accounts, json!({"metadata": {"name": "a"}})).await;
    let (code, _) = ask(&server.service(), "POST", &format!("{accounts}/a/token"), json!({})).await;
    assert_eq!(code, 501);
}

#[tokio::test]
async fn a_namespace_that_is_stuck_says_what_holds_it() {
    let server = Server::builder().build().unwrap();
    ask(
        &server.service(),
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "stuck"}}),
    )
    .await;
    let inside = "/api/v1/namespaces/stuck/configmaps";
    for (name, finalizers) in [("held", json!(["example.com/hold"])), ("free", json!([]))] {
        let map = json!({"metadata": {"name": name, "finalizers": finalizers}});
        ask(&server.service(), "POST", inside, map).await;
    }
    let path = "/api/v1/namespaces/stuck";
    ask(&server.service(), "DELETE", path, Value::Null).await;
    server.collect_garbage().await;
    let (_, namespace) = ask(&server.service(), "GET", path, Value::Null).await;
    let conditions = namespace["status"]["conditions"].as_array().unwrap();
    let said = |kind: &str| {
        let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
        (found["status"].as_str().unwrap(), found["message"].as_str().unwrap())
    };
    assert_eq!(
        said("NamespaceContentRemaining"),
        (
            "True",
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
    );
    let finalizers = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    assert_eq!(said("NamespaceFinalizersRemaining"), ("True", finalizers));
    let free = Bytes::from_static(b"{\"metadata\":{\"finalizers\":null}}");
    send(
        &server.service(),
        "PATCH",
        &format!("{inside}/held"),
        "application/merge-patch+json",
        free,
    )
    .await;
    until(&server, path, 404).await;
}

/// The remaining count is correct on every page, although only the first one counts.
#[tokio::test]
async fn pages_say_how_much_is_left() {
    let server = Server::builder().build().unwrap();
    for number in 0..10 {
        ask(
            &server.service(),
            "POST",
            MAPS,
            json!({"metadata": {"name": format!("m{number}")}}),
        )
        .await;
    }
    for path in ["/api/v1/configmaps", MAPS] {
        let mut token = String::new();
        let mut left = Vec::new();
        loop {
            let page = format!("{path}?limit=3&continue={token}");
            let (_, list) = ask(&server.service(), "GET", &page, Value::Null).await;
            left.push(list["metadata"]["remainingItemCount"].as_u64());
            // Changes in between do not count.
            ask(&server.service(), "DELETE", &format!("{MAPS}/m9"), Value::Null).await;
            ask(&server.service(), "POST", MAPS, json!({"metadata": {"name": "m9"}})).await;
            match list["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(left, [Some(7), Some(4), Some(1), None], "{path}");
    }
}

#[tokio::test]
async fn namespaces_have_an_account_for_their_pods() {
    let server = Server::builder().service_accounts(true).build().unwrap();
    let service = server.service();
    ask(
        &service,
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "shop"}}),
    )
    .await;
    for namespace in ["default", "kube-system", "shop"] {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        until(&server, &path, 200).await;
        ask(&service, "DELETE", &path, Value::Null).await;
        until(&server, &path, 200).await;
    }
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let pods = "/api/v1/namespaces/shop/pods";
    let (_, pod) = ask(&service, "POST", pods, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    assert_eq!(pod["spec"]["serviceAccountName"], "default");
    let own = json!({"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "own"});
    let (_, pod) = ask(&service, "POST", pods, json!({"metadata": {"name": "b"}, "spec": own})).await;
    assert_eq!(
        (&pod["spec"]["serviceAccountName"], &pod["spec"]["serviceAccount"]),
        (&json!("own"), &json!("own"))
    );
    ask(&service, "DELETE", "/api/v1/namespaces/shop", Value::Null).await;
    until(&server, "/api/v1/namespaces/shop", 404).await;
    let plain = Server::builder().build().unwrap();
    let (code, _) = ask(
        &plain.service(),
        "GET",
        "/api/v1/namespaces/default/serviceaccounts/default",
        Value::Null,
    )
    .await;
    assert_eq!(code, 404, "only where it is wanted");
}

/// Waits until a field of an object has the required value.
async fn mended(server: &Server, path: &str, field: &str, wanted: &Value) {
    let start = Instant::now();
    loop {
        let (_, object) = ask(&server.service(), "GET", path, Value::Null).await;
        if object.pointer(field) == Some(wanted) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{path} {field}: {object}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A stopped clock.
struct Still;

impl berth_apiserver::Clock for Still {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }
}

#[tokio::test]
async fn whoever_writes_a_certificate_in_turns_with_the_server_has_the_last_word() {
    let server = Server::builder().clock(std::sync::Arc::new(Still)).build().unwrap();
    let service = server.service();
    let tls = Tls::generate(&[]).unwrap();
    server.publish(([127, 0, 0, 1], 6443).into(), &tls).await;
    let map = format!("{MAPS}/kube-root-ca.crt");
    mended(&server, &map, "/data/ca.crt", &json!(tls.authority_pem())).await;
    for (written, found) in [("once", tls.authority_pem()), ("twice", "twice")] {
        let (_, mut changed) = ask(&service, "GET", &map, Value::Null).await;
        changed["data"]["ca.crt"] = json!(written);
        ask(&service, "PUT", &map, changed).await;
        server.collect_garbage().await;
        mended(&server, &map, "/data/ca.crt", &json!(found)).await;
    }
}

/// A server on a directory that a previous one may still be using: its background work ends a moment after it is
/// dropped.
async fn opened(directory: &std::path::Path) -> Server {
    let start = Instant::now();
    loop {
        match Server::builder().data_dir(directory).build() {
            Ok(server) => return server,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(30), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_cluster_knows_its_api_server() {
    let directory = tempfile::tempdir().unwrap();
    let tls = Tls::generate(&[]).unwrap();
    let certificate = json!(tls.authority_pem());
    let of = |namespace: &str, rest: &str| format!("/api/v1/namespaces/{namespace}/{rest}");
    for port in [6443, 7443] {
        // The second time, the state is that of the first, and the port is another one.
        let server = opened(directory.path()).await;
        let service = server.service();
        server.publish(([127, 0, 0, 1], port).into(), &tls).await;
        let (_, found) = ask(&service, "GET", &of("default", "services/kubernetes"), Value::Null).await;
        assert_eq!(found["spec"]["clusterIP"], "10.96.0.1");
        let wanted = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]);
        assert_eq!(found["spec"]["ports"], wanted);
        let wanted = json!([{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]);
        mended(&server, &of("default", "endpoints/kubernetes"), "/subsets", &wanted).await;
        let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        mended(&server, slice, "/endpoints/0/addresses", &json!(["127.0.0.1"])).await;

        let shop = json!({"metadata": {"name": format!("shop-{port}")}});
        ask(&service, "POST", "/api/v1/namespaces", shop).await;
        for namespace in ["default".to_owned(), format!("shop-{port}")] {
            let map = of(&namespace, "configmaps/kube-root-ca.crt");
            mended(&server, &map, "/data/ca.crt", &certificate).await;
            let (_, mut changed) = ask(&service, "GET", &map, Value::Null).await;
            changed["data"]["ca.crt"] = json!("forged");
            ask(&service, "PUT", &map, changed).await;
            mended(&server, &map, "/data/ca.crt", &certificate).await;
            ask(&service, "DELETE", &map, Value::Null).await;
            mended(&server, &map, "/data/ca.crt", &certificate).await;
        }
        ask(&service, "DELETE", &of("default", "services/kubernetes"), Value::Null).await;
        until(&server, &of("default", "services/kubernetes"), 200).await;
        server.shutdown();
    }
    let plain = Server::builder().build().unwrap();
    let (code, _) = ask(
        &plain.service(),
        "GET",
        &of("default", "services/kubernetes"),
        Value::Null,
    )
    .await;
    assert_eq!(code, 404, "only where it is wanted");
}

#[tokio::test]
async fn a_definition_says_what_is_not_kept_of_it() {
    let server = Server::builder().build().unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = |name: &str, storage: bool| {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "self.a != ''"}]});
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let webhook = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com/convert"}}});
    let definition = |versions: Value, conversion: &Value| {
        let names = json!({"plural": "boats", "kind": "Boat"});
        json!({"metadata": {"name": "boats.example.com"}, "spec": {"group": "example.com", "scope": "Cluster", "names": names,
            "versions": versions, "conversion": conversion}})
    };
    let two = definition(json!([version("v1", true), version("v2", false)]), &webhook);
    let (code, status) = ask(&server.service(), "POST", path, two).await;
    assert_eq!(code, 422, "nobody would convert: {status}");
    assert!(
        status["message"].as_str().unwrap().contains("calls no webhooks"),
        "{status}"
    );
    let one = definition(json!([version("v1", true)]), &webhook);
    let warnings = warnings_of(&server, path, &one).await;
    assert_eq!(warnings, [""; 0], "its rules are kept");
}

#[tokio::test]
async fn rules_of_a_definition_hold_for_its_objects_and_others_are_refused_with_it() {
    let server = Server::builder().build().unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = |rule: &str| {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string"}, "size": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": rule, "message": "no"}]});
        let version = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}});
        json!({"metadata": {"name": "boats.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
            "names": {"plural": "boats", "kind": "Boat"}, "versions": [version]}})
    };
    let (code, status) = ask(&server.service(), "POST", path, definition("self.a.isSorted()")).await;
    let message = status["message"].as_str().unwrap();
    assert!(
        code == 422 && message.contains("calls isSorted, which this server does not support"),
        "{status}"
    );
    let (code, _) = ask(
        &server.service(),
        "POST",
        path,
        definition("!has(oldSelf.size) || self.size >= oldSelf.size"),
    )
    .await;
    assert_eq!(code, 201);
    let boats = "/apis/example.com/v1/boats";
    let boat = |size: u64| json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "ada"}, "spec": {"size": size}});
    let (code, made) = ask(&server.service(), "POST", boats, boat(3)).await;
    assert_eq!(code, 201, "{made}");
    let smaller = Bytes::from_static(b"{\"spec\": {\"size\": 2}}");
    let (code, status) = send(
        &server.service(),
        "PATCH",
        &format!("{boats}/ada"),
        "application/merge-patch+json",
        smaller,
    )
    .await;
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(code, 422, "{status}");
    assert_eq!(
        status["message"],
        "Boat.example.com \"ada\" is invalid: spec: Invalid value: \"object\": no"
    );
}

/// The warnings in the response to a POST.
async fn warnings_of(server: &Server, path: &str, body: &Value) -> Vec<String> {
    use tower_service::Service;
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request
        .body(http_body_util::Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let Ok(response) = server.service().call(request).await;
    assert!(response.status().is_success(), "{}", response.status());
    let warnings = response.headers().get_all("warning").iter();
    warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let server = Server::builder().build().unwrap();
    for (path, expected) in [("/healthz", 200), ("/version", 200), (MAPS, 405)] {
        let (code, body) = send(&server.service(), "HEAD", path, "", Bytes::new()).await;
        assert_eq!((code, body.len()), (expected, 0), "{path}");
    }
}

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn class(name: &str, rest: Value) -> Value {
    let mut class = json!({"metadata": {"name": name}, "provisioner": "p"});
    class.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    class
}

/// KEP-490 (End to End Zonal Example) uses another name for the field, and old manifests still use it.
#[tokio::test]
async fn the_older_name_of_the_binding_mode_counts() {
    let server = Server::builder().build().unwrap();
    for validation in ["Strict", "Warn", "Ignore"] {
        let path = format!("{CLASSES}?fieldValidation={validation}");
        let older = class(
            &validation.to_lowercase(),
            json!({"bindingMode": "WaitForFirstConsumer"}),
        );
        let (code, created) = ask(&server.service(), "POST", &path, older).await;
        assert_eq!(
            (code, &created["volumeBindingMode"]),
            (201, &json!("WaitForFirstConsumer")),
            "{created}"
        );
        assert_eq!(created.get("bindingMode"), None);
    }
    let both = class(
        "both",
        json!({"bindingMode": "WaitForFirstConsumer", "volumeBindingMode": "Immediate"}),
    );
    let (code, refused) = ask(&server.service(), "POST", CLASSES, both).await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["field"]),
        (422, &json!("bindingMode")),
        "{refused}"
    );
}

/// Values that decisions cannot read are refused with their field, not ignored.
#[tokio::test]
async fn values_that_decisions_cannot_read_are_refused() {
    let server = Server::builder().build().unwrap();
    let refused = async |method: &str, path: &str, object: Value| {
        let (code, status) = ask(&server.service(), method, path, object).await;
        assert_eq!(code, 422, "{status}");
        status["details"]["causes"][0]["field"].as_str().unwrap().to_owned()
    };
    let heavy = json!({"metadata": {"name": "heavy", "annotations": {"storageclass.kubernetes.io/weight": "heavy"}}});
    let field = refused("POST", CLASSES, class("heavy", heavy)).await;
    assert!(field.contains("storageclass.kubernetes.io/weight"), "{field}");

    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let driver = json!({"metadata": {"name": "d.example.com"}, "spec": {}});
    let (code, created) = ask(&server.service(), "POST", drivers, driver).await;
    assert_eq!(code, 201, "{created}");
    let pool = |rest: Value| {
        let mut pool = json!({"name": "a"});
        pool.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        pool
    };
    let near =
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Near", "values": ["a"]}]}]});
    let anywhere = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]});
    for (pools, wanted) in [
        (json!([pool(json!({})), pool(json!({}))]), "pools[1].name"),
        (json!([pool(json!({"capacity": "-1Gi"}))]), "pools[0].capacity"),
        (json!([pool(json!({"nodeTopology": near}))]), "operator"),
        (
            json!([pool(json!({"nodeTopology": anywhere, "nodeList": ["n1"]}))]),
            "nodeList",
        ),
    ] {
        let mut driver = created.clone();
        driver["status"] = json!({"storage": [{"storageClassName": "c", "pools": pools}]});
        let field = refused("PUT", &format!("{drivers}/d.example.com/status"), driver).await;
        assert!(
            field.starts_with("status.storage[0]") && field.contains(wanted),
            "{field}"
        );
    }
}
