//! What follows from a backend's response.
//!
//! The rule that prevents lost volumes: the record on the claim is removed only after the volume's object exists, or
//! after it is certain that the backend has no volume for the claim.

use crate::bids::Wait;
use crate::change::{Action, Reason};
use crate::labels;
use crate::object::persistent_volume;
use crate::request::{Backing, Failure, FailureKind, Place, Source, Volume};
use crate::settings::Settings;
use crate::step::{Attempt, Purpose, class_failed, event, failed, forget};
use crate::topology::Segment;
use berth_core::api::{Kind, PersistentVolume, VolumeSource};
use berth_core::effect::{Effect, Refusal};
use berth_core::migration::csi_handle_of;
use serde_json::Value;

/// The response of a backend.
pub type Answer = Result<Volume, Failure>;

/// What to do about a claim, and what happens to it afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// What happens to the claim once all actions succeeded.
    pub then: Then,
}

/// What happens to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Any relevant change triggers it again.
    Rest,
    /// It must be retried later: nothing else would trigger it.
    Retry,
    /// The provisioners of nodes compete for it: this one waits.
    Wait(Wait),
    /// A node was rejected: the scheduler triggers it again. The same node is not retried for a while
    /// ([`State::concluded`](crate::state::State::concluded)).
    Rejected {
        /// The node.
        node: String,
    },
}

impl Then {
    /// For a failure that the scheduler can avoid by choosing another node, if it chose one.
    pub(crate) fn rejected(node: Option<&str>) -> Self {
        node.map_or(Self::Retry, |node| Self::Rejected { node: node.to_owned() })
    }
}

/// What follows from the response to an attempt.
#[must_use]
pub fn conclude(attempt: &Attempt, answer: &Answer, settings: &Settings) -> Conclusion {
    match (answer, attempt.purpose) {
        // It may have one, and what has no name cannot be deleted.
        (Ok(volume), Purpose::CleanUp) if volume.handle.is_empty() => {
            fail(attempt, &Failure::in_doubt("the backend named no volume id"), settings)
        }
        (Ok(volume), Purpose::CleanUp) => clean_up(attempt, volume),
        (Ok(volume), Purpose::Provision) => match unusable(attempt, volume) {
            Some(problem) => reject(attempt, volume, &problem, settings),
            None => match persistent_volume(&attempt.request, volume, settings) {
                Ok(object) => accept(attempt, volume, object, settings),
                Err(error) => reject(attempt, volume, &error.to_string(), settings),
            },
        },
        (Err(failure), _) => fail(attempt, failure, settings),
    }
}

/// What follows if the API server refuses the volume's object. `found` is the object with that name, if any. Returns
/// `None` to retry.
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
        // It was written before, and the response was lost.
        Refusal::AlreadyExists(_) if found.is_some_and(|found| is_object_of(found, attempt, volume)) => {
            Some(accepted(attempt, settings))
        }
        // It will never be accepted, so the volume must be deleted.
        Refusal::Invalid { key, message } if key.kind == Kind::PersistentVolume.name() => {
            Some(reject(attempt, volume, message, settings))
        }
        // The object belongs to another writer, which the name excludes except on purpose; or the server is not ready.
        Refusal::AlreadyExists(_)
        | Refusal::Invalid { .. }
        | Refusal::NotFound(_)
        | Refusal::Conflict(_)
        | Refusal::Stale
        | Refusal::Unavailable { .. } => None,
    }
}

/// Whether an object is the one written for a volume of this attempt.
fn is_object_of(found: &PersistentVolume, attempt: &Attempt, volume: &Volume) -> bool {
    let claim = found.spec.claim_ref.as_ref();
    let same_volume = match (found.spec.source(), &volume.source) {
        // The handle cannot be recovered from an in-tree form, but names are unique to claims.
        (_, Source::Csi { .. }) if attempt.request.migrated.is_some() => {
            csi_handle_of(found).map(|(plugin, _)| plugin) == attempt.request.migrated
        }
        (VolumeSource::Csi(csi), Source::Csi { .. }) => csi.volume_handle == volume.handle,
        // Built-in volumes are named after their objects.
        (_, Source::GcePersistentDisk | Source::Local { .. }) => true,
        (_, Source::Csi { .. }) => false,
    };
    same_volume && claim.is_some_and(|claim| claim.uid == attempt.request.claim.metadata.uid)
}

fn accept(attempt: &Attempt, volume: &Volume, object: Value, settings: &Settings) -> Conclusion {
    let mut conclusion = accepted(attempt, settings);
    let create = Action::Api(Effect::Create(Box::new(object)));
    conclusion.actions.insert(0, create);
    if let Some(message) = elsewhere(attempt, volume) {
        let event = event(&attempt.request.claim, Reason::ProvisionedElsewhere, message, settings);
        conclusion.actions.insert(1, Action::Api(Effect::Event(event)));
    }
    conclusion
}

/// What is to be said about a volume that the selected node cannot reach. A driver may choose any of the places that it
/// was offered, so the volume is taken, and its pod is placed again. If it fits nowhere else, this is why it waits.
fn elsewhere(attempt: &Attempt, volume: &Volume) -> Option<String> {
    let node = attempt.request.selected_node.as_ref()?;
    let labels = &node.metadata.labels;
    let reaches = |place: &Place| {
        let mut wanted = place.iter();
        wanted.all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
    };
    let is_reachable = volume.accessible.is_empty() || volume.accessible.iter().any(reaches);
    (!is_reachable).then(|| {
        format!(
            "the driver made volume {} in {}, which the selected node {} cannot reach: the pod is placed again, and needs a node there",
            attempt.request.name,
            shown(&volume.accessible),
            node.metadata.name
        )
    })
}

/// Places as text, such as `zone=a, rack=1 or zone=b`.
fn shown(places: &[Place]) -> String {
    let place = |place: &Place| {
        let labels = place.iter().map(|(key, values)| format!("{key}={}", values.join("|")));
        labels.collect::<Vec<_>>().join(", ")
    };
    places.iter().map(place).collect::<Vec<_>>().join(" or ")
}

/// What follows once the volume has its object.
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

/// The most that a volume's ID, attributes and topology may take together. CSI limits each of them to kilobytes, and an API server stores about
/// 1.5 MB of an object: a larger one would be refused again and again.
const TOLD_BYTES_MAX: usize = 1 << 20;

/// How much a backend says about a volume, in bytes.
fn told_bytes(volume: &Volume) -> usize {
    let attributes = match &volume.source {
        Source::Csi { attributes, .. } => attributes.iter().map(|(key, value)| key.len() + value.len()).sum(),
        Source::GcePersistentDisk | Source::Local { .. } => 0,
    };
    let labels = volume.accessible.iter().flatten();
    let topology: usize = labels
        .map(|(key, values)| key.len() + values.iter().map(String::len).sum::<usize>())
        .sum();
    volume.handle.len() + attributes + topology
}

/// Why a provisioned volume cannot be used.
fn unusable(attempt: &Attempt, volume: &Volume) -> Option<String> {
    let asked = attempt.request.bytes;
    if volume.handle.is_empty() {
        return Some("the backend named no volume id".to_owned());
    }
    let told = told_bytes(volume);
    if told > TOLD_BYTES_MAX {
        return Some(format!(
            "the backend described the volume in {told} bytes, and an object has room for {TOLD_BYTES_MAX}"
        ));
    }
    if volume.bytes != 0 && volume.bytes < asked {
        return Some(format!(
            "created volume capacity {} less than requested capacity {asked}",
            volume.bytes
        ));
    }
    if attempt.request.content.is_some() && !volume.filled {
        return Some(
            "the backend did not fill the volume from its data source: volume content source missing".to_owned(),
        );
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
            shown(accessible)
        )
    })
}

/// Whether a requested segment can reach a place. A driver may report fewer or more labels than requested, but none that
/// contradict the request, and not only unrelated ones.
fn is_within(segment: &Segment, place: &Place) -> bool {
    let mut shared = place
        .iter()
        .filter_map(|(key, values)| Some((segment.get(key)?, values)))
        .peekable();
    shared.peek().is_some() && shared.all(|(asked, values)| values.contains(asked))
}

/// Deletes the provisioned volume and then informs the scheduler.
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
        // The claim may meanwhile have a volume with this name from a later attempt.
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
        // The claim is being deleted, the backend itself reported failure each time, and no response was lost.
        FailureKind::Unclear if attempt.purpose == Purpose::CleanUp && !attempt.in_doubt => Conclusion {
            actions: give_up(attempt, &failure.message, settings),
            then: Then::Rest,
        },
        FailureKind::Final => Conclusion {
            actions: give_up(attempt, &failure.message, settings),
            // If a node is rejected, the scheduler triggers the claim again. Otherwise it is retried after a delay.
            then: match attempt.purpose {
                Purpose::Provision => Then::rejected(attempt.node.as_deref()),
                Purpose::CleanUp => Then::Rest,
            },
        },
        // The earlier request is still open, whatever prevents this one.
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
    // A claim that got another volume no longer needs a node, and the currently selected node may belong to another
    // attempt.
    let is_wanted = claim.spec.volume_name.is_empty() && attempt.purpose == Purpose::Provision;
    let node = attempt.node.as_deref().filter(|_| is_wanted);
    actions.extend(forget(claim, node));
    actions
}
