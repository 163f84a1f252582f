//! Why a node, or every node, is refused: one value for each reason, with its only wording.

use berth_core::reason::VolumeReason;
use std::fmt;
use std::sync::Arc;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident),* })? = $code:literal, $wording:literal;)*) => {
        /// A reason, with its details.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name $({ $(
                #[doc = concat!("The ", stringify!($field), ".")]
                $field: Arc<str>
            ),* })?,)*
            /// Claims and volumes exclude the pod.
            Volume(VolumeReason),
        }

        impl Reason {
            /// Every reason: its stable code and its wording, with placeholders in braces.
            pub const TABLE: &[(&str, &str)] = &[$(($code, $wording),)*];

            /// The stable code, which starts with the plugin's name.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self {
                    $(Self::$name $({ $($field: _),* })? => $code,)*
                    Self::Volume(reason) => reason.code(),
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name $({ $($field),* })? => write!(f, $wording),)*
                    Self::Volume(reason) => reason.fmt(f),
                }
            }
        }
    };
}

reasons! {
    /// The node is cordoned.
    Unschedulable = "NodeUnschedulable.Unschedulable", "node(s) were unschedulable";
    /// The pod's node name is another one.
    OtherNodeName = "NodeName.OtherNode", "node(s) didn't match the requested node name";
    /// The pod does not tolerate a taint.
    UntoleratedTaint = "TaintToleration.UntoleratedTaint", "node(s) had untolerated taint(s)";
    /// The pod's node affinity or node selector does not match.
    NodeAffinity = "NodeAffinity.Mismatch", "node(s) didn't match Pod's node affinity/selector";
    /// The pod's node affinity lists mutually exclusive nodes.
    ConflictingAffinityTerms = "NodeAffinity.ConflictingTerms", "pod affinity terms conflict";
    /// A host port is taken.
    PortsTaken = "NodePorts.Taken", "node(s) didn't have free ports for the requested pod ports";
    /// The node has reached its maximum number of pods.
    TooManyPods = "NodeResourcesFit.TooManyPods", "Too many pods";
    /// Not enough free CPU.
    InsufficientCpu = "NodeResourcesFit.InsufficientCpu", "Insufficient cpu";
    /// Not enough free memory.
    InsufficientMemory = "NodeResourcesFit.InsufficientMemory", "Insufficient memory";
    /// Not enough free local disk.
    InsufficientEphemeralStorage = "NodeResourcesFit.InsufficientEphemeralStorage", "Insufficient ephemeral-storage";
    /// Not enough of another resource is free.
    InsufficientResource { resource } = "NodeResourcesFit.InsufficientResource", "Insufficient {resource}";
    /// A disk is in use on the node and cannot be shared.
    DiskConflict = "VolumeRestrictions.DiskConflict", "node(s) had no available disk";
    /// A ReadWriteOncePod claim is in use.
    ClaimInUse = "VolumeRestrictions.ClaimInUse",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    /// The pod refers to a claim that does not exist.
    RestrictedClaimNotFound { claim } = "VolumeRestrictions.ClaimNotFound", "persistentvolumeclaim \"{claim}\" not found";
    /// The node has reached its attach limit.
    TooManyVolumes = "NodeVolumeLimits.TooManyVolumes", "node(s) exceed max volume count";
    /// The node lacks a driver.
    DriverNotInstalled { driver } = "NodeVolumeLimits.DriverNotInstalled", "{driver} CSI driver is not installed on the node";
    /// The pod refers to a claim that does not exist.
    CountedClaimNotFound { namespace, claim } = "NodeVolumeLimits.ClaimNotFound",
        "looking up PVC {namespace}/{claim}: persistentvolumeclaim \"{claim}\" not found";
    /// The claim for an ephemeral volume belongs to another object.
    CountedClaimNotOwned { claim, pod } = "NodeVolumeLimits.ClaimNotOwned",
        "PVC {claim} was not created for pod {pod} (pod is not owner)";
    /// The CSI driver that replaces an inline disk's plugin cannot serve it.
    NotTranslatable { volume, problem } = "NodeVolumeLimits.NotTranslatable",
        "converting volume({volume}) from inline to csi: {problem}";
    /// A volume is in another zone.
    ZoneConflict = "VolumeZone.Conflict", "node(s) had no available volume zone";
    /// The pod refers to a claim that does not exist.
    ZonedClaimNotFound { claim } = "VolumeZone.ClaimNotFound", "persistentvolumeclaim \"{claim}\" not found";
    /// The pod refers to a claim without a name.
    ClaimNotNamed = "VolumeZone.ClaimNotNamed", "PersistentVolumeClaim had no name";
    /// A claim has neither a volume nor a class.
    NeitherVolumeNorClass = "VolumeZone.NeitherVolumeNorClass",
        "PersistentVolumeClaim had no pv name and storageClass name";
    /// A claim's class does not exist.
    ZonedClassNotFound { class } = "VolumeZone.ClassNotFound", "storageclass.storage.k8s.io \"{class}\" not found";
    /// A claim that should already be bound is not.
    VolumeNotNamed = "VolumeZone.VolumeNotNamed", "PersistentVolume had no name";
    /// A claim's volume does not exist.
    ZonedVolumeNotFound { volume } = "VolumeZone.VolumeNotFound", "persistentvolume \"{volume}\" not found";
    /// The node lacks the label of a spread constraint.
    SpreadLabelMissing = "PodTopologySpread.MissingLabel",
        "node(s) didn't match pod topology spread constraints (missing required label)";
    /// A spread constraint would be violated.
    SpreadTooUneven = "PodTopologySpread.Skew", "node(s) didn't match pod topology spread constraints";
    /// The pods of its affinity are not near.
    PodAffinity = "InterPodAffinity.Affinity", "node(s) didn't match pod affinity rules";
    /// A pod of its anti-affinity is near.
    PodAntiAffinity = "InterPodAffinity.AntiAffinity", "node(s) didn't match pod anti-affinity rules";
    /// A nearby pod's anti-affinity matches this pod.
    ExistingPodsAntiAffinity = "InterPodAffinity.ExistingPods",
        "node(s) didn't satisfy existing pods anti-affinity rules";
    /// The pod has resource claims, which nothing here allocates.
    ResourceClaims = "DynamicResources.NotAllocated",
        "Berth does not allocate resource claims (spec.resourceClaims): leave this pod to kube-scheduler";
    /// The pod must be scheduled together with others, which is not supported here.
    Gang = "GangScheduling.NotTogether",
        "Berth does not place pods as a group (spec.workloadRef, spec.schedulingGroup): leave this pod to kube-scheduler";
    /// An extender refused the node.
    Extender { message } = "Extender.Refused", "{message}";
    /// A plugin restricted the nodes to others.
    NotAmongNodes { plugins } = "Framework.OnlyNodes", "node(s) didn't satisfy plugin(s) [{plugins}]";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_name_their_plugin() {
        let codes: BTreeSet<_> = Reason::TABLE.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes.len(), Reason::TABLE.len());
        assert!(codes.iter().all(|code| code.split_once('.').is_some()));
    }

    #[test]
    fn names_are_put_in() {
        let reason = Reason::InsufficientResource {
            resource: "example.com/gpu".into(),
        };
        assert_eq!(reason.to_string(), "Insufficient example.com/gpu");
        assert_eq!(reason.code(), "NodeResourcesFit.InsufficientResource");
    }
}
