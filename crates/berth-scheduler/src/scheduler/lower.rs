//! Converts the effects of a scheduler to API writes, and responses to results. This is the only place that does so.

use super::effects::{Effect, PodRef, Write, WriteOutcome};
use berth_core::api::Kind;
use berth_core::binder::VolumeWrite;
use berth_core::effect::{self, Delete, Event, EventType, Guard, Merge, ObjectKey, Patch, Refusal, Target};
use berth_core::hold::Hold;
use berth_core::names;
use berth_core::time::seconds;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl Effect {
    /// The writes that carry it out, in order. Conditions carry the time.
    #[must_use]
    pub fn lower(&self, now: Timestamp) -> Vec<effect::Effect> {
        match self {
            Self::Write { write, .. } => write.lower(now),
            Self::Condition {
                pod,
                generation,
                reason,
                message,
            } => {
                let mut condition = json!({"type": "PodScheduled", "status": "False", "reason": reason,
                    "message": message, "lastProbeTime": null, "lastTransitionTime": seconds(now)});
                if *generation > 0 {
                    condition["observedGeneration"] = json!(generation);
                }
                vec![status(pod, "condition", json!({"conditions": [condition]}))]
            }
            Self::Nominate { pod, node } => vec![status(pod, "nominate", json!({"nominatedNodeName": node}))],
            Self::Event {
                pod,
                source,
                outcome,
                message,
            } => vec![effect::Effect::Event(Event {
                about: pod.target(),
                event_type: if outcome.is_warning() {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                reason: outcome.reason(),
                message: message.clone(),
                source: source.clone().into(),
            })],
        }
    }
}

impl PodRef {
    /// The pod as the target of a write. No version: a scheduler writes only fields of pods that no one else writes.
    #[must_use]
    pub fn target(&self) -> Target {
        let (namespace, name) = self.key.split_once('/').unwrap_or(("", &self.key));
        Target {
            uid: self.uid.clone(),
            ..target(Kind::Pod, namespace, name, 0)
        }
    }
}

impl Write {
    /// A short name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Volume(VolumeWrite::ReserveVolume { .. }) => "reserve_volume",
            Self::Volume(VolumeWrite::SelectNode { .. }) => "select_node",
            Self::RollBack { .. } => "roll_back",
            Self::Conclude { commit: true, .. } => "commit_volumes",
            Self::Conclude { commit: false, .. } => "abort_volumes",
            Self::BindPod { .. } => "bind_pod",
            Self::EvictPod { .. } => "evict_pod",
        }
    }

    fn lower(&self, now: Timestamp) -> Vec<effect::Effect> {
        match self {
            Self::Volume(write) => vec![self.lower_volume(write)],
            Self::RollBack {
                namespace,
                claim,
                version,
                rollback,
            } => {
                let body = json!({"metadata": {"annotations": {names::ROLLED_BACK_FOR: rollback.to_string()}}});
                let claim = Target {
                    uid: rollback.claim_uid.to_string(),
                    ..target(Kind::PersistentVolumeClaim, namespace, claim, *version)
                };
                vec![self.patch(claim, body)]
            }
            Self::Conclude {
                pod,
                version,
                attempt,
                commit,
            } => {
                let key = if *commit { names::COMMITTED } else { names::ABORTED };
                let body = json!({"metadata": {"annotations": {key: attempt.to_string()}}});
                let target = Target {
                    resource_version: version_text(*version),
                    ..pod.target()
                };
                vec![self.patch(target, body)]
            }
            Self::BindPod { pod, node, .. } => vec![effect::Effect::Bind {
                pod: pod.target(),
                node: node.clone(),
            }],
            // The pod's owner learns the reason before the pod is deleted.
            Self::EvictPod { pod, by } => {
                let message = format!("{by}: preempting to accommodate a higher priority pod");
                let condition = json!({"type": "DisruptionTarget", "status": "True",
                    "reason": "PreemptionByScheduler", "message": message, "lastTransitionTime": seconds(now)});
                vec![
                    status(pod, "disruption_target", json!({"conditions": [condition]})),
                    effect::Effect::Delete(Delete {
                        target: pod.target(),
                        guard: Guard::Uid,
                        grace_seconds: None,
                    }),
                ]
            }
        }
    }

    fn lower_volume(&self, write: &VolumeWrite) -> effect::Effect {
        match write {
            VolumeWrite::ReserveVolume {
                volume,
                version,
                namespace,
                claim,
                uid,
                prebound,
                hold,
            } => {
                let claim_ref = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": namespace, "name": claim, "uid": uid});
                let mut body = json!({"spec": {"claimRef": claim_ref}});
                // A user's reservation must not be reverted by us, even if a controller reserved the volume once.
                let by_controller = match (prebound, hold) {
                    (false, _) => Some(Some("yes".to_owned())),
                    (true, Some(_)) => Some(None),
                    (true, None) => None,
                };
                let by_controller = by_controller.map(|value| (names::BOUND_BY_CONTROLLER, value));
                let mark = mark(hold.as_ref()).map(|(key, value)| (key, Some(value)));
                let annotations: BTreeMap<_, _> = by_controller.into_iter().chain(mark).collect();
                if !annotations.is_empty() {
                    body["metadata"] = json!({"annotations": annotations});
                }
                let volume = target(Kind::PersistentVolume, "", volume, *version);
                self.patch(volume, body)
            }
            VolumeWrite::SelectNode {
                namespace,
                claim,
                version,
                node,
                hold,
            } => {
                let selected = std::iter::once((names::SELECTED_NODE, node.clone()));
                let annotations: BTreeMap<_, _> = selected.chain(mark(hold.as_ref())).collect();
                let body = json!({"metadata": {"annotations": annotations}});
                let claim = target(Kind::PersistentVolumeClaim, namespace, claim, *version);
                self.patch(claim, body)
            }
        }
    }

    fn patch(&self, target: Target, body: Value) -> effect::Effect {
        effect::Effect::Patch(Patch {
            target,
            guard: Guard::Version,
            subresource: None,
            merge: Merge::Json,
            body,
            name: self.name(),
        })
    }

    /// The result of the write, from its executor: the resulting version, or why it was not made.
    #[must_use]
    pub fn outcome(&self, result: Result<&str, &Refusal>) -> WriteOutcome {
        match (result, self) {
            (Ok(version), _) => WriteOutcome::Done {
                version: version.parse().unwrap_or(0),
            },
            // A pod that is gone has already made room.
            (Err(Refusal::NotFound(_)), Self::EvictPod { .. }) => WriteOutcome::Done { version: 0 },
            (Err(refusal @ Refusal::Unavailable { in_doubt: true, .. }), _) => WriteOutcome::Unknown {
                problem: refusal.to_string(),
            },
            (Err(refusal @ (Refusal::Conflict(_) | Refusal::NotFound(_) | Refusal::Stale)), _) => {
                WriteOutcome::Overtaken {
                    problem: refusal.to_string(),
                }
            }
            (Err(refusal), _) => WriteOutcome::Failed {
                problem: refusal.to_string(),
            },
        }
    }
}

/// The annotation of a held volume or claim.
fn mark(hold: Option<&Hold>) -> Option<(&'static str, String)> {
    hold.map(|hold| (names::HELD_FOR, hold.to_string()))
}

/// A change of a pod's status that only schedulers make.
fn status(pod: &PodRef, name: &'static str, status: Value) -> effect::Effect {
    effect::Effect::Patch(Patch {
        target: pod.target(),
        guard: Guard::Uid,
        subresource: Some("status"),
        merge: Merge::Strategic,
        body: json!({"status": status}),
        name,
    })
}

/// An object in a version, 0 if unknown.
fn target(kind: Kind, namespace: &str, name: &str, version: u64) -> Target {
    Target {
        api_version: kind.api_version(),
        key: ObjectKey::new(kind.name(), namespace, name),
        uid: String::new(),
        resource_version: version_text(version),
    }
}

fn version_text(version: u64) -> String {
    if version == 0 {
        String::new()
    } else {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::effects::{Outcome, WriteId};
    use super::*;

    fn lower(effect: &Effect) -> Vec<effect::Effect> {
        effect.lower("2026-11-15T18:20:00.5Z".parse().unwrap())
    }

    fn lower_write(write: Write) -> Vec<effect::Effect> {
        lower(&Effect::Write { id: WriteId(1), write })
    }

    fn patch(effects: &[effect::Effect]) -> &Patch {
        match effects.first() {
            Some(effect::Effect::Patch(patch)) => patch,
            other => panic!("{other:?}"),
        }
    }

    fn pod() -> PodRef {
        PodRef {
            key: "team/web-0".into(),
            uid: "u-1".into(),
        }
    }

    #[test]
    fn volumes_and_claims_are_written_in_the_version_that_was_decided_on() {
        let reserve = |prebound| {
            lower_write(Write::Volume(VolumeWrite::ReserveVolume {
                volume: "pv-1".into(),
                version: 7,
                namespace: "team".into(),
                claim: "data".into(),
                uid: "c-1".into(),
                prebound,
                hold: None,
            }))
        };
        assert_eq!(patch(&reserve(true)).body["metadata"], Value::Null, "a user's own");
        let reserved = reserve(false);
        let reserved = patch(&reserved);
        assert_eq!(reserved.target.key, ObjectKey::new("PersistentVolume", "", "pv-1"));
        assert_eq!(
            (reserved.guard, &*reserved.target.resource_version),
            (Guard::Version, "7")
        );
        assert_eq!(
            reserved.body,
            json!({"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": "team", "name": "data", "uid": "c-1"}}})
        );
        let selected = lower_write(Write::Volume(VolumeWrite::SelectNode {
            namespace: "team".into(),
            claim: "data".into(),
            version: 0,
            node: "n1".into(),
            hold: None,
        }));
        let selected = patch(&selected);
        assert_eq!(
            selected.target.key,
            ObjectKey::new("PersistentVolumeClaim", "team", "data")
        );
        // Objects of files have no version: then there is nothing to guard by.
        assert_eq!(
            (selected.guard, &*selected.target.resource_version),
            (Guard::Version, "")
        );
        assert_eq!(
            selected.body,
            json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}})
        );
    }

    #[test]
    fn an_evicted_pod_is_told_why_and_then_deleted() {
        let write = Write::EvictPod {
            pod: pod(),
            by: "team/urgent".into(),
        };
        let gone = Refusal::NotFound(pod().target().key);
        assert_eq!(write.outcome(Err(&gone)), WriteOutcome::Done { version: 0 });
        let effects = lower_write(write);
        let condition = &patch(&effects).body["status"]["conditions"][0];
        assert_eq!(condition["type"], "DisruptionTarget");
        assert_eq!(condition["lastTransitionTime"], "2026-11-15T18:20:00Z");
        let [_, effect::Effect::Delete(delete)] = effects.as_slice() else {
            panic!("{effects:?}")
        };
        assert_eq!((&*delete.target.uid, delete.guard), ("u-1", Guard::Uid));
    }

    #[test]
    fn what_is_said_about_a_pod_is_said_about_that_very_pod() {
        let unschedulable = lower(&Effect::Condition {
            pod: pod(),
            generation: 3,
            reason: "Unschedulable",
            message: "0/1 nodes are available".into(),
        });
        let unschedulable = patch(&unschedulable);
        assert_eq!(
            (unschedulable.guard, unschedulable.subresource),
            (Guard::Uid, Some("status"))
        );
        assert_eq!(unschedulable.merge, Merge::Strategic);
        assert_eq!(unschedulable.body["status"]["conditions"][0]["observedGeneration"], 3);
        let nominated = lower(&Effect::Nominate {
            pod: pod(),
            node: "n1".into(),
        });
        assert_eq!(patch(&nominated).body, json!({"status": {"nominatedNodeName": "n1"}}));
        let told = lower(&Effect::Event {
            pod: pod(),
            source: "batch-scheduler".to_owned(),
            outcome: Outcome::Unschedulable,
            message: "no".into(),
        });
        let [effect::Effect::Event(event)] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert_eq!(event.about, pod().target());
        assert_eq!(
            (event.event_type, event.reason, &*event.source),
            (EventType::Warning, "FailedScheduling", "batch-scheduler")
        );
    }

    #[test]
    fn a_write_that_was_refused_failed_with_the_reason() {
        let bind = Write::BindPod {
            pod: pod(),
            node: "n1".into(),
            extender: None,
        };
        assert_eq!(bind.outcome(Ok("12")), WriteOutcome::Done { version: 12 });
        let gone = Refusal::NotFound(pod().target().key);
        let overtaken = WriteOutcome::Overtaken {
            problem: "Pod team/web-0 not found".into(),
        };
        assert_eq!(bind.outcome(Err(&gone)), overtaken);
        let refused = Refusal::Invalid {
            key: pod().target().key,
            message: "no such node".into(),
        };
        assert!(matches!(bind.outcome(Err(&refused)), WriteOutcome::Failed { .. }));
        let lost = Refusal::Unavailable {
            key: pod().target().key,
            message: "no answer".into(),
            in_doubt: true,
        };
        assert!(matches!(bind.outcome(Err(&lost)), WriteOutcome::Unknown { .. }));
        let [effect::Effect::Bind { pod: target, node }] = &*lower_write(bind) else {
            panic!("not a binding")
        };
        assert_eq!((target, node.as_str()), (&pod().target(), "n1"));
    }
}
