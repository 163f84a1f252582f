//! What to do about a claim: the decision before a backend is asked.
//!
//! ```text
//!                 ┌── Nothing(why) ◄── bound, not ours, waiting for a pod, waiting for a class
//!   claim ─ step ─┼── Act(effects) ◄── node gone or without driver: clear selected-node
//!                 └── Ask(attempt) ──► backend ──► answer::conclude ──► actions
//!                        ▲                              │ in doubt: the record stays on the claim
//!                        └──────────────────────────────┘ and the very same is asked again
//! ```
//!
//! Pure: the same objects always give the same decision. A step may be run at any time and as often
//! as one likes; it never asks for a second volume for one claim, because the name comes from the uid.

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
    /// Nothing, and why.
    Nothing(Idle),
    /// Carry this out. The backend is not asked.
    Act(Conclusion),
    /// Ask the backend.
    Ask(Box<Attempt>),
}

/// Why there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It has a volume.
    Bound,
    /// Its volume is there; binding is the controller's.
    Provisioned,
    /// Another provisioner's.
    NotOurs,
    /// Another node's provisioner's.
    OtherNode,
    /// The scheduler has not chosen a node yet.
    WaitingForFirstConsumer,
    /// Its class does not exist.
    ClassMissing,
    /// It is being deleted.
    Deleting,
    /// It is filled from a source that a volume populator knows, which brings the volume too.
    Populator,
}

/// A request with what goes before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The record on the claim, to be written before the backend is asked; if that fails, it is not. The claim that the
    /// server answers with goes into [`Self::recorded`].
    pub record: Option<Effect>,
    /// What the backend is asked for.
    pub request: Request,
    /// The node that it is asked for, even if that is gone by now.
    pub node: Option<String>,
    /// Why.
    pub purpose: Purpose,
    /// It was asked before, and nobody knows with what result.
    pub repeated: bool,
    /// An answer to it was lost, or somebody else asked: a volume may be there whatever the backend answers now. Who asks
    /// sets this to false if it has heard every answer since the record was written.
    pub in_doubt: bool,
}

impl Attempt {
    /// Takes over the claim with the record on it: what follows from the answer is decided on that version.
    pub fn recorded(&mut self, claim: PersistentVolumeClaim) {
        self.request.claim = claim;
    }
}

/// Why a backend is asked for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The claim needs it.
    Provision,
    /// The claim is going, has got another volume, or is not held for the attempt any more that it was asked for, and one may exist: to learn its handle and delete it.
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

/// Whether the claim got another volume than the one that is made for it.
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
            // Without the class the backend cannot be asked the same again, and a claim must not
            // be kept from going for ever.
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
            // The driver of another node was asked: only that one knows what came of it.
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

/// The object that a node has to have and does not. What was not seen yet may be there all the same.
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

/// Nothing that is asked of a backend would help. The node is free again, and the rest is up to whoever changes claim or
/// class.
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

/// Whether the claim is filled from an object of a kind that CSI drivers know nothing of. Whoever fills it makes another
/// claim for that, without a source, and hands its volume over.
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

/// What no backend is asked for here.
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
                // What was asked before is still open.
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
    // Backends need not know the ways in which classes name zones.
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

/// Whether the attempt of a pod that something was asked for is over.
fn is_given_back(claim: &PersistentVolumeClaim, intent: &Intent) -> bool {
    let holds = Hold::of_claim(claim).map(|hold| hold.to_string());
    // What was asked for without an attempt is what the claim gets, whoever waits for it by now.
    intent.held_for.is_some() && holds != intent.held_for && !is_bound(claim)
}

fn act(actions: Vec<Action>, then: Then) -> Decision {
    Decision::Act(Conclusion { actions, then })
}

/// Takes the record away from a claim, and the selected node if it is rejected.
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

/// The event that a backend is being asked. Written once for each claim, not for each try.
#[must_use]
pub fn started(claim: &PersistentVolumeClaim, settings: &Settings) -> Event {
    let message = format!("provisioning a volume for claim {:?}", claim.metadata.full_name());
    event(claim, Reason::Provisioning, message, settings)
}
