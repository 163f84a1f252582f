//! Delivers what the watches of several kinds observe to the owner of a component's state, through one bounded channel.

use crate::api::Api;
use crate::component::RunMetrics;
use crate::endpoint::Health;
use crate::reported;
use crate::resource::{Resource, Watched, Whole};
use crate::watch::{Change, Difference, Problem, Selection, Sink, watch, watch_resource, watch_selected};
use berth_core::api::{self, Kind, Object};
use rustc_hash::FxHashSet;
use std::marker::PhantomData;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of queued differences. Each contains what arrived together, so a few are enough. Watches wait when
/// the queue is full, and the API server keeps what they have not read.
const CAPACITY: usize = 64;

/// A difference of one kind.
#[derive(Debug)]
pub(crate) struct Message<O = Object> {
    pub(crate) resource: Resource,
    pub(crate) difference: Difference<O>,
}

impl<O> Message<O> {
    /// Whether it reports that the server responds again.
    pub(crate) fn is_recovery(&self) -> bool {
        self.difference.relisted || self.difference.changes.is_empty()
    }
}

/// Receives from the watches, and tracks which kinds are not listed yet.
pub struct Inbox<O = Object> {
    messages: mpsc::Receiver<Message<O>>,
    missing: FxHashSet<Resource>,
    /// Where missing kinds are reported.
    health: Health,
    calm: Calm,
}

impl Inbox<Whole> {
    /// Watches these resources, each object with all of its fields. The watches end when cancelled, or when the inbox
    /// is dropped.
    #[must_use]
    pub fn of_whole(
        api: &Api,
        resources: &[Resource],
        health: &Health,
        cancel: &CancellationToken,
    ) -> (Self, JoinSet<()>) {
        let (sender, messages) = mpsc::channel(CAPACITY);
        let mut watches = JoinSet::new();
        for resource in resources {
            let forward = ForwardWhole {
                resource: *resource,
                sender: sender.clone(),
            };
            watches.spawn(watch_resource(api.clone(), *resource, forward, cancel.clone()));
        }
        let inbox = Self {
            messages,
            missing: resources.iter().copied().collect(),
            health: health.clone(),
            calm: Calm::default(),
        };
        inbox.tell_missing();
        (inbox, watches)
    }
}

struct ForwardWhole {
    resource: Resource,
    sender: mpsc::Sender<Message<Whole>>,
}

impl Sink<Whole> for ForwardWhole {
    async fn take(&mut self, difference: Difference<Whole>) -> bool {
        let resource = self.resource;
        self.sender.send(Message { resource, difference }).await.is_ok()
    }

    async fn recovered(&mut self) {
        let message = Message {
            resource: self.resource,
            difference: Difference::nothing(),
        };
        // If there is no receiver any more, the next difference discovers it.
        let _ = self.sender.send(message).await;
    }
}

impl<O> Inbox<O> {
    /// The next message; `None` if all watches have ended.
    pub(crate) async fn recv(&mut self) -> Option<Message<O>> {
        let message = self.messages.recv().await?;
        self.calm.heard();
        Some(message)
    }

    /// The next message, if one is queued.
    pub(crate) fn try_recv(&mut self) -> Option<Message<O>> {
        let message = self.messages.try_recv().ok()?;
        self.calm.heard();
        Some(message)
    }

    /// Makes the reader wait until nothing has arrived for this long.
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.calm.patience = patience;
        self
    }

    /// When the last message may be acted on, if not yet.
    pub(crate) fn calm_at(&self) -> Option<Instant> {
        self.calm.at().filter(|at| *at > Instant::now())
    }

    /// Waits as if a message had arrived now: others are about to write.
    pub(crate) fn expect_news(&mut self) {
        self.calm.heard();
    }

    /// Everything received is being acted on.
    pub(crate) fn acted(&mut self) {
        self.calm.news = None;
    }

    /// Whether every kind was listed: only then is it known what does not exist.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Records that a kind was listed. Returns whether it was the last missing one.
    pub(crate) fn listed(&mut self, resource: Resource) -> bool {
        let was_missing = self.missing.remove(&resource);
        if was_missing {
            self.tell_missing();
        }
        was_missing && self.missing.is_empty()
    }

    fn tell_missing(&self) {
        let mut names: Vec<_> = self.missing.iter().map(|resource| resource.kind).collect();
        names.sort_unstable();
        self.health.set_missing(names);
    }
}

/// Maximum wait as a multiple of the patience, if messages arrive all the time.
const STORM: u32 = 10;

/// Since when and until when messages arrived.
#[derive(Debug, Default)]
struct Calm {
    patience: Duration,
    news: Option<(Instant, Instant)>,
}

impl Calm {
    fn heard(&mut self) {
        if !self.patience.is_zero() {
            let now = Instant::now();
            self.news = Some((self.news.map_or(now, |(first, _)| first), now));
        }
    }

    fn at(&self) -> Option<Instant> {
        let (first, last) = self.news?;
        Some((last + self.patience).min(first + self.patience * STORM))
    }
}

/// Forwards what a watch delivers.
#[derive(Clone)]
pub(crate) struct Forward<T> {
    sender: mpsc::Sender<Message>,
    metrics: RunMetrics,
    health: Health,
    kind: PhantomData<fn() -> T>,
}

#[cfg(test)]
impl<T> Forward<T> {
    /// Forwards to a test.
    pub(crate) fn to_test() -> (Self, mpsc::Receiver<Message>) {
        let (sender, messages) = mpsc::channel(CAPACITY);
        let forward = Self {
            sender,
            metrics: RunMetrics::default(),
            health: Health::default(),
            kind: PhantomData,
        };
        (forward, messages)
    }
}

impl<T: Watched> Sink<T> for Forward<T> {
    async fn take(&mut self, difference: Difference<T>) -> bool {
        if difference.relisted {
            self.metrics.relisted(T::KIND);
        }
        let changes = difference.changes.into_iter().map(|change| match change {
            Change::Applied(object) => Change::Applied(object.into()),
            Change::Removed { name, uid } => Change::Removed { name, uid },
            Change::Broken { name, problem } => {
                self.metrics.broken(T::KIND);
                let (namespace, of_name) = &name;
                let kind = T::KIND.name();
                tracing::warn!(
                    kind,
                    namespace,
                    name = of_name,
                    problem,
                    "ignored an object that cannot be read"
                );
                Change::Broken { name, problem }
            }
        });
        let message = Message {
            resource: Resource::of(T::KIND),
            difference: Difference {
                changes: changes.collect(),
                relisted: difference.relisted,
            },
        };
        self.sender.send(message).await.is_ok()
    }

    fn problem(&mut self, problem: Problem<'_>) {
        self.metrics.watch_failed(T::KIND);
        // A kind that may not be read and is optional counts as empty.
        if !(problem.is_denied && Resource::of(T::KIND).is_optional()) {
            self.health.set_watching(T::KIND.name(), false);
        }
    }

    fn works(&mut self) {
        self.health.set_watching(T::KIND.name(), true);
    }

    /// Nothing has changed except that the server responds again: a message without changes.
    async fn recovered(&mut self) {
        let message = Message {
            resource: Resource::of(T::KIND),
            difference: Difference::nothing(),
        };
        // If there is no receiver any more, the next difference discovers it.
        let _ = self.sender.send(message).await;
    }
}

/// What a component watches.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The kinds.
    pub(crate) kinds: Vec<Kind>,
    /// Selects pods; all if not set.
    pub(crate) pod_fields: Option<&'static str>,
    /// The namespace of published capacity; all if not set.
    pub(crate) capacity_namespace: Option<String>,
}

/// Starts the watches of a scope.
pub(crate) fn open(
    api: &Api,
    scope: &Scope,
    (metrics, health): (&RunMetrics, &Health),
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> Inbox {
    let (sender, messages) = mpsc::channel(CAPACITY);
    let mut opener = Opener {
        api,
        metrics,
        health,
        cancel,
        tasks,
        sender,
        scope,
    };
    scope.kinds.iter().for_each(|kind| opener.start_kind(*kind));
    let inbox = Inbox {
        messages,
        missing: scope.kinds.iter().copied().map(Resource::of).collect(),
        health: health.clone(),
        calm: Calm::default(),
    };
    inbox.tell_missing();
    inbox
}

struct Opener<'a> {
    api: &'a Api,
    metrics: &'a RunMetrics,
    health: &'a Health,
    cancel: &'a CancellationToken,
    tasks: &'a mut JoinSet<&'static str>,
    sender: mpsc::Sender<Message>,
    scope: &'a Scope,
}

impl Opener<'_> {
    fn forward<T: Watched>(&self) -> Forward<T> {
        Forward {
            sender: self.sender.clone(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            kind: PhantomData,
        }
    }

    fn start<T: Watched>(&mut self) {
        self.start_selected::<T>(Selection::default());
    }

    fn start_selected<T: Watched>(&mut self, selection: Selection) {
        let forward = self.forward::<T>();
        let (api, cancel) = (self.api.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            watch_selected(api, Resource::of(T::KIND), selection, forward, cancel).await;
            "watch"
        });
    }

    fn start_pods(&mut self) {
        self.start_selected::<api::Pod>(Selection {
            fields: self.scope.pod_fields,
            ..Selection::default()
        });
    }

    fn start_capacities(&mut self) {
        self.start_selected::<api::CsiStorageCapacity>(Selection {
            namespace: self.scope.capacity_namespace.clone(),
            ..Selection::default()
        });
    }

    /// Watches drivers, and the custom resource in which they report if their own objects have no status.
    fn start_drivers(&mut self) {
        let (drivers, reports) = reported::sinks(self.forward());
        let (api, cancel) = (self.api.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            watch(api, drivers, cancel).await;
            "watch"
        });
        let (api, cancel) = (self.api.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            watch_resource(api, reported::REPORTS, reports, cancel).await;
            "watch"
        });
    }

    fn start_kind(&mut self, kind: Kind) {
        match kind {
            Kind::CsiDriver => self.start_drivers(),
            Kind::CsiNode => self.start::<api::CsiNode>(),
            Kind::CsiStorageCapacity => self.start_capacities(),
            Kind::Namespace => self.start::<api::Namespace>(),
            Kind::Node => self.start::<api::Node>(),
            Kind::PersistentVolume => self.start::<api::PersistentVolume>(),
            Kind::PersistentVolumeClaim => self.start::<api::PersistentVolumeClaim>(),
            Kind::Pod => self.start_pods(),
            Kind::PodDisruptionBudget => self.start::<api::PodDisruptionBudget>(),
            Kind::PriorityClass => self.start::<api::PriorityClass>(),
            Kind::ReplicaSet => self.start::<api::ReplicaSet>(),
            Kind::ReplicationController => self.start::<api::ReplicationController>(),
            Kind::Service => self.start::<api::Service>(),
            Kind::StatefulSet => self.start::<api::StatefulSet>(),
            Kind::StorageClass => self.start::<api::StorageClass>(),
            Kind::VolumeAttachment => self.start::<api::VolumeAttachment>(),
        }
    }
}
