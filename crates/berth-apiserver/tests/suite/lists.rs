//! Lists, pagination and selectors.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, VersionMatch};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::{config_map, namespace, object, pod, refusal};

fn names(maps: &[ConfigMap]) -> BTreeSet<String> {
    let all = maps.iter().map(ResourceExt::name_any);
    all.filter(|name| name != "kube-root-ca.crt").collect()
}

pub(crate) async fn pages_show_one_version_while_writes_go_on(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let mut expected = BTreeSet::new();
    for number in 0..40 {
        let name = format!("map-{number:02}");
        maps.create(&PostParams::default(), &config_map(&name, "0"))
            .await
            .unwrap();
        expected.insert(name);
    }
    let mut parameters = ListParams::default().limit(7);
    let mut found = BTreeSet::new();
    let mut versions = BTreeSet::new();
    let mut step = 0;
    loop {
        let page = maps.list(&parameters).await.unwrap();
        assert!(page.items.len() <= 7);
        versions.insert(page.metadata.resource_version.clone());
        for name in names(&page.items) {
            assert!(found.insert(name.clone()), "{name} came twice");
        }
        // Between the pages, objects are deleted, created and changed, on both sides of the page's end.
        for gone in [format!("map-{step:02}"), format!("map-{:02}", 39 - step)] {
            maps.delete(&gone, &DeleteParams::default()).await.unwrap();
        }
        maps.create(&PostParams::default(), &config_map(&format!("map-{step:02}-new"), "0"))
            .await
            .unwrap();
        step += 1;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => {
                assert!(page.metadata.remaining_item_count.is_some_and(|count| count > 0));
                parameters = ListParams::default().limit(7).continue_token(&token);
            }
            None => break,
        }
    }
    assert_eq!(found, expected);
    assert_eq!(versions.len(), 1, "all pages are of one version");
}

pub(crate) async fn pages_go_with_selectors(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    for number in 0..30 {
        let parity = if number % 3 == 0 { "third" } else { "other" };
        let map: ConfigMap =
            object(json!({"metadata": {"name": format!("map-{number:02}"), "labels": {"kind": parity}}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let mut found = Vec::new();
    let mut parameters = ListParams::default().labels("kind=third").limit(4);
    loop {
        let page = maps.list(&parameters).await.unwrap();
        assert!(page.items.len() <= 4);
        found.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => {
                parameters = ListParams::default()
                    .labels("kind=third")
                    .limit(4)
                    .continue_token(&token);
            }
            None => break,
        }
    }
    let expected: Vec<_> = (0..30).step_by(3).map(|number| format!("map-{number:02}")).collect();
    assert_eq!(found, expected);
}

pub(crate) async fn labels_select(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    for (name, labels) in [
        ("a", json!({"tier": "front", "env": "prod"})),
        ("b", json!({"tier": "back", "env": "prod"})),
        ("c", json!({"tier": "back"})),
        ("d", json!({"other": ""})),
    ] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": labels}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    for (selector, expected) in [
        ("tier=back", "b c"),
        ("tier==back,env", "b"),
        ("tier,tier!=back", "a"),
        ("tier in (front,back),!env", "c"),
        ("tier notin (front),env", "b"),
        ("other=", "d"),
    ] {
        let found = maps.list(&ListParams::default().labels(selector)).await.unwrap();
        let found: Vec<_> = names(&found.items).into_iter().collect();
        assert_eq!(found.join(" "), expected, "{selector}");
    }
    let status = refusal(maps.list(&ListParams::default().labels("a in b")).await);
    assert_eq!(status.code, 400);
}

pub(crate) async fn fields_select(client: Client) {
    let here = namespace(&client).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &here);
    for (name, node, scheduler) in [
        ("a", "n1", "default-scheduler"),
        ("b", "n2", "berth"),
        ("c", "", "berth"),
    ] {
        let mut wanted = pod(name);
        let spec = wanted.spec.as_mut().unwrap();
        spec.node_name = (!node.is_empty()).then(|| node.to_owned());
        spec.scheduler_name = Some(scheduler.to_owned());
        pods.create(&PostParams::default(), &wanted).await.unwrap();
    }
    for (selector, expected) in [
        ("spec.nodeName=n1", "a"),
        ("spec.nodeName=", "c"),
        ("spec.nodeName!=", "a b"),
        ("spec.schedulerName=berth,spec.nodeName!=n2", "c"),
        ("status.phase=Pending", "a b c"),
        ("metadata.name=b", "b"),
        ("status.phase!=Pending", ""),
    ] {
        let found = pods.list(&ListParams::default().fields(selector)).await.unwrap();
        let found: Vec<_> = found.iter().map(ResourceExt::name_any).collect();
        assert_eq!(found.join(" "), expected, "{selector}");
    }
    let status = refusal(pods.list(&ListParams::default().fields("spec.nonsense=1")).await);
    assert_eq!(status.code, 400);
    assert!(
        status.message.contains("field label not supported: spec.nonsense"),
        "{}",
        status.message
    );

    let events: Api<Event> = Api::namespaced(client, &here);
    for (name, subject) in [("e1", "a"), ("e2", "b")] {
        let event: Event = object(
            json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": subject,
            "namespace": here}, "reason": "Tested", "message": "hello", "type": "Normal"}),
        );
        events.create(&PostParams::default(), &event).await.unwrap();
    }
    let about = ListParams::default().fields("involvedObject.name=b,involvedObject.kind=Pod");
    let found = events.list(&about).await.unwrap();
    assert_eq!(found.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["e2"]);
}

pub(crate) async fn an_old_version_can_be_listed(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let then = maps.list(&ListParams::default()).await.unwrap();
    let version = then.metadata.resource_version.clone().unwrap();
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let exactly = ListParams::default().at(&version).matching(VersionMatch::Exact);
    let again = maps.list(&exactly).await.unwrap();
    assert_eq!(names(&again.items), names(&then.items));
    assert_eq!(again.metadata.resource_version.as_deref(), Some(version.as_str()));
    let not_older = ListParams::default().at(&version).matching(VersionMatch::NotOlderThan);
    assert_eq!(
        names(&maps.list(&not_older).await.unwrap().items),
        BTreeSet::from(["b".to_owned()])
    );
}

pub(crate) async fn a_collection_is_deleted_by_label(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"l": label}}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("l=x"))
        .await
        .unwrap();
    let left = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&left.items), BTreeSet::from(["b".to_owned()]));
}
