//! What follows from a backend's answer.
//!
//! The rule that keeps volumes from being lost: the record on the claim goes only after the volume's
//! object is there, or after it is certain that the backend has no volume for the claim.

use crate::effect::{Action, Reason};
use crate::labels;
use crate::object::persistent_volume;
use crate::request::{Backing, Failure, FailureKind, Place, Source, Volume};
use crate::settings::Settings;
use crate::step::{Attempt, Purpose, class_failed, event, failed, forget};
use crate::topology::Segment;
use berth_core::api::{Kind, PersistentVolume, VolumeSource};
use berth_core::effect::{Effect, Refusal};

/// What a backend answered.
pub type Answer = Result<Volume, Failure>;

/// What to do about a claim, and what becomes of it then.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// What becomes of the claim if all of that was done.
    pub then: Then,
}

/// What becomes of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Whoever changes something brings it back.
    Rest,
    /// It must be looked at again later: nothing else would bring it back.
    Retry,
    /// A node was rejected: the scheduler brings it back. With the same node it waits for a while
    /// ([`State::concluded`](crate::state::State::concluded)).
    Rejected {
        /// The node.
        node: String,
    },
}

impl Then {
    /// After a failure that the scheduler can get around if it chose the node.
    pub(crate) fn rejected(node: Option<&str>) -> Self {
        node.map_or(Self::Retry, |node| Self::Rejected { node: node.to_owned() })
    }
}

/// What follows from the answer to an attempt.
#[must_use]
pub fn conclude(attempt: &Attempt, answer: &Answer, settings: &Settings) -> Conclusion {
    match (answer, attempt.purpose) {
        (Ok(volume), Purpose::CleanUp) => clean_up(attempt, volume),
        (Ok(volume), Purpose::Provision) => match unusable(attempt, volume) {
            Some(problem) => reject(attempt, volume, &problem, settings),
            None => accept(attempt, volume, settings),
        },
        (Err(failure), _) => fail(attempt, failure, settings),
    }
}

/// What follows if the API server does not take the volume's object. `found` is the object of that name, if there is one.
/// `None` if the same is to be tried again.
#[must_use]
pub fn object_refused(
    attempt: &Attempt,
    answer: &Answer,
    refusal: &Refusal,
    found: Option<&PersistentVolume>,
    settings: &Settings,
) -> Option<Conclusion> {
    let volume = answer.as_ref().ok()?;
    match refusal {
        // Written before, and the answer was lost.
        Refusal::AlreadyExists(_) if found.is_some_and(|found| is_object_of(found, attempt, volume)) => {
            Some(accepted(attempt, settings))
        }
        // It will never be taken, so the volume must go.
        Refusal::Invalid { key, message } if key.kind == Kind::PersistentVolume.name() => {
            Some(reject(attempt, volume, message, settings))
        }
        // Another's, which the name rules out but for somebody who wants to; or the server is not ready.
        Refusal::AlreadyExists(_)
        | Refusal::Invalid { .. }
        | Refusal::NotFound(_)
        | Refusal::Conflict(_)
        | Refusal::Stale
        | Refusal::Unavailable { .. } => None,
    }
}

/// Whether an object is the one that is written for a volume of this attempt.
fn is_object_of(found: &PersistentVolume, attempt: &Attempt, volume: &Volume) -> bool {
    let claim = found.spec.claim_ref.as_ref();
    let same_volume = match (found.spec.source(), &volume.source) {
        (VolumeSource::Csi(csi), Source::Csi { .. }) => csi.volume_handle == volume.handle,
        // Built-in volumes are named after their objects.
        (_, Source::GcePersistentDisk | Source::Local { .. }) => true,
        (_, Source::Csi { .. }) => false,
    };
    same_volume && claim.is_some_and(|claim| claim.uid == attempt.request.claim.metadata.uid)
}

fn accept(attempt: &Attempt, volume: &Volume, settings: &Settings) -> Conclusion {
    let object = persistent_volume(&attempt.request, volume, settings);
    let mut conclusion = accepted(attempt, settings);
    let create = Action::Api(Effect::Create(Box::new(object)));
    conclusion.actions.insert(0, create);
    conclusion
}

/// What follows when the volume has its object.
fn accepted(attempt: &Attempt, settings: &Settings) -> Conclusion {
    let claim = &attempt.request.claim;
    let message = format!("Successfully provisioned volume {}", attempt.request.name);
    let succeeded = event(claim, Reason::ProvisioningSucceeded, message, settings);
    let mut actions = vec![Action::Api(Effect::Event(succeeded))];
    actions.extend(forget(claim, None));
    Conclusion {
        actions,
        then: Then::Rest,
    }
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
    let mut places = volume.accessible.iter().flatten();
    if let Some(problem) = places.find_map(|(key, values)| labels::problem(key, values)) {
        return Some(format!(
            "the backend answered with a topology that no node can have: {problem}"
        ));
    }
    let requirement = attempt.request.requirement.as_ref()?;
    let (asked, accessible) = (&requirement.requisite, &volume.accessible);
    let is_met = accessible.is_empty()
        || asked.is_empty()
        || asked
            .iter()
            .any(|segment| accessible.iter().any(|place| is_within(segment, place)));
    (!is_met).then(|| {
        format!(
            "the backend answered with a topology that it was not asked for: {}",
            accessible
                .iter()
                .map(|place| format!("{place:?}"))
                .collect::<Vec<_>>()
                .join(" or ")
        )
    })
}

/// Whether a segment that was asked for can reach a place. Drivers may say less than they were told, and more: but nothing that
/// contradicts it, and not of other things alone.
fn is_within(segment: &Segment, place: &Place) -> bool {
    let mut shared = place
        .iter()
        .filter_map(|(key, values)| Some((segment.get(key)?, values)))
        .peekable();
    shared.peek().is_some() && shared.all(|(asked, values)| values.contains(asked))
}

/// Deletes what was made, and then tells the scheduler.
fn reject(attempt: &Attempt, volume: &Volume, problem: &str, settings: &Settings) -> Conclusion {
    let mut actions = Vec::new();
    if !volume.handle.is_empty() {
        actions.push(delete(attempt, volume));
    }
    actions.extend(give_up(attempt, problem, settings));
    Conclusion {
        actions,
        then: Then::rejected(attempt.node.as_deref()),
    }
}

fn clean_up(attempt: &Attempt, volume: &Volume) -> Conclusion {
    let claim = &attempt.request.claim;
    let mut actions = Vec::new();
    if attempt.request.held_for.is_some() {
        // By now the claim may have a volume of this name that was made for a later attempt.
        actions.push(Action::confirm(Kind::PersistentVolumeClaim, &claim.metadata));
    }
    actions.push(delete(attempt, volume));
    actions.extend(forget(claim, None));
    Conclusion {
        actions,
        then: Then::Rest,
    }
}

fn delete(attempt: &Attempt, volume: &Volume) -> Action {
    Action::DeleteBacking(Backing {
        handle: volume.handle.clone(),
        secret: attempt.request.parameters.provisioner_secret.clone(),
    })
}

fn fail(attempt: &Attempt, failure: &Failure, settings: &Settings) -> Conclusion {
    let claim = &attempt.request.claim;
    let word = || {
        let message = class_failed(&attempt.request.class, &failure.message);
        failed(claim, message, settings)
    };
    match failure.kind {
        // The claim is to go, each time the backend itself said that it failed, and no answer was lost.
        FailureKind::Unclear if attempt.purpose == Purpose::CleanUp && !attempt.in_doubt => Conclusion {
            actions: give_up(attempt, &failure.message, settings),
            then: Then::Rest,
        },
        FailureKind::Final => Conclusion {
            actions: give_up(attempt, &failure.message, settings),
            // With a node to reject, the scheduler brings the claim back. Without, time must.
            then: match attempt.purpose {
                Purpose::Provision => Then::rejected(attempt.node.as_deref()),
                Purpose::CleanUp => Then::Rest,
            },
        },
        // What was asked before is still open, whatever keeps us from asking now.
        FailureKind::NotAsked if attempt.repeated => Conclusion {
            actions: vec![word()],
            then: Then::Retry,
        },
        FailureKind::InDoubt | FailureKind::Unclear => Conclusion {
            actions: vec![word()],
            then: Then::Retry,
        },
        FailureKind::NotAsked => {
            let mut actions = vec![word()];
            actions.extend(forget(claim, None));
            Conclusion {
                actions,
                then: Then::Retry,
            }
        }
    }
}

fn give_up(attempt: &Attempt, problem: &str, settings: &Settings) -> Vec<Action> {
    let claim = &attempt.request.claim;
    let message = class_failed(&attempt.request.class, problem);
    let mut actions = vec![failed(claim, message, settings)];
    // A claim that has got another volume has no need of a node any more, and a node that is selected by now may be that of another attempt.
    let is_wanted = claim.spec.volume_name.is_empty() && attempt.purpose == Purpose::Provision;
    let node = attempt.node.as_deref().filter(|_| is_wanted);
    actions.extend(forget(claim, node));
    actions
}
