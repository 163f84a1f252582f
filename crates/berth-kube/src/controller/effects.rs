//! Carries out the effects of one step, in order.

use super::metrics::{EffectLabels, Metrics};
use crate::api::{Api, ApiError};
use crate::recorder::Recorder;
use crate::resource::Resource;
use berth_controller::{Change, Confirmation, Effect, Event, EventType, Key, Reason, Target, Write, ephemeral};
use berth_core::api::{Kind, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// An object as the API server answered.
#[derive(Debug)]
pub(super) enum Fresh {
    Claim(Box<PersistentVolumeClaim>),
    Volume(Box<PersistentVolume>),
}

/// What to do after the effects.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing.
    Done,
    /// The same step again, a little later.
    Again {
        /// Why, for the log; nothing if it is all in a day's work.
        problem: Option<ApiError>,
    },
}

/// How the effects of a step went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) fresh: Vec<Fresh>,
    pub(super) requeue: Vec<Key>,
    pub(super) next: Next,
}

/// Why the list of effects ended early.
enum Stop {
    /// What was decided on is not so.
    Stale,
    /// The step wants to be run again.
    Retry,
    /// The API server refused or was not reached.
    Failed(ApiError),
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    metadata: IdentityMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IdentityMeta {
    uid: String,
    resource_version: String,
}

/// What effects are carried out with.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) api: Api,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
}

/// One run through a list of effects.
struct Run<'a> {
    executor: &'a Executor,
    fresh: Vec<Fresh>,
    requeue: Vec<Key>,
    /// The versions that earlier writes of this list left.
    versions: Vec<(Kind, String, String, String)>,
}

impl Executor {
    /// Carries out effects until the first that cannot be.
    pub(super) async fn execute(&self, effects: Vec<Effect>) -> Outcome {
        let mut run = Run {
            executor: self,
            fresh: Vec::new(),
            requeue: Vec::new(),
            versions: Vec::new(),
        };
        let mut next = Next::Done;
        for effect in effects {
            let problem = match run.carry_out(effect).await {
                Ok(()) => continue,
                Err(Stop::Stale | Stop::Retry) => None,
                Err(Stop::Failed(error)) if error.is_conflict() || error.is_not_found() => None,
                Err(Stop::Failed(error)) => Some(error),
            };
            next = Next::Again { problem };
            break;
        }
        Outcome {
            fresh: run.fresh,
            requeue: run.requeue,
            next,
        }
    }

    /// Tells a user, in the recorder's own time.
    pub(super) fn emit(&self, event: Event) {
        if event.reason == Reason::DelayedBindingUnavailable {
            self.metrics.undelayed.inc();
        }
        let about = event.about;
        self.recorder.tell(effect::Event {
            about: effect::Target {
                api_version: about.kind.api_version(),
                key: effect::ObjectKey::new(about.kind.name(), about.namespace, about.name),
                uid: about.uid,
                resource_version: about.resource_version,
            },
            event_type: match event.event_type {
                EventType::Normal => effect::EventType::Normal,
                EventType::Warning => effect::EventType::Warning,
            },
            reason: event.reason.as_str(),
            message: event.message,
            source: "".into(),
        });
    }

    fn count(&self, effect: &'static str, result: &Result<impl Sized, ApiError>) {
        let result = ApiError::result_label(result);
        self.metrics
            .effects
            .get_or_create(&EffectLabels { effect, result })
            .inc();
    }
}

impl Run<'_> {
    async fn carry_out(&mut self, effect: Effect) -> Result<(), Stop> {
        match effect {
            Effect::Confirm(confirmation) => self.confirm(&confirmation).await,
            Effect::Write(write) => self.write(&write).await,
            Effect::Delete(target) => self.delete(&target).await,
            Effect::CreateClaim { pod, volume, .. } => self.create_claim(&pod, &volume).await,
            Effect::Emit(event) => {
                self.executor.emit(event);
                Ok(())
            }
            Effect::Requeue(key) => {
                self.requeue.push(key);
                Ok(())
            }
            Effect::Retry => Err(Stop::Retry),
        }
    }

    async fn confirm(&mut self, confirmation: &Confirmation) -> Result<(), Stop> {
        let api = &self.executor.api;
        let claims = Resource::of(Kind::PersistentVolumeClaim);
        let holds = match confirmation {
            Confirmation::ClaimGone { claim, uid } => {
                let found = api.get(claims, &claim.namespace, &claim.name).await?;
                let found = found.map(|bytes| self.take(Kind::PersistentVolumeClaim, &bytes).uid);
                match found {
                    None => true,
                    Some(found) if found.is_empty() => {
                        return Err(Api::no_object(claims, &claim.namespace, &claim.name).into());
                    }
                    // One of another uid is another claim.
                    Some(found) => found != *uid,
                }
            }
            Confirmation::VolumeGone { volume } => {
                let found = api.get(Resource::of(Kind::PersistentVolume), "", volume).await?;
                if let Some(bytes) = &found {
                    self.take(Kind::PersistentVolume, bytes);
                }
                found.is_none()
            }
            Confirmation::Unchanged(target) => {
                let found = api
                    .get(Resource::of(target.kind), &target.namespace, &target.name)
                    .await?;
                found.is_some_and(|bytes| self.take(target.kind, &bytes).resource_version == target.resource_version)
            }
            Confirmation::ClaimUnused { claim } => !self.is_used(&claim.namespace, &claim.name).await?,
        };
        if holds { Ok(()) } else { Err(Stop::Stale) }
    }

    /// Whether a pod with a node uses the claim, as the API server knows it now.
    async fn is_used(&self, namespace: &str, claim: &str) -> Result<bool, ApiError> {
        #[derive(Deserialize)]
        struct Pods {
            items: Option<Vec<berth_core::api::Pod>>,
        }
        let path = Resource::of(Kind::Pod).collection(Some(namespace));
        let bytes = self.executor.api.get_path(&path).await?;
        let pods: Pods = serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed {
            path,
            problem: error.to_string(),
        })?;
        let uses = |pod: &berth_core::api::Pod| {
            pod.spec.volumes.iter().any(|volume| {
                let named = volume
                    .persistent_volume_claim
                    .as_ref()
                    .map(|source| source.claim_name == claim);
                let own =
                    volume.ephemeral.is_some() && ephemeral::claim_name(&pod.metadata.name, &volume.name) == claim;
                named.unwrap_or(own)
            })
        };
        let mut placed = pods.items.unwrap_or_default().into_iter();
        Ok(placed.any(|pod| !pod.spec.node_name.is_empty() && uses(&pod)))
    }

    async fn write(&mut self, write: &Write) -> Result<(), Stop> {
        let target = &write.target;
        let patch = write.guarded_patch(self.version_of(target));
        let resource = Resource::of(target.kind);
        let subresource = write.change.subresource();
        let api = &self.executor.api;
        let result = api
            .merge_patch(resource, &target.namespace, &target.name, subresource, &patch)
            .await;
        self.executor.count(write.change.name(), &result);
        match result {
            Ok(bytes) => {
                let version = self.take(target.kind, &bytes).resource_version;
                let (kind, namespace, name) = (target.kind, target.namespace.clone(), target.name.clone());
                self.versions.push((kind, namespace, name, version));
                if let Change::ClaimStatus { phase: "Bound", .. } = write.change {
                    self.executor.metrics.bound.inc();
                }
                Ok(())
            }
            Err(error) => {
                if error.is_conflict() {
                    // The next step shall not run into the same again, however far the watch lags behind.
                    self.refresh(target).await?;
                }
                Err(error.into())
            }
        }
    }

    async fn refresh(&mut self, target: &Target) -> Result<(), ApiError> {
        let resource = Resource::of(target.kind);
        if let Some(bytes) = self.executor.api.get(resource, &target.namespace, &target.name).await? {
            self.take(target.kind, &bytes);
        }
        Ok(())
    }

    fn version_of<'a>(&'a self, target: &'a Target) -> &'a str {
        let written = self.versions.iter().rev().find(|(kind, namespace, name, _)| {
            *kind == target.kind && *namespace == target.namespace && *name == target.name
        });
        written.map_or(target.resource_version.as_str(), |(.., version)| version)
    }

    /// Keeps an answer for the state, and says which object it is. What cannot be decoded is the watch's to report.
    fn take(&mut self, kind: Kind, bytes: &Bytes) -> IdentityMeta {
        let fresh = match kind {
            Kind::PersistentVolumeClaim => serde_json::from_slice(bytes).ok().map(Fresh::Claim),
            Kind::PersistentVolume => serde_json::from_slice(bytes).ok().map(Fresh::Volume),
            _ => None,
        };
        let Some(fresh) = fresh else {
            return serde_json::from_slice::<Identity>(bytes).unwrap_or_default().metadata;
        };
        let metadata = match &fresh {
            Fresh::Claim(claim) => &claim.metadata,
            Fresh::Volume(volume) => &volume.metadata,
        };
        let identity = IdentityMeta {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        };
        self.fresh.push(fresh);
        identity
    }

    async fn delete(&mut self, target: &Target) -> Result<(), Stop> {
        let version = self.version_of(target).to_owned();
        let resource = Resource::of(target.kind);
        let api = &self.executor.api;
        let result = api
            .delete(resource, &target.namespace, &target.name, &target.uid, &version)
            .await;
        self.executor.count("delete", &result);
        match result {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.is_conflict() => {
                self.refresh(target).await?;
                Err(error.into())
            }
            other => Ok(other?),
        }
    }

    async fn create_claim(&mut self, pod: &Target, volume: &str) -> Result<(), Stop> {
        let api = &self.executor.api;
        let found = api.get(Resource::of(Kind::Pod), &pod.namespace, &pod.name).await?;
        let object: Value = found
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .filter(|object: &Value| object["metadata"]["uid"] == pod.uid.as_str())
            .ok_or(Stop::Stale)?;
        let claim = ephemeral::claim_of(&object, volume).ok_or(Stop::Stale)?;
        let claims = Resource::of(Kind::PersistentVolumeClaim);
        let result = api.create(claims, &pod.namespace, &claim).await;
        self.executor.count("create_claim", &result);
        match result {
            Ok(_) => Ok(()),
            // Whose it is, the next step finds out.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => {
                self.executor.emit(Event {
                    about: pod.clone(),
                    event_type: EventType::Warning,
                    reason: Reason::FailedBinding,
                    message: format!(
                        "ephemeral volume {volume}: create PVC {}: {error}",
                        claim["metadata"]["name"]
                    ),
                });
                Err(error.into())
            }
        }
    }
}
