//! Kinds with special rules.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as NewEvent;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::{causes, eventually, namespace, object, refusal, unique};

pub(crate) async fn events_read_the_same_in_both_groups(client: Client) {
    let here = namespace(&client).await;
    let new_events: Api<NewEvent> = Api::namespaced(client.clone(), &here);
    let event = object(
        json!({"metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.000006Z", "action": "Binding",
        "reason": "Scheduled", "note": "hello", "type": "Normal", "reportingController": "berth", "reportingInstance": "b-1",
        "regarding": {"kind": "Pod", "name": "p", "namespace": here}}),
    );
    new_events.create(&PostParams::default(), &event).await.unwrap();
    let old_events: Api<Event> = Api::namespaced(client.clone(), &here);
    let found = old_events
        .list(&ListParams::default().fields("involvedObject.name=p"))
        .await
        .unwrap();
    assert_eq!(found.items.len(), 1);
    assert_eq!(found.items[0].message.as_deref(), Some("hello"));
    assert_eq!(found.items[0].reporting_component.as_deref(), Some("berth"));

    let old = object(
        json!({"metadata": {"name": "f"}, "involvedObject": {"kind": "Pod", "name": "q", "namespace": here},
        "reason": "Old", "message": "bye", "type": "Warning", "count": 3, "source": {"component": "kubelet"}}),
    );
    old_events.create(&PostParams::default(), &old).await.unwrap();
    let shown = new_events.get("f").await.unwrap();
    assert_eq!(shown.note.as_deref(), Some("bye"));
    assert_eq!(shown.deprecated_count, Some(3));
    assert_eq!(shown.regarding.unwrap().name.as_deref(), Some("q"));
}

pub(crate) async fn a_deployment_scales(client: Client) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace(&client).await);
    let wanted = object(
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}}),
    );
    let created = deployments.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(created.spec.replicas, Some(1));
    let mut scale = deployments.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.clone().unwrap().replicas, Some(1));
    assert_eq!(scale.status.clone().unwrap().selector.as_deref(), Some("app=web"));
    scale.spec.get_or_insert_default().replicas = Some(4);
    deployments
        .replace_scale("web", &PostParams::default(), &scale)
        .await
        .unwrap();
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let patched = deployments
        .patch_scale("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.spec.unwrap().replicas, Some(7));
    let scaled = deployments.get("web").await.unwrap();
    assert_eq!(scaled.spec.replicas, Some(7));
    assert_eq!(scaled.metadata.generation, Some(3));
    // The first scale is now outdated.
    assert_eq!(
        refusal(deployments.replace_scale("web", &PostParams::default(), &scale).await).code,
        409
    );
}

/// Boats have a berth, a length and a status.
async fn define_boats(definitions: &Api<CustomResourceDefinition>, group: &str, name: &str) {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["berth"], "properties": {"berth": {"type": "string"}, "length": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"moored": {"type": "boolean"}}}}});
    let definition = object(
        json!({"metadata": {"name": name}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": "boats", "kind": "Boat"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}}]}}),
    );
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    eventually("the definition is established", || async {
        let conditions = definitions
            .get(name)
            .await
            .unwrap()
            .status
            .and_then(|status| status.conditions);
        conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "Established" && c.status == "True")
    })
    .await;
}

pub(crate) async fn a_custom_resource_is_served_by_its_definition(client: Client) {
    let group = format!("{}.example.com", unique("suite"));
    let name = format!("boats.{group}");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    define_boats(&definitions, &group, &name).await;
    let kind = GroupVersionKind::gvk(&group, "v1", "Boat");
    let resource = ApiResource::from_gvk_with_plural(&kind, "boats");
    let boats: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace(&client).await, &resource);
    let boat = |name: &str, spec: serde_json::Value| DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    let post = PostParams::default();
    let created = boats
        .create(&post, &boat("ada", json!({"berth": "b1", "sail": "red"})))
        .await
        .unwrap();
    assert_eq!(
        created.data["spec"],
        json!({"berth": "b1"}),
        "what the schema does not know is dropped"
    );
    assert_eq!(created.metadata.generation, Some(1));
    let status = refusal(boats.create(&post, &boat("bob", json!({"length": 3}))).await);
    assert_eq!(
        (status.code, causes(&status)),
        (422, vec!["spec.berth".to_owned()]),
        "{}",
        status.message
    );

    let patch = Patch::Merge(json!({"status": {"moored": true}, "spec": {"berth": "b2"}}));
    let patched = boats
        .patch_status("ada", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        patched.data,
        json!({"spec": {"berth": "b1"}, "status": {"moored": true}})
    );
    let applied = Patch::Apply(
        json!({"apiVersion": format!("{group}/v1"), "kind": "Boat", "metadata": {"name": "cara"}, "spec": {"berth": "b3"}}),
    );
    boats
        .patch("cara", &PatchParams::apply("suite"), &applied)
        .await
        .unwrap();
    assert_eq!(boats.list(&ListParams::default()).await.unwrap().items.len(), 2);

    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("the boats and their definition are gone", || async {
        definitions.get_opt(&name).await.unwrap().is_none() && boats.list(&ListParams::default()).await.is_err()
    })
    .await;
}

pub(crate) async fn leases_are_taken_over(client: Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace(&client).await);
    let lease = json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}});
    let created = leases.create(&PostParams::default(), &object(lease)).await.unwrap();
    let mut mine = created.clone();
    mine.spec.as_mut().unwrap().holder_identity = Some("two".into());
    let taken = leases.replace("leader", &PostParams::default(), &mine).await.unwrap();
    assert_eq!(taken.spec.unwrap().holder_identity.as_deref(), Some("two"));
    let status = refusal(leases.replace("leader", &PostParams::default(), &created).await);
    assert_eq!(status.code, 409);
    assert_eq!(created.name_any(), "leader");
}

pub(crate) async fn devices_are_offered_and_claimed(client: Client) {
    let here = namespace(&client).await;
    let post = PostParams::default();
    let class = unique("gpu");
    let classes: Api<DeviceClass> = Api::all(client.clone());
    let wanted = object(json!({"metadata": {"name": class}, "spec": {"selectors": [
        {"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}}));
    let created = classes.create(&post, &wanted).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));

    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let (slice, node) = (unique("slice"), unique("node"));
    let wanted = object(
        json!({"metadata": {"name": slice}, "spec": {"driver": "gpu.example.com", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "1024Mi"}}}]}}),
    );
    slices.create(&post, &wanted).await.unwrap();
    let selected = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let found = slices.list(&selected).await.unwrap();
    assert_eq!(found.items.len(), 1);
    slices.delete(&slice, &DeleteParams::default()).await.unwrap();

    let claims: Api<ResourceClaim> = Api::namespaced(client, &here);
    let wanted = object(json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": class}}]}}}));
    let claim = json!(claims.create(&post, &wanted).await.unwrap());
    assert_eq!(
        claim["spec"]["devices"]["requests"][0]["exactly"],
        json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1})
    );
    let allocation = json!({"status": {"allocation": {"devices": {"results": [
        {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}});
    let patched = claims
        .patch_status("c", &PatchParams::default(), &Patch::Merge(allocation))
        .await
        .unwrap();
    assert_eq!(patched.status.unwrap().reserved_for.unwrap().len(), 1);

    let mut changed = json!(claims.get("c").await.unwrap());
    changed["spec"]["devices"]["requests"][0]["name"] = json!("other");
    let status = refusal(claims.replace("c", &post, &object(changed)).await);
    assert_eq!((status.code, causes(&status)), (422, vec!["spec".to_owned()]));
    classes.delete(&class, &DeleteParams::default()).await.unwrap();
}
