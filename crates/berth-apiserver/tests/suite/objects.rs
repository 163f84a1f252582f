//! Create, read, update, delete.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::{config_map, namespace, object, refusal};

pub(crate) async fn an_object_is_created_read_changed_and_deleted(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let created = maps.create(&post, &config_map("a", "1")).await.unwrap();
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());
    let again = refusal(maps.create(&post, &config_map("a", "1")).await);
    assert_eq!((again.code, again.reason.as_str()), (409, "AlreadyExists"));

    let mut read = maps.get("a").await.unwrap();
    assert_eq!(read.resource_version(), created.resource_version());
    read.data.get_or_insert_default().insert("value".into(), "2".into());
    let changed = maps.replace("a", &post, &read).await.unwrap();
    assert_eq!(changed.uid(), created.uid());
    assert_ne!(changed.resource_version(), created.resource_version());
    assert_eq!(changed.data.unwrap()["value"], "2");

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

pub(crate) async fn names_are_made_up_and_unique(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let wanted: ConfigMap = object(json!({"metadata": {"generateName": "made-"}}));
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let name = maps.create(&PostParams::default(), &wanted).await.unwrap().name_any();
        assert!(name.starts_with("made-") && name.len() == 10, "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 20);
    let nameless: ConfigMap = object(json!({"metadata": {}}));
    let status = refusal(maps.create(&PostParams::default(), &nameless).await);
    assert_eq!(status.code, 422);
    assert!(
        status.message.contains("name or generateName is required"),
        "{}",
        status.message
    );
}

pub(crate) async fn a_stale_update_is_refused(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let first = maps.create(&post, &config_map("a", "1")).await.unwrap();
    let mut second = first.clone();
    second.data.get_or_insert_default().insert("value".into(), "2".into());
    maps.replace("a", &post, &second).await.unwrap();
    let mut stale = first;
    stale.data.get_or_insert_default().insert("value".into(), "3".into());
    let status = refusal(maps.replace("a", &post, &stale).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes \
         to the latest version and try again"
    );
}

pub(crate) async fn an_update_without_a_version_goes_through(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    maps.create(&post, &config_map("a", "1")).await.unwrap();
    let changed = maps.replace("a", &post, &config_map("a", "2")).await.unwrap();
    assert_eq!(changed.data.unwrap()["value"], "2");
}

pub(crate) async fn nothing_changes_when_nothing_changes(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let created = maps.create(&post, &config_map("a", "1")).await.unwrap();
    let same = maps.replace("a", &post, &created).await.unwrap();
    assert_eq!(same.resource_version(), created.resource_version());
    let patch = Patch::Merge(json!({"data": {"value": "1"}}));
    let same = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(same.resource_version(), created.resource_version());
}

pub(crate) async fn a_dry_run_leaves_no_trace(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let try_post = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let tried = maps.create(&try_post, &config_map("a", "1")).await.unwrap();
    assert!(tried.uid().is_some());
    assert!(maps.get_opt("a").await.unwrap().is_none());

    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps.replace("a", &try_post, &config_map("a", "2")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"value": "3"}}));
    let tried = maps
        .patch("a", &PatchParams::default().dry_run(), &patch)
        .await
        .unwrap();
    assert_eq!(tried.data.unwrap()["value"], "3");
    maps.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["value"], "1");
}

pub(crate) async fn what_is_missing_is_not_found(client: Client) {
    let here = namespace(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &here);
    let status = refusal(maps.get("nobody").await);
    assert_eq!(
        (status.code, status.message.as_str()),
        (404, "configmaps \"nobody\" not found")
    );
    let status = refusal(maps.delete("nobody", &DeleteParams::default()).await);
    assert_eq!(status.code, 404);
    let status = refusal(
        maps.replace("nobody", &PostParams::default(), &config_map("nobody", "1"))
            .await,
    );
    assert_eq!(status.code, 404);
    let nowhere: Api<ConfigMap> = Api::namespaced(client, "no-such-namespace");
    let status = refusal(nowhere.create(&PostParams::default(), &config_map("a", "1")).await);
    assert_eq!(
        (status.code, status.message.as_str()),
        (404, "namespaces \"no-such-namespace\" not found")
    );
}

pub(crate) async fn generations_count_what_was_asked_for(client: Client) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace(&client).await);
    let wanted: Deployment = object(
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}}),
    );
    let created = deployments.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    let patch = |patch| deployments_patch(&deployments, patch);
    assert_eq!(patch(json!({"metadata": {"labels": {"x": "y"}}})).await, Some(1));
    assert_eq!(patch(json!({"spec": {"replicas": 3}})).await, Some(2));
}

async fn deployments_patch(deployments: &Api<Deployment>, patch: serde_json::Value) -> Option<i64> {
    let patched = deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.unwrap().metadata.generation
}

pub(crate) async fn only_one_of_many_creators_wins(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let attempts = (0..8).map(|number| {
        let maps = maps.clone();
        tokio::spawn(async move {
            maps.create(&PostParams::default(), &config_map("one", &number.to_string()))
                .await
        })
    });
    let mut winners = 0;
    for attempt in attempts.collect::<Vec<_>>() {
        match attempt.await.unwrap() {
            Ok(_) => winners += 1,
            Err(error) => assert_eq!(refusal::<()>(Err(error)).reason, "AlreadyExists"),
        }
    }
    assert_eq!(winners, 1);
}

/// Eight writers add one, each reading first and retrying on a conflict.
pub(crate) async fn no_increment_is_lost(client: Client) {
    const WRITERS: usize = 8;
    const INCREMENTS: usize = 10;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    maps.create(&PostParams::default(), &config_map("counter", "0"))
        .await
        .unwrap();
    let writers = (0..WRITERS).map(|_| {
        let maps = maps.clone();
        tokio::spawn(async move {
            for _ in 0..INCREMENTS {
                while let Err(error) = increment(&maps).await {
                    assert_eq!(refusal::<()>(Err(error)).reason, "Conflict");
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let counter = maps.get("counter").await.unwrap();
    assert_eq!(counter.data.unwrap()["value"], (WRITERS * INCREMENTS).to_string());
}

async fn increment(maps: &Api<ConfigMap>) -> Result<(), kube::Error> {
    let mut counter = maps.get("counter").await?;
    let value = counter.data.get_or_insert_default().entry("value".into()).or_default();
    *value = (value.parse::<usize>().unwrap() + 1).to_string();
    maps.replace("counter", &PostParams::default(), &counter)
        .await
        .map(drop)
}
