//! Calls the backend, and carries out a provisioner's decisions.
//!
//! The executor carries out effects on the API; a [`Course`] defines their order relative to the calls.

use super::backend::Backend;
use super::metrics::{CallLabel, CallLabels, EffectLabels, Metrics};
use crate::clock::Clock;
use crate::executor::{Answer as Fresh, Executor, Outcome};
use crate::resource::Resource;
use berth_core::api::{Kind, PersistentVolume, StorageClass};
use berth_core::effect::{Effect, ObjectKey};
use berth_provisioner::answer::Answer;
use berth_provisioner::capacity::{Available, Query};
use berth_provisioner::course::{Course, Ended, Next, Stop};
use berth_provisioner::request::{Backing, FailureKind, Request};
use berth_provisioner::source::{Looked, Lookup};
use bytes::Bytes;
use tokio::time::Instant;

/// What actions are carried out with.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) executor: Executor,
    pub(super) backend: Backend,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
}

impl Worker {
    pub(super) fn new(executor: Executor, backend: Backend, metrics: Metrics, clock: Clock) -> Self {
        let counted = metrics.clone();
        let executor = executor.counting(move |effect, result| {
            let effect = name(effect);
            counted.effects.get_or_create(&EffectLabels { effect, result }).inc();
        });
        Self {
            executor,
            backend,
            metrics,
            clock,
        }
    }

    /// Runs a course to its end. `key` is its object.
    pub(super) async fn run(&self, key: &ObjectKey, mut course: Course) -> (Outcome, Ended) {
        let mut outcome = Outcome::default();
        let ended = loop {
            match course.next() {
                Next::Write(effects) => {
                    let written = self.executor.carry_out(&effects).await;
                    let refusal = written.refused.as_ref().map(|refused| refused.refusal.clone());
                    course.written(refusal, || written.fresh.last().and_then(Fresh::object));
                    outcome.continued(written);
                }
                Next::Ask(request) => {
                    let answer = self.create(request).await;
                    course.answered(answer);
                }
                Next::Capacity(query) => {
                    let available = self.capacity(query, None).await;
                    course.has_room(available.as_ref());
                }
                Next::Expand(expansion) => {
                    let expanded = self.backend.expand(expansion);
                    course.expanded(expanded);
                }
                Next::Delete(backing) => course.deleted(self.delete(&backing).await),
                Next::Look(lookup) => course.looked(self.look(&lookup).await),
                Next::Find(volume) => course.found(self.find(&volume).await.as_ref()),
                Next::End(ended) => break ended,
            }
        };
        match &ended.stop {
            Some(Stop::NotDeleted(problem)) => {
                tracing::warn!(problem, "the backend did not delete a volume, retrying");
            }
            Some(Stop::NotRead(problem)) => {
                tracing::warn!(problem, "could not read a snapshot, retrying");
            }
            Some(Stop::NoClaim) => {
                tracing::warn!("the API server returned something other than a claim, retrying");
            }
            Some(Stop::Refused(_)) | None => {}
        }
        let is_fresh = outcome.fresh.iter().any(|answer| answer.key == *key);
        // The loop delays a key whose effects were refused.
        if !ended.is_refused(is_fresh) {
            outcome.refused = None;
            outcome
                .again
                .extend(ended.again(is_fresh).map(|when| (key.clone(), when)));
        }
        (outcome, ended)
    }

    /// The object of a volume.
    async fn find(&self, key: &ObjectKey) -> Option<PersistentVolume> {
        let volumes = Resource::of(Kind::PersistentVolume);
        let found = self.executor.api().get(volumes, "", &key.name).await;
        serde_json::from_slice(&found.ok()??).ok()
    }

    /// Reads objects that are not watched.
    async fn look(&self, lookup: &Lookup) -> Looked {
        let kind = match lookup {
            Lookup::One(key) => key.kind.as_ref(),
            Lookup::All { kind, .. } => kind,
        };
        let resource = Resource::named(kind).ok_or_else(|| format!("{kind} cannot be read"))?;
        let api = self.executor.api();
        let found = match lookup {
            Lookup::One(key) => api.get(resource, &key.namespace, &key.name).await,
            Lookup::All { namespace, .. } => api.get_path(&resource.collection(Some(namespace))).await.map(Some),
        };
        let found = found.map_err(|error| error.to_string())?;
        let decode = |bytes: Bytes| serde_json::from_slice(&bytes).map_err(|error| format!("{kind}: {error}"));
        found.map(decode).transpose()
    }

    async fn create(&self, request: &Request) -> Answer {
        let started = Instant::now();
        let answer = self.backend.create(request, self.executor.api()).await;
        self.count_answer(&answer, started);
        answer
    }

    pub(super) fn count_answer(&self, answer: &Answer, started: Instant) {
        let result = match answer {
            Ok(_) => "ok",
            Err(failure) => match failure.kind {
                FailureKind::Final => "final",
                FailureKind::InDoubt | FailureKind::Unclear => "in_doubt",
                FailureKind::NotAsked => "not_asked",
            },
        };
        self.count_call("CreateVolume", result, started);
    }

    async fn delete(&self, backing: &Backing) -> Result<(), String> {
        let started = Instant::now();
        let deleted = self.backend.delete(backing, self.executor.api()).await;
        let result = if deleted.is_ok() { "ok" } else { "error" };
        self.count_call("DeleteVolume", result, started);
        deleted
    }

    /// Queries the backend for free space.
    pub(super) async fn capacity(&self, query: &Query, class: Option<&StorageClass>) -> Option<Available> {
        let started = Instant::now();
        let asked = self.backend.capacity(query, class).await;
        let result = if asked.is_ok() { "ok" } else { "error" };
        self.count_call("GetCapacity", result, started);
        if let Err(problem) = &asked {
            tracing::warn!(class = query.item.class, segment = ?query.item.segment, problem, "capacity is unknown");
        }
        asked.ok()
    }

    fn count_call(&self, call: &'static str, result: &'static str, started: Instant) {
        self.metrics.calls.get_or_create(&CallLabels { call, result }).inc();
        let seconds = started.elapsed().as_secs_f64();
        self.metrics
            .call_seconds
            .get_or_create(&CallLabel { call })
            .observe(seconds);
    }
}

/// The name of an effect in metrics.
fn name(effect: &Effect) -> &'static str {
    let is_volume = |key: &ObjectKey| key.kind == Kind::PersistentVolume.name();
    let on_volume = effect.writes_to().is_some_and(|key| is_volume(&key));
    match effect {
        Effect::Create(_) if on_volume => "create_volume",
        Effect::Create(_) => "create_capacity",
        Effect::Delete(_) if on_volume => "delete_volume",
        Effect::Delete(_) => "delete_capacity",
        other => other.name(),
    }
}
