//! How lists and maps of the built-in types merge: markers that the generated schemas lack.
//!
//! A list that is not listed here is atomic for both server-side apply and strategic merge patch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// How strategic merge patch treats a list or struct.
#[derive(Clone, Copy)]
enum Patch {
    /// It replaces the list, or merges the struct.
    Plain,
    /// It merges the list; elements are identified by this field, or by value if it is empty.
    Merge(&'static str),
    /// It merges the list, and within each element keeps only the keys listed in `$retainKeys`.
    MergeRetainKeys(&'static str),
}
use Patch::{Merge, MergeRetainKeys, Plain};

/// How server-side apply treats a list.
#[derive(Clone, Copy)]
enum List {
    Atomic,
    Set,
    Map(&'static [&'static str]),
}
use List::{Atomic, Map, Set};

const NAME: List = Map(&["name"]);
const TYPE: List = Map(&["type"]);

/// Lists of core/v1 by type and field.
const CORE: &[(&str, &str, List, Patch)] = &[
    ("Container", "env", NAME, Merge("name")),
    (
        "Container",
        "ports",
        Map(&["containerPort", "protocol"]),
        Merge("containerPort"),
    ),
    ("Container", "volumeDevices", Map(&["devicePath"]), Merge("devicePath")),
    ("Container", "volumeMounts", Map(&["mountPath"]), Merge("mountPath")),
    ("ContainerRestartRuleOnExitCodes", "values", Set, Plain),
    ("ContainerStatus", "allocatedResourcesStatus", NAME, Merge("name")),
    (
        "ContainerStatus",
        "volumeMounts",
        Map(&["mountPath"]),
        Merge("mountPath"),
    ),
    ("EphemeralContainer", "env", NAME, Merge("name")),
    (
        "EphemeralContainer",
        "ports",
        Map(&["containerPort", "protocol"]),
        Merge("containerPort"),
    ),
    (
        "EphemeralContainer",
        "volumeDevices",
        Map(&["devicePath"]),
        Merge("devicePath"),
    ),
    (
        "EphemeralContainer",
        "volumeMounts",
        Map(&["mountPath"]),
        Merge("mountPath"),
    ),
    ("NamespaceStatus", "conditions", TYPE, Merge("type")),
    ("NodeSpec", "podCIDRs", Set, Merge("")),
    ("NodeStatus", "addresses", TYPE, Merge("type")),
    ("NodeStatus", "conditions", TYPE, Merge("type")),
    ("PersistentVolumeClaimStatus", "conditions", TYPE, Merge("type")),
    ("PodSpec", "containers", NAME, Merge("name")),
    ("PodSpec", "ephemeralContainers", NAME, Merge("name")),
    ("PodSpec", "hostAliases", Map(&["ip"]), Merge("ip")),
    ("PodSpec", "imagePullSecrets", NAME, Merge("name")),
    ("PodSpec", "initContainers", NAME, Merge("name")),
    ("PodSpec", "resourceClaims", NAME, MergeRetainKeys("name")),
    ("PodSpec", "schedulingGates", NAME, Merge("name")),
    (
        "PodSpec",
        "topologySpreadConstraints",
        Map(&["topologyKey", "whenUnsatisfiable"]),
        Merge("topologyKey"),
    ),
    ("PodSpec", "volumes", NAME, MergeRetainKeys("name")),
    ("PodStatus", "conditions", TYPE, Merge("type")),
    ("PodStatus", "hostIPs", Atomic, Merge("ip")),
    ("PodStatus", "podIPs", Map(&["ip"]), Merge("ip")),
    ("PodStatus", "resourceClaimStatuses", NAME, MergeRetainKeys("name")),
    ("ResourceRequirements", "claims", NAME, Plain),
    ("ResourceStatus", "resources", Map(&["resourceID"]), Plain),
    ("ServiceAccount", "secrets", NAME, Merge("name")),
    ("ServiceSpec", "ports", Map(&["port", "protocol"]), Merge("port")),
    ("ServiceStatus", "conditions", TYPE, Merge("type")),
];

/// Lists of the other groups, by definition and field.
const OTHERS: &[(&str, &str, List, Patch)] = &[
    ("io.k8s.api.apps.v1.DaemonSetStatus", "conditions", TYPE, Merge("type")),
    ("io.k8s.api.apps.v1.DeploymentStatus", "conditions", TYPE, Merge("type")),
    ("io.k8s.api.apps.v1.ReplicaSetStatus", "conditions", TYPE, Merge("type")),
    (
        "io.k8s.api.apps.v1.StatefulSetStatus",
        "conditions",
        TYPE,
        Merge("type"),
    ),
    ("io.k8s.api.batch.v1.JobStatus", "conditions", Atomic, Merge("type")),
    (
        "io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement",
        "values",
        Set,
        Plain,
    ),
    ("io.k8s.api.batch.v1.UncountedTerminatedPods", "failed", Set, Plain),
    ("io.k8s.api.batch.v1.UncountedTerminatedPods", "succeeded", Set, Plain),
    (
        "io.k8s.api.policy.v1.PodDisruptionBudgetStatus",
        "conditions",
        TYPE,
        Merge("type"),
    ),
    (
        "io.k8s.api.storage.v1.CSIDriverSpec",
        "volumeLifecycleModes",
        Set,
        Plain,
    ),
    (
        "io.k8s.api.storage.v1.CSIDriverStatus",
        "storage",
        Map(&["storageClassName"]),
        Merge("storageClassName"),
    ),
    (
        "io.k8s.api.resource.v1.AllocatedDeviceStatus",
        "conditions",
        TYPE,
        Plain,
    ),
    (
        "io.k8s.api.resource.v1.ResourceClaimStatus",
        "devices",
        Map(&["driver", "device", "pool", "shareID"]),
        Plain,
    ),
    (
        "io.k8s.api.resource.v1.ResourceClaimStatus",
        "reservedFor",
        Map(&["uid"]),
        Merge("uid"),
    ),
    ("io.k8s.api.storage.v1.CSINodeSpec", "drivers", NAME, Merge("name")),
    ("io.k8s.api.storage.v1.CSIStorage", "pools", NAME, Merge("name")),
    ("io.k8s.api.storage.v1.CSIStoragePool", "nodeList", Set, Plain),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        TYPE,
        Plain,
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "finalizers",
        Set,
        Merge(""),
    ),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "ownerReferences",
        Map(&["uid"]),
        Merge("uid"),
    ),
    (
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus",
        "conditions",
        TYPE,
        Merge("type"),
    ),
    ("io.k8s.api.discovery.v1.Endpoint", "addresses", Set, Plain),
];

/// Types whose objects are atomic for server-side apply.
const ATOMIC_TYPES: &[&str] = &[
    "io.k8s.api.core.v1.ConfigMapKeySelector",
    "io.k8s.api.core.v1.EndpointAddress",
    "io.k8s.api.core.v1.EndpointPort",
    "io.k8s.api.core.v1.FileKeySelector",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.ObjectReference",
    "io.k8s.api.core.v1.ResourceFieldSelector",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.api.core.v1.SecretReference",
    "io.k8s.api.core.v1.TopologySelectorTerm",
    "io.k8s.api.core.v1.TypedLocalObjectReference",
    "io.k8s.api.rbac.v1.RoleRef",
    "io.k8s.api.rbac.v1.Subject",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    "io.k8s.api.networking.v1.ServiceBackendPort",
];

/// Maps that are atomic for server-side apply, by definition and field.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.PodSpec", "nodeSelector"),
    ("io.k8s.api.core.v1.ReplicationControllerSpec", "selector"),
    ("io.k8s.api.core.v1.ServiceSpec", "selector"),
];

/// Fields that merge although the objects of their type are atomic elsewhere.
const GRANULAR: &[(&str, &str)] = &[("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef")];

/// Structs in which strategic merge patch keeps only the keys listed in `$retainKeys`.
const RETAIN_KEYS: &[(&str, &str)] = &[("io.k8s.api.apps.v1.DeploymentSpec", "strategy")];

/// Defaults of fields that are list keys: an element may omit them and is still found.
const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name", ""),
];

/// Marks the definitions.
pub(super) fn mark(definitions: &mut BTreeMap<String, Value>) {
    for (kind, field, list, patch) in CORE {
        mark_list(definitions, &format!("io.k8s.api.core.v1.{kind}"), field, *list, *patch);
    }
    for (definition, field, list, patch) in OTHERS {
        mark_list(definitions, definition, field, *list, *patch);
    }
    for definition in ATOMIC_TYPES {
        if let Some(Value::Object(definition)) = definitions.get_mut(*definition) {
            definition.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
    }
    for (definition, field) in ATOMIC_MAPS {
        set(definitions, definition, field, "x-kubernetes-map-type", json!("atomic"));
    }
    for (definition, field) in GRANULAR {
        set(
            definitions,
            definition,
            field,
            "x-kubernetes-map-type",
            json!("granular"),
        );
    }
    for (definition, field) in RETAIN_KEYS {
        set(
            definitions,
            definition,
            field,
            "x-kubernetes-patch-strategy",
            json!("retainKeys"),
        );
    }
    for (definition, field, default) in KEY_DEFAULTS {
        set(definitions, definition, field, "default", json!(default));
    }
    mark_plain_lists(definitions);
}

fn set(definitions: &mut BTreeMap<String, Value>, definition: &str, field: &str, marker: &str, value: Value) {
    let property = definitions
        .get_mut(definition)
        .and_then(|d| d["properties"].get_mut(field));
    if let Some(Value::Object(property)) = property {
        property.insert(marker.to_owned(), value);
    }
}

fn mark_list(definitions: &mut BTreeMap<String, Value>, definition: &str, field: &str, list: List, patch: Patch) {
    let mut set = |marker: &str, value: Value| set(definitions, definition, field, marker, value);
    match list {
        Atomic => set("x-kubernetes-list-type", json!("atomic")),
        Set => set("x-kubernetes-list-type", json!("set")),
        Map(keys) => {
            set("x-kubernetes-list-type", json!("map"));
            set("x-kubernetes-list-map-keys", json!(keys));
        }
    }
    let (strategy, key) = match patch {
        Plain => return,
        Merge(key) => ("merge", key),
        MergeRetainKeys(key) => ("merge,retainKeys", key),
    };
    set("x-kubernetes-patch-strategy", json!(strategy));
    if !key.is_empty() {
        set("x-kubernetes-patch-merge-key", json!(key));
    }
}

/// Lists without a marker are marked as atomic, so that a client need not know the default.
fn mark_plain_lists(definitions: &mut BTreeMap<String, Value>) {
    for definition in definitions.values_mut() {
        let Some(Value::Object(properties)) = definition.get_mut("properties") else {
            continue;
        };
        for property in properties.values_mut() {
            let Some(property) = property.as_object_mut() else {
                continue;
            };
            if property.get("type") == Some(&json!("array")) {
                property
                    .entry("x-kubernetes-list-type")
                    .or_insert_with(|| json!("atomic"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::builtin_definitions;

    use super::*;

    /// A typo in a table would silently mark nothing.
    #[test]
    fn every_marker_has_its_field() {
        let definitions = builtin_definitions();
        let check = |definition: &str, field: &str| {
            assert!(
                definitions[definition]["properties"][field].is_object(),
                "{definition}.{field}"
            );
        };
        for (kind, field, ..) in CORE {
            check(&format!("io.k8s.api.core.v1.{kind}"), field);
        }
        for (definition, field, ..) in OTHERS {
            check(definition, field);
        }
        for (definition, field) in ATOMIC_MAPS.iter().chain(GRANULAR).chain(RETAIN_KEYS) {
            check(definition, field);
        }
        for (definition, field, _) in KEY_DEFAULTS {
            check(definition, field);
        }
        for definition in ATOMIC_TYPES {
            assert!(definitions.contains_key(*definition), "{definition}");
        }
    }

    #[test]
    fn keys_of_lists_are_fields_of_their_elements() {
        let definitions = builtin_definitions();
        for (name, definition) in definitions {
            for (field, property) in definition["properties"].as_object().into_iter().flatten() {
                let keys = property["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                for key in keys.chain(property.get("x-kubernetes-patch-merge-key")) {
                    let element = property["items"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
                    let key = key.as_str().unwrap();
                    assert!(
                        definitions[element]["properties"][key].is_object(),
                        "{name}.{field}: {key}"
                    );
                }
            }
        }
    }
}
