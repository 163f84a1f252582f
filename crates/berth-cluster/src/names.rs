//! The labels and annotations that workload controllers and node agents write or read.
//!
//! Those for volume decisions, and those that other crates need too, are in [`berth_core::names`].

pub use berth_core::names::{CONTROLLER_UID, CONTROLLER_UID_LEGACY, JOB_NAME, JOB_NAME_LEGACY, RACK};

/// Label on a pod of a StatefulSet: its own name.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Label on a pod of a StatefulSet: its ordinal.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
/// Label on a pod of a StatefulSet: the revision of its template.
pub const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";
/// Label on a ControllerRevision: the hash in its name.
pub const REVISION_HASH: &str = "controller.kubernetes.io/hash";
/// Label on the ReplicaSets of a Deployment and on their pods: the hash of their template.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Annotation on a pod of a ReplicaSet: pods with a lower cost are deleted first.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation on a Deployment and its ReplicaSets: the revision number.
pub const DEPLOYMENT_REVISION: &str = "deployment.kubernetes.io/revision";
/// Label and annotation on the pods of an indexed Job: their index.
pub const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Annotation on a pod (so on a pod template): how many seconds its containers run before they end on their own. Those that
/// are always restarted start again after a backoff. Without it, pods of a Job end at once and all others run forever.
pub const RUN_SECONDS: &str = "berth.dev/run-seconds";
/// Annotation on a pod: the exit code of its containers, 0 if not set.
pub const EXIT_CODE: &str = "berth.dev/exit-code";
/// Annotation on a pod: how many seconds its containers take to start; immediately if not set.
pub const START_SECONDS: &str = "berth.dev/start-seconds";
/// Annotation on a pod: how many seconds after their start its containers pass their readiness probes, or `never`.
pub const READY_SECONDS: &str = "berth.dev/ready-seconds";
/// Annotation on a node: the mode of its agent, see [`super::agent::Mode`].
pub const AGENT_MODE: &str = "berth.dev/agent";

/// The namespace of the nodes' leases.
pub const NODE_LEASES: &str = "kube-node-lease";
