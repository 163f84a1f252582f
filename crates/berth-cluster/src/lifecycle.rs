//! What happens to a node whose agent is silent, and to its pods.
//!
//! A running agent renews the lease of its node. If the lease was not renewed for long enough, the state of the node is
//! unknown: its conditions become unknown, it is tainted to keep pods away, its pods become unready, and after their
//! toleration expires they are deleted. They remain until an agent removes them, as in Kubernetes: a pod of a
//! StatefulSet is not started twice because a node does not respond. When the agent is back, the taints are removed.
//!
//! A node without a lease counts as healthy: it never had heartbeats. Taints that users add to it evict pods anyway.

use super::eviction;
use super::field;
use super::names::NODE_LEASES;
use super::objects::{View, key_for};
use super::status::{self, Condition, Status};
use super::step::{self, Step};
use super::workloads::is_over;
use berth_core::effect::ObjectKey;
use berth_core::names::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use jiff::Timestamp;
use serde_json::{Value, json};

const SOURCE: &str = "node-controller";
/// How old a lease may be before its node counts as lost: five renewals, as in Kubernetes.
const GRACE_SECONDS: i64 = 50;
const SILENT: &str = "Kubelet stopped posting node status.";

/// The nodes to check when an object was created, changed or deleted (pass its last state). A pod concerns its node only
/// if the node may send it away.
#[must_use]
pub fn concerned(view: &dyn View, object: &Value) -> Option<ObjectKey> {
    let node = match field::kind(object) {
        "Node" => field::name(object),
        "Lease" if field::namespace(object) == NODE_LEASES => field::name(object),
        "Pod" => {
            let node = view.get("Node", "", field::text(object, "/spec/nodeName"))?;
            eviction::sends_away(node).then(|| field::name(node))?
        }
        _ => return None,
    };
    Some(key_for("Node", "", node))
}

/// Manages one node. Call it again when its lease, its conditions, its taints or one of its pods changed.
#[must_use]
pub fn step(view: &dyn View, node: &str, now: Timestamp) -> Step {
    let Some(found) = view.get("Node", "", node) else {
        return Step::default();
    };
    let mut step = eviction::step(view, found, now);
    if let Some(lease) = view.get("Lease", NODE_LEASES, node) {
        watch_over(view, found, lease, now, &mut step);
    }
    step
}

/// Checks the lease of a node, and its reported conditions.
fn watch_over(view: &dyn View, node: &Value, lease: &Value, now: Timestamp, step: &mut Step) {
    let expires = field::time(lease, "/spec/renewTime").map(|renewed| field::after(renewed, GRACE_SECONDS));
    let is_silent = expires.is_some_and(|expires| expires <= now);
    match expires {
        Some(expires) if !is_silent => step.wake_at(expires),
        Some(_) | None => {}
    }
    if is_silent {
        forget_conditions(node, now, step);
    }
    let taint = match status::find(node, "Ready").map(|ready| field::text(ready, "/status")) {
        _ if is_silent => Some(TAINT_UNREACHABLE),
        None | Some("True") => None,
        Some("False") => Some(TAINT_NOT_READY),
        Some(_) => Some(TAINT_UNREACHABLE),
    };
    set_taint(node, taint, now, step);
    if taint.is_some() {
        for pod in view.pods_on(field::name(node)).filter(|pod| !is_over(pod)) {
            mark_unready(pod, now, step);
        }
    }
}

/// Sets the conditions of a node to unknown.
fn forget_conditions(node: &Value, now: Timestamp, step: &mut Step) {
    let known = field::items(node, "/status/conditions");
    if known.iter().all(|condition| condition["status"] == "Unknown") && !known.is_empty() {
        return;
    }
    let unknown = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(|name| {
        json!({"type": name, "status": "Unknown", "reason": "NodeStatusUnknown", "message": SILENT,
            "lastTransitionTime": field::seconds(now)})
    });
    let mut status = node["status"].clone();
    field::set(&mut status, &["conditions"], json!(unknown));
    step.effects.extend(step::update_status(node, &status));
    let message = format!("Node {} status is now: NodeNotReady", field::name(node));
    step.normal(SOURCE, node, "NodeNotReady", message);
}

/// Whether a taint says that a node is not ready or does not respond.
fn is_ours(taint: &Value) -> bool {
    taint["key"] == TAINT_NOT_READY || taint["key"] == TAINT_UNREACHABLE
}

/// Whether a node has taints of this controller.
pub(crate) fn is_tainted(node: &Value) -> bool {
    field::items(node, "/spec/taints").iter().any(is_ours)
}

/// Adds the taint that keeps pods away and evicts them, or removes it.
pub(crate) fn set_taint(node: &Value, wanted: Option<&str>, now: Timestamp, step: &mut Step) {
    let known = field::items(node, "/spec/taints");
    let ours: Vec<&Value> = known.iter().filter(|taint| is_ours(taint)).collect();
    let is_set = match wanted {
        None => ours.is_empty(),
        Some(key) => ours.len() == 2 && ours.iter().all(|taint| taint["key"] == key),
    };
    if is_set {
        return;
    }
    let mut taints: Vec<Value> = known.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    taints.extend(wanted.into_iter().flat_map(|key| {
        ["NoSchedule", "NoExecute"]
            .map(|effect| json!({"key": key, "effect": effect, "timeAdded": field::seconds(now)}))
    }));
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    step.effects.push(step::patch_as_seen(
        node,
        "taint_node",
        json!({"spec": {"taints": taints}}),
    ));
}

fn mark_unready(pod: &Value, now: Timestamp, step: &mut Step) {
    if !status::holds(pod, "Ready") {
        return;
    }
    let mut status = Status::of(pod, now);
    status.condition(Condition {
        name: "Ready",
        holds: false,
        reason: "NodeNotReady",
        message: "",
    });
    step.effects.extend(status.effect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{self, Mode, Settings};
    use crate::testing::{Story, workload};

    /// Runs agents and this controller until nothing changes before a time.
    fn run_until(story: &mut Story, end: Timestamp, mode: Mode) {
        let settings = Settings {
            heartbeats: true,
            ..Settings::default()
        };
        for _ in 0..1000 {
            let mut all = story.control();
            story.schedule();
            for node in ["n1", "n2"] {
                let mode = if node == "n1" { mode } else { Mode::Run };
                let agent = agent::step(story.cluster.objects(), node, mode, &settings, story.now);
                story.carry_out(&agent.effects);
                let own = step(story.cluster.objects(), node, story.now);
                story.carry_out(&own.effects);
                all.append(agent);
                all.append(own);
            }
            if all.effects.is_empty() {
                match all.wake.filter(|wake| *wake <= end) {
                    Some(wake) => story.now = wake,
                    None => break,
                }
            }
        }
        story.now = end;
    }

    fn taints(story: &Story) -> Vec<String> {
        let taints = field::items(story.get("Node", "n1"), "/spec/taints").iter();
        taints
            .map(|taint| format!("{}:{}", field::text(taint, "/key"), field::text(taint, "/effect")))
            .collect()
    }

    #[test]
    fn a_silent_node_loses_its_pods_after_a_while_and_gets_them_no_more_than_once() {
        let mut story = Story::with_nodes(2);
        story.create(workload("StatefulSet", "db", json!({"replicas": 2})));
        story.create(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stays", "namespace": "default"},
            "spec": {"nodeName": "n1", "tolerations": [{"operator": "Exists"}], "containers": [{"name": "main"}]}}),
        );
        let start = story.now;
        run_until(&mut story, field::after(start, 5), Mode::Run);
        assert_eq!(story.pods(), ["db-0 Running", "db-1 Running", "stays Running"]);
        let lost = story
            .cluster
            .objects()
            .pods_on("n1")
            .map(field::name)
            .find(|name| *name != "stays")
            .unwrap()
            .to_owned();

        run_until(&mut story, field::after(start, 100), Mode::Stop);
        assert_eq!(
            taints(&story),
            [
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute"
            ]
        );
        assert_eq!(
            status::find(story.get("Node", "n1"), "Ready").unwrap()["status"],
            "Unknown"
        );
        assert!(!status::holds(story.get("Pod", &lost), "Ready"));
        assert_eq!(story.get("StatefulSet", "db")["status"]["readyReplicas"], 1);

        run_until(&mut story, field::after(start, 1000), Mode::Stop);
        assert!(
            field::is_deleting(story.get("Pod", &lost)),
            "deleted, but nobody is there to remove it"
        );
        assert!(!field::is_deleting(story.get("Pod", "stays")));

        run_until(&mut story, field::after(start, 1100), Mode::Run);
        assert_eq!(taints(&story), [""; 0]);
        assert_eq!(story.pods(), ["db-0 Running", "db-1 Running", "stays Running"]);
        assert!(status::holds(story.get("Pod", "stays"), "Ready"));
        assert_eq!(story.get("StatefulSet", "db")["status"]["readyReplicas"], 2);
    }

    #[test]
    fn a_node_without_a_lease_and_other_taints_are_left_alone() {
        let mut story = Story::with_nodes(1);
        story.patch(
            "Node",
            "n1",
            json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}),
        );
        assert_eq!(step(story.cluster.objects(), "n1", story.now), Step::default());
        let expired = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1", "namespace": NODE_LEASES},
            "spec": {"renewTime": "2025-01-01T00:00:00.000000Z"}});
        story.create(expired);
        let lost = step(story.cluster.objects(), "n1", story.now);
        story.carry_out(&lost.effects);
        assert_eq!(taints(&story).len(), 3);
        assert!(step(story.cluster.objects(), "n1", story.now).effects.is_empty());
    }
}
