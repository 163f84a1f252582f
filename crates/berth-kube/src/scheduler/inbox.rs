//! Brings what the watches of all kinds see to the owner of the state, through one bounded channel.

use super::metrics::{KindLabel, Metrics};
use crate::api::Api;
use crate::resource::Watched;
use crate::watch::{Change, Difference, Sink, watch};
use berth_core::api::{
    CsiDriver, CsiNode, CsiStorageCapacity, Kind, Namespace, Node, Object, PersistentVolume, PersistentVolumeClaim,
    Pod, PodDisruptionBudget, PriorityClass, ReplicaSet, ReplicationController, Service, StatefulSet, StorageClass,
    VolumeAttachment,
};
use std::marker::PhantomData;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Differences that may wait. Each holds what came together, so a few are enough; watches wait when
/// it is full, and the API server keeps what they have not read.
const CAPACITY: usize = 64;

/// A difference of one kind.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) difference: Difference<Object>,
}

/// How many kinds must have been listed before the first decision: all that are watched.
pub(super) const KINDS: usize = Kind::ALL.len();

struct Forward<T> {
    sender: mpsc::Sender<Message>,
    metrics: Metrics,
    kind: PhantomData<fn() -> T>,
}

impl<T: Watched> Sink<T> for Forward<T> {
    async fn take(&mut self, difference: Difference<T>) -> bool {
        let label = KindLabel { kind: T::KIND.name() };
        if difference.relisted {
            self.metrics.relists.get_or_create(&label).inc();
        }
        let changes = difference.changes.into_iter().map(|change| match change {
            Change::Applied(object) => Change::Applied(object.into()),
            Change::Removed(name) => Change::Removed(name),
            Change::Broken { name, problem } => {
                self.metrics.broken.get_or_create(&label).inc();
                let kind = label.kind;
                tracing::warn!(kind, ?name, problem, "set aside an object that cannot be read");
                Change::Broken { name, problem }
            }
        });
        let message = Message {
            kind: T::KIND,
            difference: Difference {
                changes: changes.collect(),
                relisted: difference.relisted,
            },
        };
        self.sender.send(message).await.is_ok()
    }

    fn problem(&mut self, _problem: &str) {
        let label = KindLabel { kind: T::KIND.name() };
        self.metrics.watch_failures.get_or_create(&label).inc();
    }
}

/// Starts the watches.
pub(super) fn open(
    api: &Api,
    metrics: &Metrics,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> mpsc::Receiver<Message> {
    let (sender, inbox) = mpsc::channel(CAPACITY);
    let mut opener = Opener {
        api,
        metrics,
        cancel,
        tasks,
        sender,
    };
    opener.start::<CsiDriver>();
    opener.start::<CsiNode>();
    opener.start::<CsiStorageCapacity>();
    opener.start::<Namespace>();
    opener.start::<Node>();
    opener.start::<PersistentVolume>();
    opener.start::<PersistentVolumeClaim>();
    opener.start::<Pod>();
    opener.start::<PodDisruptionBudget>();
    opener.start::<PriorityClass>();
    opener.start::<ReplicaSet>();
    opener.start::<ReplicationController>();
    opener.start::<Service>();
    opener.start::<StatefulSet>();
    opener.start::<StorageClass>();
    opener.start::<VolumeAttachment>();
    inbox
}

struct Opener<'a> {
    api: &'a Api,
    metrics: &'a Metrics,
    cancel: &'a CancellationToken,
    tasks: &'a mut JoinSet<&'static str>,
    sender: mpsc::Sender<Message>,
}

impl Opener<'_> {
    fn start<T: Watched>(&mut self) {
        let forward = Forward::<T> {
            sender: self.sender.clone(),
            metrics: self.metrics.clone(),
            kind: PhantomData,
        };
        let (api, cancel) = (self.api.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            watch(api, forward, cancel).await;
            "watch"
        });
    }
}
