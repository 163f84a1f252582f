//! The output of a scheduler. Effects are plain values that the caller carries out.

use crate::queue::PodKey;
use berth_core::binder::VolumeWrite;
use berth_core::clean::Rollback;

/// The ID of a write, to report its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write to the API and report the result with [`Scheduler::written`](super::Scheduler::written).
    Write {
        /// For the report.
        id: WriteId,
        /// What to write.
        write: Write,
    },
    /// Set the condition of a pod. Nothing depends on the result.
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
    /// Nominate a node for a pod, for preemption or provisioning, or clear the nomination. Nothing depends on the
    /// result.
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
        /// The outcome.
        outcome: Outcome,
        /// In words.
        message: String,
    },
}

/// The outcome for a pod, as an event reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has a node.
    Scheduled,
    /// It fits nowhere.
    Unschedulable,
    /// The attempt failed at this stage, and will be repeated.
    Failed(FailedStage),
    /// It is evicted to make room for another pod.
    Preempted,
}

/// Where an attempt to schedule a pod failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStage {
    /// It is unknown whether it fits.
    Decision,
    /// Its volumes have changed since the decision.
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
    /// The reason of the event, as in kube-scheduler.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Unschedulable | Self::Failed(_) => "FailedScheduling",
            Self::Preempted => "Preempted",
        }
    }

    /// Whether it needs attention.
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

/// A write whose result determines how the binding continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Reserve a volume, or select the node to provision a volume for.
    Volume(VolumeWrite),
    /// Mark a clean claim as one that is given back, if the claim is still at this version.
    RollBack {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// Its version.
        version: u64,
        /// The mark.
        rollback: Rollback,
    },
    /// Record the result of a volume attempt on a pod, if the pod is still at this version.
    Conclude {
        /// The pod.
        pod: PodRef,
        /// Its version, 0 if unknown.
        version: u64,
        /// The attempt.
        attempt: u64,
        /// All volumes exist, and the claims should be bound. Otherwise held objects are released.
        commit: bool,
    },
    /// Bind a pod to a node.
    BindPod {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: String,
        /// The extender that binds it, as a place in the list of the configuration. It may be bound without an extender that can be
        /// ignored.
        extender: Option<usize>,
    },
    /// Evict a pod for preemption.
    EvictPod {
        /// The pod.
        pod: PodRef,
        /// The preempting pod.
        by: PodKey,
    },
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was carried out; the object now has this version, 0 if unknown.
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
    /// The response was lost: it is unknown whether it was carried out.
    Unknown {
        /// In words.
        problem: String,
    },
}
