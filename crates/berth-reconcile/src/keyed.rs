//! Runs steps for objects, one key at a time.
//!
//! While effects are in flight, no other step that would write to the same objects starts. Responses are applied before their objects
//! are processed again, so that a step always knows at least what this component wrote itself. A key whose effects were refused is
//! retried with a growing delay; changes by others trigger it at once. A write that another component reverted is not repeated at once
//! (see [`Disputes`]).

use crate::outcome::{Answered, Outcome, Refused, Version};
use crate::queue::{Failure, Queue};
use berth_core::backoff::Backoff;
use berth_core::dispute::Disputes;
use berth_core::effect::{Effect, Event, Fact, ObjectKey, Refusal, When};
use berth_core::unseen::Unseen;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use std::ops::Add;
use std::time::Duration;

/// The result of a step.
pub enum Work<Job> {
    /// Carry these out in order. An empty list means that there is nothing to do.
    Effects(Vec<Effect>),
    /// Run this job, which writes only to the key's own object.
    Job(Job),
}

/// What steps run on: the objects that a component knows, and how it decides. All methods return at once.
///
/// Methods that return keys return the objects whose step must run because of the change. Applying a known state again
/// must return none: a component's own writes come back through its watches.
pub trait Reconciler {
    /// An object from a watch.
    type Object;
    /// An object in a response.
    type Answer: Answered;
    /// Work that is more than a list of effects, for example calls to other systems between writes.
    type Job;
    /// The result of a job besides the outcome of its effects.
    type Report;

    /// Applies an object from a watch. It may be older than the known state.
    fn apply(&mut self, object: Self::Object) -> Vec<ObjectKey>;

    /// Removes an object: a watch reported its deletion, or a write discovered it.
    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey>;

    /// Applies an object from the response to our own write or read. Not called for another object with the same name, nor
    /// for one whose deletion a watch reported while effects on it were in flight. An object created by a job is not known to
    /// be in flight, and may already be deleted again: apply it only if its deletion cannot be missed.
    fn answered(&mut self, answer: &Self::Answer) -> Vec<ObjectKey>;

    /// The known version of an object; `None` if it is unknown.
    fn version(&self, key: &ObjectKey) -> Option<Version>;

    /// Decides what to do about an object. It may no longer exist.
    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Self::Job>;

    /// Effects on these objects are in flight from now on.
    fn begun(&mut self, _touched: &[ObjectKey]) {}

    /// Ends [`Reconciler::begun`]. All responses have been applied.
    fn ended(&mut self, _touched: &[ObjectKey]) -> Vec<ObjectKey> {
        Vec::new()
    }

    /// An effect of a step was refused. Returns an event for users, if the refusal is news to them.
    fn refused(&mut self, _effect: &Effect, _refusal: &Refusal) -> Option<Event> {
        None
    }

    /// Applies the report of a job. The responses to its effects have already been applied.
    fn reported(&mut self, _key: &ObjectKey, _report: Self::Report, _now: Timestamp) {}

    /// All objects are known for the first time. Steps run from now on.
    fn complete(&mut self) {}
}

/// The current time by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now<Time> {
    /// A monotonic clock.
    pub steady: Time,
    /// The wall clock.
    pub wall: Timestamp,
}

impl<Time: Add<Duration, Output = Time>> Now<Time> {
    /// Converts a wall-clock time, rounding up: a step that runs too early has nothing to do.
    fn moment(self, time: Timestamp) -> Time {
        let wait = Duration::try_from(time.duration_since(self.wall)).unwrap_or_default();
        self.steady + wait + Duration::from_millis(1)
    }
}

/// Work in flight.
#[derive(Debug)]
pub struct Ticket {
    key: ObjectKey,
    touched: Vec<ObjectKey>,
    effects: Vec<Effect>,
    /// The version of the object when the work began.
    begun: Option<Version>,
}

impl Ticket {
    /// The object whose step requested it.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The objects that it writes to.
    #[must_use]
    pub fn touched(&self) -> &[ObjectKey] {
        &self.touched
    }

    /// The effects to carry out, in order; empty for a job.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }
}

/// The result of running a step.
pub enum Stepped<Job> {
    /// It needs no requests. These events are to be recorded.
    Told(Vec<Event>),
    /// The objects that it would touch are in flight: it runs when they no longer are.
    Waits,
    /// Another component reverted the write: it is repeated at this time at the earliest.
    Disputed(ObjectKey, Timestamp),
    /// The effects of the ticket are to be carried out.
    Effects(Ticket),
    /// The job is to be run.
    Job(Ticket, Job),
}

/// A reconciler with its queue.
///
/// Its fields are public for fault injection; all other callers use its methods.
#[derive(Debug)]
pub struct Keyed<R, Time> {
    /// Makes the decisions.
    pub reconciler: R,
    /// The waiting keys, and those in flight.
    pub queue: Queue<ObjectKey, Time>,
    /// Writes that others reverted.
    pub disputes: Disputes,
    /// UIDs of objects whose deletion a watch reported while effects on them were in flight: responses about them are
    /// older.
    ended: FxHashMap<ObjectKey, Box<str>>,
    /// Objects known from responses that no watch has shown yet.
    unseen: Unseen,
}

impl<R, Time> Keyed<R, Time>
where
    R: Reconciler,
    Time: Copy + Ord + Add<Duration, Output = Time>,
{
    /// A reconciler without any known objects, with the backoff for failing keys.
    #[must_use]
    pub fn new(reconciler: R, backoff: Backoff, chance: fn() -> f64) -> Self {
        Self {
            reconciler,
            queue: Queue::new(backoff, chance),
            disputes: Disputes::default(),
            ended: FxHashMap::default(),
            unseen: Unseen::default(),
        }
    }

    /// Queues these keys, unless they wait for a time.
    pub fn push(&mut self, keys: Vec<ObjectKey>) {
        keys.into_iter().for_each(|key| self.queue.push(key));
    }

    /// Queues these keys at once because of an external change.
    pub fn hurry(&mut self, keys: Vec<ObjectKey>) {
        keys.into_iter().for_each(|key| self.queue.hurry(key));
    }

    /// A watch delivered an object of this kind. `key` is called only if the name is needed.
    pub fn applied(&mut self, key: impl FnOnce(&R::Object) -> ObjectKey, object: R::Object) {
        // Watches have nearly always shown everything, and no key is needed.
        if !self.unseen.is_empty() {
            self.unseen.settled(&key(&object));
        }
        // Echoes of our own writes return no keys, so these are changes by others.
        let keys = self.reconciler.apply(object);
        self.hurry(keys);
    }

    /// A watch reported the deletion of an object.
    pub fn removed(&mut self, key: ObjectKey, uid: &str) {
        let keys = self.forget(&key, uid);
        if self.queue.is_locked(&key) {
            self.ended.insert(key, uid.into());
        }
        self.hurry(keys);
    }

    /// All objects of a kind were listed, and the listed ones are applied.
    pub fn listed(&mut self, kind: &str) {
        let unnamed = self.unseen.listed(kind);
        self.hurry(unnamed);
    }

    /// Runs the step of the next key. `None` if no key is ready.
    pub fn step(&mut self, now: Now<Time>) -> Option<Stepped<R::Job>> {
        let key = self.queue.pop()?;
        if self.queue.wait_for(&key, std::slice::from_ref(&key)) {
            return Some(Stepped::Waits);
        }
        if let Some(question) = self.unseen.question(&key) {
            return Some(self.begin(key, vec![question]));
        }
        Some(match self.reconciler.step(&key, now.wall) {
            Work::Effects(effects) if effects.iter().all(takes_no_request) => {
                Stepped::Told(self.told(key, effects, now))
            }
            Work::Effects(effects) => match self.disputes.due(&effects, now.wall) {
                None => self.begin(key, effects),
                Some(due) => {
                    self.queue.alarm(key.clone(), now.moment(due));
                    Stepped::Disputed(key, due)
                }
            },
            Work::Job(job) => Stepped::Job(self.ticket(vec![key.clone()], key, Vec::new()), job),
        })
    }

    /// Handles effects that need no request.
    fn told(&mut self, key: ObjectKey, effects: Vec<Effect>, now: Now<Time>) -> Vec<Event> {
        let (mut events, mut again) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Event(event) => events.push(event),
                Effect::LookAgain { key, when } => again.push((key, when)),
                Effect::Confirm(_) | Effect::Create(_) | Effect::Patch(_) | Effect::Delete(_) | Effect::Bind { .. } => {
                }
            }
        }
        self.settle(key, again, None, now);
        events
    }

    fn begin(&mut self, key: ObjectKey, effects: Vec<Effect>) -> Stepped<R::Job> {
        let mut touched = vec![key.clone()];
        for written in effects.iter().filter_map(Effect::writes_to) {
            if !touched.contains(&written) {
                touched.push(written);
            }
        }
        if self.queue.wait_for(&key, &touched) {
            return Stepped::Waits;
        }
        Stepped::Effects(self.ticket(touched, key, effects))
    }

    fn ticket(&mut self, touched: Vec<ObjectKey>, key: ObjectKey, effects: Vec<Effect>) -> Ticket {
        self.queue.lock(&touched);
        self.reconciler.begun(&touched);
        let begun = self.reconciler.version(&key);
        Ticket {
            key,
            touched,
            effects,
            begun,
        }
    }

    /// Applies the result of work in flight. Returns events for users.
    pub fn finish(
        &mut self,
        ticket: Ticket,
        outcome: Outcome<R::Answer>,
        report: Option<R::Report>,
        now: Now<Time>,
    ) -> Option<Event> {
        let Ticket {
            key,
            touched,
            effects,
            begun,
        } = ticket;
        self.queue.unlock(&touched);
        let done = effects.get(..outcome.done).unwrap_or(&effects);
        self.disputes.written(done, now.wall);
        for confirmed in done {
            if let Effect::Confirm(Fact::Gone { key, uid }) = confirmed {
                self.find_gone(key, uid);
            }
        }
        if self.unseen.question(&key).is_some() {
            let refusal = outcome.refused.as_ref().map(|refused| &refused.refusal);
            self.unseen.asked(&key, refusal);
        }
        for gone in &outcome.gone {
            self.find_gone(&gone.key, &gone.uid);
        }
        self.take_answers(&outcome);
        touched.iter().for_each(|key| drop(self.ended.remove(key)));
        if let Some(report) = report {
            self.reconciler.reported(&key, report, now.wall);
        }
        // A watch may have delivered the responses first: then the objects in flight become available here.
        let keys = self.reconciler.ended(&touched);
        self.push(keys);
        let event = match (&outcome.refused, effects.get(outcome.done)) {
            (Some(refused), Some(effect)) => self.reconciler.refused(effect, &refused.refusal),
            _ => None,
        };
        if outcome.refused.is_none() {
            self.queue.recover(now.steady);
        }
        self.settle(key.clone(), outcome.again, outcome.refused, now);
        // Whatever the result, the next step starts from what others changed on the object meanwhile.
        let known = self.reconciler.version(&key);
        let ours = |known: &Version| {
            let answers = outcome.fresh.iter().filter(|answer| *answer.key() == key);
            let mut written = answers.map(|answer| answer.version().resource_version);
            begun.as_ref() == Some(known) || written.any(|version| version == known.resource_version)
        };
        if known.is_some_and(|known| !ours(&known)) {
            self.queue.hurry(key);
        }
        event
    }

    fn take_answers(&mut self, outcome: &Outcome<R::Answer>) {
        for answer in &outcome.fresh {
            let (key, uid) = (answer.key(), answer.version().uid);
            let known = self.reconciler.version(key);
            let ended = self.ended.get(key).is_some_and(|ended| **ended == *uid);
            // An earlier read of a deleted object is useless.
            let ended = ended || outcome.gone.iter().any(|gone| gone.key == *key && gone.uid == uid);
            if ended || known.as_ref().is_some_and(|known| known.uid != uid) {
                continue;
            }
            let keys = self.reconciler.answered(answer);
            self.push(keys);
            if known.is_none() && self.reconciler.version(key).is_some() {
                self.unseen.answered(key.clone(), &uid);
            }
        }
    }

    /// An object turned out to be gone.
    fn find_gone(&mut self, key: &ObjectKey, uid: &str) {
        if self.reconciler.version(key).is_some() {
            let keys = self.forget(key, uid);
            self.push(keys);
        }
    }

    /// Removes an object. One with the same name and another UID is newer, and is kept.
    fn forget(&mut self, key: &ObjectKey, uid: &str) -> Vec<ObjectKey> {
        let another = |known: Version| !uid.is_empty() && !known.uid.is_empty() && known.uid != uid;
        if self.reconciler.version(key).is_some_and(another) {
            return Vec::new();
        }
        self.unseen.settled(key);
        self.reconciler.remove(key)
    }

    /// Records when a key is to be retried.
    fn settle(&mut self, key: ObjectKey, again: Vec<(ObjectKey, When)>, refused: Option<Refused>, now: Now<Time>) {
        let mut failure = refused.map(|refused| match refused.outage {
            true => Failure::Outage,
            false => Failure::Own,
        });
        for (other, when) in again {
            match when {
                When::Now => self.queue.push(other),
                When::Backoff if other == key => failure = failure.or(Some(Failure::Own)),
                When::Backoff => self.queue.failed(other, Failure::Own, now.steady),
                When::At(time) => self.queue.alarm(other, now.moment(time)),
            }
        }
        match failure {
            Some(failure) => self.queue.failed(key, failure, now.steady),
            None => self.queue.succeeded(&key),
        }
    }
}

fn takes_no_request(effect: &Effect) -> bool {
    matches!(effect, Effect::Event(_) | Effect::LookAgain { .. })
}
