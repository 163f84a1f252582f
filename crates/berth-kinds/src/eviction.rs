//! Evictions: whether disruption budgets allow them, and how they are charged.

use crate::kinds::pod;
use crate::meta;
use crate::selector::LabelSelector;
use serde_json::{Value, json};

/// Why a pod may not be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// More than one budget covers it, which evictions do not support.
    SeveralBudgets,
    /// The status of the budget is older than the budget.
    Processing {
        /// The budget.
        budget: String,
    },
    /// The budget allows no disruption now.
    Exhausted {
        /// The budget.
        budget: String,
        /// The desired number of healthy pods.
        desired: i64,
        /// The current number.
        healthy: i64,
    },
}

/// Whether budgets apply. They do not apply to pods that have not started, have finished, or are being deleted.
#[must_use]
pub fn is_guarded(pod: &Value) -> bool {
    let phase = meta::text(pod, &["status", "phase"]);
    !matches!(phase, "Pending" | "Succeeded" | "Failed") && !meta::is_deleting(pod)
}

/// Whether a budget covers a pod. A missing selector selects nothing; an empty one selects every pod of the namespace.
#[must_use]
pub fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    meta::namespace(budget) == meta::namespace(pod)
        && !selector.is_null()
        && LabelSelector::from_object(selector).is_ok_and(|selector| selector.matches(pod))
}

/// The budget that an eviction of the pod is charged to, if any.
///
/// # Errors
/// If there are several.
pub fn guard<'b>(pod: &Value, budgets: impl IntoIterator<Item = &'b Value>) -> Result<Option<&'b Value>, Refused> {
    if !is_guarded(pod) {
        return Ok(None);
    }
    let mut covering = budgets.into_iter().filter(|budget| covers(budget, pod));
    match (covering.next(), covering.next()) {
        (Some(_), Some(_)) => Err(Refused::SeveralBudgets),
        (found, _) => Ok(found.filter(|budget| !may_go_unready(budget, pod))),
    }
}

/// An unready pod does not count as healthy for its budget: it may be evicted as long as enough pods are healthy, or
/// always if the budget says so.
fn may_go_unready(budget: &Value, pod: &Value) -> bool {
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if meta::items(pod, &["status", "conditions"]).iter().any(is_ready) {
        return false;
    }
    let desired = count(budget, "desiredHealthy");
    let is_healthy = desired > 0 && count(budget, "currentHealthy") >= desired;
    is_healthy || meta::text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
}

fn count(budget: &Value, key: &str) -> i64 {
    budget["status"][key].as_i64().unwrap_or(0)
}

/// The budget with one disruption less, for the pod with this name.
///
/// # Errors
/// If it allows none.
pub fn disrupted(budget: &Value, pod: &str, time: &str) -> Result<Value, Refused> {
    let name = || meta::name(budget).to_owned();
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if count(budget, "observedGeneration") < generation {
        return Err(Refused::Processing { budget: name() });
    }
    let allowed = count(budget, "disruptionsAllowed");
    if allowed <= 0 {
        return Err(Refused::Exhausted {
            budget: name(),
            desired: count(budget, "desiredHealthy"),
            healthy: count(budget, "currentHealthy"),
        });
    }
    let mut new = budget.clone();
    meta::set(&mut new, &["status", "disruptionsAllowed"], (allowed - 1).into());
    meta::set(&mut new, &["status", "disruptedPods", pod], time.into());
    if allowed == 1 {
        let condition = json!({"type": "DisruptionAllowed", "status": "False", "observedGeneration": generation,
            "lastTransitionTime": time, "reason": "InsufficientPods", "message": ""});
        pod::set_condition(&mut new, condition);
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(name: &str, allowed: i64) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "generation": 1}, "spec": {"selector": {}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 2, "currentHealthy": 1}})
    }

    fn pod(ready: &str) -> Value {
        json!({"metadata": {"name": "p", "namespace": "shop"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn one_budget_is_asked_and_several_are_refused() {
        let (one, other) = (budget("one", 1), budget("other", 1));
        assert_eq!(guard(&pod("True"), [&one]), Ok(Some(&one)));
        assert_eq!(guard(&pod("True"), [&one, &other]), Err(Refused::SeveralBudgets));
        let mut elsewhere = budget("elsewhere", 0);
        elsewhere["metadata"]["namespace"] = json!("other");
        assert_eq!(guard(&pod("True"), [&elsewhere]), Ok(None));
    }

    #[test]
    fn pods_that_do_not_count_are_free_to_go() {
        let mut enough = budget("enough", 0);
        assert_eq!(
            guard(&pod("False"), [&enough]),
            Ok(Some(&enough)),
            "too few are healthy"
        );
        enough["status"]["currentHealthy"] = json!(2);
        assert_eq!(guard(&pod("False"), [&enough]), Ok(None));
        let mut always = budget("always", 0);
        always["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(guard(&pod("False"), [&always]), Ok(None));
        let mut waiting = pod("False");
        waiting["status"]["phase"] = json!("Pending");
        assert_eq!(guard(&waiting, [&budget("none", 0)]), Ok(None));
    }

    #[test]
    fn a_disruption_is_taken_from_the_budget() {
        let new = disrupted(&budget("b", 1), "p", "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(new["status"]["disruptionsAllowed"], 0);
        assert_eq!(new["status"]["disruptedPods"]["p"], "2026-01-01T00:00:00Z");
        assert_eq!(new["status"]["conditions"][0]["type"], "DisruptionAllowed");
        let exhausted = Refused::Exhausted {
            budget: "b".to_owned(),
            desired: 2,
            healthy: 1,
        };
        assert_eq!(disrupted(&new, "q", ""), Err(exhausted));
        let mut changed = budget("b", 1);
        changed["metadata"]["generation"] = json!(2);
        assert!(matches!(disrupted(&changed, "p", ""), Err(Refused::Processing { .. })));
    }
}
