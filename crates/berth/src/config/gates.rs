//! Feature gates: those of Berth, and those of Kubernetes that have no effect here.

use super::other_gates::OTHER_GATES;
use crate::flags::go;
use berth_scheduler::profile::FeatureGates;

/// The feature gates that can be set, with their defaults.
pub const FEATURE_GATES: &[(&str, &str)] = &[
    ("VolumeScheduling", "true"),
    ("CSIStorageCapacity", "true"),
    ("VolumeCapacityPriority", "true"),
    ("StorageCapacityScoring", "new volumes only"),
    ("VolumeLimitScaling", "true"),
    ("TaintTolerationComparisonOperators", "false"),
    ("PersistentVolumeClaimUnusedSinceTime", "true"),
    (TOPOLOGY, "true"),
];

/// The gate of the external-provisioner for topology requirements in requests.
pub const TOPOLOGY: &str = "Topology";

/// A gate of Kubernetes or of the external-provisioner that Berth does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedGate {
    /// Its name.
    pub name: &'static str,
    /// What Berth does, regardless of the gate.
    pub on: bool,
}

impl FixedGate {
    const fn on(name: &'static str) -> Self {
        Self { name, on: true }
    }

    const fn off(name: &'static str) -> Self {
        Self { name, on: false }
    }
}

/// Gates of the external-provisioner that have no effect, with what Berth's provisioner does.
pub const PROVISIONER_GATES: &[FixedGate] = &[
    FixedGate::on("HonorPVReclaimPolicy"),
    FixedGate::on("ReleaseLeaderElectionOnExit"),
];

/// The gate of the external-provisioner for data sources in other namespaces.
pub const CROSS_NAMESPACE_SOURCES: &str = "CrossNamespaceVolumeDataSource";
/// The gate of the external-provisioner for volume attributes classes.
pub const ATTRIBUTES_CLASSES: &str = "VolumeAttributesClass";

/// Gates of the external-provisioner that Berth's provisioner obeys, with their defaults.
pub const OBEYED_PROVISIONER_GATES: &[(&str, bool)] = &[
    (CROSS_NAMESPACE_SOURCES, false),
    (TOPOLOGY, true),
    (ATTRIBUTES_CLASSES, true),
];

/// Gates of Kubernetes 1.30 to 1.37 that the volume controllers of kube-controller-manager read, with what Berth's controller does.
pub const CONTROLLER_GATES: &[FixedGate] = &[
    FixedGate::on("HonorPVReclaimPolicy"),
    FixedGate::on("PersistentVolumeLastPhaseTransitionTime"),
    FixedGate::off("RecoverVolumeExpansionFailure"),
    FixedGate::off("SELinuxChangePolicy"),
    FixedGate::on("VolumeAttributesClass"),
];

/// Gates of Kubernetes 1.30 to 1.37 that kube-scheduler reads, with what Berth's scheduler does.
pub const SCHEDULER_GATES: &[FixedGate] = &[
    FixedGate::on("CSIMigrationPortworx"),
    FixedGate::on("CSIMigrationRBD"),
    FixedGate::off("ComponentFlagz"),
    FixedGate::off("ComponentStatusz"),
    FixedGate::off("CompositePodGroup"),
    FixedGate::off("CoordinatedLeaderElection"),
    FixedGate::off("DRAAdminAccess"),
    FixedGate::off("DRAConsumableCapacity"),
    FixedGate::off("DRAControlPlaneController"),
    FixedGate::off("DRADerivedAttributes"),
    FixedGate::off("DRADeviceBindingConditions"),
    FixedGate::off("DRADeviceCompatibilityGroups"),
    FixedGate::off("DRADeviceTaintRules"),
    FixedGate::off("DRADeviceTaints"),
    FixedGate::off("DRAExtendedResource"),
    FixedGate::off("DRAFractionalCapacityRange"),
    FixedGate::off("DRAListTypeAttributes"),
    FixedGate::off("DRANodeAllocatableResources"),
    FixedGate::off("DRAOptionalNodeOperations"),
    FixedGate::off("DRAPartitionableDevices"),
    FixedGate::off("DRAPrioritizedList"),
    FixedGate::off("DRAResourceClaimDeviceStatus"),
    FixedGate::off("DRASchedulerFilterTimeout"),
    FixedGate::off("DRAWorkloadResourceClaims"),
    FixedGate::off("DynamicResourceAllocation"),
    FixedGate::off("GangScheduling"),
    FixedGate::off("GenericWorkload"),
    FixedGate::on("HonorPVReclaimPolicy"),
    FixedGate::on("InPlacePodLevelResourcesVerticalScaling"),
    FixedGate::on("InPlacePodVerticalScaling"),
    FixedGate::off("InPlacePodVerticalScalingSchedulerPreemption"),
    FixedGate::on("InterPodAffinityHostnameFastPath"),
    FixedGate::on("MatchLabelKeysInPodAffinity"),
    FixedGate::on("MatchLabelKeysInPodTopologySpread"),
    FixedGate::on("MatchLabelKeysInPodTopologySpreadSelectorMerge"),
    FixedGate::on("MinDomainsInPodTopologySpread"),
    FixedGate::off("NodeDeclaredFeatures"),
    FixedGate::on("NodeInclusionPolicyInPodTopologySpread"),
    FixedGate::on("NominatedNodeNameForExpectation"),
    FixedGate::off("OpportunisticBatching"),
    FixedGate::on("PodDisruptionConditions"),
    FixedGate::off("PodGroupPreemptionPolicy"),
    FixedGate::on("PodLevelResources"),
    FixedGate::on("PodSchedulingReadiness"),
    FixedGate::on("ReadWriteOncePod"),
    FixedGate::on("SchedulerAsyncAPICalls"),
    FixedGate::on("SchedulerAsyncPreemption"),
    FixedGate::on("SchedulerPopFromBackoffQ"),
    FixedGate::off("SchedulerPreQueueingHints"),
    FixedGate::on("SchedulerQueueingHints"),
    FixedGate::on("SidecarContainers"),
    FixedGate::off("TopologyAwareWorkloadScheduling"),
    FixedGate::on("VolumeAttributesClass"),
    FixedGate::off("WorkloadAwarePreemption"),
];

/// Why a list of feature gates is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    /// Not of the form `Name=true`.
    #[error("found {0:?}, expected NAME=true or NAME=false, several separated by commas")]
    Form(String),
    /// Unknown.
    #[error("there is no feature gate {0:?}; known are {known}", known = known_gates())]
    Unknown(String),
}

/// The feature gates with their defaults, as a list.
pub(crate) fn known_gates() -> String {
    let gates = FEATURE_GATES.iter().map(|(name, on)| format!("{name} (default {on})"));
    gates.collect::<Vec<_>>().join(", ")
}

/// What may precede the name of a gate: its component, of which Kubernetes has one.
const COMPONENT: &str = "kube:";

/// The gates in a list like `A=true,kube:B=false`, in order.
pub(crate) fn given_gates(text: &str) -> Result<Vec<(&str, bool)>, FeatureGateError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let given = parts.map(|part| {
        let form = || FeatureGateError::Form(part.to_owned());
        let (name, value) = part.split_once('=').ok_or_else(form)?;
        let on = go::boolean(value.trim()).map_err(|_| form())?;
        let name = name.trim();
        Ok((name.strip_prefix(COMPONENT).unwrap_or(name), on))
    });
    given.collect()
}

/// Reads `A=true,B=false`.
///
/// # Errors
/// If it does not have that form, or a gate is unknown.
pub fn feature_gates(text: &str) -> Result<FeatureGates, FeatureGateError> {
    let mut gates = FeatureGates::default();
    for (name, on) in given_gates(text)? {
        let mut fixed = PROVISIONER_GATES.iter().chain(SCHEDULER_GATES);
        let is_accepted = fixed.any(|gate| gate.name == name)
            || OTHER_GATES.contains(&name)
            || OBEYED_PROVISIONER_GATES.iter().any(|(gate, _)| *gate == name);
        let is_known = FEATURE_GATES.iter().any(|(known, _)| *known == name);
        // The scheduler has no gate for what only a provisioner does.
        let is_set = is_known && (gates.set(name, on) || name == TOPOLOGY);
        if !is_accepted && !is_set {
            return Err(FeatureGateError::Unknown(name.to_owned()));
        }
    }
    Ok(gates)
}
