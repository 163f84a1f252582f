//! What follows from a backend's answer.
//!
//! The rule that keeps volumes from being lost: the record on the claim goes only after the volume's
//! object is there, or after it is certain that the backend has no volume for the claim.

use crate::effect::{Effect, Event, EventType, Reason};
use crate::labels;
use crate::object::persistent_volume;
use crate::request::{Backing, Failure, FailureKind, Volume};
use crate::settings::Settings;
use crate::step::{Attempt, Purpose, class_failed, failed, forget, target};

/// What a backend answered.
pub type Answer = Result<Volume, Failure>;

/// What to do after an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// The effects, in order.
    pub effects: Vec<Effect>,
    /// The claim must be looked at again later: nothing else would bring it back.
    pub retry: bool,
}

/// What follows from the answer to an attempt.
#[must_use]
pub fn conclude(attempt: &Attempt, answer: &Answer, settings: &Settings) -> Conclusion {
    match (answer, attempt.purpose) {
        (Ok(volume), Purpose::CleanUp) => clean_up(attempt, volume),
        (Ok(volume), Purpose::Provision) => match unusable(attempt, volume) {
            Some(problem) => reject(attempt, volume, &problem),
            None => accept(attempt, volume, settings),
        },
        (Err(failure), _) => fail(attempt, failure),
    }
}

/// What follows if the API server refuses the volume's object for good: the volume must go.
#[must_use]
pub fn refused(attempt: &Attempt, volume: &Volume, problem: &str) -> Conclusion {
    reject(attempt, volume, problem)
}

fn accept(attempt: &Attempt, volume: &Volume, settings: &Settings) -> Conclusion {
    let claim = &attempt.request.claim;
    let mut effects = vec![Effect::CreateVolume(Box::new(persistent_volume(
        &attempt.request,
        volume,
        settings,
    )))];
    if settings.record_attempts {
        effects.push(forget(claim, None));
    }
    effects.push(Effect::Emit(Event {
        about: target(claim),
        event_type: EventType::Normal,
        reason: Reason::ProvisioningSucceeded,
        message: format!("Successfully provisioned volume {}", attempt.request.name),
    }));
    Conclusion { effects, retry: false }
}

/// Why a volume that was made cannot be used.
fn unusable(attempt: &Attempt, volume: &Volume) -> Option<String> {
    let asked = attempt.request.bytes;
    if volume.handle.is_empty() {
        return Some("the backend named no volume id".to_owned());
    }
    if volume.bytes != 0 && volume.bytes < asked {
        return Some(format!(
            "created volume capacity {} less than requested capacity {asked}",
            volume.bytes
        ));
    }
    volume
        .accessible
        .iter()
        .flatten()
        .find_map(|(key, values)| labels::problem(key, values))
        .map(|problem| format!("the backend answered with a topology that no node can have: {problem}"))
}

/// Deletes what was made, and then tells the scheduler.
fn reject(attempt: &Attempt, volume: &Volume, problem: &str) -> Conclusion {
    let mut effects = Vec::new();
    if !volume.handle.is_empty() {
        effects.push(delete(attempt, volume));
    }
    effects.extend(give_up(attempt, problem));
    Conclusion { effects, retry: true }
}

fn clean_up(attempt: &Attempt, volume: &Volume) -> Conclusion {
    let claim = &attempt.request.claim;
    Conclusion {
        effects: vec![delete(attempt, volume), forget(claim, None)],
        retry: false,
    }
}

fn delete(attempt: &Attempt, volume: &Volume) -> Effect {
    Effect::DeleteBacking(Backing {
        handle: volume.handle.clone(),
        secret: attempt.request.parameters.provisioner_secret.clone(),
    })
}

fn fail(attempt: &Attempt, failure: &Failure) -> Conclusion {
    let claim = &attempt.request.claim;
    let word = || failed(claim, class_failed(&attempt.request.class, &failure.message));
    match failure.kind {
        // The claim is to go, each time the backend itself said that it failed, and no answer was lost.
        FailureKind::Unclear if attempt.purpose == Purpose::CleanUp && !attempt.in_doubt => Conclusion {
            effects: give_up(attempt, &failure.message),
            retry: false,
        },
        FailureKind::Final => Conclusion {
            // With a node to reject, the scheduler brings the claim back. Without, time must.
            retry: attempt.node.is_none() && attempt.purpose == Purpose::Provision,
            effects: give_up(attempt, &failure.message),
        },
        // What was asked before is still open, whatever keeps us from asking now.
        FailureKind::NotAsked if attempt.repeated => Conclusion {
            effects: vec![word()],
            retry: true,
        },
        FailureKind::InDoubt | FailureKind::Unclear => Conclusion {
            effects: vec![word()],
            retry: true,
        },
        FailureKind::NotAsked => Conclusion {
            effects: vec![forget(claim, None), word()],
            retry: true,
        },
    }
}

fn give_up(attempt: &Attempt, problem: &str) -> Vec<Effect> {
    let claim = &attempt.request.claim;
    let message = class_failed(&attempt.request.class, problem);
    vec![forget(claim, attempt.node.as_deref()), failed(claim, message)]
}
