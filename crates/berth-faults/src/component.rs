//! The simulator's interface to a component: news in, jobs out.

use crate::executor::Outcome;
use crate::mutation::Mutation;
use crate::port::{Job, Port};
use crate::world::{Doc, Millis};
use berth_provisioner::course::Ended;
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Effect, Scheduler, WriteId, WriteOutcome};
use jiff::Timestamp;
use std::future::Future;
use std::rc::Rc;

/// One change to the objects of a kind, as a watch delivers it.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Applied(Rc<Doc>),
    /// Namespace, name and uid.
    Removed(String, String, String),
    /// The list of the kind is complete.
    Listed,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Finished {
    /// A list of effects, or the work of a provisioner.
    Keyed(Box<Outcome>, Option<Box<Ended>>),
    /// An effect of the scheduler: the write that it waits for, and the pod whose effects are ordered.
    Scheduling(Option<(WriteId, WriteOutcome)>, Option<PodKey>),
}

/// The number of a job within its process.
pub(crate) type JobId = u64;

/// The input and output of one turn of a component.
pub(crate) struct Turn {
    /// The monotonic clock.
    pub(crate) now: Millis,
    /// The wall clock of its machine.
    pub(crate) wall: Timestamp,
    /// Every kind was listed.
    pub(crate) complete: bool,
    pub(crate) next_job: JobId,
    /// The enabled bug.
    pub(crate) mutation: Option<Mutation>,
    /// The jobs that it starts.
    pub(crate) spawned: Vec<(JobId, Job<Finished>)>,
    /// The decisions of a scheduler.
    pub(crate) decided: Vec<Effect>,
}

impl Turn {
    pub(crate) fn spawn<F>(&mut self, work: impl FnOnce(Port) -> F) -> JobId
    where
        F: Future<Output = Finished> + 'static,
    {
        self.next_job += 1;
        self.spawned.push((self.next_job, Job::new(self.mutation, work)));
        self.next_job
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

/// A component with its state.
pub(crate) trait Component {
    /// Applies what a watch delivers.
    fn take(&mut self, kind: &'static str, news: Vec<News>, turn: &mut Turn);
    /// Every kind was listed for the first time.
    fn complete(&mut self) {}
    /// A job is done.
    fn finish(&mut self, job: JobId, finished: Finished, turn: &mut Turn);
    /// Does all pending work.
    fn run(&mut self, turn: &mut Turn);
    /// When there is work to do, if nothing else happens.
    fn wake(&self) -> Option<Millis>;
    /// The scheduler, if this is one.
    fn scheduler(&self) -> Option<&Scheduler> {
        None
    }
}
