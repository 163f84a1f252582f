//! Runs steps for objects on an API server, one key at a time.
//!
//! ```text
//!   watches ──▶ inbox ──▶ ┌────────────┐ ──effects──▶ workers ──▶ API server
//!                         │ reconciler │
//!   resync, delays ─────▶ │ (the state)│ ◀─responses─ workers
//!                         └────────────┘
//! ```
//!
//! One task owns a [`Reconciler`]: it applies what watches deliver, runs the step of each key with a change, and passes the
//! effects to workers. It follows the rules of [`berth_reconcile::Keyed`].

use crate::backoff::chance;
use crate::clock::Clock;
use crate::component;
use crate::endpoint::{Health, PULSE};
use crate::executor::{Answer, Executor, Outcome};
use crate::inbox::{Inbox, Message};
use crate::resource::Identified;
use crate::watch::Change;
use berth_core::api::ObjectMeta;
use berth_core::backoff::Backoff;
use berth_core::effect::{ObjectKey, Refusal};
use berth_reconcile::{Keyed as Loop, Now, Refused, Stepped, Ticket};
pub use berth_reconcile::{Reconciler, Version, Work};
use std::future::Future;
use std::pin::Pin;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Number of steps between two checks of the inbox: a resync of many objects must not delay changes.
const STEPS_AT_A_TIME: usize = 256;

/// Work that is more than a list of effects, and its report.
pub type Job<Report> = Pin<Box<dyn Future<Output = (Outcome, Report)> + Send>>;

/// A [`Reconciler`] of a live cluster.
pub trait Live:
    Reconciler<Object: Identified, Answer = Answer, Job = Job<<Self as Reconciler>::Report>, Report: Send + 'static>
    + Send
    + 'static
{
    /// All keys for a resync.
    fn all_keys(&self) -> Vec<ObjectKey>;

    /// Waits for changes that no watch delivers. Must be cancel safe.
    fn news(&mut self) -> impl Future<Output = Vec<ObjectKey>> + Send {
        std::future::pending()
    }

    /// Called with the number of waiting keys and of effect lists in flight.
    fn measure(&self, _waiting: usize, _in_flight: usize) {}
}

/// How steps are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of effect lists carried out concurrently. With one, each step sees what every earlier one wrote.
    pub workers: usize,
    /// How often everything is synced, whether or not it changed.
    pub resync: Duration,
    /// The delay of a key whose effects were refused.
    pub backoff: Backoff,
    /// How long effects in flight may take when the component stops. The default grace period of pods is 30 s.
    pub grace: Duration,
    /// Where readiness is reported.
    pub health: Health,
}

/// The result of a worker.
struct Finished<Report> {
    ticket: Ticket,
    outcome: Outcome,
    report: Option<Report>,
}

/// The single task that owns a reconciler.
pub struct Keyed<R: Live> {
    keyed: Loop<R, Instant>,
    executor: Executor,
    options: Options,
    inbox: Inbox<R::Object>,
    workers: JoinSet<Finished<R::Report>>,
    clock: Clock,
    /// Steps are being run; changes are not awaited until no key is left.
    stepping: bool,
}

impl<R: Live> component::Owner for Keyed<R> {
    async fn run(self, _leading: CancellationToken, cancel: CancellationToken) {
        Self::run(self, cancel).await;
    }
}

impl<R: Live> Keyed<R> {
    /// A loop around a reconciler.
    #[must_use]
    pub fn new(reconciler: R, executor: Executor, options: Options, inbox: Inbox<R::Object>) -> Self {
        Self {
            keyed: Loop::new(reconciler, options.backoff, chance),
            executor,
            options,
            inbox,
            workers: JoinSet::new(),
            clock: Clock::default().steady(),
            stepping: false,
        }
    }

    /// Uses a clock that other components share.
    #[must_use]
    pub fn by(mut self, clock: Clock) -> Self {
        self.clock = clock.steady();
        self
    }

    /// Works until cancelled, then lets the workers finish their work in progress.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut resync = interval_at(Instant::now() + self.options.resync, self.options.resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pulse = interval(PULSE);
        loop {
            self.options.health.set_beating(true);
            self.dispatch();
            let due = self.keyed.queue.next_due();
            let calm = self
                .inbox
                .calm_at()
                .filter(|_| self.keyed.queue.has_ready() && !self.stepping);
            let more_steps = self.keyed.queue.has_ready() && self.can_step();
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(finished) = self.workers.join_next() => match finished {
                    Ok(finished) => self.finish(finished),
                    // A worker that panicked leaves its locks behind: only a restart is safe.
                    Err(error) => {
                        tracing::error!(%error, "a worker failed");
                        break;
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => break,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.keyed.queue.advance(Instant::now());
                }
                () = sleep_until(calm.unwrap_or_else(Instant::now)), if calm.is_some() => {}
                keys = self.keyed.reconciler.news() => self.keyed.hurry(keys),
                _ = resync.tick() => self.keyed.push(self.keyed.reconciler.all_keys()),
                _ = pulse.tick() => {}
                () = std::future::ready(()), if more_steps => {}
            }
        }
        // A list of effects is not cut between two writes without need, although the next leader could continue from
        // there.
        let finish = async { while self.workers.join_next().await.is_some() {} };
        if timeout(self.options.grace, finish).await.is_err() {
            tracing::warn!("stopped before all effects were finished");
        }
    }

    fn can_step(&self) -> bool {
        let is_calm = self.stepping || self.inbox.calm_at().is_none();
        is_calm && self.inbox.is_complete() && self.workers.len() < self.options.workers.max(1)
    }

    fn now(&self) -> Now<Instant> {
        Now {
            steady: Instant::now(),
            wall: self.clock.now(),
        }
    }

    /// Runs steps while there are ready keys and free workers.
    fn dispatch(&mut self) {
        for _ in 0..STEPS_AT_A_TIME {
            if !self.can_step() || !self.keyed.queue.has_ready() {
                break;
            }
            if !std::mem::replace(&mut self.stepping, true) {
                self.inbox.acted();
            }
            self.step();
        }
        self.stepping &= self.keyed.queue.has_ready();
        let waiting = self.keyed.queue.count_ready();
        self.keyed.reconciler.measure(waiting, self.workers.len());
    }

    fn step(&mut self) {
        match self.keyed.step(self.now()) {
            None | Some(Stepped::Waits) => {}
            Some(Stepped::Told(events)) => events.into_iter().for_each(|event| self.executor.tell(event)),
            Some(Stepped::Disputed(key, due)) => {
                tracing::debug!(%key, %due, "another client reverted the write: waiting before retrying");
            }
            Some(Stepped::Effects(ticket)) => {
                let executor = self.executor.clone();
                self.workers.spawn(async move {
                    let outcome = executor.carry_out(ticket.effects()).await;
                    Finished {
                        ticket,
                        outcome,
                        report: None,
                    }
                });
            }
            Some(Stepped::Job(ticket, job)) => {
                self.workers.spawn(async move {
                    let (outcome, report) = job.await;
                    Finished {
                        ticket,
                        outcome,
                        report: Some(report),
                    }
                });
            }
        }
    }

    fn finish(&mut self, finished: Finished<R::Report>) {
        let Finished {
            ticket,
            outcome,
            report,
        } = finished;
        if let Some(refused) = &outcome.refused {
            log(ticket.key(), refused);
        }
        if let Some(event) = self.keyed.finish(ticket, outcome, report, self.now()) {
            self.executor.tell(event);
        }
    }

    fn take(&mut self, message: Message<R::Object>) {
        if message.is_recovery() {
            self.keyed.queue.recover(Instant::now());
        }
        let Message { resource, difference } = message;
        for change in difference.changes {
            match change {
                Change::Applied(object) => {
                    let key = |object: &R::Object| {
                        let ObjectMeta { namespace, name, .. } = object.identity();
                        ObjectKey::new(resource.kind, namespace, name)
                    };
                    self.keyed.applied(key, object);
                }
                Change::Removed {
                    name: (namespace, name),
                    uid,
                } => self.keyed.removed(ObjectKey::new(resource.kind, namespace, name), &uid),
                // The known state remains: an object that cannot be decoded is not deleted.
                Change::Broken { .. } => {}
            }
        }
        if difference.relisted {
            self.keyed.listed(resource.kind);
        }
        if difference.relisted && self.inbox.listed(resource) {
            tracing::info!("all objects are known");
            self.keyed.reconciler.complete();
            self.options.health.set_ready(true);
        }
    }
}

/// Concurrent changes by others are normal, and so is the deletion of a namespace.
fn log(key: &ObjectKey, refused: &Refused) {
    let error = &refused.refusal;
    if refused.namespace_ends {
        tracing::debug!(%key, %error, "the namespace takes nothing new");
    } else if matches!(error, Refusal::Invalid { .. } | Refusal::Unavailable { .. }) {
        tracing::warn!(%key, %error, "writes were refused, retrying");
    }
}
