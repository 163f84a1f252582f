//! Carries out a list of effects, request by request, by the rules of `berth_kube::executor`.
//!
//! A later effect on an object continues on the version that an earlier one of the list left; a write whose answer was lost is looked
//! for before it counts as failed; and after a conflict the object is read, so that the next step starts from what is there.

use crate::mutation::Mutation;
use crate::port::{ApiError, Port};
use crate::world::Doc;
use berth_cluster::field;
use berth_core::effect::{Delete, Effect, Fact, Guard, Merge, ObjectKey, Patch, Refusal, Target, When};
use serde_json::Value;
use std::rc::Rc;

/// Why a list of effects ended early.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// The server is away or out of order.
    pub(crate) outage: bool,
}

/// How a list of effects went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many effects of the list were carried out.
    pub(crate) done: usize,
    /// Objects that were written or read, in order.
    pub(crate) fresh: Vec<Rc<Doc>>,
    /// Objects that turned out to be gone, with their uids.
    pub(crate) gone: Vec<(ObjectKey, String)>,
    pub(crate) again: Vec<(ObjectKey, When)>,
    pub(crate) refused: Option<Refused>,
}

impl Outcome {
    /// Goes on with what came of the next list.
    pub(crate) fn continued(&mut self, next: Self) {
        self.done += next.done;
        self.fresh.extend(next.fresh);
        self.gone.extend(next.gone);
        self.again.extend(next.again);
        self.refused = next.refused;
    }
}

/// Carries out effects in order, until the first that is refused.
pub(crate) async fn carry_out(port: &Port, effects: &[Effect]) -> Outcome {
    let mut run = Run {
        port,
        outcome: Outcome::default(),
        written: Vec::new(),
    };
    for effect in effects {
        if let Err(refused) = run.carry_out(effect).await {
            run.outcome.refused = Some(refused);
            break;
        }
        run.outcome.done += 1;
    }
    run.outcome
}

struct Run<'a> {
    port: &'a Port,
    outcome: Outcome,
    /// The versions that earlier writes of this list left.
    written: Vec<(ObjectKey, String)>,
}

fn certain(refusal: Refusal) -> Refused {
    Refused { refusal, outage: false }
}

fn refused(key: &ObjectKey, error: &ApiError) -> Refused {
    let unavailable = |message: &str, in_doubt| Refusal::Unavailable {
        key: key.clone(),
        message: message.to_owned(),
        in_doubt,
    };
    match error {
        ApiError::Refused(refusal) => certain(refusal.clone()),
        ApiError::Busy => Refused {
            refusal: unavailable("too many requests", false),
            outage: true,
        },
        ApiError::InDoubt => Refused {
            refusal: unavailable("no answer", true),
            outage: true,
        },
        ApiError::NotLeading => certain(unavailable("this copy does not lead", false)),
    }
}

impl Run<'_> {
    async fn carry_out(&mut self, effect: &Effect) -> Result<(), Refused> {
        match effect {
            Effect::Confirm(_) if self.port.has(Mutation::NothingConfirmed) => Ok(()),
            Effect::Confirm(Fact::Unchanged(target))
                if target.key.kind == "PersistentVolume" && self.port.has(Mutation::PolicyNotConfirmed) =>
            {
                Ok(())
            }
            Effect::Confirm(fact) => self.confirm(fact).await,
            Effect::Event(_) => Ok(()),
            Effect::LookAgain { key, when } => {
                self.outcome.again.push((key.clone(), *when));
                Ok(())
            }
            Effect::Create(object) => self.create(object).await,
            Effect::Patch(patch) => self.patch(patch).await,
            Effect::Delete(delete) => self.delete(delete).await,
            Effect::Bind { pod, node } => {
                let made = |found: &Value| field::text(found, "/spec/nodeName") == node;
                let mut sent = effect.clone();
                if let (Effect::Bind { pod, .. }, true) = (&mut sent, self.port.has(Mutation::NamesakeBound)) {
                    pod.uid.clear();
                }
                let written = self.port.write(sent).await;
                match written {
                    Ok(_) => Ok(()),
                    Err(error) => self.look_after(pod, &error, made).await,
                }
            }
        }
    }

    async fn confirm(&mut self, fact: &Fact) -> Result<(), Refused> {
        let holds = match fact {
            Fact::Gone { key, uid } => match self.read(key).await? {
                None => true,
                Some(found) => !uid.is_empty() && found.uid != *uid,
            },
            Fact::Unchanged(target) => {
                let version = self.version_of(target).to_owned();
                let same = |known: &str, found: &str| known.is_empty() || known == found;
                let found = self.read(&target.key).await?;
                found.is_some_and(|found| same(&target.uid, &found.uid) && same(&version, &found.version.to_string()))
            }
            Fact::ClaimUnused { claim } => {
                let holds = self.port.holds(fact.clone()).await;
                holds.map_err(|error| refused(claim, &error))?
            }
        };
        if holds { Ok(()) } else { Err(certain(Refusal::Stale)) }
    }

    async fn create(&mut self, object: &Value) -> Result<(), Refused> {
        let key = Target::of_value(object).key;
        let error = match self.port.write(Effect::Create(Box::new(object.clone()))).await {
            Ok(created) => {
                self.take_written(&key, "", created);
                return Ok(());
            }
            Err(error) => error,
        };
        if error == ApiError::InDoubt
            && let Ok(Some(found)) = self.port.read(&key).await
        {
            self.outcome.fresh.push(Rc::clone(&found));
            return if Merge::Strategic.is_made(&found.value, object) {
                Ok(())
            } else {
                Err(certain(Refusal::AlreadyExists(key)))
            };
        }
        Err(refused(&key, &error))
    }

    async fn patch(&mut self, patch: &Patch) -> Result<(), Refused> {
        let mut patch = patch.clone();
        patch.target.resource_version = self.version_of(&patch.target).to_owned();
        let is_unguarded = match patch.name {
            "select_node" => self.port.has(Mutation::UnguardedSelection),
            "reserve_volume" => self.port.has(Mutation::UnguardedReservation),
            _ => false,
        };
        if is_unguarded || self.port.has(Mutation::UnguardedController) {
            patch.guard = Guard::Uid;
        }
        if self.port.has(Mutation::NamesakeBound) {
            patch.target.uid.clear();
        }
        match self.port.write(Effect::Patch(patch.clone())).await {
            Ok(found) => {
                self.take_written(&patch.target.key, &patch.target.uid, found);
                Ok(())
            }
            Err(error) => {
                let made = |found: &Value| patch.merge.is_made(found, &patch.body);
                self.look_after(&patch.target, &error, made).await
            }
        }
    }

    async fn delete(&mut self, delete: &Delete) -> Result<(), Refused> {
        let mut delete = delete.clone();
        if delete.guard == Guard::Version {
            delete.target.resource_version = self.version_of(&delete.target).to_owned();
        }
        if self.port.has(Mutation::NamesakeBound) {
            delete.target.uid.clear();
        }
        let (target, grace) = (delete.target.clone(), delete.grace_seconds);
        let error = match self.port.write(Effect::Delete(delete)).await {
            Ok(found) => {
                self.take_written(&target.key, &target.uid, found);
                return Ok(());
            }
            Err(error) => error,
        };
        // One that is going already is made to go sooner.
        let given = |found: &Value| field::number(found, "/metadata/deletionGracePeriodSeconds").unwrap_or_default();
        let careless = self.port.has(Mutation::SecondDeletionIsMade);
        let made =
            |found: &Value| field::is_deleting(found) && (careless || grace.is_none_or(|grace| given(found) <= grace));
        match self.look_after(&target, &error, made).await {
            // It was to go, and is gone.
            Err(Refused {
                refusal: Refusal::NotFound(_),
                ..
            }) => Ok(()),
            other => other,
        }
    }

    /// Finds out how things stand after a write failed.
    async fn look_after(
        &mut self,
        target: &Target,
        error: &ApiError,
        made: impl Fn(&Value) -> bool,
    ) -> Result<(), Refused> {
        let refusal = refused(&target.key, error);
        let gone = |outcome: &mut Outcome| outcome.gone.push((target.key.clone(), target.uid.clone()));
        if matches!(refusal.refusal, Refusal::NotFound(_)) {
            gone(&mut self.outcome);
            return Err(refusal);
        }
        let in_doubt = *error == ApiError::InDoubt;
        if in_doubt && self.port.has(Mutation::DoubtIsSuccess) {
            return Ok(());
        }
        if in_doubt && self.port.has(Mutation::DoubtIsFailure) {
            return Err(refused(&target.key, &ApiError::Busy));
        }
        if !in_doubt && self.port.has(Mutation::ConflictIsNotRead) {
            return Err(refusal);
        }
        if !in_doubt && !matches!(refusal.refusal, Refusal::Conflict(_) | Refusal::Invalid { .. }) {
            return Err(refusal);
        }
        let Ok(found) = self.port.read(&target.key).await else {
            return Err(refusal);
        };
        let found = found.inspect(|found| self.outcome.fresh.push(Rc::clone(found)));
        let Some(found) = found.filter(|found| target.uid.is_empty() || found.uid == target.uid) else {
            gone(&mut self.outcome);
            return Err(certain(Refusal::NotFound(target.key.clone())));
        };
        if !in_doubt || !made(&found.value) {
            return Err(refusal);
        }
        self.written.push((target.key.clone(), found.version.to_string()));
        Ok(())
    }

    async fn read(&mut self, key: &ObjectKey) -> Result<Option<Rc<Doc>>, Refused> {
        let found = self.port.read(key).await.map_err(|error| refused(key, &error))?;
        Ok(found.inspect(|found| self.outcome.fresh.push(Rc::clone(found))))
    }

    fn take_written(&mut self, key: &ObjectKey, uid: &str, found: Option<Rc<Doc>>) {
        match found {
            Some(found) => {
                self.written.push((key.clone(), found.version.to_string()));
                self.outcome.fresh.push(found);
            }
            None => self.outcome.gone.push((key.clone(), uid.to_owned())),
        }
    }

    fn version_of<'a>(&'a self, target: &'a Target) -> &'a str {
        let written = self.written.iter().rev().find(|(key, _)| *key == target.key);
        written.map_or(target.resource_version.as_str(), |(_, version)| version)
    }
}
