//! Carries out a list of effects, one request at a time.
//!
//! An effect on an object that the list already wrote continues from the resulting version. A write whose response was lost is
//! looked up before it counts as failed. After a conflict the object is read, so that the next step starts from its current
//! state.

use crate::outcome::{Answered, Gone, Outcome, Refused};
use berth_core::effect::{Delete, Effect, Event, Fact, Merge, ObjectKey, Refusal, Target};
use serde_json::Value;
use std::future::Future;

/// The response to a write.
#[derive(Debug)]
pub enum Written<Answer> {
    /// The object in its current state.
    Object(Answer),
    /// The object with this UID is gone.
    Gone(String),
    /// It was made, and the response contains nothing else.
    Made,
}

/// The server on which effects are carried out.
pub trait Server {
    /// An object in a response.
    type Answer: Answered;

    /// Reads an object. `None` if it does not exist.
    fn read(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Self::Answer>, Refused>>;

    /// Sends one write: create, patch, delete or bind. A write that is guarded by the version of its object uses
    /// `version`.
    fn write(&self, effect: &Effect, version: &str) -> impl Future<Output = Result<Written<Self::Answer>, Refused>>;

    /// Whether a pod blocks deletion of the claim, according to the server's current state.
    fn is_used(&self, claim: &ObjectKey) -> impl Future<Output = Result<bool, Refused>>;

    /// Whether a pod that has not finished refers to the claim, according to the server's current state.
    fn is_referenced(&self, claim: &ObjectKey) -> impl Future<Output = Result<bool, Refused>>;

    /// Records an event, to be written soon.
    fn tell(&self, event: &Event);

    /// Called with the result of each write.
    fn wrote(&self, _effect: &Effect, _refusal: Option<&Refusal>) {}
}

/// Carries out effects in order until the first refusal.
pub async fn carry_out<S: Server>(server: &S, effects: &[Effect]) -> Outcome<S::Answer> {
    let mut run = Run {
        server,
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

/// One run through a list of effects.
struct Run<'a, S: Server> {
    server: &'a S,
    outcome: Outcome<S::Answer>,
    /// The versions after earlier writes of this list.
    written: Vec<(ObjectKey, String)>,
}

impl<S: Server> Run<'_, S> {
    async fn carry_out(&mut self, effect: &Effect) -> Result<(), Refused> {
        let result = match effect {
            Effect::Confirm(fact) => return self.confirm(fact).await,
            Effect::Event(event) => {
                self.server.tell(event);
                return Ok(());
            }
            Effect::LookAgain { key, when } => {
                self.outcome.again.push((key.clone(), *when));
                return Ok(());
            }
            Effect::Create(object) => self.create(effect, object).await,
            Effect::Patch(patch) => {
                let made = |found: &Value| patch.merge.is_made(found, &patch.body);
                self.write(effect, &patch.target, made).await
            }
            Effect::Delete(delete) => self.delete(effect, delete).await,
            Effect::Bind { pod, node } => {
                let made = |found: &Value| found.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
                self.write(effect, pod, made).await
            }
        };
        self.server
            .wrote(effect, result.as_ref().err().map(|refused| &refused.refusal));
        result
    }

    async fn confirm(&mut self, fact: &Fact) -> Result<(), Refused> {
        let holds = match fact {
            Fact::Gone { key, uid } => match self.read(key).await? {
                None => true,
                // An object with another UID is a different one.
                Some(found) => !uid.is_empty() && found.version().uid != *uid,
            },
            Fact::Unchanged(target) => {
                let version = self.version_of(target).to_owned();
                let same = |known: &str, found: &str| known.is_empty() || known == found;
                let found = self.read(&target.key).await?.map(Answered::version);
                found.is_some_and(|found| same(&target.uid, &found.uid) && same(&version, &found.resource_version))
            }
            Fact::ClaimUnused { claim } => !self.server.is_used(claim).await?,
            Fact::ClaimUnreferenced { claim } => !self.server.is_referenced(claim).await?,
        };
        if holds {
            Ok(())
        } else {
            Err(Refused::certain(Refusal::Stale))
        }
    }

    async fn create(&mut self, effect: &Effect, object: &Value) -> Result<(), Refused> {
        let key = Target::of_value(object).key;
        let refused = match self.server.write(effect, "").await {
            Ok(written) => {
                self.take_written(&key, written);
                return Ok(());
            }
            Err(refused) => refused,
        };
        if refused.is_in_doubt()
            && let Ok(Some(found)) = self.read(&key).await
            && let Some(found) = found.value()
        {
            return if Merge::Strategic.is_made(&found, object) {
                Ok(())
            } else {
                Err(Refused::certain(Refusal::AlreadyExists(key)))
            };
        }
        Err(refused)
    }

    async fn delete(&mut self, effect: &Effect, delete: &Delete) -> Result<(), Refused> {
        // It was already being deleted, and the grace period was to be shortened: that it is being deleted does not
        // show whether the write was made.
        let at = |found: &Value, path: &str| found.pointer(path).and_then(Value::as_i64).unwrap_or_default();
        let is_soon = |found: &Value, seconds| at(found, "/metadata/deletionGracePeriodSeconds") <= seconds;
        let made = |found: &Value| {
            found.pointer("/metadata/deletionTimestamp").is_some()
                && delete.grace_seconds.is_none_or(|seconds| is_soon(found, seconds))
        };
        match self.write(effect, &delete.target, made).await {
            // It was to be deleted, and is gone.
            Err(Refused {
                refusal: Refusal::NotFound(_),
                ..
            }) => Ok(()),
            other => other,
        }
    }

    /// Writes to an existing object. `made` returns whether its state shows that the write was made.
    async fn write(&mut self, effect: &Effect, target: &Target, made: impl Fn(&Value) -> bool) -> Result<(), Refused> {
        match self.server.write(effect, self.version_of(target)).await {
            Ok(written) => {
                self.take_written(&target.key, written);
                Ok(())
            }
            Err(refused) => self.look_after(target, refused, made).await,
        }
    }

    /// Finds out the state after a write failed. A write whose response was lost may have been made: if it counted as failed,
    /// the next decision could differ and then conflict with it. And a write that was refused because of the object's state must
    /// not be decided again on outdated knowledge, however far the watch lags behind.
    async fn look_after(
        &mut self,
        target: &Target,
        refused: Refused,
        made: impl Fn(&Value) -> bool,
    ) -> Result<(), Refused> {
        let key = &target.key;
        if matches!(refused.refusal, Refusal::NotFound(_)) {
            self.find_gone(target);
            return Err(refused);
        }
        let in_doubt = refused.is_in_doubt();
        if !in_doubt && !matches!(refused.refusal, Refusal::Conflict(_) | Refusal::Invalid { .. }) {
            return Err(refused);
        }
        // If the server does not respond to the read either, the refusal stands.
        let Ok(found) = self.read(key).await else {
            return Err(refused);
        };
        let found = found.map(|found| (found.version(), found.value()));
        let Some((version, found)) = found.filter(|(version, _)| target.uid.is_empty() || version.uid == target.uid)
        else {
            self.find_gone(target);
            return Err(Refused::certain(Refusal::NotFound(key.clone())));
        };
        if !in_doubt || !found.is_some_and(|found| made(&found)) {
            return Err(refused);
        }
        self.written.push((key.clone(), version.resource_version));
        Ok(())
    }

    /// Reads an object and keeps it for the caller.
    async fn read(&mut self, key: &ObjectKey) -> Result<Option<&S::Answer>, Refused> {
        let Some(found) = self.server.read(key).await? else {
            return Ok(None);
        };
        self.outcome.fresh.push(found);
        Ok(self.outcome.fresh.last())
    }

    fn take_written(&mut self, key: &ObjectKey, written: Written<S::Answer>) {
        match written {
            Written::Object(answer) => {
                self.written.push((key.clone(), answer.version().resource_version));
                self.outcome.fresh.push(answer);
            }
            Written::Gone(uid) => self.outcome.gone.push(Gone { key: key.clone(), uid }),
            Written::Made => {}
        }
    }

    /// The version that a write to this object is based on.
    fn version_of<'t>(&'t self, target: &'t Target) -> &'t str {
        let written = self.written.iter().rev().find(|(key, _)| *key == target.key);
        written.map_or(target.resource_version.as_str(), |(_, version)| version)
    }

    fn find_gone(&mut self, target: &Target) {
        self.outcome.gone.push(Gone {
            key: target.key.clone(),
            uid: target.uid.clone(),
        });
    }
}
