//! Deletion, finalizers and garbage collection.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{config_map, eventually, namespace, object, pod, refusal};

async fn gone(maps: &Api<ConfigMap>, name: &str) {
    eventually(&format!("{name} is gone"), || async {
        maps.get_opt(name).await.unwrap().is_none()
    })
    .await;
}

/// A map owned by the given ones.
fn owned_by(name: &str, owners: &[&ConfigMap]) -> ConfigMap {
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
                "blockOwnerDeletion": true})
        })
        .collect();
    object(json!({"metadata": {"name": name, "ownerReferences": owners}}))
}

fn finalizers(names: &[&str]) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"finalizers": names}}))
}

pub(crate) async fn finalizers_hold_an_object(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let parameters = PatchParams::default();
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps.patch("a", &parameters, &finalizers(&["example.com/one", "example.com/two"]))
        .await
        .unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let held = maps.get("a").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    let again = refusal(maps.create(&PostParams::default(), &config_map("a", "1")).await);
    assert_eq!(again.reason, "AlreadyExists");

    let more = finalizers(&["example.com/one", "example.com/two", "example.com/three"]);
    let status = refusal(maps.patch("a", &parameters, &more).await);
    assert_eq!(status.code, 422);
    assert!(
        status.message.contains("no new finalizers can be added"),
        "{}",
        status.message
    );

    maps.patch("a", &parameters, &finalizers(&["example.com/two"]))
        .await
        .unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_some());
    maps.patch("a", &parameters, &finalizers(&[])).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

pub(crate) async fn preconditions_protect(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let created = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let with = |uid: Option<String>, resource_version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions { uid, resource_version })
    };
    for wrong in [with(Some("other".into()), None), with(None, Some("1".into()))] {
        let status = refusal(maps.delete("a", &wrong).await);
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    }
    maps.delete("a", &with(created.uid(), created.resource_version()))
        .await
        .unwrap();
}

pub(crate) async fn dependents_go_in_the_background(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let owner = maps.create(&post, &config_map("owner", "1")).await.unwrap();
    let child = maps.create(&post, &owned_by("child", &[&owner])).await.unwrap();
    maps.create(&post, &owned_by("grandchild", &[&child])).await.unwrap();
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    assert!(maps.get_opt("owner").await.unwrap().is_none());
    gone(&maps, "child").await;
    gone(&maps, "grandchild").await;
}

pub(crate) async fn dependents_go_first_in_the_foreground(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let owner = maps.create(&post, &config_map("owner", "1")).await.unwrap();
    maps.create(&post, &owned_by("child", &[&owner])).await.unwrap();
    let held = finalizers(&["example.com/hold"]);
    maps.patch("child", &PatchParams::default(), &held).await.unwrap();
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    eventually("the child is being deleted", || async {
        maps.get("child").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    let waiting = maps.get("owner").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    maps.patch("child", &PatchParams::default(), &finalizers(&[]))
        .await
        .unwrap();
    gone(&maps, "child").await;
    gone(&maps, "owner").await;
}

pub(crate) async fn a_circle_of_owners_goes_in_the_foreground_too(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let one = maps.create(&post, &config_map("one", "1")).await.unwrap();
    let two = maps.create(&post, &owned_by("two", &[&one])).await.unwrap();
    let three = maps.create(&post, &owned_by("three", &[&two])).await.unwrap();
    let owners = json!({"metadata": {"ownerReferences": owned_by("one", &[&three]).owner_references()}});
    maps.patch("one", &PatchParams::default(), &Patch::Merge(owners))
        .await
        .unwrap();
    maps.delete("one", &DeleteParams::foreground()).await.unwrap();
    for name in ["one", "two", "three"] {
        gone(&maps, name).await;
    }
}

pub(crate) async fn pods_leave_a_namespace_first(client: Client) {
    let here = namespace(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &here);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &here);
    let namespaces: Api<Namespace> = Api::all(client);
    let post = PostParams::default();
    maps.create(&post, &config_map("policy", "1")).await.unwrap();
    pods.create(&post, &pod("held")).await.unwrap();
    let parameters = PatchParams::default();
    pods.patch("held", &parameters, &finalizers(&["example.com/hold"]))
        .await
        .unwrap();
    namespaces.delete(&here, &DeleteParams::default()).await.unwrap();
    eventually("the namespace is being emptied", || async {
        let status = namespaces.get(&here).await.unwrap().status.unwrap();
        let is_deleting = pods.get("held").await.unwrap().metadata.deletion_timestamp.is_some();
        is_deleting && !status.conditions.unwrap_or_default().is_empty()
    })
    .await;
    let policy = maps.get("policy").await.unwrap();
    assert_eq!(policy.metadata.deletion_timestamp, None);
    pods.patch("held", &parameters, &finalizers(&[])).await.unwrap();
    gone(&maps, "policy").await;
    eventually("the namespace is gone", || async {
        namespaces.get_opt(&here).await.unwrap().is_none()
    })
    .await;
}

pub(crate) async fn orphans_stay(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let owner = maps.create(&post, &config_map("owner", "1")).await.unwrap();
    maps.create(&post, &owned_by("child", &[&owner])).await.unwrap();
    maps.delete("owner", &DeleteParams::orphan()).await.unwrap();
    gone(&maps, "owner").await;
    let child = maps.get("child").await.unwrap();
    assert!(child.owner_references().is_empty() && child.metadata.deletion_timestamp.is_none());
}

pub(crate) async fn an_object_stays_as_long_as_one_owner_does(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    let one = maps.create(&post, &config_map("one", "1")).await.unwrap();
    let two = maps.create(&post, &config_map("two", "1")).await.unwrap();
    maps.create(&post, &owned_by("child", &[&one, &two])).await.unwrap();
    maps.delete("one", &DeleteParams::background()).await.unwrap();
    eventually("the first owner is forgotten", || async {
        maps.get("child").await.unwrap().owner_references().len() == 1
    })
    .await;
    maps.delete("two", &DeleteParams::background()).await.unwrap();
    gone(&maps, "child").await;
}

pub(crate) async fn a_pod_on_a_node_gets_its_grace(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(&client).await);
    let post = PostParams::default();
    pods.create(&post, &pod("waiting")).await.unwrap();
    pods.delete("waiting", &DeleteParams::default()).await.unwrap();
    assert!(pods.get_opt("waiting").await.unwrap().is_none());

    let mut running = pod("running");
    running.spec.as_mut().unwrap().node_name = Some("n1".into());
    pods.create(&post, &running).await.unwrap();
    pods.delete("running", &DeleteParams::default()).await.unwrap();
    let leaving = pods.get("running").await.unwrap();
    assert!(leaving.metadata.deletion_timestamp.is_some());
    assert_eq!(leaving.metadata.deletion_grace_period_seconds, Some(30));
    // The kubelet's action when the containers have ended.
    pods.delete("running", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(pods.get_opt("running").await.unwrap().is_none());
}

pub(crate) async fn a_namespace_takes_its_content_along(client: Client) {
    let here = namespace(&client).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &here);
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &config_map("held", "1"))
        .await
        .unwrap();
    maps.patch("held", &PatchParams::default(), &finalizers(&["example.com/hold"]))
        .await
        .unwrap();
    namespaces.delete(&here, &DeleteParams::default()).await.unwrap();
    gone(&maps, "a").await;
    let leaving = namespaces.get(&here).await.unwrap();
    assert_eq!(leaving.status.unwrap().phase.as_deref(), Some("Terminating"));
    let status = refusal(maps.create(&PostParams::default(), &config_map("late", "1")).await);
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(
        status.message.contains("because it is being terminated"),
        "{}",
        status.message
    );
    maps.patch("held", &PatchParams::default(), &finalizers(&[]))
        .await
        .unwrap();
    eventually("the namespace is gone", || async {
        namespaces.get_opt(&here).await.unwrap().is_none()
    })
    .await;
}
