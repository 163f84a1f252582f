//! Reduces an object to what decisions read.
//!
//! The types of [`berth_core::api`] define this: a field that is skipped when decoding into them is dropped. A field that
//! decisions start to read is therefore included in snapshots from then on, and nothing has to be listed twice. Workloads,
//! which have no such types, are copied field by field. A few fields of the types are dropped anyway, because they contain
//! private data of drivers and users.

use berth_cluster::names as workload_names;
use berth_core::api::{self, Kind, ObjectMeta};
use berth_core::names;
use berth_kube::{REPORTS, announce};
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::{Map, Value};

/// Why an object cannot be reduced.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name:?}: {problem}")]
pub(crate) struct Unreadable {
    kind: String,
    name: String,
    problem: String,
}

/// Fields that decisions do not read, but that simulations or the API of `berth up` need.
const ALSO_KEPT: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata.generateName",
    "metadata.generation",
    "metadata.deletionGracePeriodSeconds",
    "spec.clusterIP",
    "spec.externalName",
    "spec.ports",
    "spec.restartPolicy",
    "spec.type",
    "status.conditions.lastTransitionTime",
];

/// Annotations that are read. All others are dropped: people and programs store anything in them.
const ANNOTATIONS: &[&str] = &[
    names::BIND_COMPLETED,
    names::BOUND_BY_CONTROLLER,
    names::PROVISIONED_BY,
    names::SELECTED_NODE,
    names::SELECTED_NODE_ALPHA,
    names::STORAGE_PROVISIONER,
    names::STORAGE_PROVISIONER_BETA,
    names::STORAGE_CLASS_BETA,
    names::IS_DEFAULT_CLASS,
    names::IS_DEFAULT_CLASS_BETA,
    names::CLASS_WEIGHT,
    names::MIGRATED_TO,
    names::MIGRATED_PLUGINS,
    names::PRE_RESIZE_CAPACITY,
    names::ATTEMPT,
    names::HELD_FOR,
    names::MADE_FOR,
    names::COMMITTED,
    names::ABORTED,
    names::ROLLBACK,
    names::CLEAN,
    names::ROLLED_BACK_FOR,
    workload_names::POD_DELETION_COST,
    workload_names::DEPLOYMENT_REVISION,
    workload_names::JOB_COMPLETION_INDEX,
    workload_names::RUN_SECONDS,
    workload_names::EXIT_CODE,
    workload_names::START_SECONDS,
    workload_names::READY_SECONDS,
    workload_names::AGENT_MODE,
    announce::CAPABILITIES,
    announce::SCHEDULER_NAMES,
    announce::ANNOUNCED_BY,
];

/// Class parameters that are read: those of the built-in provisioners.
fn is_read_parameter(key: &str) -> bool {
    key.starts_with("berth.dev/") || key == "replication-type"
}

/// The fields that are read of objects without a type here, in addition to their metadata.
fn workload_fields(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "Deployment" => &[
            "/spec/replicas",
            "/spec/selector",
            "/spec/strategy",
            "/spec/template",
            "/spec/minReadySeconds",
            "/spec/paused",
            "/spec/revisionHistoryLimit",
            "/status/collisionCount",
            "/status/observedGeneration",
            "/status/replicas",
        ],
        "DaemonSet" => &[
            "/spec/selector",
            "/spec/template",
            "/spec/updateStrategy",
            "/spec/minReadySeconds",
            "/spec/revisionHistoryLimit",
            "/status/collisionCount",
            "/status/observedGeneration",
            "/status/currentNumberScheduled",
            "/status/desiredNumberScheduled",
            "/status/updatedNumberScheduled",
        ],
        "ReplicaSet" | "ReplicationController" => &[
            "/spec/replicas",
            "/spec/selector",
            "/spec/template",
            "/spec/minReadySeconds",
            "/status/observedGeneration",
            "/status/replicas",
            "/status/readyReplicas",
            "/status/availableReplicas",
        ],
        "StatefulSet" => &[
            "/spec/replicas",
            "/spec/selector",
            "/spec/serviceName",
            "/spec/podManagementPolicy",
            "/spec/updateStrategy",
            "/spec/ordinals",
            "/spec/template",
            "/spec/volumeClaimTemplates",
            "/spec/minReadySeconds",
            "/spec/revisionHistoryLimit",
            "/spec/persistentVolumeClaimRetentionPolicy",
            "/status/collisionCount",
            "/status/currentRevision",
            "/status/updateRevision",
            "/status/observedGeneration",
            "/status/replicas",
        ],
        "Job" => &[
            "/spec/parallelism",
            "/spec/completions",
            "/spec/completionMode",
            "/spec/backoffLimit",
            "/spec/suspend",
            "/spec/activeDeadlineSeconds",
            "/spec/ttlSecondsAfterFinished",
            "/spec/selector",
            "/spec/template",
            "/status/active",
            "/status/succeeded",
            "/status/failed",
            "/status/startTime",
            "/status/completionTime",
            "/status/completedIndexes",
            "/status/conditions",
        ],
        "Event" => &[
            "/involvedObject/kind",
            "/involvedObject/namespace",
            "/involvedObject/name",
            "/reason",
            "/message",
            "/type",
            "/source/component",
            "/reportingComponent",
            "/firstTimestamp",
            "/lastTimestamp",
            "/eventTime",
            "/count",
            "/series/count",
            "/series/lastObservedTime",
        ],
        "Lease" => &["/spec/holderIdentity", "/spec/renewTime", "/spec/leaseDurationSeconds"],
        "ControllerRevision" => &["/revision", "/data/spec/template"],
        _ => return None,
    })
}

/// The object reduced to what is read.
pub(super) fn reduce(object: Value) -> Result<Value, Unreadable> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind").to_owned(), text("/metadata/name").to_owned());
    let reduced = match workload_fields(&kind) {
        Some(fields) => workload(&object, fields),
        None => typed(&kind, object),
    };
    let mut reduced = reduced.map_err(|problem| Unreadable { kind, name, problem })?;
    scrub(&mut reduced);
    if let Some(metadata) = reduced.get_mut("metadata").and_then(Value::as_object_mut) {
        // Two snapshots of the same cluster must be equal.
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    Ok(reduced)
}

fn typed(kind: &str, mut object: Value) -> Result<Value, String> {
    if kind == REPORTS.kind {
        // It has the form of a driver's own status.
        prune::<api::CsiDriver>(&mut object)?;
        return Ok(object);
    }
    let Some(known) = Kind::ALL.iter().find(|known| known.name() == kind) else {
        return Err("it is of a kind that nothing reads".to_owned());
    };
    match known {
        Kind::Node => prune::<api::Node>(&mut object),
        Kind::Pod => prune::<api::Pod>(&mut object),
        Kind::PersistentVolume => prune::<api::PersistentVolume>(&mut object),
        Kind::PersistentVolumeClaim => prune::<api::PersistentVolumeClaim>(&mut object),
        Kind::StorageClass => prune::<api::StorageClass>(&mut object),
        Kind::CsiNode => prune::<api::CsiNode>(&mut object),
        Kind::CsiDriver => prune::<api::CsiDriver>(&mut object),
        Kind::CsiStorageCapacity => prune::<api::CsiStorageCapacity>(&mut object),
        Kind::VolumeAttachment => prune::<api::VolumeAttachment>(&mut object),
        Kind::Namespace => prune::<api::Namespace>(&mut object),
        Kind::PriorityClass => prune::<api::PriorityClass>(&mut object),
        Kind::Service => prune::<api::Service>(&mut object),
        Kind::ReplicationController => prune::<api::ReplicationController>(&mut object),
        Kind::ReplicaSet => prune::<api::ReplicaSet>(&mut object),
        Kind::StatefulSet => prune::<api::StatefulSet>(&mut object),
        Kind::PodDisruptionBudget => prune::<api::PodDisruptionBudget>(&mut object),
    }?;
    Ok(object)
}

fn workload(object: &Value, fields: &[&str]) -> Result<Value, String> {
    let mut reduced = Value::Object(Map::new());
    for pointer in ["/apiVersion", "/kind"].iter().chain(fields) {
        if let Some(value) = object.pointer(pointer) {
            put(&mut reduced, pointer, value.clone());
        }
    }
    let mut metadata = object["metadata"].clone();
    prune_below::<ObjectMeta>("metadata.", &mut metadata)?;
    reduced["metadata"] = metadata;
    for pointer in ["/spec/template", "/data/spec/template"] {
        if let Some(template) = reduced.pointer_mut(pointer) {
            prune::<api::Pod>(template)?;
        }
    }
    let templates = reduced
        .pointer_mut("/spec/volumeClaimTemplates")
        .and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        prune::<api::PersistentVolumeClaim>(template)?;
    }
    Ok(reduced)
}

/// Sets a field, creating the maps on its path.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for key in pointer.split('/').skip(1) {
        place = &mut place[key];
    }
    *place = value;
}

/// Drops what is skipped when decoding into a type.
fn prune<T: DeserializeOwned>(object: &mut Value) -> Result<(), String> {
    prune_below::<T>("", object)
}

fn prune_below<T: DeserializeOwned>(at: &str, object: &mut Value) -> Result<(), String> {
    let mut ignored = Vec::new();
    let decoded: Result<T, _> = serde_ignored::deserialize(&*object, |path| ignored.push(steps(&path)));
    decoded.map_err(|error| error.to_string())?;
    for steps in ignored {
        let keys = steps.iter().filter(|step| step.parse::<usize>().is_err());
        let path = keys.map(String::as_str).collect::<Vec<_>>().join(".");
        if !ALSO_KEPT.contains(&format!("{at}{path}").as_str()) {
            remove(object, &steps);
        }
    }
    Ok(())
}

fn steps(path: &Path<'_>) -> Vec<String> {
    match path {
        Path::Root => Vec::new(),
        Path::Seq { parent, index } => with(parent, index.to_string()),
        Path::Map { parent, key } => with(parent, key.clone()),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => steps(parent),
    }
}

fn with(parent: &Path<'_>, step: String) -> Vec<String> {
    let mut steps = steps(parent);
    steps.push(step);
    steps
}

fn remove(object: &mut Value, steps: &[String]) {
    let Some((last, parents)) = steps.split_last() else {
        return;
    };
    let parent = parents.iter().try_fold(object, |value, step| match value {
        Value::Object(fields) => fields.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    });
    if let Some(Value::Object(fields)) = parent {
        fields.remove(last);
    }
}

/// Drops private data even if a type has it: other annotations, parameters and attributes of drivers, messages, servers
/// and paths.
fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_condition = fields.contains_key("type") && fields.contains_key("status");
            let is_phase = fields.contains_key("phase");
            if is_condition || is_phase {
                fields.remove("message");
            }
            for (key, value) in fields.iter_mut() {
                if let Value::Object(inner) = value {
                    match key.as_str() {
                        "annotations" => inner.retain(|key, _| ANNOTATIONS.contains(&key.as_str())),
                        // The only one that is read.
                        "volumeAttributes" => inner.retain(|key, _| key == names::INLINE_SIZE),
                        "parameters" => inner.retain(|key, _| is_read_parameter(key)),
                        "nfs" | "hostPath" => inner.clear(),
                        _ => {}
                    }
                }
                scrub(value);
            }
            let droppable = ["annotations", "volumeAttributes", "parameters", "mountOptions"];
            fields.retain(|key, value| !droppable.contains(&key.as_str()) || !is_empty(key, value));
        }
        Value::Array(items) => items.iter_mut().for_each(scrub),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_empty(key: &str, value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(_) => key == "mountOptions",
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::reduce;
    use serde_json::json;

    #[test]
    fn a_pod_keeps_what_decisions_read() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "resourceVersion": "7", "managedFields": [{"manager": "m"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hidden"}, "labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "serviceAccountName": "s", "imagePullSecrets": [{"name": "hidden"}],
                "containers": [{"name": "c", "image": "i", "command": ["hidden"],
                    "env": [{"name": "PASSWORD", "value": "hidden"}], "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "s", "secret": {"secretName": "hidden"}},
                    {"name": "x", "csi": {"driver": "d", "volumeAttributes": {"key": "hidden", "csi.storage.k8s.io/size": "1Gi"},
                        "nodePublishSecretRef": {"name": "hidden"}}}]},
            "status": {"phase": "Pending", "message": "hidden",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "hidden"}]}});
        assert_eq!(
            reduce(pod).unwrap(),
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}},
                "spec": {"restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                    "volumes": [{"name": "s"},
                        {"name": "x", "csi": {"driver": "d", "volumeAttributes": {"csi.storage.k8s.io/size": "1Gi"}}}]},
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}})
        );
    }

    #[test]
    fn a_claim_keeps_the_attempt_that_holds_it() {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "n",
            "annotations": {"binding.berth.dev/held-for": "p/u1/u2/3", "binding.berth.dev/rollback": "true"}}});
        let reduced = reduce(claim.clone()).unwrap();
        assert_eq!(reduced["metadata"], claim["metadata"]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n",
            "annotations": {"binding.berth.dev/committed": "2", "binding.berth.dev/aborted": "3"}}});
        assert_eq!(reduce(pod.clone()).unwrap()["metadata"], pod["metadata"]);
    }

    #[test]
    fn a_workload_keeps_its_template_without_the_environment() {
        let template = json!({"metadata": {"annotations": {"checksum/config": "hidden"}, "labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "env": [{"name": "X", "value": "hidden"}]}]}});
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "uid": "u", "managedFields": []},
            "spec": {"replicas": 3, "template": template,
                "volumeClaimTemplates": [{"metadata": {"name": "data", "annotations": {"x": "hidden"}},
                    "spec": {"accessModes": ["ReadWriteOnce"]}}]}});
        assert_eq!(
            reduce(set).unwrap(),
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "u"},
                "spec": {"replicas": 3,
                    "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c"}]}},
                    "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}})
        );
    }

    #[test]
    fn parameters_of_drivers_are_dropped() {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"},
            "provisioner": "d", "mountOptions": ["hidden"], "parameters": {"restuserkey": "hidden"}});
        assert_eq!(
            reduce(class).unwrap(),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "d"})
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": 7}});
        assert!(reduce(pod).unwrap_err().to_string().starts_with("Pod \"p\": "));
    }
}
