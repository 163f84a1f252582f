//! Brings what the watches of all kinds see to the owner of the state, through one bounded channel.

use super::metrics::{KindLabel, Metrics};
use crate::api::Api;
use crate::resource::Watched;
use crate::watch::{Change, Difference, Sink, watch};
use berth_core::api::{Kind, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Differences that may wait. Each holds what came together, so a few are enough; watches wait when
/// it is full, and the API server keeps what they have not read.
const CAPACITY: usize = 64;

/// A difference of one kind.
#[derive(Debug)]
pub(super) enum Message {
    Claims(Difference<PersistentVolumeClaim>),
    Volumes(Difference<PersistentVolume>),
    Classes(Difference<StorageClass>),
    Pods(Difference<Pod>),
    Nodes(Difference<Node>),
}

/// The kinds that must have been listed before the first step.
pub(super) const KINDS: [Kind; 5] = [
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::StorageClass,
    Kind::Pod,
    Kind::Node,
];

struct Forward<T> {
    wrap: fn(Difference<T>) -> Message,
    sender: mpsc::Sender<Message>,
    metrics: Metrics,
}

impl<T: Watched> Sink<T> for Forward<T> {
    async fn take(&mut self, difference: Difference<T>) -> bool {
        let label = KindLabel { kind: T::KIND.name() };
        if difference.relisted {
            self.metrics.relists.get_or_create(&label).inc();
        }
        for change in &difference.changes {
            if let Change::Broken { name, problem } = change {
                self.metrics.broken.get_or_create(&label).inc();
                let (namespace, name) = name;
                tracing::warn!(
                    kind = label.kind,
                    namespace,
                    name,
                    problem,
                    "set aside an object that cannot be read"
                );
            }
        }
        self.sender.send((self.wrap)(difference)).await.is_ok()
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
    opener.start(Message::Claims);
    opener.start(Message::Volumes);
    opener.start(Message::Classes);
    opener.start(Message::Pods);
    opener.start(Message::Nodes);
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
    fn start<T: Watched>(&mut self, wrap: fn(Difference<T>) -> Message) {
        let forward = Forward {
            wrap,
            sender: self.sender.clone(),
            metrics: self.metrics.clone(),
        };
        let (api, cancel) = (self.api.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            watch(api, forward, cancel).await;
            "watch"
        });
    }
}
