//! Carries out effects on an API server.
//!
//! This is the only place where a decision becomes requests. It makes no decisions and does not depend on those who do: it
//! obeys the guards of an [`Effect`] and reports the responses. [`berth_reconcile::carry_out`] defines how a list is carried
//! out and what happens after a lost response.

use crate::api::{Api, ApiError};
use crate::recorder::Recorder;
use crate::resource::{Resource, decode};
use berth_core::api::{Kind, Object, Pod};
use berth_core::effect::{Delete, Effect, Event, Guard, ObjectKey, Patch, Refusal, Target};
pub use berth_reconcile::Gone;
use berth_reconcile::{Answered, Refused, Server, Version, Written};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// An object in a response of the API server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The object.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The whole object, as JSON.
    pub body: Bytes,
}

impl Answer {
    /// The object as a type of Berth. `None` if it is of another kind or cannot be decoded: the watch reports that.
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

impl Answered for Answer {
    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn version(&self) -> Version {
        Version {
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }

    fn value(&self) -> Option<Cow<'_, Value>> {
        Self::value(self).map(Cow::Owned)
    }
}

/// The result of a list of effects.
pub type Outcome = berth_reconcile::Outcome<Answer>;

/// Called for every write: the effect, and `ok`, `conflict`, `not_found` or `error`.
type Hook = Arc<dyn Fn(&Effect, &'static str) + Send + Sync>;

/// Carries out effects. Clones share everything.
#[derive(Clone)]
pub struct Executor {
    api: Api,
    recorder: Recorder,
    hook: Hook,
}

impl Executor {
    /// An executor that writes with this client and records events with this recorder.
    #[must_use]
    pub fn new(api: Api, recorder: Recorder) -> Self {
        Self {
            api,
            recorder,
            hook: Arc::new(|_, _| {}),
        }
    }

    /// Calls `hook` for every write: the effect, and its result as a metric label.
    #[must_use]
    pub fn counting(mut self, hook: impl Fn(&Effect, &'static str) + Send + Sync + 'static) -> Self {
        self.hook = Arc::new(hook);
        self
    }

    /// The client.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Records an event, to be written soon.
    pub fn tell(&self, event: Event) {
        self.recorder.tell(event);
    }

    /// Carries out effects in order until the first refusal.
    pub async fn carry_out(&self, effects: &[Effect]) -> Outcome {
        berth_reconcile::carry_out(self, effects).await
    }

    async fn create(&self, object: &Value) -> Result<Written<Answer>, Refused> {
        let key = Target::of_value(object).key;
        let resource = resource_of(&key)?;
        let created = self.api.create(resource, &key.namespace, object).await;
        let error = match created.and_then(|bytes| written(&key, resource, bytes)) {
            Ok(written) => return Ok(written),
            Err(error) => error,
        };
        if error.is_already_exists() {
            return Err(Refused::certain(Refusal::AlreadyExists(key)));
        }
        match error.missing_namespace() {
            Some(name) => Err(Refused::certain(Refusal::NotFound(ObjectKey::new(
                Kind::Namespace.name(),
                "",
                name,
            )))),
            None => Err(refused(&key, resource, &error)),
        }
    }

    async fn patch(&self, patch: &Patch, version: &str) -> Result<Written<Answer>, Refused> {
        let key = &patch.target.key;
        let resource = resource_of(key)?;
        let body = guarded(patch, version);
        let name = (key.namespace.as_str(), key.name.as_str());
        let patched = self
            .api
            .patch(resource, name, patch.subresource, patch.merge, &body)
            .await;
        let answer = patched.and_then(|bytes| written(key, resource, bytes));
        answer.map_err(|error| refused(key, resource, &error))
    }

    async fn bind(&self, pod: &Target, node: &str) -> Result<Written<Answer>, Refused> {
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
        let bound = self
            .api
            .post_subresource(resource, &key.namespace, &key.name, "binding", &binding)
            .await;
        match bound {
            Ok(_) => Ok(Written::Made),
            Err(error) => Err(refused(key, resource, &error)),
        }
    }

    async fn delete(&self, delete: &Delete, version: &str) -> Result<Written<Answer>, Refused> {
        let target = &delete.target;
        let key = &target.key;
        let resource = resource_of(key)?;
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Value::Object(options) = &mut options {
            let preconditions = preconditions(target, delete.guard, version);
            options.insert("preconditions".to_owned(), Value::Object(preconditions));
            if let Some(seconds) = delete.grace_seconds {
                options.insert("gracePeriodSeconds".to_owned(), json!(seconds));
            }
        }
        let deleted = self
            .api
            .delete_with(resource, &key.namespace, &key.name, &options)
            .await;
        let bytes = deleted.map_err(|error| refused(key, resource, &error))?;
        let found: Identity = serde_json::from_slice(&bytes).unwrap_or_default();
        if found.kind == key.kind && found.metadata.stays() {
            Ok(Written::Object(found.metadata.answer(key, bytes)))
        } else {
            Ok(Written::Gone(target.uid.clone()))
        }
    }

    /// The pods in the namespace of a claim.
    async fn pods_beside(&self, claim: &ObjectKey) -> Result<Vec<Pod>, Refused> {
        #[derive(Deserialize)]
        struct Pods {
            kind: String,
            items: Option<Vec<Pod>>,
        }
        let pods = Resource::of(Kind::Pod);
        let path = pods.collection(Some(&claim.namespace));
        let failed = |error: ApiError| refused(claim, pods, &error);
        let bytes = self.api.get_path(&path).await.map_err(failed)?;
        let pods = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        let pods = pods.and_then(|pods: Pods| match pods.kind.as_str() {
            "PodList" => Ok(pods),
            kind => Err(format!("the answer is no list of pods but {kind:?}")),
        });
        let pods = pods.map_err(|problem| failed(ApiError::Malformed { path, problem }))?;
        Ok(pods.items.unwrap_or_default())
    }
}

impl Server for Executor {
    type Answer = Answer;

    async fn read(&self, key: &ObjectKey) -> Result<Option<Answer>, Refused> {
        let resource = resource_of(key)?;
        let failed = |error: ApiError| refused(key, resource, &error);
        let found = self.api.get(resource, &key.namespace, &key.name).await;
        let Some(bytes) = found.map_err(failed)? else {
            return Ok(None);
        };
        let found = identity(resource, key, &bytes).map_err(failed)?;
        Ok(Some(found.metadata.answer(key, bytes)))
    }

    async fn write(&self, effect: &Effect, version: &str) -> Result<Written<Answer>, Refused> {
        match effect {
            Effect::Create(object) => self.create(object).await,
            Effect::Patch(patch) => self.patch(patch, version).await,
            Effect::Delete(delete) => self.delete(delete, version).await,
            Effect::Bind { pod, node } => self.bind(pod, node).await,
            Effect::Confirm(_) | Effect::Event(_) | Effect::LookAgain { .. } => Ok(Written::Made),
        }
    }

    async fn is_used(&self, claim: &ObjectKey) -> Result<bool, Refused> {
        let pods = self.pods_beside(claim).await?;
        Ok(pods.iter().any(|pod| pod.holds_claim(&claim.name)))
    }

    async fn is_referenced(&self, claim: &ObjectKey) -> Result<bool, Refused> {
        let pods = self.pods_beside(claim).await?;
        Ok(pods.iter().any(|pod| pod.refers_to_claim(&claim.name)))
    }

    fn tell(&self, event: &Event) {
        self.recorder.tell(event.clone());
    }

    fn wrote(&self, effect: &Effect, refusal: Option<&Refusal>) {
        let result = match refusal {
            None => "ok",
            Some(Refusal::Conflict(_) | Refusal::AlreadyExists(_)) => "conflict",
            Some(Refusal::NotFound(_)) => "not_found",
            Some(Refusal::Stale | Refusal::Invalid { .. } | Refusal::Unavailable { .. }) => "error",
        };
        (self.hook)(effect, result);
    }
}

/// Fields of every object.
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
    /// Whether a deleted object still exists because of finalizers or its grace period.
    fn stays(&self) -> bool {
        let held = self.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        held || self.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0)
    }

    fn answer(self, key: &ObjectKey, body: Bytes) -> Answer {
        Answer {
            key: key.clone(),
            uid: self.uid,
            resource_version: self.resource_version,
            body,
        }
    }
}

/// Fields of every object. A response without them is not an object: nothing follows from it.
fn identity(resource: Resource, key: &ObjectKey, bytes: &Bytes) -> Result<Identity, ApiError> {
    let found: Option<Identity> = serde_json::from_slice(bytes).ok();
    found
        .filter(|found| !found.metadata.uid.is_empty())
        .ok_or_else(|| Api::no_object(resource, &key.namespace, &key.name))
}

/// The response to a write.
fn written(key: &ObjectKey, resource: Resource, bytes: Bytes) -> Result<Written<Answer>, ApiError> {
    let Identity { metadata, .. } = identity(resource, key, &bytes)?;
    // An object that is being deleted is gone without its last finalizer.
    if metadata.deletion_timestamp.is_some() && !metadata.stays() {
        return Ok(Written::Gone(metadata.uid));
    }
    Ok(Written::Object(metadata.answer(key, bytes)))
}

fn preconditions(target: &Target, guard: Guard, version: &str) -> Map<String, Value> {
    let version = match guard {
        Guard::Version => version,
        Guard::Uid => "",
    };
    let fields = [("uid", target.uid.as_str()), ("resourceVersion", version)];
    let known = fields.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(field, value)| (field.to_owned(), json!(value))).collect()
}

/// The body of a patch with its preconditions.
fn guarded(patch: &Patch, version: &str) -> Value {
    let mut body = patch.body.clone();
    if let Value::Object(fields) = &mut body {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.extend(preconditions(&patch.target, patch.guard, version));
        }
    }
    body
}

fn resource_of(key: &ObjectKey) -> Result<Resource, Refused> {
    Resource::named(&key.kind).ok_or_else(|| {
        Refused::certain(Refusal::Invalid {
            key: key.clone(),
            message: "no component writes objects of this kind".to_owned(),
        })
    })
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
