//! Watches everything that a page shows or that questions read, and tells the owner of the model.

use crate::cluster::WORKLOADS;
use berth_core::api::Kind;
use berth_kube::api::Api;
use berth_kube::resource::{Resource, Whole};
use berth_kube::watch::{Change, Difference, Problem, Sink, watch_resource};
use berth_kube::{CancellationToken, REPORTS};
use serde::Serialize;
use serde_json::{Value, json};
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
pub(super) enum Changed {
    Applied(Value),
    /// Kind, namespace and name.
    Removed(Value),
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

impl Sink<Whole> for Tell {
    async fn take(&mut self, difference: Difference<Whole>) -> bool {
        let resource = self.resource;
        let changes = difference.changes.into_iter().filter_map(|change| match change {
            Change::Applied(mut whole) => {
                whole.say_kind(resource);
                Some(Changed::Applied(whole.value))
            }
            Change::Removed { name, .. } => {
                let (namespace, name) = name;
                let metadata = json!({"namespace": namespace, "name": name});
                Some(Changed::Removed(json!({"kind": resource.kind, "metadata": metadata})))
            }
            // What was known of it still stands.
            Change::Broken { .. } => None,
        });
        let heard = Heard {
            kind: resource.kind,
            changes: changes.collect(),
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
