//! Watches everything that a page shows or that questions read, and tells the owner of the model.

use super::kept::{Key, Text};
use crate::cluster::WORKLOADS;
use berth_core::api::{Kind, ObjectMeta};
use berth_kube::api::Api;
use berth_kube::resource::{Resource, Watchable, Whole};
use berth_kube::watch::{Change, Difference, Problem, Sink, watch_resource};
use berth_kube::{CancellationToken, REPORTS};
use berth_view::Entry;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many messages may wait. Each holds what came together; watches wait when it is full, and the API server keeps what they
/// have not read.
const CAPACITY: usize = 64;

/// What a watch brought.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) kind: &'static str,
    pub(super) changes: Vec<Changed>,
    /// All objects of the kind are known now.
    pub(super) listed: bool,
}

/// An object that changed.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) key: Key,
    /// For the rows of pages.
    pub(super) entry: Entry,
    /// For questions; nothing if the object is gone.
    pub(super) text: Option<Text>,
}

/// An object of which only that is left which is read. A list of fifty thousand whole pods would take half a gigabyte.
#[derive(Debug)]
struct Digest {
    whole: Whole,
    read: Option<(Entry, Text)>,
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Whole::deserialize(deserializer)?;
        Ok(Self { whole, read: None })
    }
}

impl Watchable for Digest {
    fn metadata(&self) -> &ObjectMeta {
        self.whole.metadata()
    }

    fn complete(&mut self, resource: Resource) {
        self.whole.complete(resource);
        let object = self.whole.value.take();
        self.read = Some((Entry::of(&object), Text::of(object)));
    }
}

/// The kinds whose watches fail, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<BTreeMap<&'static str, Failure>>>);

#[derive(Clone, Debug)]
struct Failure {
    plural: &'static str,
    problem: String,
    is_denied: bool,
    since: Instant,
}

/// A kind that is not heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Failing {
    /// Its name in the plural.
    pub(super) kind: &'static str,
    /// What is wrong.
    pub(super) problem: String,
    /// It may not be read.
    pub(super) denied: bool,
    /// For how long.
    pub(super) seconds: u64,
}

impl Failures {
    fn set(&self, resource: Resource, problem: Option<Problem<'_>>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(problem) = problem else {
            failing.remove(resource.kind);
            return;
        };
        let failure = failing.entry(resource.kind).or_insert_with(|| Failure {
            plural: resource.plural,
            problem: String::new(),
            is_denied: false,
            since: Instant::now(),
        });
        problem.text.clone_into(&mut failure.problem);
        failure.is_denied = problem.is_denied;
    }

    /// Whether the watch of a kind fails.
    pub(super) fn has(&self, kind: &str) -> bool {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failing.contains_key(kind)
    }

    /// The kinds whose watches fail.
    pub(super) fn all(&self) -> Vec<Failing> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = failing.values().map(|failure| Failing {
            kind: failure.plural,
            problem: failure.problem.clone(),
            denied: failure.is_denied,
            seconds: failure.since.elapsed().as_secs(),
        });
        all.collect()
    }
}

/// All that is watched: what `explain` and `simulate` read. Secrets are not among it.
pub(super) fn resources() -> Vec<Resource> {
    let read = Kind::ALL.iter().map(|kind| Resource::of(*kind));
    read.chain(WORKLOADS).chain([REPORTS]).collect()
}

/// Starts all watches.
pub(super) fn start(
    api: &Api,
    failures: &Failures,
    cancel: &CancellationToken,
    watches: &mut JoinSet<()>,
) -> mpsc::Receiver<Heard> {
    let (sender, heard) = mpsc::channel(CAPACITY);
    for resource in resources() {
        let tell = Tell {
            resource,
            sender: sender.clone(),
            failures: failures.clone(),
        };
        watches.spawn(watch_resource(api.clone(), resource, tell, cancel.clone()));
    }
    heard
}

struct Tell {
    resource: Resource,
    sender: mpsc::Sender<Heard>,
    failures: Failures,
}

impl Tell {
    fn changed(&self, change: Change<Digest>) -> Option<Changed> {
        let kind = self.resource.kind;
        match change {
            Change::Applied(digest) => {
                let ObjectMeta { namespace, name, .. } = digest.metadata();
                let key = (kind, namespace.as_str().into(), name.as_str().into());
                let (entry, text) = digest.read?;
                let text = Some(text);
                Some(Changed { key, entry, text })
            }
            Change::Removed { name, .. } => {
                let (namespace, name) = name;
                let entry = Entry::gone(&json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}}));
                let key = (kind, namespace.into(), name.into());
                Some(Changed { key, entry, text: None })
            }
            // What was known of it still stands.
            Change::Broken { .. } => None,
        }
    }
}

impl Sink<Digest> for Tell {
    async fn take(&mut self, difference: Difference<Digest>) -> bool {
        let changes = difference.changes.into_iter();
        let heard = Heard {
            kind: self.resource.kind,
            changes: changes.filter_map(|change| self.changed(change)).collect(),
            listed: difference.relisted,
        };
        self.sender.send(heard).await.is_ok()
    }

    fn problem(&mut self, problem: Problem<'_>) {
        self.failures.set(self.resource, Some(problem));
    }

    fn works(&mut self) {
        self.failures.set(self.resource, None);
    }
}
