//! Pods, namespaces and priorities.

use super::{
    AwsElasticBlockStore, AzureDisk, CinderVolume, CsiSource, GcePersistentDisk, HostPathVolume, IscsiVolume,
    LabelSelector, LocalVolume, NfsVolume, NodeSelector, NodeSelectorTerm, ObjectMeta, PersistentVolumeClaimSpec,
    RbdVolume, ResourceList, nullable,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Its desired state.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    /// Its current state.
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

/// See [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it runs on; empty until it is bound.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// The scheduler responsible for it.
    pub scheduler_name: Option<String>,
    /// Its priority.
    pub priority: Option<i32>,
    /// The class its priority comes from.
    #[serde(deserialize_with = "nullable")]
    pub priority_class_name: String,
    /// `Never` keeps it from evicting others.
    pub preemption_policy: Option<String>,
    /// Labels its node must have.
    #[serde(deserialize_with = "nullable")]
    pub node_selector: BTreeMap<String, String>,
    /// Affinities.
    pub affinity: Option<Affinity>,
    /// The taints it tolerates.
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
    /// How its pods are spread.
    #[serde(deserialize_with = "nullable")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them if their restart policy is `Always`.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// Resources that running the pod costs on top of its containers.
    #[serde(deserialize_with = "nullable")]
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    pub resources: Option<ContainerResources>,
    /// Volumes.
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<PodVolume>,
    /// Uses the node's network: its container ports are host ports.
    #[serde(deserialize_with = "nullable")]
    pub host_network: bool,
    /// Scheduling gates: the pod is not scheduled before they are removed.
    #[serde(deserialize_with = "nullable")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Grace period for stopping, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// Devices to allocate for it.
    #[serde(deserialize_with = "nullable")]
    pub resource_claims: Vec<PodResourceClaim>,
    /// The workload whose pods are scheduled together.
    pub workload_ref: Option<WorkloadReference>,
    /// The group of pods that are scheduled together.
    pub scheduling_group: Option<SchedulingGroup>,
}

/// See [`PodSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Its name in the pod.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// See [`PodSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadReference {
    /// The workload's name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// See [`PodSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// The group's name.
    #[serde(deserialize_with = "nullable")]
    pub pod_group_name: String,
}

/// See [`PodSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGate {
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// See [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// The reason for this phase, as one word.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// The node nominated by preemption.
    #[serde(deserialize_with = "nullable")]
    pub nominated_node_name: String,
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<PodCondition>,
    /// Status of its containers.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Status of its init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// What all of its running containers were given together.
    pub resources: Option<ContainerResources>,
    /// Resources that the node has allocated to all of it.
    #[serde(deserialize_with = "nullable")]
    pub allocated_resources: ResourceList,
    /// When the kubelet first saw it.
    pub start_time: Option<String>,
}

/// See [`PodStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The container's name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// What the running container was given.
    pub resources: Option<ContainerResources>,
    /// Resources that the node has allocated to it.
    #[serde(deserialize_with = "nullable")]
    pub allocated_resources: ResourceList,
}

/// See [`PodStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// What it is about.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "nullable")]
    pub status: String,
    /// The reason, as one word.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// The reason, as a sentence.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Its image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// Its resources.
    #[serde(deserialize_with = "nullable")]
    pub resources: ContainerResources,
    /// Its ports.
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ContainerPort>,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
}

/// What a container requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    /// At least this much.
    #[serde(deserialize_with = "nullable")]
    pub requests: ResourceList,
    /// At most this much.
    #[serde(deserialize_with = "nullable")]
    pub limits: ResourceList,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// In the container.
    #[serde(deserialize_with = "nullable")]
    pub container_port: i32,
    /// On the node; 0 for none.
    #[serde(deserialize_with = "nullable")]
    pub host_port: i32,
    /// On this address of the node; empty for all.
    #[serde(rename = "hostIP", deserialize_with = "nullable")]
    pub host_ip: String,
    /// `TCP` if not given.
    pub protocol: Option<String>,
}

/// Where a pod should run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Relative to nodes.
    pub node_affinity: Option<NodeAffinity>,
    /// Near pods.
    pub pod_affinity: Option<PodAffinity>,
    /// Away from pods.
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// See [`Affinity`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// Preferred. An empty list is scored, a missing one is not.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<PreferredSchedulingTerm>>,
}

/// A node selector term with a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredSchedulingTerm {
    /// Weight.
    #[serde(deserialize_with = "nullable")]
    pub weight: i32,
    /// Term.
    #[serde(deserialize_with = "nullable")]
    pub preference: NodeSelectorTerm,
}

/// See [`Affinity`]: the form of affinity and anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// Must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub required: Vec<PodAffinityTerm>,
    /// Preferred.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// A pod affinity term with a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// Weight.
    #[serde(deserialize_with = "nullable")]
    pub weight: i32,
    /// Term.
    #[serde(deserialize_with = "nullable")]
    pub pod_affinity_term: PodAffinityTerm,
}

/// Selects pods and defines which nodes count as near.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// The pods; no selector matches no pod.
    pub label_selector: Option<LabelSelector>,
    /// Their namespaces by name.
    #[serde(deserialize_with = "nullable")]
    pub namespaces: Vec<String>,
    /// Nodes with the same value of this label are near each other.
    #[serde(deserialize_with = "nullable")]
    pub topology_key: String,
    /// Their namespaces by label; an empty one means all.
    pub namespace_selector: Option<LabelSelector>,
    /// Labels whose value the other pod must share.
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
    /// Labels whose value the other pod must not share.
    #[serde(deserialize_with = "nullable")]
    pub mismatch_label_keys: Vec<String>,
}

/// A taint that a pod tolerates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key; empty for all.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// `Equal` if not given, `Exists`, `Gt`, `Lt`.
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    /// Value.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// Effect; empty for all.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
    /// For how long.
    pub toleration_seconds: Option<i64>,
}

/// How pods are spread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// The largest difference.
    #[serde(deserialize_with = "nullable")]
    pub max_skew: i32,
    /// The label whose values are the domains.
    #[serde(deserialize_with = "nullable")]
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    #[serde(deserialize_with = "nullable")]
    pub when_unsatisfiable: String,
    /// The pods.
    pub label_selector: Option<LabelSelector>,
    /// The minimum number of domains to count.
    pub min_domains: Option<i32>,
    /// `Honor` if not given, or `Ignore`.
    pub node_affinity_policy: Option<String>,
    /// `Ignore` if not given, or `Honor`.
    pub node_taints_policy: Option<String>,
    /// Labels whose value the other pods must share.
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
}

/// A volume of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolume {
    /// Its name in the pod.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// A claim.
    pub persistent_volume_claim: Option<ClaimSource>,
    /// A claim made for the pod.
    pub ephemeral: Option<EphemeralSource>,
    /// A CSI driver's volume.
    pub csi: Option<CsiSource>,
    /// A Google disk.
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    /// An Amazon disk.
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    /// An Azure disk.
    pub azure_disk: Option<AzureDisk>,
    /// An OpenStack disk.
    pub cinder: Option<CinderVolume>,
    /// An iSCSI disk.
    pub iscsi: Option<IscsiVolume>,
    /// A Ceph block device.
    pub rbd: Option<RbdVolume>,
    /// A directory or disk of one node.
    pub local: Option<LocalVolume>,
    /// A directory of the node that the pod runs on.
    pub host_path: Option<HostPathVolume>,
    /// A network file system.
    pub nfs: Option<NfsVolume>,
    /// The files of an image.
    pub image: Option<ImageSource>,
}

/// The files of an image as a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSource {
    /// The image's name.
    #[serde(deserialize_with = "nullable")]
    pub reference: String,
}

/// A claim by name, in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub claim_name: String,
    /// Read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// A claim that is created for the pod and deleted with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralSource {
    /// The template of the claim.
    pub volume_claim_template: Option<ClaimTemplate>,
}

/// The template for the claim of an ephemeral volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimTemplate {
    /// Spec of the claim, with the fields that decisions read.
    pub spec: PersistentVolumeClaimSpec,
    /// The template with all of its fields: the claim also gets those that decisions do not read.
    pub whole: Value,
}

impl<'de> Deserialize<'de> for ClaimTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Value::deserialize(deserializer)?;
        let spec = match whole.get("spec") {
            None | Some(Value::Null) => PersistentVolumeClaimSpec::default(),
            Some(spec) => serde_path_to_error::deserialize(spec)
                .map_err(|error| D::Error::custom(format!("spec.{}: {}", error.path(), error.inner())))?,
        };
        Ok(Self { spec, whole })
    }
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
}

/// A priority class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// The priority.
    #[serde(deserialize_with = "nullable")]
    pub value: i32,
    /// Pods that name no class get this one.
    #[serde(deserialize_with = "nullable")]
    pub global_default: bool,
    /// Default for pods of this class.
    pub preemption_policy: Option<String>,
}

impl Pod {
    /// Whether a resize asked for more than its node can provide.
    #[must_use]
    pub fn has_infeasible_resize(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.kind == "PodResizePending" && condition.reason == "Infeasible")
    }

    /// Whether it is being deleted because a scheduler preempted it.
    #[must_use]
    pub fn is_preempted(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        let disrupted = conditions.find(|condition| condition.kind == "DisruptionTarget");
        let preempted = disrupted
            .is_some_and(|condition| condition.status == "True" && condition.reason == "PreemptionByScheduler");
        self.metadata.is_deleting() && preempted
    }

    /// Whether its node rejected it: it failed with a reason before any of its containers started.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        let status = &self.status;
        status.phase == "Failed"
            && !status.reason.is_empty()
            && !self.spec.node_name.is_empty()
            && status.container_statuses.is_empty()
            && status.init_container_statuses.is_empty()
    }

    /// Whether its node has admitted it: it tells of its containers, before it mounts anything for them.
    #[must_use]
    pub fn was_admitted(&self) -> bool {
        let status = &self.status;
        !self.spec.node_name.is_empty()
            && (matches!(status.phase.as_str(), "Running" | "Succeeded" | "Unknown")
                || !status.container_statuses.is_empty()
                || !status.init_container_statuses.is_empty())
    }

    /// Whether it has finished, successfully or not.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether it blocks deletion of the claim with this name in its namespace: it has a node, and has not stopped
    /// there.
    #[must_use]
    pub fn holds_claim(&self, name: &str) -> bool {
        !self.spec.node_name.is_empty() && !self.metadata.is_shut_down() && self.names_claim(name)
    }

    /// Whether it refers to the claim with this name in its namespace, and has not finished.
    #[must_use]
    pub fn refers_to_claim(&self, name: &str) -> bool {
        !self.is_finished() && !self.metadata.is_shut_down() && self.names_claim(name)
    }

    fn names_claim(&self, name: &str) -> bool {
        let mut volumes = self.spec.volumes.iter();
        volumes.any(|volume| volume.claim_name(&self.metadata.name).as_deref() == Some(name))
    }
}

impl Container {
    /// Whether this init container runs alongside the others for the pod's lifetime.
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl PodVolume {
    /// The name of the claim behind this volume: given, or derived from the pod's name.
    #[must_use]
    pub fn claim_name(&self, pod_name: &str) -> Option<String> {
        if let Some(claim) = &self.persistent_volume_claim {
            Some(claim.claim_name.clone())
        } else if self.ephemeral.is_some() {
            Some(format!("{pod_name}-{}", self.name))
        } else {
            None
        }
    }
}

super::storage::volume_source!(PodVolume);
