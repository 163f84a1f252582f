//! The four kinds of patches.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{causes, config_map, namespace, object, refusal};

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "main", "image": "main:1", "env": [{"name": "A", "value": "1"}]},
                {"name": "side", "image": "side:1"}]}}}})
}

pub(crate) async fn a_merge_patch_sets_and_removes(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let map: ConfigMap = object(json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"x": null, "z": "3"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let data: Vec<_> = patched.data.unwrap().into_keys().collect();
    assert_eq!(data, ["y", "z"]);
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "1"}}));
    assert_eq!(
        refusal(maps.patch("a", &PatchParams::default(), &stale).await).code,
        409
    );
}

pub(crate) async fn a_json_patch_tests_and_replaces(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let operations = |expected: &str| -> Patch<()> {
        Patch::Json(object(json!([{"op": "test", "path": "/data/value", "value": expected},
            {"op": "replace", "path": "/data/value", "value": "2"}])))
    };
    let patched = maps
        .patch("a", &PatchParams::default(), &operations("1"))
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["value"], "2");
    let failed = refusal(maps.patch("a", &PatchParams::default(), &operations("1")).await);
    assert_eq!((failed.code, failed.reason.as_str()), (422, "Invalid"));
}

pub(crate) async fn a_strategic_patch_merges_lists_by_key(client: Client) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace(&client).await);
    deployments
        .create(&PostParams::default(), &object(deployment()))
        .await
        .unwrap();
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "image": "main:2", "env": [{"name": "B", "value": "2"}]},
        {"name": "side", "$patch": "delete"}]}}}}));
    let patched = deployments.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let containers = patched.spec.template.spec.unwrap().containers;
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0].image.as_deref(), Some("main:2"));
    let variables: Vec<_> = containers[0]
        .env
        .iter()
        .flatten()
        .map(|variable| variable.name.as_str())
        .collect();
    assert!(variables.contains(&"A") && variables.contains(&"B"), "{variables:?}");
}

pub(crate) async fn an_apply_creates_changes_and_takes_back(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let mine = PatchParams::apply("mine");
    let apply = |data: Value| {
        Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
    };
    let created = maps
        .patch("a", &mine, &apply(json!({"x": "1", "y": "1"})))
        .await
        .unwrap();
    let managed = created.managed_fields();
    assert_eq!(managed.len(), 1);
    assert_eq!(managed[0].manager.as_deref(), Some("mine"));
    assert_eq!(managed[0].operation.as_deref(), Some("Apply"));
    let fields = serde_json::to_value(&managed[0].fields_v1).unwrap();
    assert_eq!(fields, json!({"f:data": {"f:x": {}, "f:y": {}}}));

    // Another program adds its own field, which the next apply does not touch.
    let other = PatchParams {
        field_manager: Some("other".into()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"data": {"z": "9"}}));
    maps.patch("a", &other, &patch).await.unwrap();
    let applied = maps.patch("a", &mine, &apply(json!({"x": "2"}))).await.unwrap();
    let data = serde_json::to_value(applied.data).unwrap();
    assert_eq!(data, json!({"x": "2", "z": "9"}));

    let same = maps.patch("a", &mine, &apply(json!({"x": "2"}))).await.unwrap();
    assert_eq!(
        same.metadata.resource_version,
        maps.get("a").await.unwrap().metadata.resource_version
    );
}

pub(crate) async fn two_appliers_conflict_until_one_forces(client: Client) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace(&client).await);
    deployments
        .patch("web", &PatchParams::apply("first"), &Patch::Apply(deployment()))
        .await
        .unwrap();
    let wanted =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}});
    let second = PatchParams::apply("second");
    let status = refusal(deployments.patch("web", &second, &Patch::Apply(wanted.clone())).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(
        status.message.contains("Apply failed with 1 conflict"),
        "{}",
        status.message
    );
    assert!(status.message.contains("conflict with \"first\""), "{}", status.message);
    assert_eq!(causes(&status), [".spec.replicas"]);

    let forced = deployments
        .patch("web", &second.force(), &Patch::Apply(wanted))
        .await
        .unwrap();
    assert_eq!(forced.spec.replicas, Some(5));
    let status = refusal(
        deployments
            .patch("web", &PatchParams::apply("first"), &Patch::Apply(deployment()))
            .await,
    );
    assert!(
        status.message.contains("conflict with \"second\""),
        "{}",
        status.message
    );
}

pub(crate) async fn unknown_fields_are_refused_when_asked(client: Client) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace(&client).await);
    let mut wanted = deployment();
    wanted["spec"]["replicaz"] = 3.into();
    let strict = PatchParams::apply("mine").validation_strict();
    let status = refusal(deployments.patch("web", &strict, &Patch::Apply(wanted.clone())).await);
    assert!(status.message.contains("replicaz"), "{}", status.message);

    deployments
        .create(&PostParams::default(), &object(deployment()))
        .await
        .unwrap();
    let patch = Patch::Merge(json!({"spec": {"replicaz": 3, "replicas": 4}}));
    let strict = PatchParams::default().validation_strict();
    let status = refusal(deployments.patch("web", &strict, &patch).await);
    assert!(
        status.message.contains("unknown field \"spec.replicaz\""),
        "{}",
        status.message
    );
    let lenient = deployments
        .patch("web", &PatchParams::default().validation_ignore(), &patch)
        .await
        .unwrap();
    assert_eq!(lenient.spec.replicas, Some(4));
}
