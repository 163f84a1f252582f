//! What a step asks for, as data.
//!
//! Effects are carried out in order. The first one that fails ends the list: what is left is found
//! again by the next step on the same object. A write names the version it was decided on and must
//! not be made on another one; a second write to the same object in one list continues on the
//! version that the first one left.

use crate::key::{Key, NamespacedName};
use berth_core::api::{Kind, NodeSelector, ObjectMeta, ObjectReference};
use berth_core::names;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Go on only if the API server confirms what was decided on: watches can lag behind.
    Confirm(Confirmation),
    /// Change an object.
    Write(Write),
    /// Delete an object.
    Delete(Target),
    /// Create the claim of a pod's ephemeral volume: see [`crate::ephemeral::claim_of`].
    CreateClaim {
        /// The pod.
        pod: Target,
        /// The volume's name in the pod.
        volume: String,
        /// The claim to create, in the pod's namespace.
        claim: String,
    },
    /// Tell the user.
    Emit(Event),
    /// Look at another object.
    Requeue(Key),
    /// Run the step again a little later: nothing else would trigger it.
    Retry,
}

/// What the API server must say for the rest of the list to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// There is no claim of this name with this uid.
    ClaimGone {
        /// The claim.
        claim: NamespacedName,
        /// Its uid.
        uid: String,
    },
    /// There is no volume of this name.
    VolumeGone {
        /// The volume.
        volume: String,
    },
    /// The object is still in the version that was decided on.
    Unchanged(Target),
    /// No pod with a node uses the claim.
    ClaimUnused {
        /// The claim.
        claim: NamespacedName,
    },
}

/// The object that an effect is about, in the state that was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind.
    pub kind: Kind,
    /// Namespace, empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
}

impl Target {
    /// The object with this metadata.
    #[must_use]
    pub fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// The key of a claim, a volume or a pod.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let name = || NamespacedName::new(&self.namespace, &self.name);
        match self.kind {
            Kind::PersistentVolumeClaim => Some(Key::Claim(name())),
            Kind::PersistentVolume => Some(Key::Volume(self.name.clone())),
            Kind::Pod => Some(Key::Pod(name())),
            // Nothing is ever written to other kinds.
            _ => None,
        }
    }
}

/// A change to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The object.
    pub target: Target,
    /// The change.
    pub change: Change,
}

/// What becomes of the capacity in a claim's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapacityChange {
    /// Stays as it is.
    Keep,
    /// Goes.
    Clear,
    /// Becomes this.
    Set(String),
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A volume is given to a claim: the first half of a binding.
    ReserveVolume {
        /// The claim.
        claim: ObjectReference,
        /// Mark that the controller did it.
        by_controller: bool,
    },
    /// A volume is taken back from a claim.
    ReleaseVolume {
        /// The user had reserved it by name: only the uid goes.
        keep_name: bool,
    },
    /// A volume enters a phase.
    VolumePhase {
        /// The phase.
        phase: &'static str,
        /// Why.
        message: String,
    },
    /// A claim is given its volume: the second half of a binding.
    CompleteClaim {
        /// The volume, if the claim does not name it yet.
        volume_name: Option<String>,
    },
    /// A claim's status.
    ClaimStatus {
        /// The phase.
        phase: &'static str,
        /// The access modes of the volume; none if there is no volume.
        access_modes: Option<Vec<String>>,
        /// The size of the volume.
        capacity: CapacityChange,
        /// The attributes class of the volume: `Some(None)` clears it.
        attributes_class: Option<Option<String>>,
    },
    /// A claim without a class gets the default one.
    AssignClass {
        /// The class.
        class: String,
    },
    /// A claim is left to a provisioner.
    AssignProvisioner {
        /// The provisioner.
        provisioner: String,
    },
    /// A claim is to be provisioned for a node.
    SelectNode {
        /// The node.
        node: String,
    },
    /// An annotation is set, or goes.
    Annotate {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: Option<String>,
    },
    /// The finalizers become these.
    Finalizers(Vec<String>),
    /// A volume gets node affinity.
    NodeAffinity(NodeSelector),
}

impl Change {
    /// The subresource that the change is made through.
    #[must_use]
    pub fn subresource(&self) -> Option<&'static str> {
        match self {
            Self::VolumePhase { .. } | Self::ClaimStatus { .. } => Some("status"),
            Self::ReserveVolume { .. }
            | Self::ReleaseVolume { .. }
            | Self::CompleteClaim { .. }
            | Self::AssignClass { .. }
            | Self::AssignProvisioner { .. }
            | Self::SelectNode { .. }
            | Self::Annotate { .. }
            | Self::Finalizers(_)
            | Self::NodeAffinity(_) => None,
        }
    }

    /// A short name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ReserveVolume { .. } => "reserve_volume",
            Self::ReleaseVolume { .. } => "release_volume",
            Self::VolumePhase { .. } => "volume_phase",
            Self::CompleteClaim { .. } => "complete_claim",
            Self::ClaimStatus { .. } => "claim_status",
            Self::AssignClass { .. } => "assign_class",
            Self::AssignProvisioner { .. } => "assign_provisioner",
            Self::SelectNode { .. } => "select_node",
            Self::Annotate { .. } => "annotate",
            Self::Finalizers(_) => "finalizers",
            Self::NodeAffinity(_) => "node_affinity",
        }
    }

    /// The change as a JSON merge patch, without preconditions.
    #[must_use]
    pub fn merge_patch(&self) -> Value {
        match self {
            Self::ReserveVolume { claim, by_controller } => {
                let mut patch = json!({"spec": {"claimRef": {
                    "apiVersion": claim.api_version,
                    "kind": claim.kind,
                    "namespace": claim.namespace,
                    "name": claim.name,
                    "uid": claim.uid,
                    "resourceVersion": claim.resource_version,
                }}});
                if *by_controller {
                    patch["metadata"] = annotations([(names::BOUND_BY_CONTROLLER, Some("yes"))]);
                }
                patch
            }
            Self::ReleaseVolume { keep_name: true } => json!({"spec": {"claimRef": {"uid": null}}}),
            Self::ReleaseVolume { keep_name: false } => json!({
                "metadata": annotations([(names::BOUND_BY_CONTROLLER, None)]),
                "spec": {"claimRef": null},
            }),
            Self::VolumePhase { phase, message } => json!({"status": {
                "phase": phase,
                "message": if message.is_empty() { Value::Null } else { json!(message) },
            }}),
            Self::CompleteClaim { volume_name: None } => {
                json!({"metadata": annotations([(names::BIND_COMPLETED, Some("yes"))])})
            }
            Self::CompleteClaim {
                volume_name: Some(volume_name),
            } => json!({
                "metadata": annotations([
                    (names::BIND_COMPLETED, Some("yes")),
                    (names::BOUND_BY_CONTROLLER, Some("yes")),
                ]),
                "spec": {"volumeName": volume_name},
            }),
            Self::ClaimStatus {
                phase,
                access_modes,
                capacity,
                attributes_class,
            } => claim_status(phase, access_modes.as_deref(), capacity, attributes_class.as_ref()),
            Self::AssignClass { class } => json!({"spec": {"storageClassName": class}}),
            Self::AssignProvisioner { provisioner } => json!({"metadata": annotations([
                (names::STORAGE_PROVISIONER, Some(provisioner.as_str())),
                (names::STORAGE_PROVISIONER_BETA, Some(provisioner)),
                (names::MIGRATED_TO, None),
            ])}),
            Self::SelectNode { node } => {
                json!({"metadata": annotations([(names::SELECTED_NODE, Some(node.as_str()))])})
            }
            Self::Annotate { key, value } => json!({"metadata": annotations([(*key, value.as_deref())])}),
            Self::Finalizers(finalizers) => json!({"metadata": {"finalizers": finalizers}}),
            Self::NodeAffinity(selector) => json!({"spec": {"nodeAffinity": {"required": node_selector(selector)}}}),
        }
    }
}

fn annotations<const N: usize>(changes: [(&str, Option<&str>); N]) -> Value {
    let map: BTreeMap<&str, Option<&str>> = changes.into_iter().collect();
    json!({"annotations": map})
}

fn claim_status(
    phase: &str,
    access_modes: Option<&[String]>,
    capacity: &CapacityChange,
    attributes_class: Option<&Option<String>>,
) -> Value {
    let mut status = Map::new();
    status.insert("phase".to_owned(), json!(phase));
    status.insert("accessModes".to_owned(), json!(access_modes));
    match capacity {
        CapacityChange::Keep => {}
        CapacityChange::Clear => {
            status.insert("capacity".to_owned(), Value::Null);
        }
        CapacityChange::Set(size) => {
            status.insert("capacity".to_owned(), json!({"storage": size}));
        }
    }
    if let Some(class) = attributes_class {
        status.insert("currentVolumeAttributesClassName".to_owned(), json!(class));
    }
    json!({"status": status})
}

fn node_selector(selector: &NodeSelector) -> Value {
    let requirement = |found: &berth_core::api::Requirement| json!({"key": found.key, "operator": found.operator, "values": found.values});
    let terms: Vec<Value> = selector
        .node_selector_terms
        .iter()
        .map(|term| json!({"matchExpressions": term.match_expressions.iter().map(requirement).collect::<Vec<_>>()}))
        .collect();
    json!({"nodeSelectorTerms": terms})
}

impl Write {
    /// The change as a JSON merge patch that the API server refuses on any other version of the
    /// object than `resource_version`.
    #[must_use]
    pub fn guarded_patch(&self, resource_version: &str) -> Value {
        let mut patch = self.change.merge_patch();
        patch["metadata"]["resourceVersion"] = json!(resource_version);
        patch["metadata"]["uid"] = json!(self.target.uid);
        patch
    }
}

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

impl EventType {
    /// As Kubernetes spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// The reasons of events, as Kubernetes spells them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $(#[doc = concat!("`", stringify!($name), "`")] $name,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As Kubernetes spells it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

reasons! {
    ClaimLost,
    ClaimMisbound,
    DelayedBindingUnavailable,
    ExternalProvisioning,
    FailedBinding,
    ProvisioningFailed,
    VolumeDelete,
    VolumeFailedDelete,
    VolumeFailedRecycle,
    VolumeMismatch,
    VolumeUnknownReclaimPolicy,
    WaitForFirstConsumer,
    WaitForPodScheduled,
    ZoneUpgradeSkipped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something a user should know about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub about: Target,
    /// How serious it is.
    pub event_type: EventType,
    /// A short word.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}
