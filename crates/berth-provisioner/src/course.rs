//! The course of one piece of work from a decision to its end, without I/O.
//!
//! ```text
//!   attempt ── read the source ──▶ record ──▶ keep the source ──▶ ask the backend ──▶ conclusion ──▶ end
//!                                                                                         │  ▲
//!                                                          the volume's object is refused └──┘ once
//! ```
//!
//! The caller does what [`Course::next`] asks for, reports the result to the course, and repeats this until it ends. Callers are a
//! worker with connections, a simulation in virtual time, and a test that fails every other write.

use crate::answer::{Answer, Conclusion, Then, conclude, object_refused};
use crate::bids::Bid;
use crate::capacity::{Available, Query};
use crate::change::Action;
use crate::expand::Expansion;
use crate::request::{Backing, FailureKind, Request};
use crate::settings::Settings;
use crate::source::{Looked, Lookup, Preparation, SNAPSHOT, unprotect_snapshot};
use crate::step::{Attempt, class_failed, failed};
use berth_core::api::{Object, PersistentVolume};
use berth_core::effect::{Effect, ObjectKey, Refusal, When};
use std::collections::VecDeque;

/// The next action.
#[derive(Debug)]
pub enum Next<'a> {
    /// Read this from the API server, then call [`Course::looked`].
    Look(Lookup),
    /// Carry these out in order until one is refused, then call [`Course::written`].
    Write(Vec<Effect>),
    /// Ask the backend for this volume, then call [`Course::answered`].
    Ask(&'a Request),
    /// Ask the backend for its free space, then call [`Course::has_room`].
    Capacity(&'a Query),
    /// Expand this volume in the backend, then call [`Course::expanded`].
    Expand(&'a Expansion),
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
    /// The API server did not return a snapshot, for this reason.
    NotRead(String),
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
    Expand(Box<Expansion>),
    Room(Box<Bid>),
    Prepare(Preparation),
    Record(Effect),
    /// Keeps the source.
    Protect(Effect),
    Ask,
    Act {
        left: VecDeque<Action>,
        then: Option<Then>,
    },
    /// No longer keeps a snapshot.
    Release {
        write: Effect,
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
            stage: Stage::Prepare(Preparation::new(attempt.needs.clone())),
            attempt: Some(attempt),
            settings: Some(settings),
            answer,
            ended: Ended::default(),
        };
        course.prepared();
        course
    }

    /// Records the request once everything is read that it needs.
    fn prepared(&mut self) {
        if let (Stage::Prepare(preparation), Some(attempt)) = (&mut self.stage, &mut self.attempt)
            && preparation.lookup().is_none()
        {
            let protect = preparation.protect();
            attempt.protect = attempt.protect.take().or(protect);
            match attempt.record() {
                Some(record) => self.stage = Stage::Record(record),
                None => self.recorded(),
            }
        }
    }

    /// The request is recorded: keeps its source, then asks the backend.
    fn recorded(&mut self) {
        let protect = self.attempt.as_mut().and_then(|attempt| attempt.protect.take());
        match protect {
            Some(protect) => self.stage = Stage::Protect(protect),
            None => {
                self.stage = Stage::Ask;
                self.go_on();
            }
        }
    }

    /// Expands a volume.
    #[must_use]
    pub fn of_expansion(expansion: Box<Expansion>, settings: Settings) -> Self {
        let mut course = Self::acting(Vec::new(), None);
        course.settings = Some(settings);
        course.stage = Stage::Expand(expansion);
        course
    }

    /// The backend expanded the volume of [`Next::Expand`], or reported why not.
    pub fn expanded(&mut self, expanded: Result<(), String>) {
        if let (Stage::Expand(expansion), Some(settings)) = (&self.stage, &self.settings) {
            let Conclusion { actions, then } = expansion.conclude(expanded, settings);
            self.stage = Stage::Act {
                left: actions.into(),
                then: Some(then),
            };
        }
    }

    /// Tries to get a claim for this node.
    #[must_use]
    pub fn of_bid(bid: Box<Bid>) -> Self {
        let mut course = Self::acting(Vec::new(), Some(Then::Rest));
        course.stage = match &bid.query {
            Some(_) => Stage::Room(bid),
            None => Stage::Act {
                left: VecDeque::from([Action::Api(bid.select)]),
                then: Some(Then::Rest),
            },
        };
        course
    }

    /// The response to [`Next::Capacity`]; `None` if the backend did not respond. Then the claim is tried for anyway: if something is
    /// wrong with it, only its owner tells the user.
    pub fn has_room(&mut self, available: Option<&Available>) {
        let Stage::Room(bid) = std::mem::replace(&mut self.stage, Stage::End) else {
            return;
        };
        let Bid {
            bytes, select, later, ..
        } = *bid;
        let (action, then) = match available {
            Some(available) if available.bytes < bytes => {
                let when = When::At(later.until);
                let key = select.writes_to().unwrap_or_default();
                (Effect::LookAgain { key, when }, Then::Wait(later))
            }
            _ => (select, Then::Rest),
        };
        self.stage = Stage::Act {
            left: VecDeque::from([Action::Api(action)]),
            then: Some(then),
        };
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
            (Stage::Expand(expansion), _) => Next::Expand(expansion),
            (Stage::Room(bid), _) => match &bid.query {
                Some(query) => Next::Capacity(query),
                None => Next::End(self.ended.clone()),
            },
            (Stage::Prepare(preparation), _) => match preparation.lookup() {
                Some(lookup) => Next::Look(lookup),
                None => Next::End(self.ended.clone()),
            },
            (Stage::Record(write) | Stage::Protect(write), _) => Next::Write(vec![write.clone()]),
            (Stage::Release { write, .. }, _) => Next::Write(vec![write.clone()]),
            (Stage::Ask, Some(attempt)) => Next::Ask(&attempt.request),
            (Stage::Act { left, then }, _) => match left.front() {
                Some(Action::DeleteBacking(backing)) => Next::Delete(backing.clone()),
                Some(Action::Unprotect(snapshot)) => Next::Look(Lookup::One(snapshot.clone())),
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
                    self.recorded();
                }
                _ => self.stop(Stop::NoClaim),
            },
            (Stage::Protect(_), Some(refusal)) if !is_optional(&refusal) => self.stop(Stop::Refused(refusal)),
            (Stage::Protect(_), _) => {
                self.stage = Stage::Ask;
                self.go_on();
            }
            (Stage::Release { .. }, Some(refusal)) if !is_optional(&refusal) => self.stop(Stop::Refused(refusal)),
            (Stage::Release { left, then, .. }, _) => {
                let (left, then) = (std::mem::take(left), then.take());
                self.stage = Stage::Act { left, then };
            }
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
            (
                Stage::Expand(_) | Stage::Room(_) | Stage::Prepare(_) | Stage::Ask | Stage::Find { .. } | Stage::End,
                _,
            ) => {}
        }
    }

    /// The result of [`Next::Look`].
    pub fn looked(&mut self, looked: Looked) {
        match &mut self.stage {
            Stage::Prepare(preparation) => {
                let (Some(attempt), Some(settings)) = (&mut self.attempt, &self.settings) else {
                    return;
                };
                match preparation.looked(looked, attempt, settings) {
                    Ok(()) => self.prepared(),
                    Err(problem) => self.not_prepared(&problem),
                }
            }
            Stage::Act { left, then } => match looked {
                Err(problem) => self.stop(Stop::NotRead(problem)),
                Ok(found) => {
                    left.pop_front();
                    if let Some(write) = found.as_ref().and_then(unprotect_snapshot) {
                        let (left, then) = (std::mem::take(left), then.take());
                        self.stage = Stage::Release { write, left, then };
                    }
                }
            },
            Stage::Expand(_)
            | Stage::Room(_)
            | Stage::Record(_)
            | Stage::Protect(_)
            | Stage::Ask
            | Stage::Release { .. }
            | Stage::Find { .. }
            | Stage::End => {}
        }
    }

    /// The source is not ready or does not fit: the claim is tried again later. A request that was sent before stays recorded.
    fn not_prepared(&mut self, problem: &str) {
        if let (Some(attempt), Some(settings)) = (self.attempt.take(), &self.settings) {
            let message = class_failed(&attempt.request.class, problem);
            let event = failed(&attempt.request.claim, message, settings);
            self.stage = Stage::Act {
                left: VecDeque::from([event]),
                then: Some(Then::Retry),
            };
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

/// Whether work goes on after this refusal: roles may not allow to write to snapshots, and then these are not kept.
fn is_optional(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::NotFound(key) | Refusal::Invalid { key, .. } | Refusal::Unavailable { key, .. } => {
            key.kind == SNAPSHOT
        }
        Refusal::AlreadyExists(_) | Refusal::Conflict(_) | Refusal::Stale => false,
    }
}

/// The effects before the next call to the backend.
fn writes(left: &VecDeque<Action>) -> impl Iterator<Item = &Effect> {
    left.iter().map_while(|action| match action {
        Action::Api(effect) => Some(effect),
        Action::DeleteBacking(_) | Action::Unprotect(_) => None,
    })
}
