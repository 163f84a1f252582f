//! Sends effects to the API server of the simulation, and implements the bugs on that path.

use crate::mutation::Mutation;
use crate::port::{ApiError, Port};
use crate::world::Doc;
use berth_cluster::field;
use berth_core::effect::{Effect, Event, Fact, Guard, ObjectKey, Refusal, Target};
use berth_reconcile::{Answered, Refused, Server, Version, Written};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

/// The result of a list of effects.
pub(crate) type Outcome = berth_reconcile::Outcome<Rc<Doc>>;

impl Answered for Doc {
    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn version(&self) -> Version {
        Version {
            uid: self.uid.clone(),
            resource_version: self.version.to_string(),
        }
    }

    fn value(&self) -> Option<Cow<'_, Value>> {
        Some(Cow::Borrowed(&self.value))
    }
}

/// Carries out effects in order until the first refusal.
pub(crate) async fn carry_out(port: &Port, effects: &[Effect]) -> Outcome {
    let hands = Hands {
        port,
        is_careless: Cell::new(false),
    };
    let effects: Vec<Effect> = effects.iter().filter(|one| !hands.forgets(one)).cloned().collect();
    berth_reconcile::carry_out(&hands, &effects).await
}

/// One list of effects on its way to the server.
struct Hands<'a> {
    port: &'a Port,
    /// The bug that does not read an object after a conflict is active.
    is_careless: Cell<bool>,
}

fn refused(key: &ObjectKey, error: &ApiError) -> Refused {
    let unavailable = |message: &str, in_doubt| Refusal::Unavailable {
        key: key.clone(),
        message: message.to_owned(),
        in_doubt,
    };
    let (refusal, outage) = match error {
        ApiError::Refused(refusal) => (refusal.clone(), false),
        ApiError::Busy => (unavailable("too many requests", false), true),
        ApiError::InDoubt => (unavailable("no answer", true), true),
        ApiError::NotLeading => (unavailable("this copy does not lead", false), false),
    };
    Refused {
        outage,
        ..Refused::certain(refusal)
    }
}

impl Hands<'_> {
    fn has(&self, mutation: Mutation) -> bool {
        self.port.has(mutation)
    }

    /// A bug leaves out this effect.
    fn forgets(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Confirm(_) if self.has(Mutation::NothingConfirmed) => true,
            Effect::Confirm(Fact::Unchanged(target)) => {
                target.key.kind == "PersistentVolume" && self.has(Mutation::PolicyNotConfirmed)
            }
            _ => false,
        }
    }

    /// The effect as sent: with its version, and without what a bug forgets.
    fn sent(&self, effect: &Effect, version: &str) -> Effect {
        let mut sent = effect.clone();
        let go_by = |target: &mut Target| {
            version.clone_into(&mut target.resource_version);
            if self.has(Mutation::NamesakeBound) {
                target.uid.clear();
            }
        };
        match &mut sent {
            Effect::Patch(patch) => {
                go_by(&mut patch.target);
                let is_unguarded = match patch.name {
                    "select_node" => self.has(Mutation::UnguardedSelection),
                    "reserve_volume" => self.has(Mutation::UnguardedReservation),
                    "commit_volumes" | "abort_volumes" => self.has(Mutation::UnguardedVerdict),
                    _ => false,
                };
                if is_unguarded || self.has(Mutation::UnguardedController) {
                    patch.guard = Guard::Uid;
                }
            }
            Effect::Delete(delete) => go_by(&mut delete.target),
            Effect::Bind { pod, .. } => go_by(pod),
            Effect::Create(_) | Effect::Confirm(_) | Effect::Event(_) | Effect::LookAgain { .. } => {}
        }
        sent
    }

    /// What a bug does with a lost response or a conflict.
    async fn mistaken(&self, effect: &Effect, key: &ObjectKey, error: &ApiError) -> Result<Written<Rc<Doc>>, Refused> {
        let in_doubt = *error == ApiError::InDoubt;
        let is_update = !matches!(effect, Effect::Create(_));
        if in_doubt && is_update && self.has(Mutation::DoubtIsSuccess) {
            return Ok(Written::Made);
        }
        if in_doubt && is_update && self.has(Mutation::DoubtIsFailure) {
            return Err(refused(key, &ApiError::Busy));
        }
        if in_doubt
            && matches!(effect, Effect::Delete(_))
            && self.has(Mutation::SecondDeletionIsMade)
            && let Ok(Some(found)) = self.port.read(key).await
            && field::is_deleting(&found.value)
        {
            return Ok(Written::Made);
        }
        self.is_careless.set(!in_doubt && self.has(Mutation::ConflictIsNotRead));
        Err(refused(key, error))
    }
}

impl Server for Hands<'_> {
    type Answer = Rc<Doc>;

    async fn read(&self, key: &ObjectKey) -> Result<Option<Rc<Doc>>, Refused> {
        if self.is_careless.take() {
            return Err(refused(key, &ApiError::Busy));
        }
        self.port.read(key).await.map_err(|error| refused(key, &error))
    }

    async fn write(&self, effect: &Effect, version: &str) -> Result<Written<Rc<Doc>>, Refused> {
        let Some(key) = effect.writes_to() else {
            return Ok(Written::Made);
        };
        match self.port.write(self.sent(effect, version)).await {
            Ok(_) if matches!(effect, Effect::Bind { .. }) => Ok(Written::Made),
            Ok(Some(found)) => Ok(Written::Object(found)),
            Ok(None) => Ok(Written::Gone(uid_of(effect).to_owned())),
            Err(error) => self.mistaken(effect, &key, &error).await,
        }
    }

    async fn is_used(&self, claim: &ObjectKey) -> Result<bool, Refused> {
        let unused = Fact::ClaimUnused { claim: claim.clone() };
        let holds = self.port.holds(unused).await;
        holds.map(|holds| !holds).map_err(|error| refused(claim, &error))
    }

    async fn is_referenced(&self, claim: &ObjectKey) -> Result<bool, Refused> {
        let unreferenced = Fact::ClaimUnreferenced { claim: claim.clone() };
        let holds = self.port.holds(unreferenced).await;
        holds.map(|holds| !holds).map_err(|error| refused(claim, &error))
    }

    fn tell(&self, _event: &Event) {}
}

fn uid_of(effect: &Effect) -> &str {
    match effect {
        Effect::Patch(patch) => &patch.target.uid,
        Effect::Delete(delete) => &delete.target.uid,
        Effect::Bind { pod, .. } => &pod.uid,
        Effect::Create(_) | Effect::Confirm(_) | Effect::Event(_) | Effect::LookAgain { .. } => "",
    }
}
