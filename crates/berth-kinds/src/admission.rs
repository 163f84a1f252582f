//! What happens to an object between a request and the store, where it depends on other objects, the time or settings.
//!
//! Each kind defines defaults and refusals in its own file. The cluster in memory completes whole objects with [`complete`]; the
//! embedded API server takes the same steps one by one while it handles a request.

use std::borrow::Cow;

use berth_core::time::seconds;
use jiff::Timestamp;
use serde_json::Value;

use crate::error::Refusal;
use crate::kind::Kind;
use crate::kind_of;
use crate::kinds::{limit_range, namespace, priority_class, runtime_class, storage_class};
use crate::meta;

/// Where admission looks up other objects.
pub trait Lookup {
    /// The object of a kind with this name. The namespace is empty for cluster-scoped objects.
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

/// A lookup without any objects.
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

/// Whether admission of other objects reads objects of this kind: these must be created first.
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

/// The context that admission needs besides the object.
#[derive(Clone, Copy)]
pub struct Admission<'a> {
    /// The other objects.
    pub objects: &'a dyn Lookup,
    /// The current time.
    pub now: Timestamp,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    /// Whether the object comes from an existing cluster: what a system recorded on it is kept, even if it could not
    /// happen today.
    pub restores: bool,
    /// The enabled features.
    pub features: Features,
}

/// Optional behaviour of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Pods without a service account get the default one of their namespace.
    pub service_accounts: bool,
    /// Services get addresses and node ports that no other service has. Without this they keep what they specify: if nothing
    /// routes to them, scanning all services is not worthwhile.
    pub service_addresses: bool,
    /// A volume with zone labels and no node affinity gets one on creation.
    pub zone_affinity: bool,
    /// A pod with an unknown runtime class is refused, and so is one that sets its own overhead. Off if files contain only
    /// part of a cluster.
    pub runtime_classes: bool,
}

impl<'a> Admission<'a> {
    /// Admission of a new object with default settings.
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

    /// The current time in the form that objects use.
    pub(crate) fn time(&self) -> Value {
        seconds(self.now).into()
    }

    /// Whether the object itself is written, not a subresource.
    pub(crate) fn is_whole(&self) -> bool {
        self.subresource.is_empty()
    }
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

/// Completes a new object as an API server does on creation: defaults, then what depends on other objects. Completing an
/// object twice changes nothing. Unknown kinds are left alone.
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

/// Completes a changed object as an API server does before it stores the change. The previous object may be omitted if
/// [`Kind::compares_updates`] says that it is not used.
///
/// # Errors
/// If an API server would refuse the change.
pub fn complete_update(before: Option<&Value>, object: &mut Value, admission: &Admission<'_>) -> Result<(), Refusal> {
    match apply_defaults(object) {
        Some(kind) => (kind.admit_update)(admission, before.unwrap_or(&Value::Null), object),
        None => Ok(()),
    }
}

/// Fills in defaults that depend on no other object, and returns the object's kind. For readers that see one object at
/// a time.
pub fn apply_defaults(object: &mut Value) -> Option<&'static Kind> {
    // A value that is not an object is left for its reader to refuse.
    let kind = kind_of(object).filter(|_| object["metadata"].is_object())?;
    (kind.defaults)(object);
    Some(kind)
}
