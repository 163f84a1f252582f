//! What to do about a claim: the decision before a backend is asked.
//!
//! ```text
//!                 ┌── Nothing(why) ◄── bound, not ours, waiting for a pod, waiting for a class
//!   claim ─ step ─┼── Act(effects) ◄── node gone or without driver: clear selected-node
//!                 └── Ask(attempt) ──► backend ──► answer::conclude ──► actions
//!                        ▲                              │ in doubt: the record stays on the claim
//!                        └──────────────────────────────┘ and the same request is repeated
//! ```
//!
//! Pure: the same objects always give the same decision. A step may be run at any time and any number of times. It
//! never requests a second volume for one claim, because the name is derived from the UID.

use crate::answer::{Conclusion, Then};
use crate::effect::{Action, Change, Intent, Reason};
use crate::parameters::Parameters;
use crate::request::{Request, volume_name};
use crate::settings::Settings;
use crate::state::State;
use crate::topology::{Question, RequirementError, requirement};
use berth_core::api::{Kind, PersistentVolumeClaim, StorageClass};
use berth_core::effect::{Effect, Event, Fact, ObjectKey, When};
use berth_core::hold::Hold;
use berth_core::migration::allowed_topologies;
use berth_core::names;
use jiff::Timestamp;
use std::borrow::Cow;

/// What to do about a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing, for this reason.
    Nothing(Idle),
    /// Carry this out without asking the backend.
    Act(Conclusion),
    /// Ask the backend.
    Ask(Box<Attempt>),
}

/// Why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It has a volume.
    Bound,
    /// Its volume exists; the controller binds it.
    Provisioned,
    /// It belongs to another provisioner.
    NotOurs,
    /// It belongs to another node's provisioner.
    OtherNode,
    /// The scheduler has not chosen a node yet.
    WaitingForFirstConsumer,
    /// Its class does not exist.
    ClassMissing,
    /// It is being deleted.
    Deleting,
    /// It has a data source that a volume populator handles, which also provides the volume.
    Populator,
}

/// A request and its preconditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The record on the claim, which must be written before the backend is asked. Pass the claim in the server's
    /// response to [`Self::recorded`].
    pub record: Option<Effect>,
    /// What the backend is asked for.
    pub request: Request,
    /// The node that it is requested for, even if that is gone by now.
    pub node: Option<String>,
    /// The purpose.
    pub purpose: Purpose,
    /// It was requested before, with an unknown result.
    pub repeated: bool,
    /// A response was lost, or another process sent the request: a volume may exist whatever the backend responds now.
    /// The caller sets this to false if it has received every response since the record was written.
    pub in_doubt: bool,
}

impl Attempt {
    /// Takes over the claim with the record: conclusions from the response are based on that version.
    pub fn recorded(&mut self, claim: PersistentVolumeClaim) {
        self.request.claim = claim;
    }
}

/// Why a backend is asked for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The claim needs it.
    Provision,
    /// The claim is being deleted, has another volume, or is no longer held for the attempt of the request, and a
    /// volume may exist: the request returns its handle, so that it can be deleted.
    CleanUp,
}

/// Decides about a claim.
#[must_use]
pub fn step(claim: &PersistentVolumeClaim, state: &State, settings: &Settings, now: Timestamp) -> Decision {
    if let Err(idle) = is_ours(claim, settings) {
        return Decision::Nothing(idle);
    }
    let recorded = claim
        .metadata
        .finalizers
        .iter()
        .any(|one| one == names::ATTEMPT_FINALIZER);
    let settled = if is_bound(claim) && !(recorded && is_bound_elsewhere(claim)) {
        Some(Idle::Bound)
    } else if state.volume(&volume_name(claim)).is_some() {
        Some(Idle::Provisioned)
    } else if claim.metadata.is_deleting() && !recorded {
        Some(Idle::Deleting)
    } else {
        None
    };
    match settled {
        Some(idle) => forget(claim, None).map_or(Decision::Nothing(idle), |forget| act(vec![forget], Then::Rest)),
        None => unsettled(claim, state, settings, recorded, now),
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty()
}

/// Whether the claim got a volume other than the one provisioned for it.
fn is_bound_elsewhere(claim: &PersistentVolumeClaim) -> bool {
    is_bound(claim) && claim.spec.volume_name != volume_name(claim)
}

fn unsettled(
    claim: &PersistentVolumeClaim,
    state: &State,
    settings: &Settings,
    recorded: bool,
    now: Timestamp,
) -> Decision {
    let class = claim
        .class_name()
        .and_then(|name| state.class(name))
        .filter(|class| class.provisioner == settings.provisioner);
    let Some(class) = class else {
        if claim.metadata.is_deleting() {
            // Without the class the request cannot be repeated, and a claim must not be blocked from deletion forever.
            let message = format!(
                "the class is gone, so the backend cannot be asked about volume {}: it may be left there",
                volume_name(claim)
            );
            let mut actions = vec![failed(claim, message, settings)];
            actions.extend(forget(claim, None));
            return act(actions, Then::Rest);
        }
        return Decision::Nothing(Idle::ClassMissing);
    };
    if let Some(mut intent) = recorded.then(|| intent_of(claim)).flatten() {
        if settings.node.is_some() && settings.node != intent.node {
            // The driver of another node was asked: only that one knows the result.
            return Decision::Nothing(Idle::OtherNode);
        }
        if intent.partial
            && let Ok(requirement) = place(claim, class, state, settings, intent.node.as_deref())
        {
            intent.requirement = requirement;
        }
        return ask(claim, class, state, settings, intent, true);
    }
    let node = claim.selected_node().filter(|node| !node.is_empty());
    if settings.volume_scheduling && class.is_delayed() && node.is_none() {
        return Decision::Nothing(Idle::WaitingForFirstConsumer);
    }
    if settings.node.is_some() && settings.node.as_deref() != node {
        return Decision::Nothing(Idle::OtherNode);
    }
    if is_for_populator(claim) {
        return Decision::Nothing(Idle::Populator);
    }
    let waits = node.and_then(|node| state.rejected_until(claim, node));
    if let Some(until) = waits.filter(|until| *until > now) {
        let again = Effect::LookAgain {
            key: ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata),
            when: When::At(until),
        };
        return act(vec![Action::Api(again)], Then::Rest);
    }
    if let Some(message) = unsupported(claim) {
        return give_up(claim, node, class_failed(class, &message), settings);
    }
    let asked = match place(claim, class, state, settings, node) {
        Ok(requirement) => Intent {
            node: node.map(str::to_owned),
            requirement,
            held_for: Hold::of_claim(claim).map(|hold| hold.to_string()),
            partial: false,
        },
        Err(error) => {
            let message = class_failed(class, &error.to_string());
            let mut conclusion = rejection(claim, node, message, settings);
            conclusion.actions.splice(..0, missing(&error).map(confirm_gone));
            conclusion.then = Then::rejected(node);
            return Decision::Act(conclusion);
        }
    };
    ask(claim, class, state, settings, asked, recorded)
}

/// The object that a node requires and lacks. An object that was not observed yet may exist.
fn missing(error: &RequirementError) -> Option<ObjectKey> {
    match error {
        RequirementError::NodeGone { node } => Some(ObjectKey::new(Kind::Node.name(), "", node)),
        RequirementError::NoCsiNode { node } => Some(ObjectKey::new(Kind::CsiNode.name(), "", node)),
        RequirementError::Class(_)
        | RequirementError::NoTopologyKeys { .. }
        | RequirementError::MissingLabel { .. }
        | RequirementError::NotAllowed { .. }
        | RequirementError::NotRegistered { .. }
        | RequirementError::NoLabelledNode { .. } => None,
    }
}

fn confirm_gone(key: ObjectKey) -> Action {
    let uid = String::new();
    Action::Api(Effect::Confirm(Fact::Gone { key, uid }))
}

/// No request to a backend would help. The node is cleared, and the claim waits for a change to itself or its class.
fn give_up(claim: &PersistentVolumeClaim, node: Option<&str>, message: String, settings: &Settings) -> Decision {
    Decision::Act(rejection(claim, node, message, settings))
}

fn rejection(claim: &PersistentVolumeClaim, node: Option<&str>, message: String, settings: &Settings) -> Conclusion {
    let mut actions = vec![failed(claim, message, settings)];
    actions.extend(forget(claim, node));
    let then = node.map_or(Then::Rest, |node| Then::rejected(Some(node)));
    Conclusion { actions, then }
}

fn is_ours(claim: &PersistentVolumeClaim, settings: &Settings) -> Result<(), Idle> {
    if claim.storage_provisioner().is_some_and(|name| settings.serves(name)) {
        Ok(())
    } else {
        Err(Idle::NotOurs)
    }
}

fn intent_of(claim: &PersistentVolumeClaim) -> Option<Intent> {
    let text = claim.metadata.annotation(names::ATTEMPT)?;
    serde_json::from_str(text).ok()
}

/// Whether the claim has a data source of a kind that CSI drivers do not support. The populator creates another claim
/// without a source, and hands over its volume.
fn is_for_populator(claim: &PersistentVolumeClaim) -> bool {
    let source = claim.spec.data_source_ref.as_ref().or(claim.spec.data_source.as_ref());
    source.is_some_and(|source| {
        let known = [
            ("", "PersistentVolumeClaim"),
            ("snapshot.storage.k8s.io", "VolumeSnapshot"),
        ];
        !known.contains(&(source.api_group.as_str(), source.kind.as_str()))
    })
}

/// Checks for requests that are not supported.
fn unsupported(claim: &PersistentVolumeClaim) -> Option<String> {
    let attributes_class = claim.spec.volume_attributes_class_name.as_deref();
    if let Some(class) = attributes_class.filter(|class| !class.is_empty()) {
        return Some(format!(
            "volume attributes class {class:?} is not supported: a volume would be made without its parameters"
        ));
    }
    if claim.spec.selector.is_some() {
        return Some("claim selector is not supported: a volume that is made has no labels to select by".to_owned());
    }
    let source = claim
        .spec
        .data_source
        .as_ref()
        .or(claim.spec.data_source_ref.as_ref())?;
    Some(format!(
        "data source {} {:?} is not supported: only empty volumes are made",
        source.kind, source.name
    ))
}

fn place(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    state: &State,
    settings: &Settings,
    node: Option<&str>,
) -> Result<Option<crate::topology::Requirement>, RequirementError> {
    if let Some(node) = node.filter(|node| !state.nodes().contains_key(*node)) {
        return Err(RequirementError::NodeGone { node: node.to_owned() });
    }
    let allowed = allowed_topologies(class)?;
    let Some(policy) = settings.topology else {
        return Ok(None);
    };
    requirement(&Question {
        driver: &settings.provisioner,
        claim: &claim.metadata.name,
        selected_node: node,
        allowed: &allowed,
        policy,
        nodes: state.nodes(),
        csi_nodes: state.csi_nodes(),
    })
}

fn ask(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    state: &State,
    settings: &Settings,
    intent: Intent,
    repeated: bool,
) -> Decision {
    let name = volume_name(claim);
    let mut parameters = match Parameters::new(&class.parameters, &name, claim) {
        Ok(parameters) => parameters,
        Err(error) => {
            let message = class_failed(class, &error.to_string());
            if repeated {
                // The earlier request is still open.
                return act(vec![failed(claim, message, settings)], Then::Rest);
            }
            return give_up(claim, intent.node.as_deref(), message, settings);
        }
    };
    parameters.fs_type = parameters.fs_type.or_else(|| settings.default_fs_type.clone());
    if settings.extra_create_metadata {
        let told = [
            ("pvc/name", &claim.metadata.name),
            ("pvc/namespace", &claim.metadata.namespace),
            ("pv/name", &name),
        ];
        for (key, value) in told {
            parameters
                .for_driver
                .insert(format!("{}{key}", names::CSI_PREFIX), value.clone());
        }
    }
    let record = settings.record_attempts && !repeated;
    let record = record.then(|| Change::RecordAttempt(intent.bounded()));
    let record = record.and_then(|record| record.lower(&claim.metadata));
    let mut class = class.clone();
    // Backends need not know all ways in which classes specify zones.
    if let Ok(topologies) = allowed_topologies(&class).map(Cow::into_owned) {
        class.allowed_topologies = topologies;
    }
    let selected_node = intent.node.as_ref().and_then(|node| state.nodes().get(node)).cloned();
    let purpose = if claim.metadata.is_deleting() || is_bound_elsewhere(claim) || is_given_back(claim, &intent) {
        Purpose::CleanUp
    } else {
        Purpose::Provision
    };
    Decision::Ask(Box::new(Attempt {
        record,
        request: Request {
            name,
            claim: claim.clone(),
            class,
            parameters,
            selected_node,
            requirement: intent.requirement,
            bytes: claim.requested_bytes(),
            held_for: intent.held_for,
        },
        node: intent.node,
        purpose,
        repeated,
        in_doubt: repeated,
    }))
}

/// Whether the attempt that a volume was requested for is over.
fn is_given_back(claim: &PersistentVolumeClaim, intent: &Intent) -> bool {
    let holds = Hold::of_claim(claim).map(|hold| hold.to_string());
    // A volume requested without an attempt is used for the claim, whichever attempt waits for it now.
    intent.held_for.is_some() && holds != intent.held_for && !is_bound(claim)
}

fn act(actions: Vec<Action>, then: Then) -> Decision {
    Decision::Act(Conclusion { actions, then })
}

/// Removes the record from a claim, and the selected node if it is rejected.
pub(crate) fn forget(claim: &PersistentVolumeClaim, reject_node: Option<&str>) -> Option<Action> {
    let change = Change::ForgetAttempt {
        reject_node: reject_node.map(str::to_owned),
    };
    change.lower(&claim.metadata).map(Action::Api)
}

pub(crate) fn class_failed(class: &StorageClass, message: &str) -> String {
    format!(
        "failed to provision volume with StorageClass {:?}: {message}",
        class.metadata.name
    )
}

pub(crate) fn failed(claim: &PersistentVolumeClaim, message: String, settings: &Settings) -> Action {
    Action::Api(Effect::Event(event(
        claim,
        Reason::ProvisioningFailed,
        message,
        settings,
    )))
}

pub(crate) fn event(claim: &PersistentVolumeClaim, reason: Reason, message: String, settings: &Settings) -> Event {
    reason.about(Kind::PersistentVolumeClaim, &claim.metadata, message, settings)
}

/// The event that a backend is being asked. Written once for each claim, not for each retry.
#[must_use]
pub fn started(claim: &PersistentVolumeClaim, settings: &Settings) -> Event {
    let message = format!("provisioning a volume for claim {:?}", claim.metadata.full_name());
    event(claim, Reason::Provisioning, message, settings)
}
