//! What a kubelet reports about its node: that it is ready, and that it is alive.

use crate::field;
use crate::names;
use crate::objects::View;
use crate::status;
use crate::status::{Condition, Status};
use crate::step::Step;
use berth_core::time::micros;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The duration of a lease. It is renewed four times as often, as kubelets do.
const LEASE_SECONDS: i64 = 40;
const RENEW_SECONDS: i64 = 10;

pub(super) fn beat(view: &dyn View, node: &Value, now: Timestamp, step: &mut Step) {
    write_conditions(node, now, step);
    renew_lease(view, node, now, step);
}

/// Reports that a node is healthy.
pub(super) fn write_conditions(node: &Value, now: Timestamp, step: &mut Step) {
    let mut status = Status::of(node, now);
    let conditions = [
        (
            "MemoryPressure",
            false,
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            false,
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            false,
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ("Ready", true, "KubeletReady", "kubelet is posting ready status"),
    ];
    for (name, holds, reason, message) in conditions {
        status.condition(Condition {
            name,
            holds,
            reason,
            message,
        });
    }
    if let Some(allocatable) = allocatable(node) {
        status.set("allocatable", allocatable);
    }
    // A node without conditions counts as healthy: that it is ready is not news.
    let was_ready = status::find(node, "Ready").is_none_or(|ready| ready["status"] == "True");
    step.effects.extend(status.effect());
    if !was_ready {
        let message = format!("Node {} status is now: NodeReady", field::name(node));
        step.normal(super::SOURCE, node, "NodeReady", message);
    }
}

/// The allocatable resources of a node, if its status differs: all of each extended resource that was added to its capacity, and none
/// of those that were removed. A node without a capacity keeps what it reports.
fn allocatable(node: &Value) -> Option<Value> {
    let capacity = node.pointer("/status/capacity")?.as_object()?;
    let before = node.pointer("/status/allocatable")?.as_object()?;
    let mut after = before.clone();
    after.retain(|resource, _| !is_extended(resource) || capacity.contains_key(resource));
    for (resource, amount) in capacity.iter().filter(|(resource, _)| is_extended(resource)) {
        after.entry(resource).or_insert_with(|| amount.clone());
    }
    (after != *before).then_some(Value::Object(after))
}

/// Whether a resource is an extended one.
fn is_extended(resource: &str) -> bool {
    resource
        .split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

fn renew_lease(view: &dyn View, node: &Value, now: Timestamp, step: &mut Step) {
    let name = field::name(node);
    let spec = json!({
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": micros(now),
    });
    match view.get("Lease", names::NODE_LEASES, name) {
        None => {
            step.create(json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": name,
                    "namespace": names::NODE_LEASES,
                    "ownerReferences": [field::owner_reference(node)],
                },
                "spec": spec,
            }));
            step.wake_at(field::after(now, RENEW_SECONDS));
        }
        Some(lease) => {
            let renewed = field::time(lease, "/spec/renewTime");
            let due = renewed.map_or(now, |renewed| field::after(renewed, RENEW_SECONDS));
            if due > now {
                step.wake_at(due);
            } else {
                step.patch(lease, "renew_lease", json!({"spec": spec}));
                step.wake_at(field::after(now, RENEW_SECONDS));
            }
        }
    }
}
