//! What happens to an object between a request and the store, as far as other objects, the time and settings matter.
//!
//! Each kind says in its own file what is filled in and refused. The cluster in memory completes whole objects by [`complete`]; the
//! embedded API server takes the same steps one by one, between those of a request.

use std::borrow::Cow;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde_json::Value;

use crate::error::Refusal;
use crate::kind::Kind;
use crate::kind_of;
use crate::kinds::{limit_range, namespace, priority_class, runtime_class, storage_class};
use crate::meta;

/// Where admission looks up other objects.
pub trait Lookup {
    /// The object of a kind with this name. The namespace is empty for objects of the cluster.
    fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Cow<'_, Value>>;

    /// All objects of a kind.
    fn all<'a>(&'a self, kind: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a>;

    /// The objects of a kind in one namespace.
    fn within<'a>(&'a self, kind: &Kind, namespace: &'a str) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        Box::new(
            self.all(kind)
                .filter(move |object| meta::namespace(object) == namespace),
        )
    }
}

/// No other objects at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nothing;

impl Lookup for Nothing {
    fn get(&self, _: &Kind, _: &str, _: &str) -> Option<Cow<'_, Value>> {
        None
    }

    fn all<'a>(&'a self, _: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        Box::new(std::iter::empty())
    }
}

/// Whether admission of other objects reads objects of a kind: these are to be there first.
#[must_use]
pub fn reads(kind: &str) -> bool {
    let read = [
        &namespace::KIND,
        &priority_class::KIND,
        &storage_class::KIND,
        &limit_range::KIND,
        &runtime_class::KIND,
    ];
    read.iter().any(|one| one.name == kind)
}

/// What admission needs to know besides the object.
#[derive(Clone, Copy)]
pub struct Admission<'a> {
    /// The other objects.
    pub objects: &'a dyn Lookup,
    /// The present.
    pub now: Timestamp,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    /// Whether the object has a past: what a system noted of it is kept, even if it could not come about today.
    pub restores: bool,
    /// What is switched on.
    pub features: Features,
}

/// What a server can be told to do or leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Pods that name no service account get the one that every namespace has.
    pub service_accounts: bool,
    /// Services get addresses, and ports of the nodes, that no other service has. Without this they have what they say: where
    /// nothing routes to them it is not worth a look at all of them.
    pub service_addresses: bool,
    /// A volume with zone labels and without a node affinity gets one on creation.
    pub zone_affinity: bool,
    /// A pod that names a runtime class which is not there is refused, and so is one that brings an overhead of its own. Off
    /// where files show a part of a cluster.
    pub runtime_classes: bool,
}

impl<'a> Admission<'a> {
    /// Admission of a new object among others, without anything special.
    #[must_use]
    pub fn new(objects: &'a dyn Lookup, now: Timestamp) -> Self {
        Self {
            objects,
            now,
            subresource: "",
            restores: false,
            features: Features::default(),
        }
    }

    /// The present, as objects carry it.
    pub(crate) fn time(&self) -> Value {
        seconds(self.now)
    }

    /// Whether the object itself is written, and not a part of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.subresource.is_empty()
    }
}

/// A time as objects carry it: `metav1.Time` has seconds and no more.
pub(crate) fn seconds(time: Timestamp) -> Value {
    // Cutting to seconds cannot leave the range of timestamps, but the type cannot say so.
    let to_seconds = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Trunc);
    time.round(to_seconds).unwrap_or(time).to_string().into()
}

impl std::fmt::Debug for Admission<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("now", &self.now)
            .field("subresource", &self.subresource)
            .field("restores", &self.restores)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

/// Completes a new object as an API server does when it is created: defaults, then what depends on other objects. An object
/// that went through this already comes out as it went in. Kinds that are not known are left alone.
///
/// # Errors
/// If an API server would refuse the object.
///
/// ```
/// use berth_kinds::admission::{Admission, Nothing, complete};
/// let mut pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
///     "spec": {"containers": [{"name": "web", "image": "nginx", "resources": {"limits": {"cpu": "1"}}}]}});
/// complete(&mut pod, &Admission::new(&Nothing, jiff::Timestamp::UNIX_EPOCH))?;
/// assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
/// # Ok::<(), berth_kinds::error::Refusal>(())
/// ```
pub fn complete(object: &mut Value, admission: &Admission<'_>) -> Result<(), Refusal> {
    match apply_defaults(object) {
        Some(kind) => (kind.admit)(admission, object),
        None => Ok(()),
    }
}

/// Completes a changed object as an API server does before it stores the change. The object before the change may be left out
/// where [`Kind::compares_updates`] says that nothing depends on it.
///
/// # Errors
/// If an API server would refuse the change.
pub fn complete_update(before: Option<&Value>, object: &mut Value, admission: &Admission<'_>) -> Result<(), Refusal> {
    match apply_defaults(object) {
        Some(kind) => (kind.admit_update)(admission, before.unwrap_or(&Value::Null), object),
        None => Ok(()),
    }
}

/// Fills in what depends on no other object, and says of which kind the object is. For readers that see one object at a time.
pub fn apply_defaults(object: &mut Value) -> Option<&'static Kind> {
    // What is no object at all is for whoever reads it to refuse.
    let kind = kind_of(object).filter(|_| object["metadata"].is_object())?;
    (kind.defaults)(object);
    Some(kind)
}
