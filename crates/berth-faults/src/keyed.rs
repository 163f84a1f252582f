//! The loop for keyed work of `berth_reconcile` as a component of the simulation, and the bugs in it.

use crate::component::{Component, Finished, JobId, News, Turn};
use crate::executor::{Outcome, carry_out};
use crate::mutation::Mutation;
use crate::port::Job;
use crate::world::{Doc, Millis};
use berth_core::backoff::Backoff;
use berth_core::dispute::Disputes;
use berth_core::effect::ObjectKey;
use berth_provisioner::course::Ended;
use berth_reconcile::{Answered, Now, Reconciler, Stepped, Ticket};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Work that is more than a list of effects.
pub(crate) type JobOf = Box<dyn FnOnce(Option<Mutation>) -> Job<Finished>>;

/// A reconciler of the simulation.
pub(crate) trait Steps: Reconciler<Object = Rc<Doc>, Answer = Rc<Doc>, Job = JobOf, Report = Ended> {}

impl<R> Steps for R where R: Reconciler<Object = Rc<Doc>, Answer = Rc<Doc>, Job = JobOf, Report = Ended> {}

/// The loop around steps.
pub(crate) struct Keyed<S> {
    keyed: berth_reconcile::Keyed<S, Duration>,
    workers: usize,
    in_flight: BTreeMap<JobId, Ticket>,
}

impl<S: Steps> Keyed<S> {
    pub(crate) fn new(steps: S, backoff: Backoff, workers: usize) -> Self {
        Self {
            // Randomness comes only from the seed.
            keyed: berth_reconcile::Keyed::new(steps, backoff, || 0.0),
            workers,
            in_flight: BTreeMap::new(),
        }
    }

    fn begin(&mut self, id: JobId, ticket: Ticket, turn: &Turn) {
        if turn.has(Mutation::NoLocks) {
            self.keyed.queue.unlock(ticket.touched());
        }
        self.in_flight.insert(id, ticket);
    }

    fn finished(&mut self, ticket: Ticket, mut outcome: Outcome, mut report: Option<Ended>, turn: &Turn) {
        if turn.has(Mutation::AnswersNotTakenIn) {
            outcome.fresh.clear();
        }
        if turn.has(Mutation::AnswersBringBack) {
            self.bring_back(&outcome);
        }
        if turn.has(Mutation::LostWake) {
            self.lose_waiting(ticket.touched());
        }
        let refused = outcome.refused.as_ref().map(|_| ticket.key().clone());
        if turn.has(Mutation::NoDisputes)
            && let Some(report) = &mut report
        {
            report.then = None;
        }
        self.keyed.finish(ticket, outcome, report, now(turn));
        if turn.has(Mutation::NoDisputes) {
            self.keyed.disputes = Disputes::default();
        }
        if turn.has(Mutation::NoBackoff) {
            self.keyed.hurry(refused.into_iter().collect());
        }
    }

    /// Applies what is known to be gone.
    fn bring_back(&mut self, outcome: &Outcome) {
        for answer in &outcome.fresh {
            let known = self.keyed.reconciler.version(answer.key());
            if known.is_none_or(|known| known.uid == answer.uid) {
                let keys = self.keyed.reconciler.answered(answer);
                self.keyed.push(keys);
            }
        }
    }

    /// Forgets the keys that wait for these.
    fn lose_waiting(&mut self, touched: &[ObjectKey]) {
        let ready: Vec<ObjectKey> = std::iter::from_fn(|| self.keyed.queue.pop()).collect();
        self.keyed.queue.unlock(touched);
        while self.keyed.queue.pop().is_some() {}
        self.keyed.push(ready);
    }
}

fn now(turn: &Turn) -> Now<Duration> {
    Now {
        steady: Duration::from_millis(turn.now),
        wall: turn.wall,
    }
}

impl<S: Steps> Component for Keyed<S> {
    fn take(&mut self, kind: &'static str, news: Vec<News>, _turn: &mut Turn) {
        for one in news {
            match one {
                News::Applied(doc) => self.keyed.applied(|doc| doc.key.clone(), doc),
                News::Listed => self.keyed.listed(kind),
                News::Removed(namespace, name, uid) => {
                    self.keyed.removed(ObjectKey::new(kind, namespace, name), &uid);
                }
            }
        }
    }

    fn complete(&mut self) {
        self.keyed.reconciler.complete();
    }

    fn finish(&mut self, job: JobId, finished: Finished, turn: &mut Turn) {
        if let (Some(ticket), Finished::Keyed(outcome, report)) = (self.in_flight.remove(&job), finished) {
            self.finished(ticket, *outcome, report.map(|ended| *ended), turn);
        }
    }

    fn run(&mut self, turn: &mut Turn) {
        self.keyed.queue.advance(now(turn).steady);
        while turn.complete
            && self.in_flight.len() < self.workers
            && let Some(stepped) = self.keyed.step(now(turn))
        {
            match stepped {
                Stepped::Told(_) | Stepped::Waits | Stepped::Disputed(..) => {}
                Stepped::Effects(ticket) => {
                    let list = ticket.effects().to_vec();
                    let id = turn
                        .spawn(|port| async move { Finished::Keyed(Box::new(carry_out(&port, &list).await), None) });
                    self.begin(id, ticket, turn);
                }
                Stepped::Job(ticket, job) => {
                    turn.next_job += 1;
                    let id = turn.next_job;
                    turn.spawned.push((id, job(turn.mutation)));
                    self.begin(id, ticket, turn);
                }
            }
        }
    }

    fn wake(&self) -> Option<Millis> {
        let due = self.keyed.queue.next_due()?;
        // A fraction of a millisecond is rounded up.
        let millis = due.as_nanos().div_ceil(1_000_000);
        Some(Millis::try_from(millis).unwrap_or(Millis::MAX))
    }
}
