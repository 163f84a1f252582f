//! Evicts pods from nodes with taints that they do not tolerate (effect `NoExecute`), as Kubernetes does: at once, or
//! when the toleration expires.

use super::field;
use super::objects::View;
use super::step::{self, Step};
use super::tolerations::tolerates;
use super::workloads::is_over;
use berth_core::effect::Effect;
use berth_core::names::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use jiff::Timestamp;
use serde_json::{Value, json};

const SOURCE: &str = "taint-eviction-controller";
const NO_EXECUTE: &str = "NoExecute";
/// Default toleration of a pod for a lost node: what Kubernetes adds to every pod.
const TOLERATION_SECONDS: i64 = 300;

/// Whether a node has a taint that evicts pods.
pub(crate) fn sends_away(node: &Value) -> bool {
    taints(node).next().is_some()
}

fn taints(node: &Value) -> impl Iterator<Item = &Value> {
    let all = field::items(node, "/spec/taints").iter();
    all.filter(|taint| taint["effect"] == NO_EXECUTE)
}

/// Manages the pods of a node. Call it again when its taints or one of its pods changed.
pub(super) fn step(view: &dyn View, node: &Value, now: Timestamp) -> Step {
    let mut step = Step::default();
    if !sends_away(node) {
        return step;
    }
    let mut needs_time = false;
    for pod in view.pods_on(field::name(node)) {
        if is_over(pod) || field::is_deleting(pod) {
            continue;
        }
        let leaves = taints(node).filter_map(|taint| match tolerance(pod, taint) {
            Tolerance::ForEver => None,
            Tolerance::Not => Some(now),
            Tolerance::Seconds(seconds) => {
                let since = since(taint, now);
                needs_time |= since.is_none();
                Some(field::after(since.unwrap_or(now), seconds))
            }
        });
        match leaves.min() {
            None => {}
            Some(leaves) if leaves > now => step.wake_at(leaves),
            Some(_) => evict(pod, &mut step),
        }
    }
    if needs_time {
        step.effects.push(dated(node, now));
    }
    step
}

/// Since when a taint exists, if known: it may not be recorded, and in a dump it can be in the future.
fn since(taint: &Value, now: Timestamp) -> Option<Timestamp> {
    field::time(taint, "/timeAdded").filter(|added| *added <= now)
}

/// Records the current time on taints without one.
fn dated(node: &Value, now: Timestamp) -> Effect {
    let mut taints = field::items(node, "/spec/taints").to_vec();
    for taint in &mut taints {
        if taint["effect"] == NO_EXECUTE && since(taint, now).is_none() {
            field::set(taint, &["timeAdded"], json!(field::seconds(now)));
        }
    }
    step::patch_as_seen(node, "date_taints", json!({"spec": {"taints": taints}}))
}

fn evict(pod: &Value, step: &mut Step) {
    let message = format!(
        "Marking for deletion Pod {}/{}",
        field::namespace(pod),
        field::name(pod)
    );
    step.delete(pod);
    step.normal(SOURCE, pod, "TaintManagerEviction", message);
}

/// How long a pod tolerates a taint.
#[derive(Debug, PartialEq, Eq)]
enum Tolerance {
    Not,
    Seconds(i64),
    ForEver,
}

fn tolerance(pod: &Value, taint: &Value) -> Tolerance {
    let mut found = field::items(pod, "/spec/tolerations")
        .iter()
        .filter(|toleration| tolerates(toleration, taint))
        .peekable();
    if found.peek().is_none() {
        return match field::text(taint, "/key") {
            TAINT_NOT_READY | TAINT_UNREACHABLE => Tolerance::Seconds(TOLERATION_SECONDS),
            _ => Tolerance::Not,
        };
    }
    let seconds = found.filter_map(|toleration| field::number(toleration, "/tolerationSeconds"));
    seconds
        .min()
        .map_or(Tolerance::ForEver, |seconds| Tolerance::Seconds(seconds.max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Story;

    fn pod(name: &str, tolerations: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "n1", "tolerations": tolerations, "containers": [{"name": "main"}]},
            "status": {"phase": "Running"}})
    }

    fn leaving(story: &Story) -> Vec<&str> {
        let pods = story.cluster.objects().of_kind("Pod");
        pods.filter(|pod| field::is_deleting(pod)).map(field::name).collect()
    }

    fn look(story: &mut Story) -> Option<Timestamp> {
        let own = step(story.cluster.objects(), story.get("Node", "n1"), story.now);
        story.carry_out(&own.effects);
        own.wake
    }

    #[test]
    fn pods_go_when_they_no_longer_tolerate_a_taint() {
        let mut story = Story::with_nodes(1);
        story.create(pod("any", json!([{"operator": "Exists"}])));
        story.create(pod("key", json!([{"key": "a", "value": "x", "effect": "NoExecute"}])));
        story.create(pod("none", json!([])));
        story.create(pod("other", json!([{"key": "a", "value": "y"}])));
        story.create(pod(
            "mild",
            json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
        ));
        story.create(pod(
            "while",
            json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 60}]),
        ));
        assert_eq!(look(&mut story), None);
        let taint = json!({"spec": {"taints": [{"key": "a", "value": "x", "effect": "NoExecute"}]}});
        story.patch("Node", "n1", taint);
        let wake = look(&mut story).unwrap();
        assert_eq!(leaving(&story), ["mild", "none", "other"]);
        assert_eq!(wake, field::after(story.now, 60));
        // Its time counts from when the taint was first observed.
        story.now = field::after(story.now, 59);
        assert_eq!(look(&mut story), Some(wake));
        story.now = wake;
        assert_eq!(look(&mut story), None);
        assert_eq!(leaving(&story), ["mild", "none", "other", "while"]);
        assert_eq!(
            step(story.cluster.objects(), story.get("Node", "n1"), story.now),
            Step::default()
        );
    }
}
