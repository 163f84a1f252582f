//! Carries out effects on an API server.
//!
//! This is the one place where a decision becomes requests. It decides nothing and knows none of those who do: it obeys the
//! guards of an [`Effect`], goes on from the version that an earlier write of the same list left, and tells what it heard.
//! A write whose answer was lost is looked for on the server before it counts as failed.

use crate::api::{Api, ApiError};
use crate::recorder::Recorder;
use crate::resource::{Resource, decode};
use berth_core::api::{Kind, Object, Pod};
use berth_core::effect::{Delete, Effect, Event, Fact, Guard, Merge, ObjectKey, Patch, Refusal, Target, When};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An object as the API server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The object.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The whole of it, as JSON.
    pub body: Bytes,
}

impl Answer {
    /// The object as a type of Berth. Nothing if it is of another kind or cannot be decoded: that is the watch's to report.
    #[must_use]
    pub fn object(&self) -> Option<Object> {
        decode(self.key.known_kind()?, &self.body).ok()
    }

    /// The object with all of its fields.
    #[must_use]
    pub fn value(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// An object that turned out not to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The object.
    pub key: ObjectKey,
    /// The uid of the one that is gone; empty if there is none of this name at all.
    pub uid: String,
}

/// Why a list of effects ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the effect met.
    pub refusal: Refusal,
    /// The API server is away or out of order: others fail the same way now, and go through when it is back.
    pub outage: bool,
    /// The namespace of the object is being deleted and takes nothing new: there is nothing to do about it.
    pub namespace_ends: bool,
}

/// How a list of effects went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many effects of the list were carried out.
    pub done: usize,
    /// Objects that were written or read, in order: of several answers about one object the last is the newest.
    pub fresh: Vec<Answer>,
    /// Objects that turned out to be gone.
    pub gone: Vec<Gone>,
    /// Steps to be run again.
    pub again: Vec<(ObjectKey, When)>,
    /// What ended the list; nothing if all of it was carried out.
    pub refused: Option<Refused>,
}

impl Outcome {
    /// Goes on with what came of the next list.
    pub(crate) fn continued(&mut self, next: Self) {
        self.done += next.done;
        self.fresh.extend(next.fresh);
        self.gone.extend(next.gone);
        self.again.extend(next.again);
        self.refused = next.refused;
    }
}

/// Hears of every write: the effect, `ok`, `conflict`, `not_found` or `error`, and how long it took.
type Hook = Arc<dyn Fn(&Effect, &'static str, Duration) + Send + Sync>;

/// What effects are carried out with. Clones share everything.
#[derive(Clone)]
pub struct Executor {
    api: Api,
    recorder: Recorder,
    hook: Hook,
}

impl Executor {
    /// An executor that writes by this client and tells events by this recorder.
    #[must_use]
    pub fn new(api: Api, recorder: Recorder) -> Self {
        Self {
            api,
            recorder,
            hook: Arc::new(|_, _, _| {}),
        }
    }

    /// Tells `hook` of every write: the effect, its result as a label of a metric, and how long it took.
    #[must_use]
    pub fn counting(mut self, hook: impl Fn(&Effect, &'static str, Duration) + Send + Sync + 'static) -> Self {
        self.hook = Arc::new(hook);
        self
    }

    /// The client.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Puts down an event, to be written soon.
    pub fn tell(&self, event: Event) {
        self.recorder.tell(event);
    }

    /// Carries out effects in order, until the first that is refused.
    pub async fn carry_out(&self, effects: &[Effect]) -> Outcome {
        let mut run = Run {
            executor: self,
            outcome: Outcome::default(),
            written: Vec::new(),
        };
        for effect in effects {
            if let Err(refused) = run.carry_out(effect).await {
                run.outcome.refused = Some(refused);
                break;
            }
            run.outcome.done += 1;
        }
        run.outcome
    }
}

/// One run through a list of effects.
struct Run<'a> {
    executor: &'a Executor,
    outcome: Outcome,
    /// The versions that earlier writes of this list left.
    written: Vec<(ObjectKey, String)>,
}

/// What every object has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Identity {
    kind: String,
    metadata: IdentityMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IdentityMeta {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
}

impl IdentityMeta {
    /// Whether a deleted object is still there, for its finalizers or for the time that it may take.
    fn stays(&self) -> bool {
        let held = self.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        held || self.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0)
    }
}

impl Run<'_> {
    async fn carry_out(&mut self, effect: &Effect) -> Result<(), Refused> {
        let begun = Instant::now();
        let result = match effect {
            Effect::Confirm(fact) => return self.confirm(fact).await,
            Effect::Event(event) => {
                self.executor.tell(event.clone());
                return Ok(());
            }
            Effect::LookAgain { key, when } => {
                self.outcome.again.push((key.clone(), *when));
                return Ok(());
            }
            Effect::Create(object) => self.create(object).await,
            Effect::Patch(patch) => self.patch(patch).await,
            Effect::Delete(delete) => self.delete(delete).await,
            Effect::Bind { pod, node } => self.bind(pod, node).await,
        };
        (self.executor.hook)(effect, result_label(&result), begun.elapsed());
        result
    }

    async fn confirm(&mut self, fact: &Fact) -> Result<(), Refused> {
        let holds = match fact {
            Fact::Gone { key, uid } => match self.read(key).await? {
                None => true,
                // One of another uid is another object.
                Some(found) => !uid.is_empty() && found.metadata.uid != *uid,
            },
            Fact::Unchanged(target) => {
                let version = self.version_of(target).to_owned();
                let same = |known: &str, found: &str| known.is_empty() || known == found;
                self.read(&target.key).await?.is_some_and(|Identity { metadata, .. }| {
                    same(&target.uid, &metadata.uid) && same(&version, &metadata.resource_version)
                })
            }
            Fact::ClaimUnused { claim } => !self.is_used(claim).await?,
        };
        if holds { Ok(()) } else { Err(certain(Refusal::Stale)) }
    }

    /// Whether a pod keeps the claim from going, as the API server knows it now.
    async fn is_used(&self, claim: &ObjectKey) -> Result<bool, Refused> {
        #[derive(Deserialize)]
        struct Pods {
            kind: String,
            items: Option<Vec<Pod>>,
        }
        let pods = Resource::of(Kind::Pod);
        let path = pods.collection(Some(&claim.namespace));
        let failed = |error: ApiError| refused(claim, pods, &error);
        let bytes = self.executor.api.get_path(&path).await.map_err(failed)?;
        let pods = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        let pods = pods.and_then(|pods: Pods| match pods.kind.as_str() {
            "PodList" => Ok(pods),
            kind => Err(format!("the answer is no list of pods but {kind:?}")),
        });
        let pods = pods.map_err(|problem| failed(ApiError::Malformed { path, problem }))?;
        let mut pods = pods.items.unwrap_or_default().into_iter();
        Ok(pods.any(|pod| pod.holds_claim(&claim.name)))
    }

    async fn create(&mut self, object: &Value) -> Result<(), Refused> {
        let target = Target::of_value(object);
        let key = &target.key;
        let resource = resource_of(key)?;
        let created = self.executor.api.create(resource, &key.namespace, object).await;
        let error = match created.and_then(|bytes| self.take_written(key, resource, &bytes)) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if error.is_in_doubt()
            && let Ok(Some(found)) = self.read_value(key, resource).await
        {
            return if Merge::Strategic.is_made(&found, object) {
                Ok(())
            } else {
                Err(certain(Refusal::AlreadyExists(key.clone())))
            };
        }
        if error.is_already_exists() {
            return Err(certain(Refusal::AlreadyExists(key.clone())));
        }
        match error.missing_namespace() {
            Some(name) => Err(certain(Refusal::NotFound(ObjectKey::new(
                Kind::Namespace.name(),
                "",
                name,
            )))),
            None => Err(refused(key, resource, &error)),
        }
    }

    async fn patch(&mut self, patch: &Patch) -> Result<(), Refused> {
        let key = &patch.target.key;
        let resource = resource_of(key)?;
        let body = self.guarded(patch);
        let name = (key.namespace.as_str(), key.name.as_str());
        let api = &self.executor.api;
        let patched = api.patch(resource, name, patch.subresource, patch.merge, &body).await;
        match patched.and_then(|bytes| self.take_written(key, resource, &bytes)) {
            Ok(()) => Ok(()),
            Err(error) => {
                let made = |found: &Value| patch.merge.is_made(found, &patch.body);
                self.look_after(&patch.target, resource, &error, made).await
            }
        }
    }

    async fn bind(&mut self, pod: &Target, node: &str) -> Result<(), Refused> {
        let key = &pod.key;
        let resource = resource_of(key)?;
        let mut metadata = json!({"namespace": key.namespace, "name": key.name});
        if let (false, Value::Object(fields)) = (pod.uid.is_empty(), &mut metadata) {
            fields.insert("uid".to_owned(), json!(pod.uid));
        }
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let api = &self.executor.api;
        let bound = api
            .post_subresource(resource, &key.namespace, &key.name, "binding", &binding)
            .await;
        match bound {
            Ok(_) => Ok(()),
            Err(error) => {
                let made = |found: &Value| found.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
                self.look_after(pod, resource, &error, made).await
            }
        }
    }

    async fn delete(&mut self, delete: &Delete) -> Result<(), Refused> {
        let target = &delete.target;
        let key = &target.key;
        let resource = resource_of(key)?;
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Value::Object(options) = &mut options {
            let preconditions = self.preconditions(target, delete.guard);
            options.insert("preconditions".to_owned(), Value::Object(preconditions));
            if let Some(seconds) = delete.grace_seconds {
                options.insert("gracePeriodSeconds".to_owned(), json!(seconds));
            }
        }
        let api = &self.executor.api;
        let deleted = api.delete_with(resource, &key.namespace, &key.name, &options).await;
        let refused = match deleted {
            Ok(bytes) => {
                let found: Identity = serde_json::from_slice(&bytes).unwrap_or_default();
                if found.kind == key.kind && found.metadata.stays() {
                    self.keep(key, &found.metadata, &bytes);
                    self.written.push((key.clone(), found.metadata.resource_version));
                } else {
                    self.find_gone(target);
                }
                return Ok(());
            }
            Err(error) => {
                // One that is going already was to go sooner: that it goes does not tell whether it heard of that.
                let at = |found: &Value, path: &str| found.pointer(path).and_then(Value::as_i64).unwrap_or_default();
                let is_soon = |found: &Value, seconds| at(found, "/metadata/deletionGracePeriodSeconds") <= seconds;
                let made = |found: &Value| {
                    found.pointer("/metadata/deletionTimestamp").is_some()
                        && delete.grace_seconds.is_none_or(|seconds| is_soon(found, seconds))
                };
                self.look_after(target, resource, &error, made).await
            }
        };
        match refused {
            // It was to go, and is gone.
            Err(Refused {
                refusal: Refusal::NotFound(_),
                ..
            }) => Ok(()),
            other => other,
        }
    }

    /// Finds out how things stand after a write failed. One whose answer was lost may have been made: taken for failed, the next
    /// decision could be another one, and then meet what this one did. And what was refused for the object's sake
    /// must not be decided again on what is known of it, however far the watch lags behind.
    async fn look_after(
        &mut self,
        target: &Target,
        resource: Resource,
        error: &ApiError,
        made: impl Fn(&Value) -> bool,
    ) -> Result<(), Refused> {
        let key = &target.key;
        let refusal = refused(key, resource, error);
        if matches!(refusal.refusal, Refusal::NotFound(_)) {
            self.find_gone(target);
            return Err(refusal);
        }
        let telling = error.is_in_doubt() || matches!(refusal.refusal, Refusal::Conflict(_) | Refusal::Invalid { .. });
        if !telling {
            return Err(refusal);
        }
        // If the server does not even answer that, the refusal stands as it is.
        let Ok(found) = self.read_value(key, resource).await else {
            return Err(refusal);
        };
        let found = found.filter(|found| {
            let uid = found.pointer("/metadata/uid").and_then(Value::as_str);
            target.uid.is_empty() || uid == Some(target.uid.as_str())
        });
        let Some(found) = found else {
            self.find_gone(target);
            return Err(certain(Refusal::NotFound(key.clone())));
        };
        if !error.is_in_doubt() || !made(&found) {
            return Err(refusal);
        }
        let version = found.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        self.written.push((key.clone(), version.unwrap_or_default().to_owned()));
        Ok(())
    }

    /// The version that a write to this object goes on from.
    fn version_of<'a>(&'a self, target: &'a Target) -> &'a str {
        let written = self.written.iter().rev().find(|(key, _)| *key == target.key);
        written.map_or(target.resource_version.as_str(), |(_, version)| version)
    }

    fn preconditions(&self, target: &Target, guard: Guard) -> Map<String, Value> {
        let version = match guard {
            Guard::Version => self.version_of(target),
            Guard::Uid => "",
        };
        let fields = [("uid", target.uid.as_str()), ("resourceVersion", version)];
        let known = fields.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(field, value)| (field.to_owned(), json!(value))).collect()
    }

    /// The body of a patch, with what must be true of the object.
    fn guarded(&self, patch: &Patch) -> Value {
        let mut body = patch.body.clone();
        if let Value::Object(fields) = &mut body {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.extend(self.preconditions(&patch.target, patch.guard));
            }
        }
        body
    }

    /// Reads an object and keeps it for the caller.
    async fn read(&mut self, key: &ObjectKey) -> Result<Option<Identity>, Refused> {
        let resource = resource_of(key)?;
        let found = self.executor.api.get(resource, &key.namespace, &key.name).await;
        let Some(bytes) = found.map_err(|error| refused(key, resource, &error))? else {
            return Ok(None);
        };
        match identity(resource, key, &bytes) {
            Ok(found) => {
                self.keep(key, &found.metadata, &bytes);
                Ok(Some(found))
            }
            Err(error) => Err(refused(key, resource, &error)),
        }
    }

    async fn read_value(&mut self, key: &ObjectKey, resource: Resource) -> Result<Option<Value>, ApiError> {
        let api = &self.executor.api;
        let Some(bytes) = api.get(resource, &key.namespace, &key.name).await? else {
            return Ok(None);
        };
        let found = identity(resource, key, &bytes)?;
        self.keep(key, &found.metadata, &bytes);
        Ok(serde_json::from_slice(&bytes).ok())
    }

    /// Takes in what a write answered.
    fn take_written(&mut self, key: &ObjectKey, resource: Resource, bytes: &Bytes) -> Result<(), ApiError> {
        let found = identity(resource, key, bytes)?;
        let goes = found.metadata.deletion_timestamp.is_some() && !found.metadata.stays();
        if goes {
            // Its last finalizer is gone, and so is the object.
            self.outcome.gone.push(Gone {
                key: key.clone(),
                uid: found.metadata.uid,
            });
            return Ok(());
        }
        self.keep(key, &found.metadata, bytes);
        self.written.push((key.clone(), found.metadata.resource_version));
        Ok(())
    }

    fn keep(&mut self, key: &ObjectKey, metadata: &IdentityMeta, bytes: &Bytes) {
        self.outcome.fresh.push(Answer {
            key: key.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            body: bytes.clone(),
        });
    }

    fn find_gone(&mut self, target: &Target) {
        self.outcome.gone.push(Gone {
            key: target.key.clone(),
            uid: target.uid.clone(),
        });
    }
}

/// What every object has. An answer without it is no object, whatever it is: nothing follows from it.
fn identity(resource: Resource, key: &ObjectKey, bytes: &Bytes) -> Result<Identity, ApiError> {
    let found: Option<Identity> = serde_json::from_slice(bytes).ok();
    found
        .filter(|found| !found.metadata.uid.is_empty())
        .ok_or_else(|| Api::no_object(resource, &key.namespace, &key.name))
}

fn resource_of(key: &ObjectKey) -> Result<Resource, Refused> {
    Resource::named(&key.kind).ok_or_else(|| {
        certain(Refusal::Invalid {
            key: key.clone(),
            message: "no component writes objects of this kind".to_owned(),
        })
    })
}

fn certain(refusal: Refusal) -> Refused {
    Refused {
        refusal,
        outage: false,
        namespace_ends: false,
    }
}

fn refused(key: &ObjectKey, resource: Resource, error: &ApiError) -> Refused {
    let (key, message) = (key.clone(), error.to_string());
    let refusal = match error.code() {
        Some(404) if error.is_without(resource, &key.name) => Refusal::NotFound(key),
        Some(409) => Refusal::Conflict(key),
        Some(400 | 405 | 413 | 415 | 422) => Refusal::Invalid { key, message },
        _ => Refusal::Unavailable {
            key,
            message,
            in_doubt: error.is_in_doubt(),
        },
    };
    Refused {
        refusal,
        outage: error.is_outage(),
        namespace_ends: error.is_namespace_terminating(),
    }
}

/// How a write went, as a label of a metric.
fn result_label(result: &Result<(), Refused>) -> &'static str {
    match result.as_ref().map_err(|refused| &refused.refusal) {
        Ok(()) => "ok",
        Err(Refusal::Conflict(_) | Refusal::AlreadyExists(_)) => "conflict",
        Err(Refusal::NotFound(_)) => "not_found",
        Err(Refusal::Stale | Refusal::Invalid { .. } | Refusal::Unavailable { .. }) => "error",
    }
}
