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
use crate::bids::{Bid, Wait};
use crate::capacity::{Item, Query};
use crate::change::{Action, Change, Intent, Reason};
use crate::expand::{self, Expansion};
use crate::parameters::Parameters;
use crate::request::Request;
use crate::settings::Settings;
use crate::source::{Content, Needs, Wanted, attributes_class, protect_claim, unprotect_claim, wanted};
use crate::state::State;
use crate::topology::{Question, RequirementError, requirement};
use berth_core::api::{Kind, PersistentVolumeClaim, StorageClass};
use berth_core::effect::{Effect, Event, Fact, ObjectKey, When};
use berth_core::hold::Hold;
use berth_core::migration::{InTreePlugin, TopologyError, allowed_topologies, csi_class};
use berth_core::names;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What to do about a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing, for this reason.
    Nothing(Idle),
    /// Carry this out without asking the backend.
    Act(Conclusion),
    /// Ask the backend.
    Ask(Box<Attempt>),
    /// Try to get the claim for this node.
    Bid(Box<Bid>),
    /// Expand the claim's volume.
    Expand(Box<Expansion>),
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
}

/// A request and its preconditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// What must be read first.
    pub needs: Needs,
    /// What must be recorded on the claim before the backend is asked, with what was read. Pass the claim in the server's response to
    /// [`Self::recorded`].
    pub intent: Option<Intent>,
    /// The write that keeps the source of a clone.
    pub protect: Option<Effect>,
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
    /// The write that records the request on the claim, if it is not recorded yet.
    #[must_use]
    pub fn record(&self) -> Option<Effect> {
        let record = Change::RecordAttempt(self.intent.as_ref()?.bounded());
        record.lower(&self.request.claim.metadata)
    }

    /// What the volume is filled with, which was read.
    pub(crate) fn set_content(&mut self, content: Content) {
        if let Some(intent) = &mut self.intent {
            intent.content = Some(content.clone());
        }
        self.request.content = Some(content);
    }

    /// The parameters of the volume attributes class, which were read.
    pub(crate) fn set_mutable_parameters(&mut self, parameters: BTreeMap<String, String>) {
        if let Some(intent) = &mut self.intent {
            intent.mutable_parameters.clone_from(&parameters);
        }
        self.request.mutable_parameters = parameters;
    }

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
    if let Some(release) = unprotect_claim(claim, state).filter(|_| is_source(claim, state, settings)) {
        return act(vec![Action::Api(release)], Then::Rest);
    }
    if let Some(expansion) = expand::requested(claim, state, settings) {
        return Decision::Expand(Box::new(expansion));
    }
    if let Err(idle) = is_ours(claim, settings) {
        return Decision::Nothing(idle);
    }
    let recorded = claim
        .metadata
        .finalizers
        .iter()
        .any(|one| one == names::ATTEMPT_FINALIZER);
    let settled = if is_bound(claim) && !(recorded && is_bound_elsewhere(claim, state)) {
        Some(Idle::Bound)
    } else if state.volume(&state.volume_name(claim)).is_some() {
        Some(Idle::Provisioned)
    } else if claim.metadata.is_deleting() && !recorded {
        Some(Idle::Deleting)
    } else {
        None
    };
    match settled {
        Some(idle) => match forget(claim, None) {
            nothing if nothing.is_empty() => Decision::Nothing(idle),
            forget => act(forget, Then::Rest),
        },
        None => unsettled(claim, state, settings, recorded, now),
    }
}

/// Whether a driver's provisioner may have kept a claim as the source of clones: it serves the claim, or owns its volume.
fn is_source(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> bool {
    let volume = || state.volume(&claim.spec.volume_name);
    settings.serves(claim) || volume().is_some_and(|volume| settings.owns(volume))
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty()
}

/// Whether the claim got a volume other than the one provisioned for it.
fn is_bound_elsewhere(claim: &PersistentVolumeClaim, state: &State) -> bool {
    is_bound(claim) && claim.spec.volume_name != state.volume_name(claim)
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
        .filter(|class| settings.serves_class(class));
    let Some(class) = class else {
        if claim.metadata.is_deleting() {
            // Without the class the request cannot be repeated, and a claim must not be blocked from deletion forever.
            let message = format!(
                "the class is gone, so the backend cannot be asked about volume {}: it may be left there",
                state.volume_name(claim)
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
        let needs = Needs::repeated(intent.content.as_ref());
        return ask(claim, class, state, settings, (intent, needs), true);
    }
    let node = claim.selected_node().filter(|node| !node.is_empty());
    if settings.volume_scheduling && class.is_delayed() && node.is_none() {
        return Decision::Nothing(Idle::WaitingForFirstConsumer);
    }
    match (settings.node.as_deref(), node) {
        (Some(own), None) => return compete(claim, class, state, settings, own, now),
        (Some(own), Some(node)) if own != node => return Decision::Nothing(Idle::OtherNode),
        (_, _) => {}
    }
    let waits = node.and_then(|node| state.rejected_until(claim, node));
    if let Some(until) = waits.filter(|until| *until > now) {
        let again = Effect::LookAgain {
            key: ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata),
            when: When::At(until),
        };
        return act(vec![Action::Api(again)], Then::Rest);
    }
    let (needs, content) = match needs(claim, state, settings) {
        Ok(Some(needs)) => needs,
        Ok(None) => {
            let message = "Assuming an external populator will provision the volume".to_owned();
            let assumed = event(claim, Reason::Provisioning, message, settings);
            return act(vec![Action::Api(Effect::Event(assumed))], Then::Rest);
        }
        Err(Problem::Unsupported(message)) => return give_up(claim, node, class_failed(class, &message), settings),
        Err(Problem::NotYet(message)) => {
            let message = class_failed(class, &message);
            return act(vec![failed(claim, message, settings)], Then::Retry);
        }
    };
    let asked = match place(claim, class, state, settings, node) {
        Ok(requirement) => Intent {
            node: node.map(str::to_owned),
            requirement,
            held_for: Hold::of_claim(claim).map(|hold| hold.to_string()),
            content,
            ..Intent::default()
        },
        Err(error) => {
            let message = class_failed(class, &error.to_string());
            let mut conclusion = rejection(claim, node, message, settings);
            conclusion.actions.splice(..0, missing(&error).map(confirm_gone));
            conclusion.then = Then::rejected(node);
            return Decision::Act(conclusion);
        }
    };
    ask(claim, class, state, settings, (asked, needs), recorded)
}

/// Competes for an Immediate claim with the provisioners of other nodes.
fn compete(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    state: &State,
    settings: &Settings,
    node: &str,
    now: Timestamp,
) -> Decision {
    let Some(delays) = settings
        .immediate
        .filter(|_| !class.is_delayed() && !claim.metadata.is_deleting())
    else {
        return Decision::Nothing(Idle::OtherNode);
    };
    let placed = place(claim, class, state, settings, Some(node));
    if placed.is_err() && !class.allowed_topologies.is_empty() {
        return Decision::Nothing(Idle::OtherNode);
    }
    let look_again = |wait: Wait| {
        let key = ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata);
        let when = When::At(wait.until);
        act(vec![Action::Api(Effect::LookAgain { key, when })], Then::Wait(wait))
    };
    let rejected = state.rejected_until(claim, node).filter(|until| *until > now);
    let tries = match (state.waits_for(claim), rejected) {
        (Some(wait), _) if wait.until > now => return look_again(wait),
        (Some(wait), None) => wait.tries,
        // This node, or any, failed before: the others are given time to try.
        (_, Some(until)) => return look_again(Wait { until, tries: 0 }),
        (None, None) => return look_again(Wait::new(delays, node, claim, 0, now)),
    };
    let select = Change::SelectNode { node: node.to_owned() };
    let Some(select) = select.lower(&claim.metadata) else {
        return Decision::Nothing(Idle::OtherNode);
    };
    let segment = placed.ok().flatten().and_then(|all| all.preferred.into_iter().next());
    let asks = settings.abilities.is_some_and(|abilities| abilities.capacity);
    let query = (asks && claim.requested_bytes() > 0).then(|| Query {
        item: Item {
            class: class.metadata.name.clone(),
            segment: segment.unwrap_or_default().into(),
        },
        parameters: effective_class(class, migrated(class, settings))
            .map(|class| class.parameters)
            .unwrap_or_default(),
    });
    Decision::Bid(Box::new(Bid {
        query,
        bytes: claim.requested_bytes(),
        select,
        later: Wait::new(delays, node, claim, tries.saturating_add(1), now),
    }))
}

/// Why no volume can be requested.
enum Problem {
    /// The claim asks for something that is not supported.
    Unsupported(String),
    /// The source is not ready, or does not fit.
    NotYet(String),
}

/// What a new request needs, and what the volume is filled with as far as that is known. `None` if a volume populator provides the
/// volume.
fn needs(
    claim: &PersistentVolumeClaim,
    state: &State,
    settings: &Settings,
) -> Result<Option<(Needs, Option<Content>)>, Problem> {
    let source = match wanted(claim, settings).map_err(Problem::Unsupported)? {
        Wanted::Populator => return Ok(None),
        Wanted::Nothing => None,
        Wanted::Copy(source) => Some(source),
    };
    if claim.spec.selector.is_some() {
        let problem = "claim selector is not supported: a volume that is made has no labels to select by";
        return Err(Problem::Unsupported(problem.to_owned()));
    }
    let attributes_class = attributes_class(claim, settings).map_err(Problem::Unsupported)?;
    let needs = Needs::new(claim, source, attributes_class, state, settings);
    needs.map(Some).map_err(Problem::NotYet)
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
    if settings.serves(claim) {
        Ok(())
    } else {
        Err(Idle::NotOurs)
    }
}

fn intent_of(claim: &PersistentVolumeClaim) -> Option<Intent> {
    let text = claim.metadata.annotation(names::ATTEMPT)?;
    serde_json::from_str(text).ok()
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
    let allowed = match migrated(class, settings) {
        Some(_) => Cow::Owned(csi_class(class)?.allowed_topologies),
        None => allowed_topologies(class)?,
    };
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
    (intent, needs): (Intent, Needs),
    repeated: bool,
) -> Decision {
    let name = state.volume_name(claim);
    let migrated = migrated(class, settings);
    let effective = effective_class(class, migrated);
    let parameters = effective.map_err(|error| error.to_string()).and_then(|class| {
        let parameters = Parameters::new(&class.parameters, &name, &claim.metadata);
        Ok((class, parameters.map_err(|error| error.to_string())?))
    });
    let (class, mut parameters) = match parameters {
        Ok(both) => both,
        Err(problem) => {
            let message = class_failed(class, &problem);
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
    let selected_node = intent.node.as_ref().and_then(|node| state.nodes().get(node)).cloned();
    let purpose = if claim.metadata.is_deleting() || is_bound_elsewhere(claim, state) || is_given_back(claim, &intent) {
        Purpose::CleanUp
    } else {
        Purpose::Provision
    };
    let is_wanted = purpose == Purpose::Provision;
    let protect = intent.content.as_ref().filter(|_| is_wanted);
    Decision::Ask(Box::new(Attempt {
        needs: if is_wanted { needs } else { Needs::default() },
        protect: protect.and_then(|content| protect_claim(content, state)),
        intent: (settings.record_attempts && !repeated).then(|| intent.clone()),
        request: Request {
            name,
            claim: claim.clone(),
            class,
            migrated,
            parameters,
            selected_node,
            requirement: intent.requirement,
            bytes: claim.requested_bytes(),
            held_for: intent.held_for,
            content: intent.content,
            mutable_parameters: intent.mutable_parameters,
        },
        node: intent.node,
        purpose,
        repeated,
        in_doubt: repeated,
    }))
}

/// The in-tree plugin that a class names, if the driver that replaces it is asked.
fn migrated(class: &StorageClass, settings: &Settings) -> Option<InTreePlugin> {
    settings.migrates.filter(|plugin| plugin.name() == class.provisioner)
}

/// A class as backends read it: they need not know all ways in which classes specify zones.
fn effective_class(class: &StorageClass, migrated: Option<InTreePlugin>) -> Result<StorageClass, TopologyError> {
    if migrated.is_some() {
        return csi_class(class);
    }
    let mut class = class.clone();
    if let Ok(topologies) = allowed_topologies(&class).map(Cow::into_owned) {
        class.allowed_topologies = topologies;
    }
    Ok(class)
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

/// Removes the record from a claim, and the selected node if it is rejected. The snapshot of the recorded request need not be kept
/// any more.
pub(crate) fn forget(claim: &PersistentVolumeClaim, reject_node: Option<&str>) -> Vec<Action> {
    let snapshot = intent_of(claim).and_then(|intent| intent.content?.snapshot());
    let change = Change::ForgetAttempt {
        reject_node: reject_node.map(str::to_owned),
    };
    let forget = change.lower(&claim.metadata).map(Action::Api);
    snapshot.map(Action::Unprotect).into_iter().chain(forget).collect()
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
