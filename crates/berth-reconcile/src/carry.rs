//! Carries out a list of effects, request by request.
//!
//! A later effect on an object continues on the version that an earlier one of the list left. A write whose answer was lost is
//! looked for before it counts as failed. After a conflict the object is read, so that the next step starts from what is there.

use crate::outcome::{Answered, Gone, Outcome, Refused};
use berth_core::effect::{Delete, Effect, Event, Fact, Merge, ObjectKey, Refusal, Target};
use serde_json::Value;
use std::future::Future;

/// What a write answered.
#[derive(Debug)]
pub enum Written<Answer> {
    /// The object as it is now.
    Object(Answer),
    /// The object of this uid is gone.
    Gone(String),
    /// It was made, and the answer says no more.
    Made,
}

/// Where effects are carried out.
pub trait Server {
    /// An object as the server answers.
    type Answer: Answered;

    /// Reads an object. `None` if there is none of this name.
    fn read(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Self::Answer>, Refused>>;

    /// Sends one write: create, patch, delete or bind. One that is guarded by the version of its object goes by `version`.
    fn write(&self, effect: &Effect, version: &str) -> impl Future<Output = Result<Written<Self::Answer>, Refused>>;

    /// Whether a pod keeps the claim from going, as the server knows it now.
    fn is_used(&self, claim: &ObjectKey) -> impl Future<Output = Result<bool, Refused>>;

    /// Puts down an event, to be written soon.
    fn tell(&self, event: &Event);

    /// Hears how each write went.
    fn wrote(&self, _effect: &Effect, _refusal: Option<&Refusal>) {}
}

/// Carries out effects in order, until the first that is refused.
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
    /// The versions that earlier writes of this list left.
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
                // One of another uid is another object.
                Some(found) => !uid.is_empty() && found.version().uid != *uid,
            },
            Fact::Unchanged(target) => {
                let version = self.version_of(target).to_owned();
                let same = |known: &str, found: &str| known.is_empty() || known == found;
                let found = self.read(&target.key).await?.map(Answered::version);
                found.is_some_and(|found| same(&target.uid, &found.uid) && same(&version, &found.resource_version))
            }
            Fact::ClaimUnused { claim } => !self.server.is_used(claim).await?,
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
        // One that is going already was to go sooner: that it goes does not tell whether it heard of that.
        let at = |found: &Value, path: &str| found.pointer(path).and_then(Value::as_i64).unwrap_or_default();
        let is_soon = |found: &Value, seconds| at(found, "/metadata/deletionGracePeriodSeconds") <= seconds;
        let made = |found: &Value| {
            found.pointer("/metadata/deletionTimestamp").is_some()
                && delete.grace_seconds.is_none_or(|seconds| is_soon(found, seconds))
        };
        match self.write(effect, &delete.target, made).await {
            // It was to go, and is gone.
            Err(Refused {
                refusal: Refusal::NotFound(_),
                ..
            }) => Ok(()),
            other => other,
        }
    }

    /// Writes to an object that is there. `made` tells of its state whether the write was made.
    async fn write(&mut self, effect: &Effect, target: &Target, made: impl Fn(&Value) -> bool) -> Result<(), Refused> {
        match self.server.write(effect, self.version_of(target)).await {
            Ok(written) => {
                self.take_written(&target.key, written);
                Ok(())
            }
            Err(refused) => self.look_after(target, refused, made).await,
        }
    }

    /// Finds out how things stand after a write failed. One whose answer was lost may have been made: taken for failed, the next
    /// decision could be another one, and then meet what this one did. And what was refused for the object's sake
    /// must not be decided again on what is known of it, however far the watch lags behind.
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
        // If the server does not even answer that, the refusal stands as it is.
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

    /// The version that a write to this object goes on from.
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
