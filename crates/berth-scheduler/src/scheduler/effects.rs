//! What a scheduler wants done. Effects are plain values: whoever runs the scheduler carries them out.

use crate::queue::PodKey;
use berth_core::binder::VolumeWrite;
use berth_core::hold::Hold;

/// A write, by which its outcome is reported back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write to the API and report the outcome with [`Scheduler::written`](super::Scheduler::written).
    Write {
        /// To report with.
        id: WriteId,
        /// What to write.
        write: Write,
    },
    /// Say how things stand with a pod. Nothing depends on the outcome.
    Condition {
        /// The pod.
        pod: PodRef,
        /// The generation of the pod that was looked at; 0 if it has none.
        generation: i64,
        /// `Unschedulable` or `SchedulerError`.
        reason: &'static str,
        /// In words.
        message: String,
    },
    /// Name the node on which room or volumes are being made for a pod, or none any more. Nothing depends on the outcome.
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The node; empty for none.
        node: String,
    },
    /// Record an event about a pod.
    Event {
        /// The pod.
        pod: PodRef,
        /// Who reports it: the name of the profile that decided.
        source: String,
        /// What became of it.
        outcome: Outcome,
        /// In words.
        message: String,
    },
}

/// What became of a pod, as an event tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has a node.
    Scheduled,
    /// It fits nowhere.
    Unschedulable,
    /// The attempt failed at this stage, and there will be another.
    Failed(FailedStage),
    /// It is evicted to make room for another pod.
    Preempted,
}

/// Where an attempt to schedule a pod failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStage {
    /// Whether it fits cannot be told.
    Decision,
    /// Its volumes were no longer what was decided on.
    AssumeVolumes,
    /// Its volumes were not bound.
    BindVolumes,
    /// The chosen node is gone.
    NodeGone,
    /// The API server refused the node.
    BindPod,
    /// The answer about the node was lost, or the pod has changed: it may have a node.
    BindPodInDoubt,
}

impl Outcome {
    /// The reason of the event, as kube-scheduler names it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Unschedulable | Self::Failed(_) => "FailedScheduling",
            Self::Preempted => "Preempted",
        }
    }

    /// Whether somebody should look.
    #[must_use]
    pub fn is_warning(self) -> bool {
        match self {
            Self::Unschedulable | Self::Failed(_) => true,
            Self::Scheduled | Self::Preempted => false,
        }
    }
}

/// A pod by name and uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// `namespace/name`
    pub key: PodKey,
    /// Its uid.
    pub uid: String,
}

/// A write whose outcome decides how binding goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Set a volume's `claimRef`, if the volume is still at this version.
    ReserveVolume {
        /// The volume.
        volume: String,
        /// Its version, 0 if not known.
        version: u64,
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// The claim's uid.
        uid: String,
        /// Whether the volume names the claim already, by a user's hand: then it is not marked as bound by the controller.
        prebound: bool,
        /// The attempt that holds it.
        hold: Option<Hold>,
    },
    /// Mark a claim with the node that its volume is to be made for, if the claim is still at this version.
    SelectNode {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// Its version, 0 if not known.
        version: u64,
        /// The node.
        node: String,
        /// The attempt that holds the claim.
        hold: Option<Hold>,
    },
    /// Say on a pod what becomes of an attempt to get its volumes, if the pod is still at this version.
    Conclude {
        /// The pod.
        pod: PodRef,
        /// Its version, 0 if not known.
        version: u64,
        /// The attempt.
        attempt: u64,
        /// All volumes are there, and the claims are to be bound. Otherwise what is held is given back.
        commit: bool,
    },
    /// Bind a pod to a node.
    BindPod {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: String,
    },
    /// Evict a pod to make room.
    EvictPod {
        /// The pod.
        pod: PodRef,
        /// The pod for which room is made.
        by: PodKey,
    },
}

impl From<VolumeWrite> for Write {
    fn from(write: VolumeWrite) -> Self {
        match write {
            VolumeWrite::ReserveVolume {
                volume,
                version,
                namespace,
                claim,
                uid,
                prebound,
                hold,
            } => Self::ReserveVolume {
                volume,
                version,
                namespace,
                claim,
                uid,
                prebound,
                hold,
            },
            VolumeWrite::SelectNode {
                namespace,
                claim,
                version,
                node,
                hold,
            } => Self::SelectNode {
                namespace,
                claim,
                version,
                node,
                hold,
            },
        }
    }
}

/// How a write went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was carried out; the object is at this version now, 0 if not known.
    Done {
        /// The version.
        version: u64,
    },
    /// It was not carried out.
    Failed {
        /// In words.
        problem: String,
    },
    /// It was not carried out because the object is no longer the one that was decided on.
    Overtaken {
        /// In words.
        problem: String,
    },
    /// The answer was lost: nobody knows whether it was carried out.
    Unknown {
        /// In words.
        problem: String,
    },
}
