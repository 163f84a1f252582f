//! Runs steps for objects, one key at a time.
//!
//! ```text
//!   watches ──▶ inbox ──▶ ┌────────────┐ ──effects──▶ workers ──▶ API server
//!                         │ reconciler │
//!   resync, delays ─────▶ │ (the state)│ ◀──answers── workers
//!                         └────────────┘
//! ```
//!
//! One task owns a [`Reconciler`]: it takes in what watches bring, runs the step of each key that has something new, and hands the
//! effects to workers. While effects are in flight, no other step that would write to the same objects starts. What workers hear is
//! taken in before their objects are looked at again, so that a step never decides on less than this component wrote itself. A key whose
//! effects were refused comes back after a delay that grows; news from others bring it back at once. What another component
//! took back is not written again at once (see [`Disputes`]).

use crate::clock::Clock;
use crate::component;
use crate::endpoint::{Health, PULSE};
use crate::executor::{Answer, Executor, Outcome, Refused};
use crate::inbox::{Inbox, Message};
use crate::queue::{Failure, Queue};
use crate::resource::Identified;
use crate::watch::Change;
use berth_core::api::ObjectMeta;
use berth_core::backoff::Backoff;
use berth_core::dispute::Disputes;
use berth_core::effect::{Effect, Event, Fact, ObjectKey, Refusal, When};
use berth_core::unseen::Unseen;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use std::future::Future;
use std::pin::Pin;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Steps between two looks at the inbox: a resync of many objects must not hold up what is new.
const STEPS_AT_A_TIME: usize = 256;

/// Which state of an object is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
}

/// Work that is more than a list of effects: calls to others between writes, for example.
pub type Job<Report> = Pin<Box<dyn Future<Output = (Outcome, Report)> + Send>>;

/// What a step asks for.
pub enum Work<Report> {
    /// Carry these out, in order. An empty list: there is nothing to do.
    Effects(Vec<Effect>),
    /// Do this, and write to no object but the key's own.
    Job(Job<Report>),
}

/// What steps are run on: the objects that a component knows, and how it decides. Everything but [`Reconciler::news`] answers at once.
///
/// Methods that return keys name the objects whose step is to be run because of what was just taken in. Taking in again
/// what is known already must return none: a component's own writes come back by its watches.
pub trait Reconciler: Send + 'static {
    /// What watches bring: [`berth_core::api::Object`], or [`crate::resource::Whole`].
    type Object: Identified;
    /// What a [`Job`] brings back beside the outcome of its effects.
    type Report: Send + 'static;

    /// Takes in an object as a watch has it. It may be older than what is known.
    fn apply(&mut self, object: Self::Object) -> Vec<ObjectKey>;

    /// Forgets an object: a watch says that it is gone, or a write found out.
    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey>;

    /// Takes in an object as the server answered to a write or a read of ours. Not asked for a namesake of the object that is
    /// known, nor for one that a watch saw go while effects on it were in flight. One that a [`Job`] made is not known to be in
    /// flight, and may be gone again by now: take it in only if its end cannot be missed.
    fn answered(&mut self, answer: &Answer) -> Vec<ObjectKey>;

    /// Which state of an object is known; nothing if it is not known at all.
    fn version(&self, key: &ObjectKey) -> Option<Version>;

    /// Everything that is looked at in a resync.
    fn all_keys(&self) -> Vec<ObjectKey>;

    /// Decides what to do about an object. It may be gone.
    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Self::Report>;

    /// Effects on these objects are in flight from now on.
    fn begun(&mut self, _touched: &[ObjectKey]) {}

    /// Ends [`Reconciler::begun`]. All that was heard is taken in.
    fn ended(&mut self, _touched: &[ObjectKey]) -> Vec<ObjectKey> {
        Vec::new()
    }

    /// An effect of a step was refused. Gives what users should hear of it, if the server's word is news to them.
    fn refused(&mut self, _effect: &Effect, _refusal: &Refusal) -> Option<Event> {
        None
    }

    /// Takes in what a job brings back. What its effects heard is taken in before.
    fn reported(&mut self, _key: &ObjectKey, _report: Self::Report) {}

    /// All objects are known for the first time. Steps are run from now on.
    fn complete(&mut self) {}

    /// Waits for news that no watch brings. Must not lose any if it is dropped while it waits.
    fn news(&mut self) -> impl Future<Output = Vec<ObjectKey>> + Send {
        std::future::pending()
    }

    /// Hears how many keys wait for their step and how many lists of effects are in flight.
    fn measure(&self, _waiting: usize, _in_flight: usize) {}
}

/// How steps are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many lists of effects are carried out at a time. With one, each step sees what every earlier one wrote.
    pub workers: usize,
    /// How often everything is looked at, whether or not it changed.
    pub resync: Duration,
    /// How long a key waits whose effects were refused.
    pub backoff: Backoff,
    /// How long effects in flight may take when the component stops. Pods are given 30 s by default.
    pub grace: Duration,
    /// What is told of readiness.
    pub health: Health,
}

/// What a worker brings back.
struct Finished<Report> {
    key: ObjectKey,
    touched: Vec<ObjectKey>,
    effects: Vec<Effect>,
    outcome: Outcome,
    report: Option<Report>,
    /// The state of the object when the work began.
    begun: Option<Version>,
}

/// The one task that owns a reconciler.
pub struct Keyed<R: Reconciler> {
    reconciler: R,
    executor: Executor,
    options: Options,
    queue: Queue<ObjectKey>,
    disputes: Disputes,
    inbox: Inbox<R::Object>,
    /// Uids of objects that a watch saw go while effects on them were in flight: answers about them are older than that.
    ended: FxHashMap<ObjectKey, Box<str>>,
    /// What answers told of, and no watch has shown yet.
    unseen: Unseen,
    workers: JoinSet<Finished<R::Report>>,
    clock: Clock,
    /// Steps are being run; until no key is left, news is not waited for.
    stepping: bool,
}

impl<R: Reconciler> component::Owner for Keyed<R> {
    async fn run(self, cancel: CancellationToken) {
        Self::run(self, cancel).await;
    }
}

impl<R: Reconciler> Keyed<R> {
    /// A loop around a reconciler.
    #[must_use]
    pub fn new(reconciler: R, executor: Executor, options: Options, inbox: Inbox<R::Object>) -> Self {
        Self {
            reconciler,
            executor,
            queue: Queue::new(options.backoff),
            options,
            disputes: Disputes::default(),
            inbox,
            ended: FxHashMap::default(),
            unseen: Unseen::default(),
            workers: JoinSet::new(),
            clock: Clock::default().steady(),
            stepping: false,
        }
    }

    /// Goes by a clock that others go by, too.
    #[must_use]
    pub fn by(mut self, clock: Clock) -> Self {
        self.clock = clock.steady();
        self
    }

    /// Works until cancelled, then lets the workers finish what they have begun.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut resync = interval_at(Instant::now() + self.options.resync, self.options.resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pulse = interval(PULSE);
        loop {
            self.options.health.set_beating(true);
            self.dispatch();
            let due = self.queue.next_due();
            let calm = self
                .inbox
                .calm_at()
                .filter(|_| self.queue.has_ready() && !self.stepping);
            let more_steps = self.queue.has_ready() && self.can_step();
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
                    self.queue.advance(Instant::now());
                }
                () = sleep_until(calm.unwrap_or_else(Instant::now)), if calm.is_some() => {}
                keys = self.reconciler.news() => keys.into_iter().for_each(|key| self.queue.hurry(key)),
                _ = resync.tick() => self.push(self.reconciler.all_keys()),
                _ = pulse.tick() => {}
                () = std::future::ready(()), if more_steps => {}
            }
        }
        // A list of effects is not cut between two writes without need; whoever comes next could go on from there.
        let finish = async { while self.workers.join_next().await.is_some() {} };
        if timeout(self.options.grace, finish).await.is_err() {
            tracing::warn!("effects were left unfinished");
        }
    }

    fn can_step(&self) -> bool {
        let is_calm = self.stepping || self.inbox.calm_at().is_none();
        is_calm && self.inbox.is_complete() && self.workers.len() < self.options.workers.max(1)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn push(&mut self, keys: Vec<ObjectKey>) {
        keys.into_iter().for_each(|key| self.queue.push(key));
    }

    /// Runs steps while there is something to do and somebody to do it.
    fn dispatch(&mut self) {
        for _ in 0..STEPS_AT_A_TIME {
            if !self.can_step() {
                break;
            }
            let Some(key) = self.queue.pop() else { break };
            if !std::mem::replace(&mut self.stepping, true) {
                self.inbox.acted();
            }
            self.step(key);
        }
        self.stepping &= self.queue.has_ready();
        self.reconciler.measure(self.queue.len(), self.workers.len());
    }

    fn step(&mut self, key: ObjectKey) {
        if self.queue.wait_for(&key, std::slice::from_ref(&key)) {
            return;
        }
        if let Some(question) = self.unseen.question(&key) {
            self.carry_out(key, vec![question]);
            return;
        }
        let now = self.now();
        match self.reconciler.step(&key, now) {
            Work::Effects(effects)
                if effects
                    .iter()
                    .all(|effect| effect.writes_to().is_none() && !is_asked(effect)) =>
            {
                self.say(key, effects);
            }
            Work::Effects(effects) => match self.disputes.due(&effects, now) {
                None => self.carry_out(key, effects),
                Some(due) => {
                    tracing::debug!(%key, %due, "somebody took back what was written: waiting before it is written again");
                    self.queue.alarm(key, self.instant_of(due));
                }
            },
            Work::Job(job) => {
                let touched = vec![key.clone()];
                let begun = self.begin(&key, &touched);
                self.workers.spawn(async move {
                    let (outcome, report) = job.await;
                    Finished {
                        key,
                        touched,
                        effects: Vec::new(),
                        outcome,
                        report: Some(report),
                        begun,
                    }
                });
            }
        }
    }

    /// Does what takes no request: there is no need for a worker.
    fn say(&mut self, key: ObjectKey, effects: Vec<Effect>) {
        let mut again = Vec::new();
        for effect in effects {
            match effect {
                Effect::Event(event) => self.executor.tell(event),
                Effect::LookAgain { key, when } => again.push((key, when)),
                Effect::Confirm(_) | Effect::Create(_) | Effect::Patch(_) | Effect::Delete(_) | Effect::Bind { .. } => {
                }
            }
        }
        self.settle(key, again, None);
    }

    fn carry_out(&mut self, key: ObjectKey, effects: Vec<Effect>) {
        let mut touched = vec![key.clone()];
        for written in effects.iter().filter_map(Effect::writes_to) {
            if !touched.contains(&written) {
                touched.push(written);
            }
        }
        if self.queue.wait_for(&key, &touched) {
            return;
        }
        let begun = self.begin(&key, &touched);
        let executor = self.executor.clone();
        self.workers.spawn(async move {
            let outcome = executor.carry_out(&effects).await;
            Finished {
                key,
                touched,
                effects,
                outcome,
                report: None,
                begun,
            }
        });
    }

    fn begin(&mut self, key: &ObjectKey, touched: &[ObjectKey]) -> Option<Version> {
        self.queue.lock(touched);
        self.reconciler.begun(touched);
        self.reconciler.version(key)
    }

    fn finish(&mut self, finished: Finished<R::Report>) {
        let Finished {
            key,
            touched,
            effects,
            outcome,
            report,
            begun,
        } = finished;
        self.queue.unlock(&touched);
        let done = effects.get(..outcome.done).unwrap_or(&effects);
        self.disputes.written(done, self.now());
        for confirmed in done {
            if let Effect::Confirm(Fact::Gone { key, uid }) = confirmed
                && self.reconciler.version(key).is_some()
            {
                let keys = self.remove(key, uid);
                self.push(keys);
            }
        }
        if self.unseen.question(&key).is_some() {
            let refusal = outcome.refused.as_ref().map(|refused| &refused.refusal);
            self.unseen.asked(&key, refusal);
        }
        for gone in &outcome.gone {
            if self.reconciler.version(&gone.key).is_some() {
                let keys = self.remove(&gone.key, &gone.uid);
                self.push(keys);
            }
        }
        for answer in &outcome.fresh {
            let known = self.reconciler.version(&answer.key);
            let ended = self.ended.get(&answer.key).is_some_and(|uid| **uid == *answer.uid);
            // What was read of it before it went is of no use any more.
            let mut gone = outcome.gone.iter();
            let ended = ended || gone.any(|gone| gone.key == answer.key && gone.uid == answer.uid);
            if !ended && known.as_ref().is_none_or(|known| known.uid == answer.uid) {
                let is_new = known.is_none();
                let keys = self.reconciler.answered(answer);
                self.push(keys);
                if is_new && self.reconciler.version(&answer.key).is_some() {
                    self.unseen.answered(answer.key.clone(), &answer.uid);
                }
            }
        }
        touched.iter().for_each(|key| drop(self.ended.remove(key)));
        if let Some(report) = report {
            self.reconciler.reported(&key, report);
        }
        // A watch may have brought the answers before us: then it is here that what was in flight is free to choose.
        let keys = self.reconciler.ended(&touched);
        self.push(keys);
        if let (Some(refused), Some(effect)) = (&outcome.refused, effects.get(outcome.done))
            && let Some(event) = self.reconciler.refused(effect, &refused.refusal)
        {
            self.executor.tell(event);
        }
        if outcome.refused.is_none() {
            self.queue.recover(Instant::now());
        }
        self.settle(key.clone(), outcome.again, outcome.refused);
        // Whatever came of this, the next step starts from what somebody else made of the object meanwhile.
        let known = self.reconciler.version(&key);
        let ours = |version: &Version| {
            let mut answers = outcome.fresh.iter();
            begun.as_ref() == Some(version)
                || answers.any(|answer| answer.key == key && answer.resource_version == version.resource_version)
        };
        if known.is_some_and(|version| !ours(&version)) {
            self.queue.hurry(key);
        }
    }

    /// Forgets an object. One of the same name and another uid came after it, and stays.
    fn remove(&mut self, key: &ObjectKey, uid: &str) -> Vec<ObjectKey> {
        let another = |known: Version| !uid.is_empty() && !known.uid.is_empty() && known.uid != uid;
        if self.reconciler.version(key).is_some_and(another) {
            return Vec::new();
        }
        self.unseen.settled(key);
        self.reconciler.remove(key)
    }

    /// Takes down when a key comes back.
    fn settle(&mut self, key: ObjectKey, again: Vec<(ObjectKey, When)>, refused: Option<Refused>) {
        let now = Instant::now();
        let mut failure = refused.map(|refused| {
            let error = &refused.refusal;
            // What others changed or made meanwhile is all in a day's work, and so is a namespace that goes.
            if refused.namespace_ends {
                tracing::debug!(%key, %error, "the namespace takes nothing new");
            } else if matches!(error, Refusal::Invalid { .. } | Refusal::Unavailable { .. }) {
                tracing::warn!(%key, %error, "effects were refused, trying again");
            }
            if refused.outage { Failure::Outage } else { Failure::Own }
        });
        for (other, when) in again {
            match when {
                When::Now => self.queue.push(other),
                When::Backoff if other == key => failure = failure.or(Some(Failure::Own)),
                When::Backoff => self.queue.failed(other, Failure::Own, now),
                When::At(time) => self.queue.alarm(other, self.instant_of(time)),
            }
        }
        match failure {
            Some(failure) => self.queue.failed(key, failure, now),
            None => self.queue.succeeded(&key),
        }
    }

    fn instant_of(&self, time: Timestamp) -> Instant {
        let wait = Duration::try_from(time.duration_since(self.now())).unwrap_or_default();
        // A little late rather than a little early: a step that is run too early has nothing to do.
        Instant::now() + wait + Duration::from_millis(1)
    }

    fn take(&mut self, message: Message<R::Object>) {
        if message.is_recovery() {
            self.queue.recover(Instant::now());
        }
        let Message { resource, difference } = message;
        for change in difference.changes {
            let keys = match change {
                Change::Applied(object) => {
                    // Nearly always there is nothing, and no key is needed.
                    if !self.unseen.is_empty() {
                        let ObjectMeta { namespace, name, .. } = object.identity();
                        self.unseen.settled(&ObjectKey::new(resource.kind, namespace, name));
                    }
                    self.reconciler.apply(object)
                }
                Change::Removed {
                    name: (namespace, name),
                    uid,
                } => {
                    let key = ObjectKey::new(resource.kind, namespace, name);
                    let keys = self.remove(&key, &uid);
                    if self.queue.is_locked(&key) {
                        self.ended.insert(key, uid);
                    }
                    keys
                }
                // What was known still stands: an object that cannot be read is not gone.
                Change::Broken { .. } => Vec::new(),
            };
            // Echoes of our own writes give no keys: this is news.
            keys.into_iter().for_each(|key| self.queue.hurry(key));
        }
        if difference.relisted {
            let unnamed = self.unseen.listed(resource.kind);
            unnamed.into_iter().for_each(|key| self.queue.hurry(key));
        }
        if difference.relisted && self.inbox.listed(resource) {
            tracing::info!("all objects are known");
            self.reconciler.complete();
            self.options.health.set_ready(true);
        }
    }
}

fn is_asked(effect: &Effect) -> bool {
    matches!(effect, Effect::Confirm(_))
}
