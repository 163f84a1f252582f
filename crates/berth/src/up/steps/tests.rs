use super::*;
use berth_core::effect::EventType;
use serde_json::json;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn steps() -> Steps {
    let mut steps = Steps {
        view: Objects::default(),
        workloads: None,
        agents: Some(agent::Settings::default()),
        drivers: None,
        announcing: BTreeSet::from([DEFAULT_SCHEDULER_NAME.to_owned()]),
        announced: Announced::default(),
        waiting_pods: BTreeMap::new(),
        cordoned: BTreeSet::new(),
    };
    steps.take_in(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n"}}));
    steps
}

fn bound_pod(scheduler: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"nodeName": "n1", "schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}})
}

fn event(reason: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("p.{reason}"), "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": uid}, "reason": reason})
}

/// What the agent reports about the pod at a time, in milliseconds, and when it looks again.
fn said(steps: &mut Steps, milliseconds: i64) -> (Vec<&'static str>, Option<i64>) {
    let key = ObjectKey::new("Pod", "default", "p");
    let now = NOW + jiff::SignedDuration::from_millis(milliseconds);
    let step = steps.step_pod(&key, now);
    let said = step.effects.iter().filter_map(|effect| match effect {
        Effect::Event(event) if event.event_type == EventType::Normal => Some(event.reason),
        _ => None,
    });
    (said.collect(), step.wake.map(|wake| wake.as_millisecond()))
}

#[test]
fn a_pod_starts_after_the_event_of_its_scheduler_however_late_that_comes() {
    let mut steps = steps();
    steps.take_in(bound_pod(DEFAULT_SCHEDULER_NAME));
    assert_eq!(said(&mut steps, 0), (vec![], Some(5000)));
    assert_eq!(
        said(&mut steps, 4999),
        (vec![], Some(5000)),
        "it is not a matter of time"
    );
    assert!(steps.take_in(event("FailedScheduling", "u")).is_empty());
    assert_eq!(
        steps.take_in(event("Scheduled", "of-a-namesake")),
        [ObjectKey::new("Pod", "default", "p")]
    );
    assert_eq!(said(&mut steps, 4999), (vec![], Some(5000)), "that was another pod");
    assert_eq!(
        steps.take_in(event("Scheduled", "u")).len(),
        1,
        "the event wakes the pod"
    );
    assert!(said(&mut steps, 4999).0.contains(&"Started"));
    assert!(steps.take_in(event("Scheduled", "u")).is_empty(), "a count is no news");
}

#[test]
fn a_pod_starts_in_the_end_though_its_event_was_lost() {
    let mut steps = steps();
    steps.take_in(bound_pod(DEFAULT_SCHEDULER_NAME));
    assert_eq!(said(&mut steps, 0).1, Some(5000));
    assert!(said(&mut steps, 5000).0.contains(&"Started"));
}

#[test]
fn a_pod_of_a_scheduler_elsewhere_does_not_wait_for_an_event() {
    let mut steps = steps();
    steps.take_in(bound_pod("mine"));
    assert_eq!(said(&mut steps, 0), (vec![], Some(20)));
    assert!(said(&mut steps, 20).0.contains(&"Started"));
}

#[test]
fn announcements_are_forgotten_with_their_events() {
    let mut steps = steps();
    steps.take_in(bound_pod(DEFAULT_SCHEDULER_NAME));
    steps.take_in(event("Scheduled", "u"));
    steps.remove(&ObjectKey::new("Event", "default", "p.Scheduled"));
    assert_eq!(said(&mut steps, 0).1, Some(5000));
}
