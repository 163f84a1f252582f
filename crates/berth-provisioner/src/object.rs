//! The PersistentVolume object of a provisioned volume.

use crate::request::{Place, Request, Source, Volume};
use crate::settings::Settings;
use berth_core::migration::{CsiVolume, InTreeVolume, TranslationError, in_tree_volume};
use berth_core::names;
use berth_core::quantity::Bytes;
use serde_json::{Map, Value, json};

/// The object of a volume that was created for a claim.
///
/// # Errors
/// If a migrated driver responded with a volume that has no in-tree form.
pub fn persistent_volume(request: &Request, volume: &Volume, settings: &Settings) -> Result<Value, TranslationError> {
    let in_tree = in_tree(request, volume, settings)?;
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
        let (name, source, accessible) = match &in_tree {
            Some(in_tree) => (in_tree.field, in_tree.source.clone(), &in_tree.accessible),
            None => {
                let (name, source) = source(request, volume, settings);
                (name, source, &volume.accessible)
            }
        };
        fields.insert(name.to_owned(), source);
        if let Some(affinity) = node_affinity(accessible) {
            fields.insert("nodeAffinity".to_owned(), affinity);
        }
        let attributes_class = claim.spec.volume_attributes_class_name.as_deref();
        if let Some(class) = attributes_class.filter(|class| !class.is_empty() && settings.attributes_classes) {
            fields.insert("volumeAttributesClassName".to_owned(), json!(class));
        }
        if !request.class.mount_options.is_empty() {
            fields.insert("mountOptions".to_owned(), json!(request.class.mount_options));
        }
    }
    let mut metadata = json!({"name": request.name, "annotations": annotations(request, in_tree.as_ref(), settings)});
    // Protection against deletion while in use is added by the API server, if a controller removes it again.
    let finalizers: &[&str] = match policy {
        "Delete" => &[names::PROVISIONER_FINALIZER],
        _ => &[],
    };
    metadata["finalizers"] = json!(finalizers);
    if let Some(in_tree) = in_tree.filter(|in_tree| !in_tree.labels.is_empty()) {
        metadata["labels"] = json!(in_tree.labels);
    }
    Ok(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}))
}

fn annotations(request: &Request, in_tree: Option<&InTreeVolume>, settings: &Settings) -> Map<String, Value> {
    let mut annotations = Map::new();
    let mut add = |key: &str, value: &str| drop(annotations.insert(key.to_owned(), json!(value)));
    let plugin = request.migrated.map(|plugin| plugin.name());
    add(names::PROVISIONED_BY, plugin.unwrap_or(&settings.provisioner));
    if let Some(attempt) = &request.held_for {
        add(names::MADE_FOR, attempt);
    }
    if let Some(secret) = &request.parameters.provisioner_secret {
        add(names::DELETION_SECRET_NAME, &secret.name);
        add(names::DELETION_SECRET_NAMESPACE, &secret.namespace);
    } else if settings.record_attempts {
        // Otherwise the class is asked when the volume is deleted, and may be another one by then.
        add(names::DELETION_SECRET_NAME, "");
        add(names::DELETION_SECRET_NAMESPACE, "");
    }
    if let Some(secret) = &request.parameters.modify_secret {
        add(names::MODIFY_SECRET_NAME, &secret.name);
        add(names::MODIFY_SECRET_NAMESPACE, &secret.namespace);
    }
    for (key, value) in in_tree.iter().flat_map(|in_tree| &in_tree.annotations) {
        add(key, value);
    }
    annotations
}

/// The form of a volume for a class of an in-tree plugin.
fn in_tree(request: &Request, volume: &Volume, settings: &Settings) -> Result<Option<InTreeVolume>, TranslationError> {
    let (Some(plugin), Source::Csi { attributes, .. }) = (request.migrated, &volume.source) else {
        return Ok(None);
    };
    let stage_secret = request.parameters.volume_secrets.get("nodeStageSecretRef");
    let volume = CsiVolume {
        handle: &volume.handle,
        attributes,
        fs_type: request.parameters.fs_type.as_deref().filter(|_| !request.is_block()),
        read_only: is_read_only(request, settings),
        stage_secret: stage_secret.map(|secret| (secret.name.as_str(), secret.namespace.as_str())),
        accessible: &volume.accessible,
    };
    in_tree_volume(plugin, &volume).map(Some)
}

fn is_read_only(request: &Request, settings: &Settings) -> bool {
    settings.publish_read_only && request.claim.spec.access_modes == ["ReadOnlyMany"]
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
                if is_read_only(request, settings) {
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
