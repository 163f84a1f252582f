//! Lowers the effects of scheduler and provisioner into the one language of writes.

use berth_core::api::Kind;
use berth_core::effect::{Delete, Effect, Event, EventType, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names;
use berth_scheduler::scheduler::{PodRef, Write};
use serde_json::{Value, json};

const SCHEDULER: &str = "default-scheduler";

/// A change to an object.
pub(super) fn patch(target: Target, guard: Guard, subresource: Option<&'static str>, body: Value) -> Effect {
    Effect::Patch(Patch {
        target,
        guard,
        subresource,
        merge: Merge::Strategic,
        body,
        name: "write",
    })
}

/// An object of a kind, by what is known of it.
pub(super) fn target(kind: Kind, namespace: &str, name: &str, uid: &str, version: u64) -> Target {
    let resource_version = if version == 0 {
        String::new()
    } else {
        version.to_string()
    };
    Target {
        api_version: kind.api_version(),
        key: ObjectKey::new(kind.name(), namespace, name),
        uid: uid.to_owned(),
        resource_version,
    }
}

fn pod_target(pod: &PodRef) -> Target {
    let (namespace, name) = pod.key.split_once('/').unwrap_or(("default", &pod.key));
    target(Kind::Pod, namespace, name, &pod.uid, 0)
}

/// A write of the scheduler.
pub(super) fn write(write: &Write) -> Effect {
    match write {
        Write::ReserveVolume {
            volume,
            version,
            namespace,
            claim,
            uid,
            prebound,
        } => {
            let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": uid});
            let mut body = json!({"spec": {"claimRef": reference}});
            if !prebound {
                body["metadata"] = json!({"annotations": {names::BOUND_BY_CONTROLLER: "yes"}});
            }
            let volume = target(Kind::PersistentVolume, "", volume, "", *version);
            patch(volume, Guard::Version, None, body)
        }
        Write::SelectNode {
            namespace,
            claim,
            version,
            node,
        } => {
            let body = json!({"metadata": {"annotations": {names::SELECTED_NODE: node}}});
            let claim = target(Kind::PersistentVolumeClaim, namespace, claim, "", *version);
            patch(claim, Guard::Version, None, body)
        }
        Write::BindPod { pod, node } => Effect::Bind {
            pod: pod_target(pod),
            node: node.clone(),
        },
        Write::EvictPod { pod, .. } => Effect::Delete(Delete {
            target: pod_target(pod),
            guard: Guard::Uid,
            grace_seconds: None,
        }),
    }
}

/// How things stand with a pod.
pub(super) fn condition(pod: &PodRef, reason: &str, message: &str) -> Effect {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
    let body = json!({"status": {"conditions": [condition]}});
    patch(pod_target(pod), Guard::Uid, Some("status"), body)
}

/// The node on which room is made for a pod.
pub(super) fn nominate(pod: &PodRef, node: &str) -> Effect {
    let body = json!({"status": {"nominatedNodeName": node}});
    patch(pod_target(pod), Guard::Uid, Some("status"), body)
}

/// An event of the scheduler.
pub(super) fn event(pod: &PodRef, warning: bool, reason: &'static str, message: String) -> Effect {
    Effect::Event(Event {
        about: pod_target(pod),
        event_type: if warning { EventType::Warning } else { EventType::Normal },
        reason,
        message,
        source: SCHEDULER.into(),
    })
}
