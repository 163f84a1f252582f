//! What clients asked and were told, and when.

use std::collections::BTreeMap;

use crate::store::EventKind;

/// A moment on the clock that all clients share.
pub(super) type Time = u64;

/// One state of one object. Every write that changes it carries a mark of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) mark: u64,
}

/// All objects at one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) version: u64,
    pub(super) objects: BTreeMap<String, State>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Create {
        mark: u64,
    },
    Update {
        expected: u64,
        mark: u64,
    },
    /// A patch without a version.
    Patch {
        mark: u64,
    },
    /// A patch that changes nothing.
    Touch,
    Delete {
        expected: u64,
    },
    Get,
    List,
}

impl Asked {
    pub(super) fn mark(self) -> Option<u64> {
        match self {
            Self::Create { mark } | Self::Update { mark, .. } | Self::Patch { mark } => Some(mark),
            Self::Touch | Self::Delete { .. } | Self::Get | Self::List => None,
        }
    }
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The object after a write, or as it was read.
    Is(State),
    Deleted,
    Listed(Snapshot),
    /// Refused: there is such an object.
    Exists,
    /// Refused: it has another version.
    Conflict,
    /// There is no such object.
    Missing,
    /// None came: the server ended first.
    Unknown,
}

/// A request with its response.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The name of the object. Empty for a list.
    pub(super) name: String,
    pub(super) asked: Asked,
    pub(super) invoked: Time,
    /// Meaningless if the answer is unknown.
    pub(super) returned: Time,
    pub(super) answer: Answer,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: EventKind,
    pub(super) name: String,
    pub(super) state: State,
}

/// What a watch delivered.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    pub(super) from: u64,
    pub(super) changes: Vec<(Time, Change)>,
}

/// Everything from one start of the server to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// What the server found when it started.
    pub(super) first: Snapshot,
    /// What the server published, in its order, each with the version of the state before.
    pub(super) published: Vec<(Change, Option<u64>)>,
    pub(super) calls: Vec<Call>,
    pub(super) watches: Vec<Watched>,
}
