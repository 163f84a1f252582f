//! Watches.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::{config_map, eventually, namespace, object};

const WRITERS: usize = 8;
const ROUNDS: usize = 15;

/// The work of one writer: each object is created, changed twice and, except the last one, deleted.
async fn work(maps: Api<ConfigMap>, writer: usize) {
    for round in 0..ROUNDS {
        let name = format!("w{writer}-{round}");
        maps.create(&PostParams::default(), &config_map(&name, "0"))
            .await
            .unwrap();
        for change in 1..=2 {
            let patch = Patch::Merge(json!({"data": {"value": change.to_string()}}));
            maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        if round + 1 < ROUNDS {
            maps.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }
    maps.create(&PostParams::default(), &config_map(&format!("done-{writer}"), ""))
        .await
        .unwrap();
}

pub(crate) async fn no_event_is_lost_or_doubled_under_eight_writers(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let from = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let watch = maps.watch(&WatchParams::default(), &from).await.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(work(maps.clone(), writer)))
        .collect();

    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last_version = from.parse::<u64>().unwrap();
    let mut done = 0;
    let mut watch = pin!(watch);
    while done < WRITERS {
        let (kind, map) = match watch.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(map) => ("added", map),
            WatchEvent::Modified(map) => ("modified", map),
            WatchEvent::Deleted(map) => ("deleted", map),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => panic!("{error:?}"),
        };
        let name = map.name_any();
        if name == "kube-root-ca.crt" {
            continue;
        }
        let version = map.resource_version().unwrap().parse::<u64>().unwrap();
        assert!(version > last_version, "{version} came after {last_version}");
        last_version = version;
        done += usize::from(name.starts_with("done-"));
        let value = map.data.and_then(|data| data.get("value").cloned()).unwrap_or_default();
        seen.entry(name).or_default().push(format!("{kind} {value}"));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(seen.len(), WRITERS * (ROUNDS + 1));
    for (name, events) in seen.iter().filter(|(name, _)| name.starts_with('w')) {
        let mut expected = vec!["added 0", "modified 1", "modified 2", "deleted 2"];
        if name.ends_with(&format!("-{}", ROUNDS - 1)) {
            expected.pop();
        }
        assert_eq!(*events, expected, "{name}");
    }
}

pub(crate) async fn a_watch_starts_with_the_present_state(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    for name in ["a", "b"] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"mine": "yes"}}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let mut watch = pin!(maps.watch(&WatchParams::default().labels("mine"), "0").await.unwrap());
    let mut names = Vec::new();
    while names.len() < 2 {
        match watch.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(map) => names.push(map.name_any()),
            other => panic!("{other:?}"),
        }
    }
    names.sort();
    assert_eq!(names, ["a", "b"]);
}

pub(crate) async fn a_selection_is_entered_and_left(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let from = created.resource_version().unwrap();
    let mut watch = pin!(
        maps.watch(&WatchParams::default().labels("colour=blue"), &from)
            .await
            .unwrap()
    );
    let label = |colour: &'static str| Patch::Merge(json!({"metadata": {"labels": {"colour": colour}}}));
    let mut expected = Vec::new();
    for (colour, kind) in [("red", ""), ("blue", "added"), ("blue2", ""), ("blue", "added")] {
        let patched = maps.patch("a", &PatchParams::default(), &label(colour)).await.unwrap();
        if colour == "blue2" {
            expected.push(("deleted", patched.resource_version(), Some("blue".to_owned())));
        } else if !kind.is_empty() {
            expected.push((kind, patched.resource_version(), Some(colour.to_owned())));
        }
    }
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let (kind, map) = match watch.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(map) => ("added", map),
            WatchEvent::Modified(map) => ("modified", map),
            WatchEvent::Deleted(map) => ("deleted", map),
            other => panic!("{other:?}"),
        };
        seen.push((kind, map.resource_version(), map.labels().get("colour").cloned()));
    }
    assert_eq!(seen[..3], expected);
    assert_eq!(seen[3].0, "deleted");
}

pub(crate) async fn a_streamed_list_marks_its_end(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    for name in ["a", "b", "c"] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"mine": "yes"}}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let parameters = WatchParams::default().labels("mine").initial_events();
    let mut watch = pin!(maps.watch(&parameters, "").await.unwrap());
    let mut added = 0;
    loop {
        match watch.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => added += 1,
            WatchEvent::Bookmark(bookmark) => {
                let end = bookmark.metadata.annotations.get("k8s.io/initial-events-end");
                assert_eq!(end.map(String::as_str), Some("true"));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(added, 3);
}

pub(crate) async fn a_reflector_ends_up_with_the_same_state(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    for configuration in [
        watcher::Config::default().page_size(3),
        watcher::Config::default().streaming_lists(),
    ] {
        let (reader, writer) = reflector::store();
        let stream = reflector(writer, watcher(maps.clone(), configuration)).applied_objects();
        let driver = tokio::spawn(stream.for_each(|_| async {}));
        let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(churn(maps.clone(), writer))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let listed = maps.list(&ListParams::default()).await.unwrap();
        let expected: BTreeMap<_, _> = listed
            .iter()
            .map(|map| (map.name_any(), map.resource_version()))
            .collect();
        eventually("the reflector shows what the list shows", || async {
            let state = reader.state();
            let found: BTreeMap<_, _> = state
                .iter()
                .map(|map| (map.name_any(), map.resource_version()))
                .collect();
            found == expected
        })
        .await;
        driver.abort();
        maps.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
    }
}

async fn churn(maps: Api<ConfigMap>, writer: usize) {
    for round in 0..12 {
        let name = format!("c{writer}-{round}");
        maps.create(&PostParams::default(), &config_map(&name, "0"))
            .await
            .unwrap();
        if round % 3 == 0 {
            maps.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }
}

pub(crate) async fn metadata_can_be_watched_alone(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let from = created.resource_version().unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let mut watch = pin!(maps.watch_metadata(&WatchParams::default(), &from).await.unwrap());
    match watch.try_next().await.unwrap().unwrap() {
        WatchEvent::Modified(map) => assert_eq!(map.labels()["x"], "y"),
        other => panic!("{other:?}"),
    }
    let listed = maps.list_metadata(&ListParams::default().labels("x=y")).await.unwrap();
    assert_eq!(listed.items.len(), 1);
}
