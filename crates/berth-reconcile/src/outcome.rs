//! What came of a list of effects.

use berth_core::api::ObjectMeta;
use berth_core::effect::{ObjectKey, Refusal, When};
use serde_json::Value;
use std::borrow::Cow;
use std::rc::Rc;

/// Which state of an object is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
}

impl Version {
    /// That of an object with this metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// That of an object that is a plain JSON value.
    #[must_use]
    pub fn of_value(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        Self {
            uid: text("/metadata/uid").to_owned(),
            resource_version: text("/metadata/resourceVersion").to_owned(),
        }
    }
}

/// An object as a server answered.
pub trait Answered {
    /// The object.
    fn key(&self) -> &ObjectKey;

    /// Which state of it this is.
    fn version(&self) -> Version;

    /// The object with all of its fields. Nothing if it cannot be read.
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

impl Refused {
    /// A refusal that has nothing to do with the state of the server.
    #[must_use]
    pub fn certain(refusal: Refusal) -> Self {
        Self {
            refusal,
            outage: false,
            namespace_ends: false,
        }
    }

    /// Whether the write may have been made all the same.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.refusal, Refusal::Unavailable { in_doubt: true, .. })
    }
}

/// How a list of effects went.
#[derive(Debug)]
pub struct Outcome<Answer> {
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
    /// Goes on with what came of the next list.
    pub fn continued(&mut self, next: Self) {
        self.done += next.done;
        self.fresh.extend(next.fresh);
        self.gone.extend(next.gone);
        self.again.extend(next.again);
        self.refused = next.refused;
    }
}
