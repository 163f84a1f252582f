//! Carries out one effect of the scheduler.

use super::metrics::{Metrics, WriteLabels};
use crate::api::{Api, ApiError};
use crate::recorder::Recorder;
use crate::resource::Resource;
use berth_core::api::Kind;
use berth_core::{effect, names};
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Effect, PodRef, Write, WriteId, WriteOutcome};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use tokio::time::Instant;

/// What a worker brings back.
#[derive(Debug)]
pub(super) struct Finished {
    /// The write and how it went, if the scheduler waits for it.
    pub(super) outcome: Option<(WriteId, WriteOutcome)>,
    /// The pod whose effects keep their order.
    pub(super) order: Option<PodKey>,
}

/// What effects are carried out with.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) api: Api,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    metadata: AnswerMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AnswerMeta {
    resource_version: String,
}

/// The version that a write left, 0 if the answer does not tell.
fn version(answer: &[u8]) -> u64 {
    let answer: Answer = serde_json::from_slice(answer).unwrap_or_default();
    answer.metadata.resource_version.parse().unwrap_or(0)
}

fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

impl Executor {
    pub(super) async fn carry_out(&self, effect: Effect, order: Option<PodKey>) -> Finished {
        let outcome = match effect {
            Effect::Write { id, write } => {
                let outcome = match self.write(&write).await {
                    Ok(version) => WriteOutcome::Done { version },
                    Err(error) => {
                        let problem = error.to_string();
                        if error.is_in_doubt() {
                            WriteOutcome::Unknown { problem }
                        } else {
                            WriteOutcome::Failed { problem }
                        }
                    }
                };
                Some((id, outcome))
            }
            Effect::Condition { pod, reason, message } => {
                self.say(&pod, "condition", &unscheduled(&pod, reason, &message)).await;
                None
            }
            Effect::Nominate { pod, node } => {
                let patch = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}});
                self.say(&pod, "nominate", &patch).await;
                None
            }
            Effect::Event {
                pod,
                warning,
                reason,
                message,
            } => {
                self.tell(&pod, warning, reason, message);
                None
            }
        };
        Finished { outcome, order }
    }

    /// Tells a user, in the recorder's own time.
    pub(super) fn tell(&self, pod: &PodRef, warning: bool, reason: &'static str, message: String) {
        let (namespace, name) = split(&pod.key);
        self.recorder.tell(effect::Event {
            about: effect::Target {
                api_version: Kind::Pod.api_version(),
                key: effect::ObjectKey::new(Kind::Pod.name(), namespace, name),
                uid: pod.uid.clone(),
                resource_version: String::new(),
            },
            event_type: if warning {
                effect::EventType::Warning
            } else {
                effect::EventType::Normal
            },
            reason,
            message,
            source: Cow::Borrowed(""),
        });
    }

    /// Writes to a pod's status what nothing depends on.
    async fn say(&self, pod: &PodRef, write: &'static str, patch: &Value) {
        let (namespace, name) = split(&pod.key);
        let pods = Resource::of(Kind::Pod);
        let result = self.api.strategic_patch(pods, namespace, name, "status", patch).await;
        self.count(write, &result);
        if let Err(error) = result
            && !error.is_not_found()
            && !error.is_conflict()
        {
            tracing::warn!(pod = %pod.key, %error, "could not write how things stand with a pod");
        }
    }

    async fn write(&self, write: &Write) -> Result<u64, ApiError> {
        let begun = Instant::now();
        let (name, result) = match write {
            Write::ReserveVolume { .. } => ("reserve_volume", self.reserve_volume(write).await),
            Write::SelectNode { .. } => ("select_node", self.select_node(write).await),
            Write::BindPod { pod, node } => ("bind_pod", self.bind_pod(pod, node).await),
            Write::EvictPod { pod, by } => ("evict_pod", self.evict_pod(pod, by).await),
        };
        self.count(name, &result);
        self.metrics.wrote(name, result.is_ok(), begun.elapsed());
        result
    }

    async fn reserve_volume(&self, write: &Write) -> Result<u64, ApiError> {
        let Write::ReserveVolume {
            volume,
            version: at,
            namespace,
            claim,
            uid,
            prebound,
        } = write
        else {
            return Ok(0);
        };
        let claim_ref = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": namespace, "name": claim, "uid": uid});
        let mut patch = json!({"spec": {"claimRef": claim_ref}});
        if !prebound {
            patch["metadata"] = json!({"annotations": {names::BOUND_BY_CONTROLLER: "yes"}});
        }
        guard(&mut patch, *at);
        let volumes = Resource::of(Kind::PersistentVolume);
        match self.api.merge_patch(volumes, "", volume, None, &patch).await {
            Ok(answer) => Ok(version(&answer)),
            Err(error) => {
                let written = |object: &Value| object["spec"]["claimRef"]["uid"] == uid.as_str();
                self.unless_written(error, volumes, ("", volume), written).await
            }
        }
    }

    async fn select_node(&self, write: &Write) -> Result<u64, ApiError> {
        let Write::SelectNode {
            namespace,
            claim,
            version: at,
            node,
        } = write
        else {
            return Ok(0);
        };
        let mut patch = json!({"metadata": {"annotations": {names::SELECTED_NODE: node}}});
        guard(&mut patch, *at);
        let claims = Resource::of(Kind::PersistentVolumeClaim);
        match self.api.merge_patch(claims, namespace, claim, None, &patch).await {
            Ok(answer) => Ok(version(&answer)),
            Err(error) => {
                let written = |object: &Value| object["metadata"]["annotations"][names::SELECTED_NODE] == node.as_str();
                self.unless_written(error, claims, (namespace, claim), written).await
            }
        }
    }

    /// A write whose answer was lost may have been carried out. Taken for failed, the next attempt could choose another
    /// node, and then find a volume bound on this one.
    async fn unless_written(
        &self,
        error: ApiError,
        resource: Resource,
        (namespace, name): (&str, &str),
        written: impl Fn(&Value) -> bool,
    ) -> Result<u64, ApiError> {
        if error.is_in_doubt()
            && let Ok(Some(found)) = self.api.get(resource, namespace, name).await
            && let Ok(object) = serde_json::from_slice::<Value>(&found)
            && written(&object)
        {
            return Ok(version(&found));
        }
        Err(error)
    }

    async fn bind_pod(&self, pod: &PodRef, node: &str) -> Result<u64, ApiError> {
        let (namespace, name) = split(&pod.key);
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let pods = Resource::of(Kind::Pod);
        self.api
            .post_subresource(pods, namespace, name, "binding", &binding)
            .await?;
        Ok(0)
    }

    /// Deletes a pod to make room, after saying so on the pod. One that is gone made room already.
    async fn evict_pod(&self, pod: &PodRef, by: &PodKey) -> Result<u64, ApiError> {
        let (namespace, name) = split(&pod.key);
        let message = format!("{by}: preempting to accommodate a higher priority pod");
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": message, "lastTransitionTime": now()});
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
        self.say(pod, "disruption_target", &patch).await;
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}});
        let pods = Resource::of(Kind::Pod);
        match self.api.delete_with(pods, namespace, name, &options).await {
            Ok(_) => Ok(0),
            Err(error) if error.is_not_found() => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn count(&self, write: &'static str, result: &Result<impl Sized, ApiError>) {
        let result = ApiError::result_label(result);
        self.metrics.writes.get_or_create(&WriteLabels { write, result }).inc();
    }
}

/// Makes a patch hold for this version alone, if it is known.
fn guard(patch: &mut Value, version: u64) {
    if version > 0 {
        patch["metadata"]["resourceVersion"] = json!(version.to_string());
    }
}

/// The patch that says that a pod has no node, and why.
fn unscheduled(pod: &PodRef, reason: &str, message: &str) -> Value {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": now()});
    json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
