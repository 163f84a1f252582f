//! Calls the backend and carries out effects.

use super::backend::Backend;
use super::capacity::{CapacityForm, CapacityOptions, Publication};
use super::metrics::{CallLabel, CallLabels, EffectLabels, Metrics};
use crate::api::{Api, ApiError};
use crate::recorder::Recorder;
use crate::resource::Resource;
use berth_core::api::{Kind, Object};
use berth_core::{effect, names};
use berth_provisioner::answer::{Answer, conclude, refused};
use berth_provisioner::capacity::pools::{self, Pool, PoolClass, PoolNodes};
use berth_provisioner::capacity::{Available, CapacityEffect, Query};
use berth_provisioner::effect::{Change, Effect, Event, EventType, Target};
use berth_provisioner::request::{Backing, FailureKind, Request};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::Attempt;
use bytes::Bytes;
use serde_json::{Value, json};
use std::borrow::Cow;
use tokio::time::Instant;

/// How often a change is made anew on an object that others keep changing, before it waits its turn again.
const CONFLICTS: usize = 5;

/// What is known after a worker has finished.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Objects as the API server answered.
    pub(super) fresh: Vec<Object>,
    /// Claims and volumes that turned out to be gone.
    pub(super) gone: Vec<Target>,
    /// The same must be tried again later.
    pub(super) retry: bool,
    /// The reason is that the API server is away or out of order.
    pub(super) outage: bool,
    /// What the backend answered, if it made no volume.
    pub(super) failure: Option<FailureKind>,
}

/// Why a list of effects ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// What was decided on is not so any more.
    Stale,
    /// The API server refused or was not reached.
    Api(ApiError),
    /// The backend did not delete a volume.
    Backend(String),
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

/// What effects are carried out with.
#[derive(Clone)]
pub(super) struct Executor {
    pub(super) api: Api,
    pub(super) recorder: Recorder,
    pub(super) backend: Backend,
    pub(super) metrics: Metrics,
}

/// One run of a worker.
struct Run<'a> {
    executor: &'a Executor,
    outcome: Outcome,
    /// The object that was changed last, as the server answered: the next change need not read it again.
    changed: Option<(Target, Bytes)>,
}

impl Executor {
    /// Asks the backend for a volume and does what follows. Some backends have answered already.
    pub(super) async fn attempt(&self, attempt: &Attempt, answer: Option<Answer>, settings: &Settings) -> Outcome {
        let mut run = Run::new(self);
        if let Err(stop) = run.carry_out(&attempt.before).await {
            return run.end(&stop);
        }
        let answer = match answer {
            Some(answer) => {
                self.count_answer(&answer, Instant::now());
                answer
            }
            None => self.create(&attempt.request).await,
        };
        run.outcome.failure = answer.as_ref().err().map(|failure| failure.kind);
        let conclusion = conclude(attempt, &answer, settings);
        run.outcome.retry = conclusion.retry;
        let Err(stop) = run.carry_out(&conclusion.effects).await else {
            return run.outcome;
        };
        // An object that the server will never take must not leave its volume behind.
        if let (Stop::Api(ApiError::Refused { code: 422, message, .. }), Ok(volume)) = (&stop, &answer) {
            let conclusion = refused(attempt, volume, message);
            if run.carry_out(&conclusion.effects).await.is_ok() {
                run.outcome.retry = conclusion.retry;
                return run.outcome;
            }
        }
        run.end(&stop)
    }

    /// Carries out effects that ask no backend for a volume. Tells `failed` if it does not delete one.
    pub(super) async fn act(
        &self,
        effects: &[Effect],
        retry: bool,
        failed: impl FnOnce(&str) -> Option<Event>,
    ) -> Outcome {
        let mut run = Run::new(self);
        run.outcome.retry = retry;
        match run.carry_out(effects).await {
            Ok(()) => run.outcome,
            Err(stop) => {
                if let Stop::Backend(problem) = &stop
                    && let Some(event) = failed(problem)
                {
                    self.emit(event);
                }
                run.end(&stop)
            }
        }
    }

    async fn create(&self, request: &Request) -> Answer {
        let started = Instant::now();
        let answer = self.backend.create(request, &self.api).await;
        self.count_answer(&answer, started);
        answer
    }

    fn count_answer(&self, answer: &Answer, started: Instant) {
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

    async fn delete(&self, backing: &Backing) -> Result<(), Stop> {
        let started = Instant::now();
        let deleted = self.backend.delete(backing, &self.api).await;
        let result = if deleted.is_ok() { "ok" } else { "error" };
        self.count_call("DeleteVolume", result, started);
        deleted.map_err(Stop::Backend)
    }

    /// Asks the backend for free space.
    pub(super) async fn capacity(
        &self,
        query: &Query,
        class: Option<&berth_core::api::StorageClass>,
    ) -> Option<Available> {
        let started = Instant::now();
        let asked = self.backend.capacity(query, class).await;
        let result = if asked.is_ok() { "ok" } else { "error" };
        self.count_call("GetCapacity", result, started);
        if let Err(problem) = &asked {
            tracing::warn!(class = query.item.class, segment = ?query.item.segment, problem, "capacity is not known");
        }
        asked.ok()
    }

    /// Writes published capacity. `false` if it was not written.
    pub(super) async fn publish(&self, options: &CapacityOptions, driver: &str, publication: &Publication) -> bool {
        let (name, result) = match publication {
            Publication::Object(effect) => self.publish_object(&options.namespace, effect).await,
            Publication::Report(class, pool) => {
                let applied = vec![(class.clone(), pool.clone())];
                let report = pools::report(class, pool);
                let written = self
                    .patch_pool(options, driver, (class, &pool.name), &report, &applied)
                    .await;
                ("report_pool", written)
            }
            Publication::Withdraw(class, pool) => {
                let withdrawal = pools::withdraw(class, pool);
                let written = self.patch_pool(options, driver, (class, pool), &withdrawal, &[]).await;
                ("withdraw_pool", written)
            }
        };
        self.count(name, &result);
        if let Err(error) = &result {
            tracing::warn!(%error, "capacity was not written");
        }
        result.is_ok()
    }

    async fn publish_object(&self, namespace: &str, effect: &CapacityEffect) -> (&'static str, Result<(), ApiError>) {
        let resource = Resource::of(Kind::CsiStorageCapacity);
        match effect {
            CapacityEffect::Create(object) => {
                let created = self.api.create(resource, namespace, object).await;
                // Its name says what it is about: one that is there already is the one that was to be made.
                let written = match created {
                    Err(error) if error.is_conflict() => {
                        let name = object["metadata"]["name"].as_str().unwrap_or_default();
                        let patch =
                            json!({"capacity": object["capacity"], "maximumVolumeSize": object["maximumVolumeSize"]});
                        self.api.merge_patch(resource, namespace, name, None, &patch).await
                    }
                    created => created,
                };
                ("create_capacity", written.map(|_| ()))
            }
            CapacityEffect::Update { name, patch } => {
                let patched = self.api.merge_patch(resource, namespace, name, None, patch).await;
                ("update_capacity", patched.map(|_| ()))
            }
            CapacityEffect::Delete { name } => {
                let deleted = self.delete_object(resource, namespace, name, None).await;
                ("delete_capacity", deleted)
            }
        }
    }

    /// Patches one pool of a driver and nothing else. On a custom resource each pool has a field manager of its own.
    async fn patch_pool(
        &self,
        options: &CapacityOptions,
        driver: &str,
        (class, pool): (&PoolClass, &str),
        strategic: &Value,
        applied: &[(PoolClass, Pool)],
    ) -> Result<(), ApiError> {
        let driver = names::driver_object(driver);
        let written = match options.form {
            CapacityForm::Objects => return Ok(()),
            CapacityForm::DriverStatus if options.announce => self.announce(&driver, strategic).await,
            CapacityForm::DriverStatus => self.patch_driver(&driver, strategic).await,
            CapacityForm::CustomResource => {
                let manager: String = format!("berth-{}-{pool}", class.name().trim_matches(['<', '>']));
                let manager: String = manager.chars().take(128).collect();
                let path = format!(
                    "/apis/{}/csidrivercapacities/{driver}?fieldManager={manager}&force=true",
                    pools::CUSTOM_API_VERSION
                );
                let body = pools::apply(&driver, applied);
                self.api.patch_path(&path, "application/apply-patch+yaml", &body).await
            }
        };
        written.map(|_| ())
    }

    async fn patch_driver(&self, driver: &str, patch: &Value) -> Result<Bytes, ApiError> {
        let path = Resource::of(Kind::CsiDriver).object("", driver);
        let content_type = "application/strategic-merge-patch+json";
        self.api
            .patch_path(
                &format!("{path}/status?fieldManager=berth-provisioner"),
                content_type,
                patch,
            )
            .await
    }

    /// Patches a pool of a driver whose object is made where there is none. Classes whose room is not published have no
    /// limit: that is said with every pool, so that there is no moment in which only one of the two is known.
    async fn announce(&self, driver: &str, strategic: &Value) -> Result<Bytes, ApiError> {
        let everywhere = Pool {
            name: "unlimited".to_owned(),
            nodes: PoolNodes::All,
            bytes: i64::MAX,
            expires: None,
        };
        let mut patch = pools::report(&PoolClass::Fallback, &everywhere);
        let storage = |value: &Value| value.pointer("/status/storage").and_then(Value::as_array).cloned();
        if let Some(Value::Array(all)) = patch.pointer_mut("/status/storage") {
            all.extend(storage(strategic).unwrap_or_default());
        }
        match self.patch_driver(driver, &patch).await {
            Err(error) if error.is_not_found() => {}
            patched => return patched,
        }
        let object = pools::driver(driver);
        match self.api.create(Resource::of(Kind::CsiDriver), "", &object).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => self.patch_driver(driver, &patch).await,
        }
    }

    /// Deletes an object. One that is gone, or is another one by now, counts as deleted.
    async fn delete_object(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), ApiError> {
        let Some(bytes) = self.api.get(resource, namespace, name).await? else {
            return Ok(());
        };
        let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        if uid.is_some_and(|uid| uid != text("uid")) {
            return Ok(());
        }
        let deleted = self
            .api
            .delete(resource, namespace, name, &text("uid"), &text("resourceVersion"))
            .await;
        match deleted {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Tells a user, in the recorder's own time.
    pub(super) fn emit(&self, event: Event) {
        let Target {
            kind,
            namespace,
            name,
            uid,
        } = event.about;
        self.recorder.tell(effect::Event {
            about: effect::Target {
                api_version: kind.api_version(),
                key: effect::ObjectKey::new(kind.name(), namespace, name),
                uid,
                resource_version: String::new(),
            },
            event_type: match event.event_type {
                EventType::Normal => effect::EventType::Normal,
                EventType::Warning => effect::EventType::Warning,
            },
            reason: event.reason.name(),
            message: event.message,
            source: Cow::Borrowed(""),
        });
    }

    fn count(&self, effect: &'static str, result: &Result<impl Sized, ApiError>) {
        let result = ApiError::result_label(result);
        let labels = EffectLabels { effect, result };
        self.metrics.effects.get_or_create(&labels).inc();
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

impl<'a> Run<'a> {
    fn new(executor: &'a Executor) -> Self {
        Self {
            executor,
            outcome: Outcome::default(),
            changed: None,
        }
    }

    /// What is known when the list ended early: whatever is left is found by the next step.
    fn end(mut self, stop: &Stop) -> Outcome {
        match stop {
            Stop::Stale => {}
            Stop::Api(error) => tracing::warn!(%error, "an effect was not carried out, trying again"),
            Stop::Backend(problem) => tracing::warn!(problem, "the backend did not delete a volume, trying again"),
        }
        self.outcome.retry = true;
        self.outcome.outage = matches!(stop, Stop::Api(error) if error.is_outage());
        self.outcome
    }

    async fn carry_out(&mut self, effects: &[Effect]) -> Result<(), Stop> {
        for effect in effects {
            match effect {
                Effect::Change(target, change) => self.change(target, change).await?,
                Effect::CreateVolume(object) => self.create_volume(object).await?,
                Effect::DeleteVolume(target) => self.delete_volume(target).await?,
                Effect::DeleteBacking(backing) => self.executor.delete(backing).await?,
                Effect::Emit(event) => self.executor.emit(event.clone()),
            }
        }
        Ok(())
    }

    /// Makes a change on the object as it is now, and again if somebody was faster.
    async fn change(&mut self, target: &Target, change: &Change) -> Result<(), Stop> {
        let api = &self.executor.api;
        let resource = Resource::of(target.kind);
        for _ in 0..CONFLICTS {
            let found = match self.changed.take() {
                Some((changed, bytes)) if changed == *target => Some(bytes),
                _ => api.get(resource, &target.namespace, &target.name).await?,
            };
            let current: Option<Value> = found.as_ref().and_then(|bytes| serde_json::from_slice(bytes).ok());
            let uid = |object: &Value| object["metadata"]["uid"].is_string();
            if found.is_some() && !current.as_ref().is_some_and(uid) {
                return Err(Api::no_object(resource, &target.namespace, &target.name).into());
            }
            let Some(current) = current.filter(|current| current["metadata"]["uid"] == target.uid.as_str()) else {
                self.outcome.gone.push(target.clone());
                return if change.is_moot_without_object() {
                    Ok(())
                } else {
                    Err(Stop::Stale)
                };
            };
            let patch = match change.patch(&current) {
                Ok(Some(patch)) => patch,
                Ok(None) => {
                    self.take(target.kind, &found.unwrap_or_default());
                    return Ok(());
                }
                Err(_) => {
                    self.take(target.kind, &found.unwrap_or_default());
                    return Err(Stop::Stale);
                }
            };
            let patched = api
                .merge_patch(resource, &target.namespace, &target.name, None, &patch)
                .await;
            self.executor.count(change.name(), &patched);
            match patched {
                Ok(bytes) => {
                    self.changed = Some((target.clone(), bytes.clone()));
                    self.take(target.kind, &bytes);
                    return Ok(());
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Stop::Stale)
    }

    async fn create_volume(&mut self, object: &Value) -> Result<(), Stop> {
        let api = &self.executor.api;
        let resource = Resource::of(Kind::PersistentVolume);
        let created = api.create(resource, "", object).await;
        self.executor.count("create_volume", &created);
        match created {
            Ok(bytes) => self.take(Kind::PersistentVolume, &bytes),
            Err(error) if error.is_conflict() => {
                // Written before, and the answer was lost; or it is another's, which the name rules out but for
                // somebody who wants to.
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let bytes = api.get(resource, "", name).await?.ok_or(Stop::Stale)?;
                let found: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let same = ["/spec/claimRef/uid", "/spec/csi/volumeHandle"]
                    .iter()
                    .all(|field| found.pointer(field) == object.pointer(field));
                if !same {
                    return Err(error.into());
                }
                self.take(Kind::PersistentVolume, &bytes);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn delete_volume(&mut self, target: &Target) -> Result<(), Stop> {
        let executor = self.executor;
        let deleted = executor
            .delete_object(
                Resource::of(target.kind),
                &target.namespace,
                &target.name,
                Some(&target.uid),
            )
            .await;
        executor.count("delete_volume", &deleted);
        Ok(deleted?)
    }

    /// Keeps an answer for the state. What cannot be decoded is the watch's to report.
    fn take(&mut self, kind: Kind, bytes: &Bytes) {
        let fresh = match kind {
            Kind::PersistentVolumeClaim => serde_json::from_slice(bytes).ok().map(Object::PersistentVolumeClaim),
            Kind::PersistentVolume => serde_json::from_slice(bytes).ok().map(Object::PersistentVolume),
            _ => None,
        };
        self.outcome.fresh.extend(fresh);
    }
}
