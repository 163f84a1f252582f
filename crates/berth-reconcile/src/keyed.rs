//! Runs steps for objects, one key at a time.
//!
//! While effects are in flight, no other step that would write to the same objects starts. What a server answered is taken in before its
//! objects are looked at again, so that a step never decides on less than this component wrote itself. A key whose effects were
//! refused comes back after a delay that grows; news from others bring it back at once. What another component took back is not
//! written again at once (see [`Disputes`]).

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

/// What a step asks for.
pub enum Work<Job> {
    /// Carry these out, in order. An empty list: there is nothing to do.
    Effects(Vec<Effect>),
    /// Do this, and write to no object but the key's own.
    Job(Job),
}

/// What steps are run on: the objects that a component knows, and how it decides. Everything answers at once.
///
/// Methods that return keys name the objects whose step is to be run because of what was just taken in. Taking in again
/// what is known already must return none: a component's own writes come back by its watches.
pub trait Reconciler {
    /// What watches bring.
    type Object;
    /// What a server answers.
    type Answer: Answered;
    /// Work that is more than a list of effects: calls to others between writes, for example.
    type Job;
    /// What a job brings back beside the outcome of its effects.
    type Report;

    /// Takes in an object as a watch has it. It may be older than what is known.
    fn apply(&mut self, object: Self::Object) -> Vec<ObjectKey>;

    /// Forgets an object: a watch says that it is gone, or a write found out.
    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey>;

    /// Takes in an object as the server answered to a write or a read of ours. Not asked for a namesake of the object that is
    /// known, nor for one that a watch saw go while effects on it were in flight. One that a job made is not known to be in
    /// flight, and may be gone again by now: take it in only if its end cannot be missed.
    fn answered(&mut self, answer: &Self::Answer) -> Vec<ObjectKey>;

    /// Which state of an object is known; nothing if it is not known at all.
    fn version(&self, key: &ObjectKey) -> Option<Version>;

    /// Decides what to do about an object. It may be gone.
    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Self::Job>;

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
    fn reported(&mut self, _key: &ObjectKey, _report: Self::Report, _now: Timestamp) {}

    /// All objects are known for the first time. Steps are run from now on.
    fn complete(&mut self) {}
}

/// The present moment by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now<Time> {
    /// By one that only tells how much time has passed.
    pub steady: Time,
    /// By the one on the wall.
    pub wall: Timestamp,
}

impl<Time: Add<Duration, Output = Time>> Now<Time> {
    /// When a time of day is, a little late rather than a little early: a step that is run too early has nothing to do.
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
    /// The state of the object when the work began.
    begun: Option<Version>,
}

impl Ticket {
    /// The object whose step asked for it.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The objects that it writes to.
    #[must_use]
    pub fn touched(&self) -> &[ObjectKey] {
        &self.touched
    }

    /// What is to be carried out, in order; nothing for a job.
    #[must_use]
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }
}

/// What came of a step.
pub enum Stepped<Job> {
    /// It takes no request. Users are to be told this.
    Told(Vec<Event>),
    /// The objects that it would touch are in flight: it is run when they are not.
    Waits,
    /// Somebody took back what was written: it is written again at this time at the earliest.
    Disputed(ObjectKey, Timestamp),
    /// The effects of the ticket are to be carried out.
    Effects(Ticket),
    /// This is to be done.
    Job(Ticket, Job),
}

/// A reconciler with its queue.
///
/// Its parts are public for those who make faults; everybody else changes them by its methods.
#[derive(Debug)]
pub struct Keyed<R, Time> {
    /// Who decides.
    pub reconciler: R,
    /// The keys that wait, and those in flight.
    pub queue: Queue<ObjectKey, Time>,
    /// What others took back.
    pub disputes: Disputes,
    /// Uids of objects that a watch saw go while effects on them were in flight: answers about them are older than that.
    ended: FxHashMap<ObjectKey, Box<str>>,
    /// What answers told of, and no watch has shown yet.
    unseen: Unseen,
}

impl<R, Time> Keyed<R, Time>
where
    R: Reconciler,
    Time: Copy + Ord + Add<Duration, Output = Time>,
{
    /// A reconciler that knows nothing yet, with the delays of keys that fail.
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

    /// Has these keys looked at, unless they wait for a time.
    pub fn push(&mut self, keys: Vec<ObjectKey>) {
        keys.into_iter().for_each(|key| self.queue.push(key));
    }

    /// Has these keys looked at, about which there is news from outside.
    pub fn hurry(&mut self, keys: Vec<ObjectKey>) {
        keys.into_iter().for_each(|key| self.queue.hurry(key));
    }

    /// A watch brought an object of this kind. Its name is asked for if it matters.
    pub fn applied(&mut self, key: impl FnOnce(&R::Object) -> ObjectKey, object: R::Object) {
        // Nearly always watches have shown everything, and no key is needed.
        if !self.unseen.is_empty() {
            self.unseen.settled(&key(&object));
        }
        // Echoes of our own writes give no keys: these are news.
        let keys = self.reconciler.apply(object);
        self.hurry(keys);
    }

    /// A watch says that an object is gone.
    pub fn removed(&mut self, key: ObjectKey, uid: &str) {
        let keys = self.forget(&key, uid);
        if self.queue.is_locked(&key) {
            self.ended.insert(key, uid.into());
        }
        self.hurry(keys);
    }

    /// All objects of a kind were listed, and what the list names is taken in.
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

    /// Does what takes no request.
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

    /// Takes in what came of work in flight. Returns what users should hear of it.
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
        // A watch may have brought the answers before us: then it is here that what was in flight is free to choose.
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
        // Whatever came of this, the next step starts from what somebody else made of the object meanwhile.
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
            // What was read of it before it went is of no use any more.
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

    /// Forgets an object. One of the same name and another uid came after it, and stays.
    fn forget(&mut self, key: &ObjectKey, uid: &str) -> Vec<ObjectKey> {
        let another = |known: Version| !uid.is_empty() && !known.uid.is_empty() && known.uid != uid;
        if self.reconciler.version(key).is_some_and(another) {
            return Vec::new();
        }
        self.unseen.settled(key);
        self.reconciler.remove(key)
    }

    /// Takes down when a key comes back.
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
