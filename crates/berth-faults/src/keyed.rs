//! Runs steps for objects, one key at a time, by the rules of `berth_kube::keyed`, in virtual time.

use crate::component::{Component, Finished, JobId, News, Turn};
use crate::executor::{Outcome, Refused, carry_out};
use crate::mutation::Mutation;
use crate::port::Job;
use crate::queue::Queue;
use crate::world::{Doc, Millis};
use berth_core::backoff::Backoff;
use berth_core::dispute::Disputes;
use berth_core::effect::{Effect, Fact, ObjectKey, When};
use berth_core::unseen::Unseen;
use berth_provisioner::course::Ended;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Uid and resource version.
pub(crate) type Version = (String, String);

/// What a step asks for.
pub(crate) enum Work {
    /// Carry these out, in order.
    Effects(Vec<Effect>),
    /// Do this, and write to no object but the key's own.
    Job(Box<dyn FnOnce(Option<Mutation>) -> Job<Finished>>),
}

/// What steps are run on: `berth_kube::keyed::Reconciler` without a runtime.
pub(crate) trait Steps {
    fn apply(&mut self, doc: &Doc) -> Vec<ObjectKey>;
    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey>;
    fn answered(&mut self, doc: &Doc) -> Vec<ObjectKey>;
    fn version(&self, key: &ObjectKey) -> Option<Version>;
    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work;
    fn begun(&mut self, _touched: &[ObjectKey]) {}
    fn ended(&mut self, _touched: &[ObjectKey]) -> Vec<ObjectKey> {
        Vec::new()
    }
    fn reported(&mut self, _key: &ObjectKey, _ended: Ended, _now: Timestamp) {}
    fn complete(&mut self) {}
}

struct InFlight {
    key: ObjectKey,
    touched: Vec<ObjectKey>,
    effects: Vec<Effect>,
    begun: Option<Version>,
}

/// The loop around steps.
pub(crate) struct Keyed<S> {
    steps: S,
    queue: Queue,
    disputes: Disputes,
    workers: usize,
    /// Objects in flight that a watch saw go, with their uids: what answers tell of them is from before.
    ended: BTreeMap<ObjectKey, String>,
    /// What answers told of, and no watch has shown yet.
    unseen: Unseen,
    in_flight: BTreeMap<JobId, InFlight>,
}

impl<S: Steps> Keyed<S> {
    pub(crate) fn new(steps: S, backoff: Backoff, workers: usize) -> Self {
        Self {
            steps,
            queue: Queue::new(backoff),
            disputes: Disputes::default(),
            workers,
            ended: BTreeMap::new(),
            unseen: Unseen::default(),
            in_flight: BTreeMap::new(),
        }
    }

    /// Lets a key wait for whatever of these is in flight.
    fn must_wait(&mut self, key: &ObjectKey, touched: &[ObjectKey], turn: &Turn) -> bool {
        if turn.has(Mutation::NoLocks) {
            return false;
        }
        if turn.has(Mutation::LostWake) {
            return touched.iter().any(|one| self.queue.is_locked(one));
        }
        self.queue.wait_for(key, touched)
    }

    fn push(&mut self, keys: Vec<ObjectKey>) {
        keys.into_iter().for_each(|key| self.queue.push(key));
    }

    fn step(&mut self, key: ObjectKey, turn: &mut Turn) {
        if self.must_wait(&key, std::slice::from_ref(&key), turn) {
            return;
        }
        if let Some(question) = self.unseen.question(&key) {
            self.carry_out(key, vec![question], turn);
            return;
        }
        match self.steps.step(&key, turn.wall) {
            Work::Effects(effects) if effects.iter().all(takes_no_request) => {
                let again = effects.into_iter().filter_map(|effect| match effect {
                    Effect::LookAgain { key, when } => Some((key, when)),
                    _ => None,
                });
                self.settle(key, again.collect(), None, turn);
            }
            Work::Effects(effects) => match self.disputes.due(&effects, turn.wall) {
                Some(_) if turn.has(Mutation::NoDisputes) => self.carry_out(key, effects, turn),
                None => self.carry_out(key, effects, turn),
                Some(due) => self.queue.alarm(key, moment(due, turn)),
            },
            Work::Job(job) => {
                let touched = vec![key.clone()];
                turn.next_job += 1;
                let id = turn.next_job;
                turn.spawned.push((id, job(turn.mutation)));
                self.begin(id, key, touched, Vec::new());
            }
        }
    }

    fn carry_out(&mut self, key: ObjectKey, effects: Vec<Effect>, turn: &mut Turn) {
        let mut touched = vec![key.clone()];
        for written in effects.iter().filter_map(Effect::writes_to) {
            if !touched.contains(&written) {
                touched.push(written);
            }
        }
        if self.must_wait(&key, &touched, turn) {
            return;
        }
        let list = effects.clone();
        let id = turn.spawn(|port| async move { Finished::Keyed(Box::new(carry_out(&port, &list).await), None) });
        self.begin(id, key, touched, effects);
    }

    fn begin(&mut self, id: JobId, key: ObjectKey, touched: Vec<ObjectKey>, effects: Vec<Effect>) {
        self.queue.lock(&touched);
        self.steps.begun(&touched);
        let begun = self.steps.version(&key);
        let work = InFlight {
            key,
            touched,
            effects,
            begun,
        };
        self.in_flight.insert(id, work);
    }

    fn finished(&mut self, work: InFlight, outcome: Outcome, report: Option<Ended>, turn: &Turn) {
        let InFlight {
            key,
            touched,
            effects,
            begun,
        } = work;
        self.queue.unlock(&touched);
        let done = effects.get(..outcome.done).unwrap_or(&effects);
        self.disputes.written(done, turn.wall);
        for confirmed in done {
            if let Effect::Confirm(Fact::Gone { key, uid }) = confirmed {
                self.find_gone(key, uid);
            }
        }
        if self.unseen.question(&key).is_some() {
            let refusal = outcome.refused.as_ref().map(|refused| &refused.refusal);
            self.unseen.asked(&key, refusal);
        }
        for (gone, uid) in &outcome.gone {
            self.find_gone(gone, uid);
        }
        for answer in &outcome.fresh {
            let known = self.steps.version(&answer.key);
            let ended = self.ended.get(&answer.key).is_some_and(|uid| *uid == answer.uid);
            let mut gone = outcome.gone.iter();
            let ended = ended || gone.any(|(key, uid)| *key == answer.key && *uid == answer.uid);
            let ended = (ended && !turn.has(Mutation::AnswersBringBack)) || turn.has(Mutation::AnswersNotTakenIn);
            if !ended && known.as_ref().is_none_or(|(uid, _)| *uid == answer.uid) {
                let keys = self.steps.answered(answer);
                self.push(keys);
                if known.is_none() && self.steps.version(&answer.key).is_some() {
                    self.unseen.answered(answer.key.clone(), &answer.uid);
                }
            }
        }
        touched.iter().for_each(|key| drop(self.ended.remove(key)));
        if let Some(mut report) = report {
            report.then.take_if(|_| turn.has(Mutation::NoDisputes));
            self.steps.reported(&key, report, turn.wall);
        }
        let keys = self.steps.ended(&touched);
        self.push(keys);
        self.settle(key.clone(), outcome.again, outcome.refused, turn);
        let known = self.steps.version(&key);
        let ours = |version: &Version| {
            let mut answers = outcome.fresh.iter();
            begun.as_ref() == Some(version)
                || answers.any(|answer| answer.key == key && answer.version.to_string() == version.1)
        };
        if known.is_some_and(|version| !ours(&version)) {
            self.queue.hurry(key);
        }
    }

    /// An object turned out to be gone. One of the same name and another uid came after it, and stays.
    fn find_gone(&mut self, key: &ObjectKey, uid: &str) {
        let known = self.steps.version(key);
        if known.is_some_and(|(known, _)| uid.is_empty() || known == *uid) {
            self.unseen.settled(key);
            let keys = self.steps.remove(key);
            self.push(keys);
        }
    }

    /// Takes down when a key comes back.
    fn settle(&mut self, key: ObjectKey, again: Vec<(ObjectKey, When)>, refused: Option<Refused>, turn: &Turn) {
        let mut failure = refused.map(|refused| refused.outage);
        if failure.is_some() && turn.has(Mutation::NoBackoff) {
            self.queue.hurry(key.clone());
            return;
        }
        for (other, when) in again {
            match when {
                When::Now => self.queue.push(other),
                When::Backoff if other == key => failure = failure.or(Some(false)),
                When::Backoff => self.queue.failed(other, false, turn.now),
                When::At(time) => self.queue.alarm(other, moment(time, turn)),
            }
        }
        match failure {
            Some(outage) => self.queue.failed(key, outage, turn.now),
            None => self.queue.succeeded(&key),
        }
    }
}

fn takes_no_request(effect: &Effect) -> bool {
    matches!(effect, Effect::Event(_) | Effect::LookAgain { .. })
}

/// When a time of day is, a little late rather than a little early.
fn moment(time: Timestamp, turn: &Turn) -> Millis {
    let wait = time.duration_since(turn.wall).as_millis();
    turn.now + Millis::try_from(wait).unwrap_or_default() + 1
}

impl<S: Steps> Component for Keyed<S> {
    fn take(&mut self, kind: &'static str, news: Vec<News>, _turn: &mut Turn) {
        for one in news {
            let keys = match one {
                News::Applied(doc) => {
                    self.unseen.settled(&doc.key);
                    self.steps.apply(&doc)
                }
                News::Listed => self.unseen.listed(kind),
                News::Removed(namespace, name, uid) => {
                    let key = ObjectKey::new(kind, namespace, name);
                    let another = self.steps.version(&key).is_some_and(|(known, _)| known != uid);
                    let keys = match another {
                        true => Vec::new(),
                        false => {
                            self.unseen.settled(&key);
                            self.steps.remove(&key)
                        }
                    };
                    if self.queue.is_locked(&key) {
                        self.ended.insert(key, uid);
                    }
                    keys
                }
            };
            keys.into_iter().for_each(|key| self.queue.hurry(key));
        }
    }

    fn complete(&mut self) {
        self.steps.complete();
    }

    fn finish(&mut self, job: JobId, finished: Finished, turn: &mut Turn) {
        if let (Some(work), Finished::Keyed(outcome, report)) = (self.in_flight.remove(&job), finished) {
            self.finished(work, *outcome, report.map(|ended| *ended), turn);
        }
    }

    fn run(&mut self, turn: &mut Turn) {
        self.queue.advance(turn.now);
        while turn.complete
            && self.in_flight.len() < self.workers
            && let Some(key) = self.queue.pop()
        {
            self.step(key, turn);
        }
    }

    fn wake(&self) -> Option<Millis> {
        self.queue.next_due()
    }
}
