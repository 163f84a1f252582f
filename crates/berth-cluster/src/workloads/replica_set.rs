//! ReplicaSet, and its predecessor ReplicationController: a number of interchangeable pods of one template.

use super::BURST;
use super::pods::{self, Availability};
use crate::field;
use crate::hash::Suffixes;
use crate::names;
use crate::objects::View;
use crate::status::Status;
use crate::step::Step;
use jiff::Timestamp;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The event source of a set.
fn source(set: &Value) -> &'static str {
    match field::kind(set) {
        "ReplicationController" => "replication-controller",
        _ => "replicaset-controller",
    }
}

pub(super) fn reconcile(view: &dyn View, set: &Value, suffixes: &mut Suffixes, now: Timestamp) -> Step {
    let mut step = Step::default();
    if !set["spec"]["template"].is_object() {
        return step;
    }
    let owned = pods_of(view, set);
    let active: Vec<&Value> = owned.iter().copied().filter(|pod| pods::is_active(pod)).collect();
    let wanted = usize::try_from(field::count(set, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
    if active.len() < wanted {
        for _ in 0..(wanted - active.len()).min(BURST) {
            create_pod(view, set, suffixes, &mut step);
        }
    } else {
        let min_ready_seconds = field::count(set, "/spec/minReadySeconds").unwrap_or(0);
        for pod in dispensable(&active, active.len() - wanted, min_ready_seconds, now) {
            let message = format!("Deleted pod: {}", field::name(pod));
            step.delete(pod);
            step.normal(source(set), set, "SuccessfulDelete", message);
        }
    }
    write_status(set, &active, now, &mut step);
    step
}

/// The pods of a ReplicaSet, including finished and terminating ones.
pub(super) fn pods_of<'a>(view: &'a dyn View, set: &Value) -> Vec<&'a Value> {
    let selector = pods::Selector::of(set);
    view.dependents(field::uid(set))
        .filter(|object| field::kind(object) == "Pod" && field::is_controlled_by(object, set))
        .filter(|pod| selector.selects(pod))
        .collect()
}

fn create_pod(view: &dyn View, set: &Value, suffixes: &mut Suffixes, step: &mut Step) {
    let mut pod = pods::template_pod(set, &set["spec"]["template"]);
    let base = format!("{}-", field::name(set));
    let name = suffixes.name(&base, |name| view.get("Pod", field::namespace(set), name).is_some());
    pods::name_pod(&mut pod, &base, &name);
    step.create(pod);
    step.normal(source(set), set, "SuccessfulCreate", format!("Created pod: {name}"));
}

/// The pods to delete first: the least useful ones. The order is that of Kubernetes, except that ready pods that are
/// not available yet come before available ones regardless of their cost, so that a rolling update keeps its guarantee.
fn dispensable<'a>(active: &[&'a Value], count: usize, min_ready_seconds: i64, now: Timestamp) -> Vec<&'a Value> {
    let mut pods_on: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in active {
        *pods_on.entry(field::text(pod, "/spec/nodeName")).or_default() += 1;
    }
    let mut ranked = active.to_vec();
    ranked.sort_by_cached_key(|pod| {
        let node = field::text(pod, "/spec/nodeName");
        let cost = field::annotation(pod, names::POD_DELETION_COST).and_then(|cost| cost.parse::<i32>().ok());
        let service = (
            !node.is_empty(),
            field::text(pod, "/status/phase") == "Running",
            pods::is_ready(pod),
            pods::is_available(pod, min_ready_seconds, now),
        );
        let created = field::time(pod, "/metadata/creationTimestamp");
        (
            service,
            cost.unwrap_or(0),
            Reverse(pods_on.get(node).copied().unwrap_or(0)),
            Reverse((pods::ready_since(pod), created)),
            field::name(pod).to_owned(),
        )
    });
    ranked.truncate(count.min(BURST));
    ranked
}

fn write_status(set: &Value, active: &[&Value], now: Timestamp, step: &mut Step) {
    let min_ready_seconds = field::count(set, "/spec/minReadySeconds").unwrap_or(0);
    let template = field::labels(&set["spec"]["template"]);
    let mut counts = [0_i64; 3];
    for pod in active {
        let is_labelled = template.iter().all(|(key, value)| field::label(pod, key) == value);
        counts[0] += i64::from(is_labelled);
        counts[1] += i64::from(pods::is_ready(pod));
        match pods::availability(pod, min_ready_seconds, now) {
            Availability::Now => counts[2] += 1,
            Availability::From(then) => step.wake_at(then),
            Availability::Never => {}
        }
    }
    let mut status = Status::of(set, now);
    status.set("replicas", i64::try_from(active.len()).unwrap_or(i64::MAX));
    for (name, count) in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        .iter()
        .zip(counts)
    {
        status.count(name, count);
    }
    status.observe();
    step.effects.extend(status.effect());
}
