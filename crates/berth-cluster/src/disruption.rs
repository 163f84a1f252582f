//! PodDisruptionBudgets: how many of their pods may be evicted now.
//!
//! One function computes the status of a budget. Evictions read and decrement `disruptionsAllowed`, so that two
//! concurrent evictions do not both use the last one.

use super::field;
use super::objects::{View, key_of};
use super::status::{self, Condition, Status};
use super::workloads::{Selector, is_over};
use berth_core::effect::{Effect, ObjectKey};
use berth_kinds::eviction::covers;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The budgets to update when an object was created, changed or deleted (pass its last state). See [`no_longer_concerned`] for those
/// that matched before a change of labels.
#[must_use]
pub fn concerned(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    match field::kind(object) {
        "PodDisruptionBudget" => vec![key_of(object)],
        "Pod" => {
            let budgets = view.of_kind("PodDisruptionBudget");
            budgets.filter(|budget| covers(budget, object)).map(key_of).collect()
        }
        _ => Vec::new(),
    }
}

/// The budgets that covered an object in its state in the view, if its labels change.
#[must_use]
pub fn no_longer_concerned(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    let before = view.get(field::kind(object), field::namespace(object), field::name(object));
    let is_relabelled = |before: &&Value| before.pointer("/metadata/labels") != object.pointer("/metadata/labels");
    match before.filter(is_relabelled) {
        Some(before) => concerned(view, before),
        None => Vec::new(),
    }
}

/// The new status of a budget; `None` if it is up to date.
#[must_use]
pub fn step(view: &dyn View, budget: &Value, now: Timestamp) -> Option<Effect> {
    let selector = Selector::of(budget);
    let namespace = field::namespace(budget);
    let pods: Vec<&Value> = view
        .of_kind("Pod")
        .filter(|pod| field::namespace(pod) == namespace && selector.selects(pod) && !is_over(pod))
        .collect();
    let disrupted = still_disrupted(budget, &pods);
    let is_healthy = |pod: &&&Value| {
        status::holds(pod, "Ready") && !field::is_deleting(pod) && !disrupted.contains_key(field::name(pod))
    };
    let healthy = i64::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i64::MAX);
    let expected = expected_pods(view, &pods);
    let desired = desired_healthy(budget, expected);
    let allowed = if expected == 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = Status::of(budget, now);
    for (name, count) in [
        ("currentHealthy", healthy),
        ("desiredHealthy", desired),
        ("expectedPods", expected),
        ("disruptionsAllowed", allowed),
    ] {
        status.set(name, count);
    }
    match disrupted.is_empty() {
        true => status.unset("disruptedPods"),
        false => status.set("disruptedPods", disrupted),
    }
    status.condition(Condition {
        name: "DisruptionAllowed",
        holds: allowed > 0,
        reason: if allowed > 0 {
            "SufficientPods"
        } else {
            "InsufficientPods"
        },
        message: "",
    });
    status.observe();
    status.effect()
}

/// The evicted pods that have not started to terminate. The state of the others is visible.
fn still_disrupted(budget: &Value, pods: &[&Value]) -> Map<String, Value> {
    let mut disrupted = budget["status"]["disruptedPods"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    disrupted.retain(|name, _| {
        let mut pods = pods.iter();
        pods.any(|pod| field::name(pod) == name && !field::is_deleting(pod))
    });
    disrupted
}

/// The expected number of pods: that of their controllers, plus one for each pod without a controller.
fn expected_pods(view: &dyn View, pods: &[&Value]) -> i64 {
    let mut controllers: BTreeMap<&str, i64> = BTreeMap::new();
    let mut alone = 0;
    for pod in pods {
        let owner = field::controller_of(pod).and_then(|reference| {
            let found = view.get(
                field::text(reference, "/kind"),
                field::namespace(pod),
                field::text(reference, "/name"),
            )?;
            let wanted = match field::kind(found) {
                "DaemonSet" => field::count(found, "/status/desiredNumberScheduled"),
                _ => field::count(found, "/spec/replicas"),
            };
            Some((field::text(reference, "/uid"), wanted.unwrap_or(1)))
        });
        match owner {
            Some((uid, replicas)) => {
                controllers.insert(uid, replicas);
            }
            None => alone += 1,
        }
    }
    controllers.values().sum::<i64>() + alone
}

fn desired_healthy(budget: &Value, expected: i64) -> i64 {
    let amount = |name: &str| budget["spec"].get(name).map(|value| scaled(value, expected));
    match (amount("maxUnavailable"), amount("minAvailable")) {
        (Some(unavailable), _) => (expected - unavailable).max(0),
        (None, Some(available)) => available,
        // Kubernetes treats a budget with neither as `minAvailable: 1`.
        (None, None) => 1,
    }
}

/// A number, or a percentage of the expected pods, rounded up.
fn scaled(value: &Value, expected: i64) -> i64 {
    let percent = value
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match percent {
        Some(percent) => (expected.saturating_mul(percent).saturating_add(99)) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objects;
    use serde_json::json;

    fn pod(name: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": "db"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn allowed(spec: Value, pods: Vec<Value>) -> i64 {
        let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "default"}, "spec": spec});
        field::set(
            &mut budget,
            &["spec", "selector"],
            json!({"matchLabels": {"app": "db"}}),
        );
        let view: Objects = pods.into_iter().collect();
        match step(&view, &budget, Timestamp::UNIX_EPOCH) {
            Some(Effect::Patch(patch)) => patch.body["status"]["disruptionsAllowed"].as_i64().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_concerns_the_budgets_that_cover_it() {
        let budget = |name: &str, namespace: &str| {
            json!({"kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": namespace},
                "spec": {"selector": {"matchLabels": {"app": name}}}})
        };
        let view: Objects = [budget("db", "default"), budget("web", "default"), budget("db", "other")]
            .into_iter()
            .collect();
        let db = [ObjectKey::new("PodDisruptionBudget", "default", "db")];
        assert_eq!(concerned(&view, &pod("a", true)), db);
        assert_eq!(concerned(&view, &budget("db", "default")), db);
        assert_eq!(
            concerned(&view, &json!({"kind": "Node", "metadata": {"name": "n"}})),
            []
        );
    }

    #[test]
    fn a_pod_that_goes_is_no_longer_noted_as_disrupted() {
        let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptedPods": {"a": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z"}}});
        let status = |budget: &Value, pods: Vec<Value>| {
            let view: Objects = pods.into_iter().collect();
            match step(&view, budget, Timestamp::UNIX_EPOCH) {
                Some(Effect::Patch(patch)) => patch.body["status"].clone(),
                other => panic!("{other:?}"),
            }
        };
        let found = status(&budget, vec![pod("a", true), pod("b", true)]);
        assert_eq!(found["disruptedPods"]["gone"], Value::Null);
        assert_eq!(
            (&found["currentHealthy"], &found["disruptionsAllowed"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(found["conditions"][0]["reason"], "InsufficientPods");
        field::set(
            &mut budget,
            &["status", "disruptedPods"],
            json!({"gone": "1970-01-01T00:00:00Z"}),
        );
        let found = status(&budget, vec![pod("a", true), pod("b", true)]);
        assert_eq!(found["disruptedPods"], Value::Null);
        assert_eq!(
            (&found["disruptionsAllowed"], &found["conditions"][0]["status"]),
            (&json!(1), &json!("True"))
        );
    }

    #[test]
    fn as_many_may_go_as_the_budget_can_spare() {
        let three = || vec![pod("a", true), pod("b", true), pod("c", true)];
        assert_eq!(allowed(json!({"minAvailable": 2}), three()), 1);
        assert_eq!(allowed(json!({"maxUnavailable": 1}), three()), 1);
        assert_eq!(allowed(json!({"minAvailable": "50%"}), three()), 1);
        assert_eq!(allowed(json!({"maxUnavailable": "100%"}), three()), 3);
        assert_eq!(
            allowed(json!({"maxUnavailable": 1}), vec![pod("a", true), pod("b", false)]),
            0
        );
        assert_eq!(allowed(json!({}), vec![]), 0);
    }
}
