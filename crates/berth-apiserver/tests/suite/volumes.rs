//! Classes, volumes, claims and drivers.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{causes, namespace, object, refusal, unique};

fn class(name: &str) -> Value {
    json!({"metadata": {"name": name}, "provisioner": "example.com/disk"})
}

fn volume(name: &str) -> Value {
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]);
    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local", "local": {"path": "/mnt/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

pub(crate) async fn classes_have_defaults_and_are_fixed(client: Client) {
    let classes: Api<StorageClass> = Api::all(client);
    let name = unique("class");
    let created = classes
        .create(&PostParams::default(), &object(class(&name)))
        .await
        .unwrap();
    assert_eq!(created.reclaim_policy.as_deref(), Some("Delete"));
    assert_eq!(created.volume_binding_mode.as_deref(), Some("Immediate"));
    for (patch, field) in [
        (json!({"provisioner": "other"}), "provisioner"),
        (json!({"parameters": {"a": "b"}}), "parameters"),
        (json!({"reclaimPolicy": "Retain"}), "reclaimPolicy"),
        (
            json!({"volumeBindingMode": "WaitForFirstConsumer"}),
            "volumeBindingMode",
        ),
    ] {
        let status = refusal(
            classes
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await,
        );
        assert_eq!((status.code, causes(&status)), (422, vec![field.to_owned()]));
    }
    let expansion = Patch::Merge(json!({"allowVolumeExpansion": true}));
    classes.patch(&name, &PatchParams::default(), &expansion).await.unwrap();
    let mut bad = class(&unique("class"));
    bad["volumeBindingMode"] = "Sometimes".into();
    let status = refusal(classes.create(&PostParams::default(), &object(bad)).await);
    assert_eq!(causes(&status), ["volumeBindingMode"]);
}

pub(crate) async fn volumes_have_defaults_and_protection(client: Client) {
    let volumes: Api<PersistentVolume> = Api::all(client);
    let name = unique("volume");
    let created = volumes
        .create(&PostParams::default(), &object(volume(&name)))
        .await
        .unwrap();
    let spec = created.spec.clone().unwrap();
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(created.status.clone().unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(created.finalizers(), ["kubernetes.io/pv-protection"]);
    volumes.delete(&name, &DeleteParams::default()).await.unwrap();
    assert!(volumes.get(&name).await.unwrap().metadata.deletion_timestamp.is_some());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch(&name, &PatchParams::default(), &free).await.unwrap();
    assert!(volumes.get_opt(&name).await.unwrap().is_none());
}

pub(crate) async fn a_volumes_source_and_place_are_fixed(client: Client) {
    let volumes: Api<PersistentVolume> = Api::all(client);
    let name = unique("volume");
    volumes
        .create(&PostParams::default(), &object(volume(&name)))
        .await
        .unwrap();
    let other_terms =
        json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]);
    for (patch, field) in [
        (
            json!({"spec": {"local": {"path": "/mnt/other"}}}),
            "spec.persistentvolumesource",
        ),
        (
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": other_terms}}}}),
            "nodeAffinity",
        ),
        (json!({"spec": {"volumeMode": "Block"}}), "volumeMode"),
    ] {
        let status = refusal(
            volumes
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await,
        );
        assert_eq!(
            (status.code, causes(&status)),
            (422, vec![field.to_owned()]),
            "{}",
            status.message
        );
    }
    for allowed in [
        json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
        json!({"spec": {"claimRef": {"name": "c", "namespace": "default", "uid": "u"}}}),
        json!({"spec": {"capacity": {"storage": "20Gi"}}}),
    ] {
        volumes
            .patch(&name, &PatchParams::default(), &Patch::Merge(allowed))
            .await
            .unwrap();
    }
}

/// The only case that creates a default class, since it applies to all claims of a server.
pub(crate) async fn claims_get_the_default_class(client: Client) {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace(&client).await);
    let name = unique("default-class");
    let mut wanted = class(&name);
    wanted["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    classes.create(&PostParams::default(), &object(wanted)).await.unwrap();

    let created = claims
        .create(&PostParams::default(), &object(claim("a")))
        .await
        .unwrap();
    assert_eq!(created.spec.clone().unwrap().storage_class_name, Some(name.clone()));
    assert_eq!(created.spec.clone().unwrap().volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(created.status.clone().unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(created.finalizers(), ["kubernetes.io/pvc-protection"]);
    let mut classless = claim("b");
    classless["spec"]["storageClassName"] = "".into();
    let created = claims.create(&PostParams::default(), &object(classless)).await.unwrap();
    assert_eq!(created.spec.unwrap().storage_class_name.as_deref(), Some(""));
    classes.delete(&name, &DeleteParams::default()).await.unwrap();
}

pub(crate) async fn a_claims_spec_is_fixed_but_for_its_volume(client: Client) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace(&client).await);
    let mut wanted = claim("a");
    wanted["spec"]["storageClassName"] = "some".into();
    claims.create(&PostParams::default(), &object(wanted)).await.unwrap();
    let patch = async |patch: Value| claims.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await;
    for refused in [
        json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
        json!({"spec": {"storageClassName": "other"}}),
    ] {
        let status = refusal(patch(refused).await);
        assert_eq!((status.code, causes(&status)), (422, vec!["spec".to_owned()]));
        assert!(
            status.message.contains("spec is immutable after creation"),
            "{}",
            status.message
        );
    }
    patch(json!({"spec": {"volumeName": "pv1"}})).await.unwrap();
    let status = refusal(patch(json!({"spec": {"volumeName": "pv2"}})).await);
    assert_eq!(causes(&status), ["spec"]);
}

pub(crate) async fn a_claim_grows_if_its_class_says_so(client: Client) {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace(&client).await);
    let name = unique("growing");
    classes
        .create(&PostParams::default(), &object(class(&name)))
        .await
        .unwrap();
    let mut wanted = claim("a");
    wanted["spec"]["storageClassName"] = name.as_str().into();
    claims.create(&PostParams::default(), &object(wanted)).await.unwrap();
    let resize = async |size: &str| {
        let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
        claims.patch("a", &PatchParams::default(), &patch).await
    };
    assert_eq!(refusal(resize("2Gi").await).code, 422);
    claims
        .patch(
            "a",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"volumeName": "pv1"}})),
        )
        .await
        .unwrap();
    let bound = Patch::Merge(
        json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
    );
    claims.patch_status("a", &PatchParams::default(), &bound).await.unwrap();
    let status = refusal(resize("2Gi").await);
    assert_eq!(status.code, 403);
    assert!(status.message.contains("must support resize"), "{}", status.message);
    let growing = Patch::Merge(json!({"allowVolumeExpansion": true}));
    classes.patch(&name, &PatchParams::default(), &growing).await.unwrap();
    resize("2Gi").await.unwrap();
    let status = refusal(resize("512Mi").await);
    assert_eq!(
        (status.code, causes(&status)),
        (422, vec!["spec.resources.requests.storage".to_owned()])
    );
}

pub(crate) async fn bad_volumes_and_claims_name_their_fields(client: Client) {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let check = async |change: &dyn Fn(&mut Value), expected: &[&str]| {
        let mut wanted = volume(&unique("bad"));
        change(&mut wanted["spec"]);
        let status = refusal(volumes.create(&PostParams::default(), &object(wanted)).await);
        assert_eq!(
            (status.code, causes(&status)),
            (422, expected.iter().map(|s| (*s).to_owned()).collect()),
            "{}",
            status.message
        );
    };
    check(&|spec| spec["accessModes"] = json!([]), &["spec.accessModes"]).await;
    check(
        &|spec| spec["accessModes"] = json!(["Sometimes"]),
        &["spec.accessModes"],
    )
    .await;
    check(
        &|spec| spec["capacity"] = json!({}),
        &["spec.capacity", "spec.capacity"],
    )
    .await;
    check(&|spec| spec["local"] = Value::Null, &["spec"]).await;
    check(&|spec| spec["nodeAffinity"] = Value::Null, &["spec.nodeAffinity"]).await;
    check(&|spec| spec["volumeMode"] = "Tape".into(), &["spec.volumeMode"]).await;

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace(&client).await);
    let check = async |change: &dyn Fn(&mut Value), expected: &[&str]| {
        let mut wanted = claim("bad");
        change(&mut wanted["spec"]);
        let status = refusal(claims.create(&PostParams::default(), &object(wanted)).await);
        assert_eq!(
            (status.code, causes(&status)),
            (422, expected.iter().map(|s| (*s).to_owned()).collect()),
            "{}",
            status.message
        );
    };
    check(&|spec| spec["accessModes"] = json!([]), &["spec.accessModes"]).await;
    check(&|spec| spec["resources"] = json!({}), &["spec.resources[storage]"]).await;
    check(
        &|spec| spec["resources"]["requests"]["storage"] = "0".into(),
        &["spec.resources[storage]"],
    )
    .await;
}

fn drivers(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("storage.k8s.io", "v1", "CSIDriver");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "csidrivers"))
}

/// Whether the server has the fields of KEP-1472 (API, Storage capacity), which no released Kubernetes has.
pub(crate) async fn has_capacity_tracking(client: &Client) -> bool {
    let driver: DynamicObject = object(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": {"name": unique("probe")}, "spec": {"capacityTracking": true}}));
    let try_post = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let tried = drivers(client).create(&try_post, &driver).await.unwrap();
    tried.data["spec"]["capacityTracking"] == true
}

pub(crate) async fn a_driver_publishes_its_pools(client: Client) {
    let drivers = drivers(&client);
    let name = unique("driver");
    let driver: DynamicObject = object(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": {"name": name}, "spec": {}}));
    let created = drivers.create(&PostParams::default(), &driver).await.unwrap();
    assert_eq!(created.data["spec"]["attachRequired"], true);
    assert_eq!(created.data["spec"]["volumeLifecycleModes"], json!(["Persistent"]));
    if !has_capacity_tracking(&client).await {
        return;
    }
    let pools = json!([{"classes": [{"storageClassName": "fast", "capacity": "100Gi"}], "nodes": ["n1"]}]);
    let patch = Patch::Merge(json!({"status": {"storage": pools}}));
    drivers
        .patch_status(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    let ignored = Patch::Merge(json!({"status": {"storage": []}, "metadata": {"labels": {"x": "y"}}}));
    drivers.patch(&name, &PatchParams::default(), &ignored).await.unwrap();
    let found = drivers.get(&name).await.unwrap();
    assert_eq!(found.labels()["x"], "y");
    assert_eq!(found.data["status"]["storage"].as_array().map(Vec::len), Some(1));
}
