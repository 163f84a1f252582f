//! The one language of writes.
//!
//! Scheduler, controller, provisioner, workload controllers and node agents return their decisions as [`Effect`]s: plain
//! data that an executor carries out. There is one executor for API servers (`berth-kube`) and one for the cluster in
//! memory (`berth-cluster`). Both obey the same guards, so that a decision has the same result in a live cluster, under
//! `berth up` and in a simulation.
//!
//! A list of effects is carried out in order, and the first refused effect ends the list: the next step on the same object
//! finds the remaining work. An effect on an object that the same list already wrote continues from the resulting version.

use crate::api::{Kind, ObjectMeta, ObjectReference};
use jiff::Timestamp;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// The name of an object: kind, namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind, for example `PersistentVolumeClaim`.
    pub kind: Cow<'static, str>,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// A key from its parts.
    #[must_use]
    pub fn new(kind: impl Into<Cow<'static, str>>, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object with this metadata.
    #[must_use]
    pub fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self::new(kind.name(), &metadata.namespace, &metadata.name)
    }

    /// The key of a claim.
    #[must_use]
    pub fn claim(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::new(Kind::PersistentVolumeClaim.name(), namespace, name)
    }

    /// The key of a volume.
    #[must_use]
    pub fn volume(name: impl Into<String>) -> Self {
        Self::new(Kind::PersistentVolume.name(), "", name)
    }

    /// The key of the claim that a volume refers to.
    #[must_use]
    pub fn referred(reference: &ObjectReference) -> Self {
        Self::claim(&reference.namespace, &reference.name)
    }

    /// The kind, if Berth reads it.
    #[must_use]
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::named(&self.kind)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// The object that a write targets, in the state that was decided on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// API version, for example `apps/v1`.
    pub api_version: Cow<'static, str>,
    /// The object.
    pub key: ObjectKey,
    /// Its UID. An object with the same name and another UID is a different one. Empty if unknown.
    pub uid: String,
    /// The resource version that was decided on. Empty if unknown.
    pub resource_version: String,
}

impl Target {
    /// The object with this metadata.
    #[must_use]
    pub fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self {
            api_version: kind.api_version(),
            key: ObjectKey::of(kind, metadata),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// The target for this JSON object.
    #[must_use]
    pub fn of_value(object: &Value) -> Self {
        let text = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            api_version: Cow::Owned(text("/apiVersion")),
            key: ObjectKey::new(text("/kind"), text("/metadata/namespace"), text("/metadata/name")),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
        }
    }
}

/// What must still be true of the target when a write is made. A write to an object other than the one decided on is
/// refused as [`Refusal::NotFound`], one to another version as [`Refusal::Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// It is the same object, in the version that was decided on.
    Version,
    /// It is the same object, in any version: the write sets only fields that no other writer sets.
    Uid,
}

/// How a patch is merged into the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Merge {
    /// JSON merge patch (RFC 7386): lists are replaced.
    Json,
    /// Strategic merge patch: conditions are merged by type.
    Strategic,
}

impl Merge {
    /// Whether an object already looks as a patch with this body would leave it. Used to find out whether a write with a lost response
    /// was made. Merged lists may hold more items than the patch lists; a directive (`$patch`) is ignored.
    #[must_use]
    pub fn is_made(self, found: &Value, body: &Value) -> bool {
        match body {
            Value::Null => found.is_null(),
            Value::Object(fields) => fields.iter().all(|(key, body)| {
                let found = found.get(key).unwrap_or(&Value::Null);
                self.is_made(found, body)
            }),
            Value::Array(items) if self == Self::Strategic => {
                let found = found.as_array().map_or(&[][..], Vec::as_slice);
                let has = |body: &Value| found.iter().any(|found| self.is_made(found, body));
                items.iter().all(has)
            }
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => found == body,
        }
    }
}

/// A change to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The object.
    pub target: Target,
    /// What must still be true of it.
    pub guard: Guard,
    /// The subresource to write, for example `status`; `None` for the object itself.
    pub subresource: Option<&'static str>,
    /// How the body is merged.
    pub merge: Merge,
    /// The changes, without preconditions.
    pub body: Value,
    /// A short name for logs and metrics, for example `reserve_volume`.
    pub name: &'static str,
}

/// The removal of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The object.
    pub target: Target,
    /// What must still be true of it.
    pub guard: Guard,
    /// Grace period for its containers; `None` for the object's default.
    pub grace_seconds: Option<i64>,
}

/// A condition for carrying out the rest of a list of effects. The executor checks it on the cluster, because watches
/// can lag behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// There is no object with this name, or it has another UID. With an empty UID: there is no object with this name.
    Gone {
        /// The object.
        key: ObjectKey,
        /// The UID of the object that must be gone.
        uid: String,
    },
    /// The object is still in the version that was decided on.
    Unchanged(Target),
    /// No pod with a node uses the claim.
    ClaimUnused {
        /// The claim.
        claim: ObjectKey,
    },
    /// No pod that has not finished refers to the claim, with or without a node.
    ClaimUnreferenced {
        /// The claim.
        claim: ObjectKey,
    },
}

/// When to look at an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// At once.
    Now,
    /// After a delay that grows with each repetition.
    Backoff,
    /// At this time, even if nothing changes.
    At(Timestamp),
}

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Continue only if this is true.
    Confirm(Fact),
    /// Create an object. It has `apiVersion`, `kind` and a name.
    Create(Box<Value>),
    /// Change an object.
    Patch(Patch),
    /// Delete an object.
    Delete(Delete),
    /// Bind a pod to a node.
    Bind {
        /// The pod.
        pod: Target,
        /// The node.
        node: String,
    },
    /// Record an event.
    Event(Event),
    /// Run the step of an object again.
    LookAgain {
        /// The object.
        key: ObjectKey,
        /// When.
        when: When,
    },
}

impl Effect {
    /// A short name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Confirm(_) => "confirm",
            Self::Create(_) => "create",
            Self::Patch(patch) => patch.name,
            Self::Delete(_) => "delete",
            Self::Bind { .. } => "bind_pod",
            Self::Event(_) => "event",
            Self::LookAgain { .. } => "look_again",
        }
    }

    /// The object that is written, if one is.
    #[must_use]
    pub fn writes_to(&self) -> Option<ObjectKey> {
        match self {
            Self::Create(object) => Some(Target::of_value(object).key),
            Self::Patch(patch) => Some(patch.target.key.clone()),
            Self::Delete(delete) => Some(delete.target.key.clone()),
            Self::Bind { pod, .. } => Some(pod.key.clone()),
            Self::Confirm(_) | Self::Event(_) | Self::LookAgain { .. } => None,
        }
    }
}

/// Why an effect was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An object with this name already exists.
    #[error("{0} already exists")]
    AlreadyExists(ObjectKey),
    /// There is no such object, or the one with this name has another UID.
    #[error("{0} not found")]
    NotFound(ObjectKey),
    /// The object has changed since the decision.
    #[error("{0} has been modified; look at the latest version and try again")]
    Conflict(ObjectKey),
    /// A [`Fact`] that the rest of the list depends on is not true.
    #[error("the decision is outdated")]
    Stale,
    /// The object would violate a rule. Retrying does not help.
    #[error("{key}: {message}")]
    Invalid {
        /// The object.
        key: ObjectKey,
        /// The rule, in words.
        message: String,
    },
    /// The API server did not carry it out, or did not confirm it.
    #[error("{key}: {message}")]
    Unavailable {
        /// The object.
        key: ObjectKey,
        /// What went wrong, in words.
        message: String,
        /// Whether the write may have been made anyway.
        in_doubt: bool,
    },
}

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// Expected behaviour.
    Normal,
    /// Needs attention.
    Warning,
}

impl EventType {
    /// The name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Information for users about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub about: Target,
    /// How serious it is.
    pub event_type: EventType,
    /// One word for machines.
    pub reason: &'static str,
    /// A human-readable sentence.
    pub message: String,
    /// The component that reports it, for example `default-scheduler`. Empty for the component whose effects are
    /// carried out.
    pub source: Cow<'static, str>,
}

/// The longest message of an event, as in Kubernetes.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 1024;
/// How kube-scheduler ends a message that it cuts.
const CUT: &str = " ...";

impl Event {
    /// The event with a message that is cut if it is too long. Messages quote users, drivers and API servers: what they say must not
    /// fill memory, and an event that is too large is not stored at all.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if self.message.len() > EVENT_MESSAGE_BYTES_MAX {
            let end = self.message.floor_char_boundary(EVENT_MESSAGE_BYTES_MAX - CUT.len());
            self.message.truncate(end);
            self.message.push_str(CUT);
            self.message.shrink_to_fit();
        }
        self
    }
}
