//! The course of one piece of work from a decision to its end, without I/O.
//!
//! ```text
//!   attempt ── record ──▶ ask the backend ──▶ conclusion ──▶ end
//!                                                 │  ▲
//!                  the volume's object is refused └──┘ once
//! ```
//!
//! The caller does what [`Course::next`] asks for, reports the result to the course, and repeats this until it ends. Callers are a
//! worker with connections, a simulation in virtual time, and a test that fails every other write.

use crate::answer::{Answer, Conclusion, Then, conclude, object_refused};
use crate::effect::Action;
use crate::request::{Backing, FailureKind, Request};
use crate::settings::Settings;
use crate::step::Attempt;
use berth_core::api::{Object, PersistentVolume};
use berth_core::effect::{Effect, ObjectKey, Refusal, When};
use std::collections::VecDeque;

/// The next action.
#[derive(Debug)]
pub enum Next<'a> {
    /// Carry these out in order until one is refused, then call [`Course::written`].
    Write(Vec<Effect>),
    /// Ask the backend for this volume, then call [`Course::answered`].
    Ask(&'a Request),
    /// Delete this volume in the backend, then call [`Course::deleted`].
    Delete(Backing),
    /// Read this volume's object, then call [`Course::found`].
    Find(ObjectKey),
    /// Nothing: the course has ended.
    End(Ended),
}

/// How a course ended. If it ended early, the next step finds the remaining work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// What happens to the claim; `None` if the course ended early.
    pub then: Option<Then>,
    /// The backend's failure, if it created no volume.
    pub failure: Option<FailureKind>,
    /// Why it ended early.
    pub stop: Option<Stop>,
}

/// Why a course ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// An effect was refused.
    Refused(Refusal),
    /// The backend did not delete a volume, for this reason.
    NotDeleted(String),
    /// The API server returned something other than a claim.
    NoClaim,
}

impl Ended {
    /// When to retry the object, regardless of changes to it. `is_fresh` means that its newest state was read after a
    /// refusal.
    #[must_use]
    pub fn again(&self, is_fresh: bool) -> Option<When> {
        match &self.stop {
            None => (self.then == Some(Then::Retry)).then_some(When::Backoff),
            // The object is gone, and the work with it.
            Some(Stop::Refused(Refusal::NotFound(_))) => None,
            // Another writer was faster: the step is run again on the new state.
            Some(Stop::Refused(Refusal::Conflict(_) | Refusal::Stale)) if is_fresh => Some(When::Now),
            Some(_) => Some(When::Backoff),
        }
    }

    /// Whether it ended with a refusal that makes the object wait: the caller handles this by the refusal.
    #[must_use]
    pub fn is_refused(&self, is_fresh: bool) -> bool {
        matches!(self.stop, Some(Stop::Refused(_))) && self.again(is_fresh) == Some(When::Backoff)
    }
}

/// One piece of work of a provisioner.
#[derive(Debug)]
pub struct Course {
    attempt: Option<Box<Attempt>>,
    /// The settings of the attempt's provisioner.
    settings: Option<Settings>,
    answer: Option<Answer>,
    stage: Stage,
    ended: Ended,
}

#[derive(Debug)]
enum Stage {
    Record(Effect),
    Ask,
    Act {
        left: VecDeque<Action>,
        then: Option<Then>,
    },
    /// The object of the volume could not be created, because one with that name exists.
    Find {
        key: ObjectKey,
        refusal: Refusal,
    },
    End,
}

impl Course {
    /// Asks the backend for a volume and carries out what follows. Some backends have already responded.
    #[must_use]
    pub fn of_attempt(attempt: Box<Attempt>, answer: Option<Answer>, settings: Settings) -> Self {
        let mut course = Self {
            stage: attempt.record.clone().map_or(Stage::Ask, Stage::Record),
            attempt: Some(attempt),
            settings: Some(settings),
            answer,
            ended: Ended::default(),
        };
        if matches!(course.stage, Stage::Ask) {
            course.go_on();
        }
        course
    }

    /// Carries out a conclusion about a claim without asking the backend.
    #[must_use]
    pub fn of_conclusion(conclusion: Conclusion) -> Self {
        Self::acting(conclusion.actions, Some(conclusion.then))
    }

    /// Carries out actions on a volume.
    #[must_use]
    pub fn of_reclaim(actions: Vec<Action>) -> Self {
        Self::acting(actions, None)
    }

    fn acting(actions: Vec<Action>, then: Option<Then>) -> Self {
        let left = actions.into();
        Self {
            attempt: None,
            settings: None,
            answer: None,
            stage: Stage::Act { left, then },
            ended: Ended::default(),
        }
    }

    /// The next action.
    #[must_use]
    pub fn next(&self) -> Next<'_> {
        match (&self.stage, &self.attempt) {
            (Stage::Record(record), _) => Next::Write(vec![record.clone()]),
            (Stage::Ask, Some(attempt)) => Next::Ask(&attempt.request),
            (Stage::Act { left, then }, _) => match left.front() {
                Some(Action::DeleteBacking(backing)) => Next::Delete(backing.clone()),
                Some(Action::Api(_)) => Next::Write(writes(left).cloned().collect()),
                None => Next::End(Ended {
                    then: then.clone(),
                    ..self.ended.clone()
                }),
            },
            (Stage::Find { key, .. }, _) => Next::Find(key.clone()),
            (Stage::Ask, None) | (Stage::End, _) => Next::End(self.ended.clone()),
        }
    }

    /// The effects of [`Next::Write`] were carried out, or one was refused. `last` returns the last object in the
    /// server's responses.
    pub fn written(&mut self, refusal: Option<Refusal>, last: impl FnOnce() -> Option<Object>) {
        match (&mut self.stage, refusal) {
            (Stage::Record(_), Some(refusal)) => self.stop(Stop::Refused(refusal)),
            (Stage::Record(_), None) => match (last(), &mut self.attempt) {
                (Some(Object::PersistentVolumeClaim(claim)), Some(attempt)) => {
                    attempt.recorded(*claim);
                    self.stage = Stage::Ask;
                    self.go_on();
                }
                _ => self.stop(Stop::NoClaim),
            },
            (Stage::Act { left, .. }, None) => {
                let done = writes(left).count();
                left.drain(..done);
            }
            (Stage::Act { .. }, Some(refusal)) => match (&self.attempt, &refusal) {
                (Some(_), Refusal::AlreadyExists(key)) => {
                    let key = key.clone();
                    self.stage = Stage::Find { key, refusal };
                }
                _ => self.refused(refusal, None),
            },
            (Stage::Ask | Stage::Find { .. } | Stage::End, _) => {}
        }
    }

    /// The backend responded to [`Next::Ask`].
    pub fn answered(&mut self, answer: Answer) {
        self.answer = Some(answer);
        self.go_on();
    }

    /// The backend deleted the volume of [`Next::Delete`], or reported why not.
    pub fn deleted(&mut self, deleted: Result<(), String>) {
        if let Err(problem) = deleted {
            self.stop(Stop::NotDeleted(problem));
        } else if let Stage::Act { left, .. } = &mut self.stage {
            left.pop_front();
        }
    }

    /// The object of [`Next::Find`], if it can be read.
    pub fn found(&mut self, volume: Option<&PersistentVolume>) {
        if let Stage::Find { refusal, .. } = std::mem::replace(&mut self.stage, Stage::End) {
            self.refused(refusal, volume);
        }
    }

    /// Draws the conclusion from the response, once there is one.
    fn go_on(&mut self) {
        if let (Some(attempt), Some(settings), Some(answer)) = (&self.attempt, &self.settings, &self.answer) {
            self.ended.failure = answer.as_ref().err().map(|failure| failure.kind);
            let Conclusion { actions, then } = conclude(attempt, answer, settings);
            self.stage = Stage::Act {
                left: actions.into(),
                then: Some(then),
            };
        }
    }

    /// An effect of a conclusion was refused. What follows from that is carried out once.
    fn refused(&mut self, refusal: Refusal, found: Option<&PersistentVolume>) {
        let next = match (self.attempt.take(), &self.answer, &self.settings) {
            (Some(attempt), Some(answer), Some(settings)) => {
                object_refused(&attempt, answer, &refusal, found, settings)
            }
            _ => None,
        };
        match next {
            Some(Conclusion { actions, then }) => {
                self.stage = Stage::Act {
                    left: actions.into(),
                    then: Some(then),
                }
            }
            None => self.stop(Stop::Refused(refusal)),
        }
    }

    fn stop(&mut self, stop: Stop) {
        self.ended.stop = Some(stop);
        self.stage = Stage::End;
    }
}

/// The effects before the next call to the backend.
fn writes(left: &VecDeque<Action>) -> impl Iterator<Item = &Effect> {
    left.iter().map_while(|action| match action {
        Action::Api(effect) => Some(effect),
        Action::DeleteBacking(_) => None,
    })
}
