//! Why a node, or every node, is refused: one value for each reason, worded here and nowhere else.

use berth_core::reason::VolumeReason;
use std::fmt;
use std::sync::Arc;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident),* })? = $code:literal, $wording:literal;)*) => {
        /// A reason, with what it is about.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name $({ $(
                #[doc = concat!("The ", stringify!($field), ".")]
                $field: Arc<str>
            ),* })?,)*
            /// Claims and volumes keep the pod away.
            Volume(VolumeReason),
        }

        impl Reason {
            /// Every reason: its stable code and its wording, with names in braces where the reason has them.
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
    /// The pod names another node.
    OtherNodeName = "NodeName.OtherNode", "node(s) didn't match the requested node name";
    /// The pod does not tolerate a taint.
    UntoleratedTaint = "TaintToleration.UntoleratedTaint", "node(s) had untolerated taint(s)";
    /// The pod's node affinity or node selector does not match.
    NodeAffinity = "NodeAffinity.Mismatch", "node(s) didn't match Pod's node affinity/selector";
    /// The pod's node affinity names nodes that exclude each other.
    ConflictingAffinityTerms = "NodeAffinity.ConflictingTerms", "pod affinity terms conflict";
    /// A host port is taken.
    PortsTaken = "NodePorts.Taken", "node(s) didn't have free ports for the requested pod ports";
    /// The node holds as many pods as it may.
    TooManyPods = "NodeResourcesFit.TooManyPods", "Too many pods";
    /// Too little processor time is left.
    InsufficientCpu = "NodeResourcesFit.InsufficientCpu", "Insufficient cpu";
    /// Too little memory is left.
    InsufficientMemory = "NodeResourcesFit.InsufficientMemory", "Insufficient memory";
    /// Too little local disk is left.
    InsufficientEphemeralStorage = "NodeResourcesFit.InsufficientEphemeralStorage", "Insufficient ephemeral-storage";
    /// Too little of another resource is left.
    InsufficientResource { resource } = "NodeResourcesFit.InsufficientResource", "Insufficient {resource}";
    /// A disk is in use on the node and cannot be shared.
    DiskConflict = "VolumeRestrictions.DiskConflict", "node(s) had no available disk";
    /// A claim for one pod alone is in use.
    ClaimInUse = "VolumeRestrictions.ClaimInUse",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    /// The pod names a claim that is not there.
    RestrictedClaimNotFound { claim } = "VolumeRestrictions.ClaimNotFound", "persistentvolumeclaim \"{claim}\" not found";
    /// The node holds as many volumes as it can.
    TooManyVolumes = "NodeVolumeLimits.TooManyVolumes", "node(s) exceed max volume count";
    /// The node lacks a driver.
    DriverNotInstalled { driver } = "NodeVolumeLimits.DriverNotInstalled", "{driver} CSI driver is not installed on the node";
    /// The pod names a claim that is not there.
    CountedClaimNotFound { namespace, claim } = "NodeVolumeLimits.ClaimNotFound",
        "looking up PVC {namespace}/{claim}: persistentvolumeclaim \"{claim}\" not found";
    /// The claim that an ephemeral volume would use belongs to something else.
    CountedClaimNotOwned { claim, pod } = "NodeVolumeLimits.ClaimNotOwned",
        "PVC {claim} was not created for pod {pod} (pod is not owner)";
    /// An inline disk cannot be served by the driver that took over from its plugin.
    NotTranslatable { volume, problem } = "NodeVolumeLimits.NotTranslatable",
        "converting volume({volume}) from inline to csi: {problem}";
    /// A volume is in another zone.
    ZoneConflict = "VolumeZone.Conflict", "node(s) had no available volume zone";
    /// The pod names a claim that is not there.
    ZonedClaimNotFound { claim } = "VolumeZone.ClaimNotFound", "persistentvolumeclaim \"{claim}\" not found";
    /// The pod names a claim without a name.
    ClaimNotNamed = "VolumeZone.ClaimNotNamed", "PersistentVolumeClaim had no name";
    /// A claim has neither a volume nor a class.
    NeitherVolumeNorClass = "VolumeZone.NeitherVolumeNorClass",
        "PersistentVolumeClaim had no pv name and storageClass name";
    /// A claim's class is not there.
    ZonedClassNotFound { class } = "VolumeZone.ClassNotFound", "storageclass.storage.k8s.io \"{class}\" not found";
    /// A claim that should be bound by now is not.
    VolumeNotNamed = "VolumeZone.VolumeNotNamed", "PersistentVolume had no name";
    /// A claim's volume is not there.
    ZonedVolumeNotFound { volume } = "VolumeZone.VolumeNotFound", "persistentvolume \"{volume}\" not found";
    /// The node lacks the label that pods are spread over.
    SpreadLabelMissing = "PodTopologySpread.MissingLabel",
        "node(s) didn't match pod topology spread constraints (missing required label)";
    /// The pods would be spread too unevenly.
    SpreadTooUneven = "PodTopologySpread.Skew", "node(s) didn't match pod topology spread constraints";
    /// The pods that it wants to be near are not near.
    PodAffinity = "InterPodAffinity.Affinity", "node(s) didn't match pod affinity rules";
    /// A pod that it wants to be away from is near.
    PodAntiAffinity = "InterPodAffinity.AntiAffinity", "node(s) didn't match pod anti-affinity rules";
    /// A pod is near that wants to be away from this one.
    ExistingPodsAntiAffinity = "InterPodAffinity.ExistingPods",
        "node(s) didn't satisfy existing pods anti-affinity rules";
    /// The pod has resource claims, which nothing here allocates.
    ResourceClaims = "DynamicResources.NotAllocated",
        "Berth does not allocate resource claims (spec.resourceClaims): leave this pod to kube-scheduler";
    /// The pod is to be placed together with others, which nothing here does.
    Gang = "GangScheduling.NotTogether",
        "Berth does not place pods as a group (spec.workloadRef, spec.schedulingGroup): leave this pod to kube-scheduler";
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
