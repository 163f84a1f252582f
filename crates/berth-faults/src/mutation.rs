//! Bugs to be found: each is enabled by name, to show that the simulator can fail.
//!
//! They are in the parts that the simulator owns (watches, the executor, the loops around steps, leases), where races are
//! decided. The steps themselves are those of the product.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mutation {
    NamesakesInLists,
    RemovalsInLists,
    SkippedChange,
    ChangesOutOfOrder,
    BoundPodWaits,
    DeafToCapacity,
    DeafToSizes,
    DeafToReservations,
    UnseenVolumeIsLost,
    DeadNomination,
    DeafToNodes,
    DeafToVolumes,
    DeafToClaims,
    UnguardedSelection,
    UnguardedReservation,
    UnguardedVerdict,
    UnguardedController,
    NamesakeBound,
    UserReservationMarked,
    NothingConfirmed,
    ShutDownPodsUse,
    DoubtIsFailure,
    DoubtIsSuccess,
    SecondDeletionIsMade,
    ConflictIsNotRead,
    NoDisputes,
    NoBackoff,
    NoLocks,
    LostWake,
    AnswersBringBack,
    AnswersNotTakenIn,
    NoOrder,
    RecordIsNotWritten,
    DoubtIsFinal,
    LeaderStays,
    LeaseNotAwaited,
    DeafToNominations,
    DeafToFreedSlots,
    PolicyNotConfirmed,
    UsedIsClean,
}

impl Mutation {
    /// Every bug.
    pub const ALL: [Self; 40] = [
        Self::NamesakesInLists,
        Self::RemovalsInLists,
        Self::SkippedChange,
        Self::ChangesOutOfOrder,
        Self::BoundPodWaits,
        Self::DeafToCapacity,
        Self::DeafToSizes,
        Self::DeafToReservations,
        Self::UnseenVolumeIsLost,
        Self::DeadNomination,
        Self::DeafToNodes,
        Self::DeafToVolumes,
        Self::DeafToClaims,
        Self::UnguardedSelection,
        Self::UnguardedReservation,
        Self::UnguardedVerdict,
        Self::UnguardedController,
        Self::NamesakeBound,
        Self::UserReservationMarked,
        Self::NothingConfirmed,
        Self::ShutDownPodsUse,
        Self::DoubtIsFailure,
        Self::DoubtIsSuccess,
        Self::SecondDeletionIsMade,
        Self::ConflictIsNotRead,
        Self::NoDisputes,
        Self::NoBackoff,
        Self::NoLocks,
        Self::LostWake,
        Self::AnswersBringBack,
        Self::AnswersNotTakenIn,
        Self::NoOrder,
        Self::RecordIsNotWritten,
        Self::DoubtIsFinal,
        Self::LeaderStays,
        Self::LeaseNotAwaited,
        Self::DeafToNominations,
        Self::DeafToFreedSlots,
        Self::PolicyNotConfirmed,
        Self::UsedIsClean,
    ];

    /// Its name and what is wrong.
    #[must_use]
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::NamesakesInLists => (
                "namesakes-in-lists",
                "a list takes an object for the one that was known under its name",
            ),
            Self::RemovalsInLists => ("removals-in-lists", "a list does not tell what is gone"),
            Self::SkippedChange => ("skipped-change", "a watch that was held back loses a change"),
            Self::ChangesOutOfOrder => (
                "changes-out-of-order",
                "a watch that was held back brings what came last first",
            ),
            Self::BoundPodWaits => (
                "bound-pod-waits",
                "a change to a bound pod makes it wait for a node again",
            ),
            Self::DeafToCapacity => ("deaf-to-capacity", "the scheduler does not hear that capacity grows"),
            Self::DeafToSizes => (
                "deaf-to-sizes",
                "the scheduler does not hear that larger volumes can be made",
            ),
            Self::DeafToReservations => (
                "deaf-to-reservations",
                "the scheduler does not hear that a volume went to a claim",
            ),
            Self::UnseenVolumeIsLost => (
                "unseen-volume-is-lost",
                "the scheduler takes a claim for lost whose volume it has not seen yet",
            ),
            Self::DeadNomination => ("dead-nomination", "a pod whose nominated node dies is not tried again"),
            Self::DeafToNodes => ("deaf-to-nodes", "the scheduler does not hear that a node is gone"),
            Self::DeafToVolumes => (
                "deaf-to-volumes",
                "the scheduler does not hear of a volume that is free",
            ),
            Self::DeafToClaims => (
                "deaf-to-claims",
                "the scheduler does not hear of a cleared selected-node",
            ),
            Self::UnguardedSelection => (
                "unguarded-selection",
                "selected-node is written whatever became of the claim since the decision",
            ),
            Self::UnguardedReservation => (
                "unguarded-reservation",
                "claimRef is written whatever became of the volume since the decision",
            ),
            Self::UnguardedVerdict => (
                "unguarded-verdict",
                "an attempt is committed or aborted whatever became of the pod since",
            ),
            Self::UnguardedController => ("unguarded-controller", "the controller writes on any version"),
            Self::NamesakeBound => ("namesake-bound", "writes do not compare uids"),
            Self::UserReservationMarked => (
                "user-reservation-marked",
                "a volume that a user reserved is marked as bound by the controller",
            ),
            Self::NothingConfirmed => (
                "nothing-confirmed",
                "facts are not asked of the server before acting on them",
            ),
            Self::ShutDownPodsUse => ("shut-down-pods-use", "a pod that is shut down still uses its claim"),
            Self::DoubtIsFailure => ("doubt-is-failure", "a write whose answer is lost counts as failed"),
            Self::DoubtIsSuccess => ("doubt-is-success", "a write whose answer is lost counts as made"),
            Self::SecondDeletionIsMade => (
                "second-deletion-is-made",
                "a lost deletion counts as made if the object is going already",
            ),
            Self::ConflictIsNotRead => ("conflict-is-not-read", "after a conflict the object is not read"),
            Self::NoDisputes => (
                "no-disputes",
                "what another took back is written again at once, by both",
            ),
            Self::NoBackoff => ("no-backoff", "what failed is tried again at once"),
            Self::NoLocks => ("no-locks", "a step starts while effects on its object are in flight"),
            Self::LostWake => ("lost-wake", "news about an object in flight is forgotten"),
            Self::AnswersBringBack => ("answers-bring-back", "an answer brings back an object that is gone"),
            Self::AnswersNotTakenIn => (
                "answers-not-taken-in",
                "the next step does not see what the last one wrote",
            ),
            Self::NoOrder => ("no-order", "writes about one pod overtake each other"),
            Self::RecordIsNotWritten => (
                "record-is-not-written",
                "a driver is called without a record on the claim",
            ),
            Self::DoubtIsFinal => (
                "doubt-is-final",
                "a driver that does not answer is taken for one that refuses",
            ),
            Self::LeaderStays => ("leader-stays", "a former leader keeps writing"),
            Self::LeaseNotAwaited => (
                "lease-not-awaited",
                "a standby takes over without waiting for the lease to run out",
            ),
            Self::DeafToNominations => (
                "deaf-to-nominations",
                "the scheduler misses that a waiting pod is nominated to a node again",
            ),
            Self::DeafToFreedSlots => (
                "deaf-to-freed-slots",
                "the scheduler does not hear that a claim in use got another volume than its driver's",
            ),
            Self::PolicyNotConfirmed => (
                "policy-not-confirmed",
                "a volume is not read again before its data are deleted",
            ),
            Self::UsedIsClean => (
                "used-is-clean",
                "a bound claim that may be rolled back counts as never used",
            ),
        }
    }

    /// The bug with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutation| mutation.told().0 == name)
    }
}
