//! Carries out the effects of embedded steps on an API server, and keeps the view true to what was written.

use berth_cluster::{Effect, Event, EventType, Key, Objects, Target, View, field};
use berth_core::api::Kind;
use berth_core::effect;
use berth_kube::CancellationToken;
use berth_kube::api::{Api, ApiError};
use berth_kube::recorder::{Recorder, recorder};
use berth_kube::resource::Resource;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tokio::task::JoinSet;

/// The kinds that embedded steps read and write.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::of(Kind::Node),
        Resource::of(Kind::Pod),
        Resource::of(Kind::PersistentVolume),
        Resource::of(Kind::PersistentVolumeClaim),
        Resource::of(Kind::CsiDriver),
        Resource::of(Kind::StatefulSet),
        Resource::of(Kind::ReplicaSet),
        Resource::of(Kind::ReplicationController),
        Resource::DEPLOYMENTS,
        Resource::DAEMON_SETS,
        Resource::JOBS,
        Resource::CRON_JOBS,
        Resource::CONTROLLER_REVISIONS,
        Resource::of(Kind::PodDisruptionBudget),
        Resource::LEASES,
    ]
}

fn resource_of(kind: &str) -> Option<Resource> {
    resources().into_iter().find(|resource| resource.kind == kind)
}

/// Where effects go.
pub(super) struct Carrier {
    api: Api,
    cancel: CancellationToken,
    recorders: BTreeMap<&'static str, Recorder>,
    writers: JoinSet<()>,
}

impl Carrier {
    pub(super) fn new(api: Api, cancel: CancellationToken) -> Self {
        Self {
            api,
            cancel,
            recorders: BTreeMap::new(),
            writers: JoinSet::new(),
        }
    }

    /// Waits until the events that were told are written.
    pub(super) async fn finish(mut self) {
        self.recorders.clear();
        while self.writers.join_next().await.is_some() {}
    }

    /// Carries out effects until the first that cannot be. The objects that changed are put into the view.
    pub(super) async fn carry_out(&mut self, effects: &[Effect], view: &mut Objects) -> Result<Vec<Value>, ApiError> {
        let mut changed = Vec::new();
        for effect in effects {
            match self.one(effect, view).await {
                Ok(Some(object)) => changed.push(object),
                Ok(None) => {}
                Err(error) => {
                    if error.is_conflict() || error.is_not_found() {
                        self.refresh(effect, view).await?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(changed)
    }

    async fn one(&mut self, effect: &Effect, view: &mut Objects) -> Result<Option<Value>, ApiError> {
        let bytes = match effect {
            Effect::Event(event) => {
                self.tell(event);
                return Ok(None);
            }
            Effect::Create(object) => {
                let resource = known(field::kind(object))?;
                self.api.create(resource, field::namespace(object), object).await?
            }
            Effect::Delete { target, grace_seconds } => {
                return self.delete(target, *grace_seconds, view).await;
            }
            Effect::UpdateStatus { target, status } => {
                let found = view.get(&target.kind, &target.namespace, &target.name);
                let Some(mut object) = found.cloned() else {
                    return Ok(None);
                };
                field::set(&mut object, &["status"], status.clone());
                field::set(
                    &mut object,
                    &["metadata", "resourceVersion"],
                    json!(target.resource_version),
                );
                let path = known(&target.kind)?.object(&target.namespace, &target.name);
                self.api.put_path(&format!("{path}/status"), &object).await?
            }
            Effect::Patch { target, patch } => {
                let mut patch = patch.clone();
                field::set(&mut patch, &["metadata", "uid"], json!(target.uid));
                let resource = known(&target.kind)?;
                self.api
                    .merge_patch(resource, &target.namespace, &target.name, None, &patch)
                    .await?
            }
        };
        let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        view.insert(object.clone());
        Ok(Some(object))
    }

    async fn delete(
        &self,
        target: &Target,
        grace_seconds: Option<i64>,
        view: &mut Objects,
    ) -> Result<Option<Value>, ApiError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": target.uid}});
        if let Some(seconds) = grace_seconds {
            field::set(&mut options, &["gracePeriodSeconds"], json!(seconds));
        }
        let resource = known(&target.kind)?;
        let deleted = self
            .api
            .delete_with(resource, &target.namespace, &target.name, &options)
            .await;
        let key = Key::new(&target.kind, &target.namespace, &target.name);
        let answer = match deleted {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            Err(error) if error.is_not_found() => Value::Null,
            Err(error) => return Err(error),
        };
        let grace = field::count(&answer, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        let stays = field::kind(&answer) == target.kind
            && (grace > 0 || !field::items(&answer, "/metadata/finalizers").is_empty());
        if stays {
            view.insert(answer.clone());
            return Ok(Some(answer));
        }
        Ok(view.remove(&key))
    }

    /// Puts into the view what the API server has, so that the next step does not meet the same again.
    async fn refresh(&self, effect: &Effect, view: &mut Objects) -> Result<(), ApiError> {
        let key = match effect {
            Effect::Create(object) => Key::of(object),
            Effect::Delete { target, .. } | Effect::UpdateStatus { target, .. } | Effect::Patch { target, .. } => {
                Key::new(&target.kind, &target.namespace, &target.name)
            }
            Effect::Event(_) => return Ok(()),
        };
        let found = self.api.get(known(&key.kind)?, &key.namespace, &key.name).await?;
        view.remove(&key);
        if let Some(bytes) = found {
            view.insert(serde_json::from_slice(&bytes).unwrap_or_default());
        }
        Ok(())
    }

    fn tell(&mut self, event: &Event) {
        let about = &event.regarding;
        let recorder = self.recorders.entry(event.source).or_insert_with(|| {
            let (recorder, writer) = recorder(self.api.clone(), event.source, "berth");
            self.writers.spawn(writer.run(self.cancel.clone()));
            recorder
        });
        recorder.tell(effect::Event {
            about: effect::Target {
                api_version: Cow::Owned(about.api_version.clone()),
                key: effect::ObjectKey::new(about.kind.clone(), &about.namespace, &about.name),
                uid: about.uid.clone(),
                resource_version: about.resource_version.clone(),
            },
            event_type: match event.event_type {
                EventType::Normal => effect::EventType::Normal,
                EventType::Warning => effect::EventType::Warning,
            },
            reason: event.reason,
            message: event.message.clone(),
            source: Cow::Borrowed(event.source),
        });
    }
}

fn known(kind: &str) -> Result<Resource, ApiError> {
    resource_of(kind).ok_or_else(|| ApiError::Malformed {
        path: kind.to_owned(),
        problem: "no embedded step writes this kind".to_owned(),
    })
}
