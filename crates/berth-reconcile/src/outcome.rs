//! The result of a list of effects.

use berth_core::api::ObjectMeta;
use berth_core::effect::{ObjectKey, Refusal, When};
use serde_json::Value;
use std::borrow::Cow;
use std::rc::Rc;

/// The known version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
}

impl Version {
    /// The version of an object with this metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// The version of an object that is a plain JSON value.
    #[must_use]
    pub fn of_value(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        Self {
            uid: text("/metadata/uid").to_owned(),
            resource_version: text("/metadata/resourceVersion").to_owned(),
        }
    }
}

/// An object in a server's response.
pub trait Answered {
    /// The object.
    fn key(&self) -> &ObjectKey;

    /// Its version.
    fn version(&self) -> Version;

    /// The object with all of its fields. `None` if it cannot be read.
    fn value(&self) -> Option<Cow<'_, Value>>;
}

impl<A: Answered> Answered for Rc<A> {
    fn key(&self) -> &ObjectKey {
        (**self).key()
    }

    fn version(&self) -> Version {
        (**self).version()
    }

    fn value(&self) -> Option<Cow<'_, Value>> {
        (**self).value()
    }
}

/// An object that turned out not to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The object.
    pub key: ObjectKey,
    /// The UID of the deleted object; empty if none with this name exists.
    pub uid: String,
}

/// Why a list of effects ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why the effect was refused.
    pub refusal: Refusal,
    /// The API server is unavailable or failing: other effects fail the same way now, and succeed when it recovers.
    pub outage: bool,
    /// The namespace of the object is being deleted and accepts no new objects: nothing can be done.
    pub namespace_ends: bool,
}

impl Refused {
    /// A refusal that is unrelated to the state of the server.
    #[must_use]
    pub fn certain(refusal: Refusal) -> Self {
        Self {
            refusal,
            outage: false,
            namespace_ends: false,
        }
    }

    /// Whether the write may have been made anyway.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.refusal, Refusal::Unavailable { in_doubt: true, .. })
    }
}

/// The result of a list of effects.
#[derive(Debug)]
pub struct Outcome<Answer> {
    /// Number of effects that were carried out.
    pub done: usize,
    /// Objects that were written or read, in order: the last of several responses about one object is the newest.
    pub fresh: Vec<Answer>,
    /// Objects that turned out to be gone.
    pub gone: Vec<Gone>,
    /// Steps to be run again.
    pub again: Vec<(ObjectKey, When)>,
    /// Why the list ended early; `None` if all of it was carried out.
    pub refused: Option<Refused>,
}

impl<Answer> Default for Outcome<Answer> {
    fn default() -> Self {
        Self {
            done: 0,
            fresh: Vec::new(),
            gone: Vec::new(),
            again: Vec::new(),
            refused: None,
        }
    }
}

impl<Answer> Outcome<Answer> {
    /// Appends the result of the next list.
    pub fn continued(&mut self, next: Self) {
        self.done += next.done;
        self.fresh.extend(next.fresh);
        self.gone.extend(next.gone);
        self.again.extend(next.again);
        self.refused = next.refused;
    }
}
