//! What happens when the requested history is gone. The history is kept short for that.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use berth_apiserver::Server;
use berth_apiserver::store::Limits;
use common::ask;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

fn short_memory() -> Server {
    let limits = Limits {
        history_events: 8,
        ..Limits::default()
    };
    Server::builder().limits(limits).build().unwrap()
}

fn maps(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(Client::new(server.service(), "default"), "default")
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> ConfigMap {
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap()
}

async fn touch(maps: &Api<ConfigMap>, name: &str, number: usize) {
    let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
    maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_watch_from_too_long_ago_is_told_so() {
    let server = short_memory();
    let maps = maps(&server);
    let old = create(&maps, "a").await.resource_version().unwrap();
    for number in 0..20 {
        touch(&maps, "a", number).await;
    }
    let mut watch = pin!(maps.watch(&WatchParams::default(), &old).await.unwrap());
    match watch.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
            assert!(
                status.message.starts_with("too old resource version: "),
                "{}",
                status.message
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(watch.try_next().await.unwrap().is_none(), "the watch ends");
}

#[tokio::test]
async fn a_slow_watcher_is_ended_and_holds_nobody_up() {
    let server = short_memory();
    let maps = maps(&server);
    let from = create(&maps, "a").await.resource_version().unwrap();
    let mut slow = pin!(maps.watch(&WatchParams::default(), &from).await.unwrap());
    let mut quick = pin!(maps.watch(&WatchParams::default(), &from).await.unwrap());
    for number in 0..100 {
        touch(&maps, "a", number).await;
        match quick.try_next().await.unwrap() {
            Some(WatchEvent::Modified(map)) => {
                assert_eq!(map.data.unwrap()["number"], number.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
    // The slow one may have buffered a few events; then it gets an error.
    loop {
        match slow.try_next().await.unwrap() {
            Some(WatchEvent::Modified(_)) => {}
            Some(WatchEvent::Error(status)) => {
                assert_eq!(status.code, 410);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_reflector_lists_anew_after_it_was_too_late() {
    let server = short_memory();
    let maps = maps(&server);
    create(&maps, "a").await;
    let (reader, writer) = reflector::store();
    // No streaming lists and no polling for a while: the first watch starts at a version that is gone by then.
    let mut stream = pin!(reflector(writer, watcher(maps.clone(), watcher::Config::default())).default_backoff());
    let first = stream.next().await.unwrap().unwrap();
    assert!(matches!(first, watcher::Event::Init), "{first:?}");
    for _ in 0..2 {
        stream.next().await.unwrap().unwrap();
    }
    for number in 0..50 {
        touch(&maps, "a", number).await;
    }
    create(&maps, "b").await;
    let expected = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    let mut errors = 0;
    let relisted = async {
        loop {
            let names: BTreeSet<_> = reader.state().iter().map(|map| map.name_any()).collect();
            if names == expected {
                break;
            }
            errors += usize::from(stream.next().await.unwrap().is_err());
        }
    };
    tokio::time::timeout(Duration::from_secs(20), relisted).await.unwrap();
    assert_eq!(errors, 1, "the watcher was told once that it was too late");
}

#[tokio::test]
async fn an_expired_page_offers_a_way_on() {
    let server = short_memory();
    let maps = maps(&server);
    for number in 0..6 {
        create(&maps, &format!("m{number}")).await;
    }
    let page = maps.list(&ListParams::default().limit(4)).await.unwrap();
    for number in 0..20 {
        touch(&maps, "m5", number).await;
    }
    let token = page.metadata.continue_.unwrap();
    let path = "/api/v1/namespaces/default/configmaps?limit=4&continue=";
    let (code, status) = ask(&server.service(), "GET", &format!("{path}{token}"), Value::Null).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = ask(&server.service(), "GET", &format!("{path}{token}"), Value::Null).await;
    assert_eq!(code, 200);
    let names: Vec<_> = rest["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|map| &map["metadata"]["name"])
        .collect();
    assert_eq!(names, ["m4", "m5"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks() {
    let server = Server::builder().build().unwrap();
    let maps = maps(&server);
    let from = create(&maps, "a").await.resource_version().unwrap();
    let mut watch = pin!(maps.watch(&WatchParams::default(), &from).await.unwrap());
    // A change elsewhere. Time is paused, so the next message can only be the bookmark.
    let nodes = "/api/v1/nodes";
    ask(&server.service(), "POST", nodes, json!({"metadata": {"name": "n1"}})).await;
    match watch.try_next().await.unwrap() {
        Some(WatchEvent::Bookmark(bookmark)) => {
            let version: u64 = bookmark.metadata.resource_version.parse().unwrap();
            assert!(version > from.parse().unwrap(), "it shows what happened elsewhere");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_over() {
    let server = Server::builder().build().unwrap();
    let maps = maps(&server);
    let from = create(&maps, "a").await.resource_version().unwrap();
    let parameters = WatchParams::default().timeout(20).disable_bookmarks();
    let mut watch = pin!(maps.watch(&parameters, &from).await.unwrap());
    let started = tokio::time::Instant::now();
    assert!(watch.try_next().await.unwrap().is_none());
    assert_eq!(started.elapsed().as_secs(), 20);
}
