//! The PersistentVolume object of a provisioned volume.

use crate::request::{Place, Request, Source, Volume};
use crate::settings::Settings;
use berth_core::names;
use berth_core::quantity::Bytes;
use serde_json::{Map, Value, json};

/// The object of a volume that was created for a claim.
#[must_use]
pub fn persistent_volume(request: &Request, volume: &Volume, settings: &Settings) -> Value {
    let claim = &request.claim;
    let bytes = if volume.bytes == 0 { request.bytes } else { volume.bytes };
    let policy = request.class.reclaim_policy.as_deref().unwrap_or("Delete");
    let mut spec = json!({
        "capacity": {"storage": Bytes(bytes).to_string()},
        "accessModes": claim.spec.access_modes,
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        },
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": claim.class_name().unwrap_or_default(),
        "volumeMode": claim.spec.volume_mode.as_deref().unwrap_or("Filesystem"),
    });
    if let Some(fields) = spec.as_object_mut() {
        let (name, source) = source(request, volume, settings);
        fields.insert(name.to_owned(), source);
        if let Some(affinity) = node_affinity(&volume.accessible) {
            fields.insert("nodeAffinity".to_owned(), affinity);
        }
        if !request.class.mount_options.is_empty() {
            fields.insert("mountOptions".to_owned(), json!(request.class.mount_options));
        }
    }
    let mut annotations = Map::new();
    annotations.insert(names::PROVISIONED_BY.to_owned(), json!(settings.provisioner));
    if let Some(attempt) = &request.held_for {
        annotations.insert(names::MADE_FOR.to_owned(), json!(attempt));
    }
    if let Some(secret) = &request.parameters.provisioner_secret {
        annotations.insert(names::DELETION_SECRET_NAME.to_owned(), json!(secret.name));
        annotations.insert(names::DELETION_SECRET_NAMESPACE.to_owned(), json!(secret.namespace));
    }
    // Protection against deletion while in use is added by the API server, if a controller removes it again.
    let finalizers: &[&str] = match policy {
        "Delete" => &[names::PROVISIONER_FINALIZER],
        _ => &[],
    };
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": request.name, "annotations": annotations, "finalizers": finalizers},
        "spec": spec,
    })
}

fn source(request: &Request, volume: &Volume, settings: &Settings) -> (&'static str, Value) {
    let fs_type = request.parameters.fs_type.as_deref().filter(|_| !request.is_block());
    match &volume.source {
        Source::Csi { driver, attributes } => {
            let mut csi = json!({"driver": driver, "volumeHandle": volume.handle});
            if let Some(fields) = csi.as_object_mut() {
                if !attributes.is_empty() {
                    fields.insert("volumeAttributes".to_owned(), json!(attributes));
                }
                if let Some(fs_type) = fs_type {
                    fields.insert("fsType".to_owned(), json!(fs_type));
                }
                if settings.publish_read_only && request.claim.spec.access_modes == ["ReadOnlyMany"] {
                    fields.insert("readOnly".to_owned(), json!(true));
                }
                for (field, secret) in &request.parameters.volume_secrets {
                    fields.insert((*field).to_owned(), secret.to_json());
                }
            }
            ("csi", csi)
        }
        Source::GcePersistentDisk => (
            "gcePersistentDisk",
            json!({"pdName": volume.handle, "fsType": fs_type.unwrap_or("ext4")}),
        ),
        Source::Local { path } => ("local", json!({"path": path})),
    }
}

/// The nodes that can reach a volume; `None` for all.
fn node_affinity(accessible: &[Place]) -> Option<Value> {
    let terms: Vec<Value> = accessible
        .iter()
        .map(|place| {
            let expressions: Vec<Value> = place
                .iter()
                .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}))
                .collect();
            json!({"matchExpressions": expressions})
        })
        .collect();
    (!terms.is_empty()).then(|| json!({"required": {"nodeSelectorTerms": terms}}))
}
