//! Why pods wait, why claims have no volume, and why volumes serve no claim: one value for each cause, with a stable
//! code.
//!
//! The code is a contract with users' scripts. The meaning of a cause and what to do about it are defined here, for the
//! tables of docs/reasons.md; the text of an answer, which names objects, is created where the answer is.

use serde::{Serialize, Serializer};

macro_rules! causes {
    ($($name:ident = $code:literal, $meaning:literal, $remedy:literal;)*) => {
        /// A cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $(#[doc = $meaning] $name,)*
        }

        impl Cause {
            /// Every cause: its code, what it means, and what to do about it.
            pub const TABLE: &[(&str, &str, &str)] = &[$(($code, $meaning, $remedy),)*];

            /// The stable code: its subject, a dot, and a word.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }
        }
    };
}

causes! {
    PodFits = "Pod.Fits", "The pod fits, and nothing is known that keeps it waiting.", "Nothing.";
    PodUnschedulable = "Pod.Unschedulable", "The pod fits on no node.", "See \"What would help\" in the answer.";
    PodNeedsEviction = "Pod.NeedsEviction", "The pod fits on a node once pods of lower priority are evicted.",
        "Wait for the scheduler to evict them, or add a node.";
    PodHasNode = "Pod.HasNode", "The pod has a node: its kubelet has to start it.",
        "`kubectl describe pod`: look for FailedMount, FailedAttachVolume and image errors.";
    PodDeleting = "Pod.Deleting", "The pod is being deleted. Schedulers ignore it.",
        "Wait; if it stays, check its finalizers.";
    PodGated = "Pod.Gated", "The pod has scheduling gates. It is not scheduled until they are removed.",
        "Find the component that sets the gates, and let it remove them.";
    PodSchedulerAbsent = "Pod.SchedulerAbsent",
        "No scheduler serves the pod's `schedulerName`: none holds a lease of that name or announces it, and none writes events.",
        "Start that scheduler, or recreate the pod with the `schedulerName` of one that runs.";
    PodNominated = "Pod.Nominated", "The pod is nominated to a node and waits for preempted pods to terminate, or for its turn.",
        "Wait; if they stay, check their finalizers and grace periods.";
    PodBindingTimedOut = "Pod.BindingTimedOut", "A node was selected, but the pod's volumes were not bound in time.",
        "Check the events of its claims, and the provisioner of their class.";
    PodVolumesHeld = "Pod.VolumesHeld",
        "Claims of the pod are held until all volumes of a pod exist: this one, or another one that uses the same claim.",
        "Wait: at most 10 minutes. If it stays, check that `berth controller` runs: kube-controller-manager releases no held claims.";
    PodClaimGivenBack = "Pod.ClaimGivenBack",
        "A claim of the pod that no pod has used is being rolled back, because a pod fits on no node with its volume.",
        "Wait until its owner has recreated it. If it is not deleted, check that `berth controller` runs.";
    PodProvisioning = "Pod.Provisioning", "A claim of the pod waits for its provisioner.",
        "Wait; check the events of the claim.";
    PodProvisionerSilent = "Pod.ProvisionerSilent", "A claim of the pod waits for its provisioner, which does not respond.",
        "Check that the driver's controller runs, and that the class names this driver.";
    PodProvisioningFailed = "Pod.ProvisioningFailed", "The provisioner fails to provision a claim of the pod.",
        "Resolve what the driver's message says; the logs of the driver's controller say more.";
    PodRefusedBefore = "Pod.RefusedBefore", "The scheduler refused the pod; it fits now and is retried.",
        "Wait: at most 5 minutes.";
    PodOthersFirst = "Pod.OthersFirst", "The pod fits, but other pending pods need its place, and their turn comes first.",
        "Add room for one more pod of its kind, or raise the pod's priority.";
    PodAfterOthers = "Pod.AfterOthers", "The pod fits on no node yet, but will once other pending pods have theirs.",
        "Wait for those pods; explain them if they wait for long.";
    PodNotLookedAt = "Pod.NotLookedAt", "No scheduler has tried the pod yet.",
        "Wait a moment.";
    PodOverlooked = "Pod.Overlooked",
        "The pod fits, and no scheduler has tried it for more than a minute, or has retried it long after it was refused.",
        "Check that the scheduler of the pod's `schedulerName` runs, its logs, and whether it has many pending pods to try.";
    ClaimBound = "Claim.Bound", "The claim is bound to a volume that some node can reach.", "Nothing.";
    ClaimDelayed = "Claim.Delayed", "The claim gets its volume when its pod gets a node.", "Nothing.";
    ClaimNoStorage = "Claim.NoStorage", "The claim gets its volume when its pod gets a node, and no node has storage for it.",
        "Explain a pod that uses it: \"What would help\" says what to provide or to change.";
    ClaimMissing = "Claim.Missing", "The claim does not exist.",
        "Create it in the pod's namespace, or correct the name in the pod.";
    ClaimEphemeralMissing = "Claim.EphemeralMissing", "The claim of an ephemeral volume has not been created yet.",
        "Wait a moment. If it stays, check the events of the pod.";
    ClaimUnknown = "Claim.Unknown", "Claims could not be read.", "Ask someone with list permission to run `berth snapshot`.";
    ClaimLost = "Claim.Lost", "The claim has lost its volume.", "Restore the volume, or recreate the claim.";
    ClaimDeleting = "Claim.Deleting", "The claim is being deleted.", "Wait until it is deleted, then recreate it.";
    ClaimNotOwned = "Claim.NotOwned", "A claim with the name of an ephemeral volume's claim belongs to something else.",
        "Delete or rename that claim.";
    ClaimNoDefaultClass = "Claim.NoDefaultClass", "The claim sets no class, and there is no default StorageClass.",
        "Set `storageClassName`, or make a StorageClass the default.";
    ClaimWithoutClass = "Claim.WithoutClass", "The claim sets no class and waits for the volume controller.",
        "Look at the events of the claim.";
    ClaimClassMissing = "Claim.ClassMissing", "The claim's StorageClass does not exist.",
        "Create the class, or recreate the claim with a class that exists.";
    ClaimClassUnknown = "Claim.ClassUnknown", "Storage classes could not be read.",
        "Ask someone with list permission to run `berth snapshot`.";
    ClaimWaitsForVolume = "Claim.WaitsForVolume", "The claim names a volume and is not bound to it yet.",
        "Look at the events of the claim.";
    ClaimWaitsForProvisioner = "Claim.WaitsForProvisioner",
        "The claim's class binds immediately, and its provisioner has created no volume yet.",
        "Look at the events of the claim, and at the provisioner.";
    ClaimProvisioningFailed = "Claim.ProvisioningFailed", "The provisioner fails to provision the claim.",
        "Resolve what the driver's message says; the logs of the driver's controller say more.";
    ClaimProvisionerSilent = "Claim.ProvisionerSilent", "The claim waits for its provisioner, which does not respond.",
        "Check that the driver's controller runs, and that the class names this driver.";
    ClaimWaitsForController = "Claim.WaitsForController",
        "The claim's class binds immediately, and the volume controller has found no volume yet.",
        "Look at the events of the claim; provide a volume.";
    ClaimVolumeMissing = "Claim.VolumeMissing", "The claim is bound to a volume that does not exist.",
        "Restore the volume, or recreate the claim.";
    ClaimVolumeUnknown = "Claim.VolumeUnknown", "Volumes could not be read.",
        "Ask someone with list permission to run `berth snapshot`.";
    ClaimNodeMissing = "Claim.NodeMissing", "The claim is bound to a volume on a node that does not exist.",
        "Bring the node back. Otherwise the data is lost: recreate the claim.";
    ClaimNodeDown = "Claim.NodeDown", "The claim is bound to a volume that only nodes can reach that do not respond.",
        "Bring the node back.";
    ClaimOutOfReach = "Claim.OutOfReach", "The claim is bound to a volume that no node can reach.",
        "Compare the volume's node affinity with the labels of the nodes.";
    OfferSuffices = "Storage.Suffices", "The node has storage for the claim.", "Nothing.";
    OfferSelectedElsewhere = "Storage.SelectedElsewhere",
        "Another node is selected for the claim: its volume is created there, unless the provisioner clears the selection.",
        "Make room on the selected node, or check why the provisioner neither creates the volume nor clears the selected node.";
    OfferNoVolume = "Storage.NoFreeVolume", "The node can reach no free volume of the class.", "Provide a volume.";
    OfferTooSmall = "Storage.TooSmall", "The free volumes that the node can reach are too small.",
        "Provide a larger volume, or ask for less.";
    OfferUnsuitable = "Storage.Unsuitable",
        "The free volumes that the node can reach differ from the claim in access modes, volume mode or labels.",
        "Correct the claim, or provide a volume.";
    OfferTopology = "Storage.TopologyNotAllowed", "The class allows no volume for the node.",
        "Look at `allowedTopologies` of the class.";
    OfferNoCapacity = "Storage.NotEnoughSpace", "The driver has too little free space for the node.",
        "Ask for less, free space, or add storage.";
    VolumeReleased = "Volume.Released", "The volume's claim is gone, and the volume still names it.",
        "If the data is not needed, remove `spec.claimRef` from the volume, or recreate it.";
    VolumeFailed = "Volume.Failed", "The volume could not be reclaimed.", "The volume's message says why; recreate it.";
    VolumeDeleting = "Volume.Deleting", "The volume is being deleted.", "Wait, or create another one.";
    VolumePending = "Volume.Pending", "The volume is not Available yet.", "Wait for the volume controller.";
    VolumeReserved = "Volume.Reserved", "The volume is reserved for another claim.",
        "Create that claim, or remove `spec.claimRef` from the volume.";
    VolumeNodeMissing = "Volume.NodeMissing", "The volume's node affinity matches no node.",
        "Bring the node back, or recreate the volume for a node that exists.";
    VolumeNodeDown = "Volume.NodeDown", "Only nodes that do not respond can reach the volume.", "Bring the node back.";
    VolumeAccessModes = "Volume.AccessModes", "The volume lacks an access mode that the claim asks for.",
        "Ask for an access mode that the volume has.";
    VolumeMode = "Volume.VolumeMode", "The volume is Block and the claim asks for Filesystem, or the other way round.",
        "Correct `volumeMode` of one of the two.";
    VolumeLabels = "Volume.Labels", "The volume's labels do not match the claim's selector.",
        "Label the volume, or change the selector.";
    VolumeAttributesClass = "Volume.AttributesClass", "The volume has another VolumeAttributesClass than the claim asks for.",
        "Correct `volumeAttributesClassName`.";
    VolumeTooSmall = "Volume.TooSmall", "The volume is smaller than the claim asks for.", "Ask for less, or provide a larger volume.";
    NodeDown = "Node.Down", "The node does not respond.", "Bring it back.";
    NodeCordoned = "Node.Cordoned", "The node is cordoned: it takes no new pods.", "`kubectl uncordon`, once it may take pods again.";
}

impl Cause {
    /// The meaning of the cause, without a full stop.
    #[must_use]
    pub fn heading(self) -> &'static str {
        let known = Self::TABLE.iter().find(|(code, ..)| *code == self.code());
        known.map_or("", |(_, meaning, _)| meaning.trim_end_matches('.'))
    }

    /// Whether a pod waits for a reason other than room, which may never resolve on its own.
    #[must_use]
    pub fn keeps_pods(self) -> bool {
        matches!(
            self,
            Self::PodDeleting
                | Self::PodGated
                | Self::PodSchedulerAbsent
                | Self::PodNominated
                | Self::PodBindingTimedOut
                | Self::PodVolumesHeld
                | Self::PodClaimGivenBack
                | Self::PodOthersFirst
                | Self::PodOverlooked
                | Self::PodProvisionerSilent
                | Self::PodProvisioningFailed
        )
    }

    /// Whether a pod fits nowhere because of what it waits for: room that others are about to leave, or a volume that is not
    /// provisioned.
    #[must_use]
    pub fn explains_refusal(self) -> bool {
        matches!(
            self,
            Self::PodDeleting | Self::PodNominated | Self::PodProvisionerSilent | Self::PodProvisioningFailed
        )
    }

    /// What to do about the cause.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        let known = Self::TABLE.iter().find(|(code, ..)| *code == self.code());
        known.map_or("", |(_, _, remedy)| remedy)
    }

    /// Whether a claim waits for another component, and nothing is known to be wrong with the claim itself.
    #[must_use]
    pub fn keeps_claims(self) -> bool {
        matches!(
            self,
            Self::ClaimWithoutClass
                | Self::ClaimWaitsForVolume
                | Self::ClaimWaitsForProvisioner
                | Self::ClaimWaitsForController
                | Self::ClaimProvisioningFailed
                | Self::ClaimProvisionerSilent
        )
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_say_what_they_are_about() {
        let codes: BTreeSet<&str> = Cause::TABLE.iter().map(|(code, ..)| *code).collect();
        assert_eq!(codes.len(), Cause::TABLE.len());
        let about = ["Pod.", "Claim.", "Storage.", "Volume.", "Node."];
        assert!(
            codes
                .iter()
                .all(|code| about.iter().any(|about| code.starts_with(about)))
        );
    }
}
