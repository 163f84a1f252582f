//! The object that publishes the capacity of one class in one segment.

use super::{Available, Item, ProducerSettings};
use berth_core::api::Kind;
use berth_core::effect::{Delete, Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names::{CAPACITY_DRIVER, CAPACITY_MANAGED_BY};
use berth_core::quantity::Bytes;
use serde_json::{Map, json};

/// The owner of published objects, for example the provisioner's Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

/// Maximum length of a label value.
const LABEL_LENGTH: usize = 63;

/// The label that distinguishes our objects from those of others, and those of different nodes.
#[must_use]
pub fn managed_by(keeper: &str, node: Option<&str>) -> String {
    let Some(node) = node else {
        return keeper.to_owned();
    };
    let whole = format!("{keeper}-{node}");
    if whole.len() <= LABEL_LENGTH {
        return whole;
    }
    format!("{keeper}-{:016x}", fnv1a(node.bytes()))
}

/// The driver as a label value. Names of CSI drivers are used as they are; characters that a label cannot contain
/// become `_`, such as the `/` in the name of a built-in provisioner.
#[must_use]
pub fn driver_label(driver: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text: String = driver.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    text.chars().take(LABEL_LENGTH).collect()
}

/// The object's name. It is derived from the class and segment, so that writing it twice after a crash leaves one
/// object. The prefix is the one that users of the CSI sidecar expect.
pub(super) fn name(settings: &ProducerSettings, item: &Item) -> String {
    let mut identity = vec![settings.driver.as_str(), &settings.managed_by, &item.class];
    for (key, value) in item.segment.iter() {
        identity.extend([key.as_str(), value.as_str()]);
    }
    let bytes = identity.iter().flat_map(|part| part.bytes().chain([0]));
    format!("csisc-{:016x}", fnv1a(bytes))
}

/// The write that publishes an object.
pub(super) fn create(settings: &ProducerSettings, item: &Item, available: Available) -> Effect {
    let mut labels = Map::new();
    labels.insert(CAPACITY_DRIVER.to_owned(), json!(driver_label(&settings.driver)));
    labels.insert(CAPACITY_MANAGED_BY.to_owned(), json!(settings.managed_by));
    let mut metadata = json!({
        "name": name(settings, item),
        "namespace": settings.namespace,
        "labels": labels,
    });
    if let Some(owner) = &settings.owner {
        metadata["ownerReferences"] = json!([{
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
        }]);
    }
    let mut object = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": metadata,
        "storageClassName": item.class,
        "nodeTopology": {"matchLabels": *item.segment},
        "capacity": quantity(available.bytes),
    });
    if let Some(largest) = available.maximum_volume_size {
        object["maximumVolumeSize"] = json!(quantity(largest));
    }
    Effect::Create(Box::new(object))
}

/// The write that updates an object. No one else sets these fields, so any version is acceptable.
pub(super) fn update(settings: &ProducerSettings, name: &str, uid: &str, available: Available) -> Effect {
    Effect::Patch(Patch {
        target: target(settings, name, uid),
        guard: Guard::Uid,
        subresource: None,
        merge: Merge::Json,
        body: json!({
            "capacity": quantity(available.bytes),
            "maximumVolumeSize": available.maximum_volume_size.map(quantity),
        }),
        name: "update_capacity",
    })
}

/// The write that deletes an object.
pub(super) fn delete(settings: &ProducerSettings, name: &str, uid: &str) -> Effect {
    Effect::Delete(Delete {
        target: target(settings, name, uid),
        guard: Guard::Uid,
        grace_seconds: None,
    })
}

fn target(settings: &ProducerSettings, name: &str, uid: &str) -> Target {
    let kind = Kind::CsiStorageCapacity;
    Target {
        api_version: kind.api_version(),
        key: ObjectKey::new(kind.name(), &settings.namespace, name),
        uid: uid.to_owned(),
        resource_version: String::new(),
    }
}

fn quantity(bytes: i64) -> String {
    Bytes(bytes.max(0)).to_string()
}

fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
