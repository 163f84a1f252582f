//! Feature gates: those that Berth has, and those of Kubernetes that change nothing here.

use crate::flags::go;
use berth_scheduler::profile::FeatureGates;

/// The feature gates that can be set, with what they are by default.
pub const FEATURE_GATES: &[(&str, bool)] = &[
    ("VolumeScheduling", true),
    ("CSIStorageCapacity", true),
    ("VolumeCapacityPriority", true),
    ("StorageCapacityScoring", false),
    (TOPOLOGY, true),
];

/// The gate of the external-provisioner for requests that say where a volume must be reachable.
pub const TOPOLOGY: &str = "Topology";

/// A gate of Kubernetes or of the external-provisioner that Berth does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedGate {
    /// Its name.
    pub name: &'static str,
    /// What Berth does, whatever the gate says.
    pub on: bool,
}

/// Gates that are accepted, so that command lines of other programs can stay as they are.
pub const FIXED_GATES: &[FixedGate] = &[
    FixedGate {
        name: "CrossNamespaceVolumeDataSource",
        on: false,
    },
    FixedGate {
        name: "HonorPVReclaimPolicy",
        on: true,
    },
    FixedGate {
        name: "ReleaseLeaderElectionOnExit",
        on: true,
    },
    FixedGate {
        name: "VolumeAttributesClass",
        on: false,
    },
];

/// Why a list of feature gates cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    /// Not of the form `Name=true`.
    #[error("found {0:?}, expected NAME=true or NAME=false, several separated by commas")]
    Form(String),
    /// Nobody knows it.
    #[error("there is no feature gate {0:?}; known are {known}", known = known_gates())]
    Unknown(String),
}

/// The feature gates with what they are by default, as a list.
pub(crate) fn known_gates() -> String {
    let gates = FEATURE_GATES.iter().map(|(name, on)| format!("{name} (default {on})"));
    gates.collect::<Vec<_>>().join(", ")
}

/// The gates that a list like `A=true,B=false` sets, in its order.
pub(crate) fn given_gates(text: &str) -> Result<Vec<(&str, bool)>, FeatureGateError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let given = parts.map(|part| {
        let form = || FeatureGateError::Form(part.to_owned());
        let (name, value) = part.split_once('=').ok_or_else(form)?;
        let on = go::boolean(value.trim()).map_err(|_| form())?;
        Ok((name.trim(), on))
    });
    given.collect()
}

/// Reads `A=true,B=false`.
///
/// # Errors
/// If it is not of that form, or a gate is not known.
pub fn feature_gates(text: &str) -> Result<FeatureGates, FeatureGateError> {
    let mut gates = FeatureGates::default();
    for (name, on) in given_gates(text)? {
        let is_fixed = FIXED_GATES.iter().any(|gate| gate.name == name);
        let is_known = FEATURE_GATES.iter().any(|(known, _)| *known == name);
        // The scheduler has no gate for what only a provisioner does.
        let is_set = is_known && (gates.set(name, on) || name == TOPOLOGY);
        if !is_fixed && !is_set {
            return Err(FeatureGateError::Unknown(name.to_owned()));
        }
    }
    Ok(gates)
}
