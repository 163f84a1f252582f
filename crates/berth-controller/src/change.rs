//! Changes to a claim or a volume, and reasons of events.

use berth_core::api::{NodeSelector, ObjectReference};
use berth_core::effect::Merge;
use berth_core::names;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// What happens to the capacity in a claim's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapacityChange {
    /// It is kept.
    Keep,
    /// It is removed.
    Clear,
    /// It is set to this.
    Set(String),
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A volume is reserved for a claim: the first half of a binding.
    ReserveVolume {
        /// The claim.
        claim: ObjectReference,
        /// Whether to set or clear the mark that the controller did it; `None` if it is already correct.
        by_controller: Option<bool>,
    },
    /// A volume is released from a claim.
    ReleaseVolume {
        /// The user had reserved it by name: only the UID is removed.
        keep_name: bool,
        /// It was held by an attempt, and no longer is.
        unhold: bool,
    },
    /// A volume enters a phase.
    VolumePhase {
        /// The phase.
        phase: &'static str,
        /// The reason.
        message: String,
    },
    /// A claim gets its volume: the second half of a binding.
    CompleteClaim {
        /// The volume, if the claim does not refer to it yet.
        volume_name: Option<String>,
        /// It was held by an attempt, and no longer is.
        unhold: bool,
        /// Its uid, if it is marked as one that no pod has used.
        clean: Option<String>,
    },
    /// A claim's status.
    ClaimStatus {
        /// The phase.
        phase: &'static str,
        /// The access modes of the volume; `None` without a volume.
        access_modes: Option<Vec<String>>,
        /// The size of the volume.
        capacity: CapacityChange,
        /// The attributes class of the volume: `Some(None)` clears it.
        attributes_class: Option<Option<String>>,
    },
    /// A claim's condition says whether no pod uses it.
    ClaimUnused {
        /// Whether none does.
        unused: bool,
        /// Since when, as text.
        since: String,
    },
    /// A claim without a class gets the default one.
    AssignClass {
        /// The class.
        class: String,
    },
    /// A claim is assigned to a provisioner.
    AssignProvisioner {
        /// The provisioner.
        provisioner: String,
    },
    /// A claim is to be provisioned for a node.
    SelectNode {
        /// The node.
        node: String,
    },
    /// A claim is no longer provisioned: it is not held, and no node is selected for it.
    UnselectNode,
    /// An annotation is set or removed.
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
            Self::VolumePhase { .. } | Self::ClaimStatus { .. } | Self::ClaimUnused { .. } => Some("status"),
            Self::ReserveVolume { .. }
            | Self::ReleaseVolume { .. }
            | Self::CompleteClaim { .. }
            | Self::AssignClass { .. }
            | Self::AssignProvisioner { .. }
            | Self::SelectNode { .. }
            | Self::UnselectNode
            | Self::Annotate { .. }
            | Self::Finalizers(_)
            | Self::NodeAffinity(_) => None,
        }
    }

    /// How the change is merged with what is there: others set conditions, too.
    #[must_use]
    pub fn merge(&self) -> Merge {
        match self {
            Self::ClaimUnused { .. } => Merge::Strategic,
            _ => Merge::Json,
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
            Self::ClaimUnused { .. } => "claim_unused",
            Self::AssignClass { .. } => "assign_class",
            Self::AssignProvisioner { .. } => "assign_provisioner",
            Self::SelectNode { .. } => "select_node",
            Self::UnselectNode => "unselect_node",
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
                if let Some(by_controller) = by_controller {
                    let mark = by_controller.then_some("yes");
                    patch["metadata"] = annotations([(names::BOUND_BY_CONTROLLER, mark)]);
                }
                patch
            }
            Self::ReleaseVolume { keep_name, unhold } => {
                let reference = if *keep_name { json!({"uid": null}) } else { Value::Null };
                let mut patch = json!({"spec": {"claimRef": reference}});
                let gone = [
                    (!keep_name).then_some((names::BOUND_BY_CONTROLLER, None)),
                    unhold.then_some((names::HELD_FOR, None)),
                ];
                if *unhold || !keep_name {
                    patch["metadata"] = annotations(gone.into_iter().flatten());
                }
                patch
            }
            Self::VolumePhase { phase, message } => json!({"status": {
                "phase": phase,
                "message": if message.is_empty() { Value::Null } else { json!(message) },
            }}),
            Self::CompleteClaim {
                volume_name,
                unhold,
                clean,
            } => {
                let marks = [
                    Some((names::BIND_COMPLETED, Some("yes"))),
                    volume_name
                        .is_some()
                        .then_some((names::BOUND_BY_CONTROLLER, Some("yes"))),
                    unhold.then_some((names::HELD_FOR, None)),
                    clean.as_deref().map(|uid| (names::CLEAN, Some(uid))),
                ];
                let mut patch = json!({"metadata": annotations(marks.into_iter().flatten())});
                if let Some(volume_name) = volume_name {
                    patch["spec"] = json!({"volumeName": volume_name});
                }
                patch
            }
            Self::ClaimStatus {
                phase,
                access_modes,
                capacity,
                attributes_class,
            } => claim_status(phase, access_modes.as_deref(), capacity, attributes_class.as_ref()),
            Self::ClaimUnused { unused, since } => claim_unused(*unused, since),
            Self::AssignClass { class } => json!({"spec": {"storageClassName": class}}),
            Self::AssignProvisioner { provisioner } => json!({"metadata": annotations([
                (names::STORAGE_PROVISIONER, Some(provisioner.as_str())),
                (names::STORAGE_PROVISIONER_BETA, Some(provisioner)),
                (names::MIGRATED_TO, None),
            ])}),
            Self::SelectNode { node } => {
                json!({"metadata": annotations([(names::SELECTED_NODE, Some(node.as_str()))])})
            }
            Self::UnselectNode => json!({"metadata": annotations([
                (names::SELECTED_NODE, None),
                (names::SELECTED_NODE_ALPHA, None),
                (names::HELD_FOR, None),
            ])}),
            Self::Annotate { key, value } => json!({"metadata": annotations([(*key, value.as_deref())])}),
            Self::Finalizers(finalizers) => json!({"metadata": {"finalizers": finalizers}}),
            Self::NodeAffinity(selector) => json!({"spec": {"nodeAffinity": {"required": node_selector(selector)}}}),
        }
    }
}

fn annotations<'a>(changes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Value {
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

fn claim_unused(unused: bool, since: &str) -> Value {
    let (status, reason, message) = match unused {
        true => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
        false => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
    };
    json!({"status": {"conditions": [{"type": names::UNUSED, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since}]}})
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

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// The reasons of events, as spelled in Kubernetes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $(#[doc = concat!("`", stringify!($name), "`")] $name,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As spelled in Kubernetes.
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
    RolledBack,
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
