//! Which plugins decide, with which weights and arguments.
//!
//! Plain values with kube-scheduler's defaults; another crate reads configuration files.

mod adapt;

use crate::framework::PluginName;
use berth_core::api::{NodeAffinity, TopologySpreadConstraint};
use berth_core::binder::{CapacityScore, ScoreGate, VolumeGates};
use berth_core::names;
use std::num::NonZero;
use std::time::Duration;

pub use berth_core::score::{Shape, ShapePoint};

/// A scheduler's profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The filter plugins, in order.
    pub filters: Vec<PluginName>,
    /// The score plugins, with their weights.
    pub scores: Vec<(PluginName, i64)>,
    /// Node affinity that is added to every pod's own: an argument of NodeAffinity.
    pub added_affinity: Option<NodeAffinity>,
    /// Extended resources that NodeResourcesFit ignores, by name.
    pub ignored_resources: Vec<String>,
    /// Extended resources that NodeResourcesFit ignores, by the prefix of their names before the slash.
    pub ignored_resource_groups: Vec<String>,
    /// How NodeResourcesFit scores.
    pub scoring_strategy: ScoringStrategy,
    /// The resources that NodeResourcesBalancedAllocation balances.
    pub balanced_resources: Vec<String>,
    /// What a running pod's required affinity adds to the score of a nearby node.
    pub hard_pod_affinity_weight: i64,
    /// Ignore the preferred terms of running pods if the incoming pod has none.
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// How pods without spread constraints are spread.
    pub default_spread: DefaultSpread,
    /// Stop searching for nodes when this percentage fits, from 1 to 99. `None` considers every node.
    pub percentage_of_nodes_to_score: Option<NonZero<u8>>,
    /// Whether pods of this profile evict less important ones: DefaultPreemption is enabled.
    pub preempts: bool,
    /// Arguments of VolumeBinding.
    pub volume_binding: VolumeBindingArgs,
    /// Feature gates.
    pub gates: FeatureGates,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            filters: PluginName::ALL
                .iter()
                .copied()
                .filter(|plugin| plugin.is_filter())
                .collect(),
            scores: PluginName::ALL
                .iter()
                .filter_map(|plugin| Some((*plugin, plugin.default_weight()?)))
                .collect(),
            added_affinity: None,
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            scoring_strategy: ScoringStrategy::default(),
            balanced_resources: vec!["cpu".to_owned(), "memory".to_owned()],
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            default_spread: DefaultSpread::system(),
            percentage_of_nodes_to_score: None,
            preempts: true,
            volume_binding: VolumeBindingArgs::default(),
            gates: FeatureGates::default(),
        }
    }
}

/// How NodeResourcesFit scores.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoringStrategy {
    /// The scoring function.
    pub form: ScoringForm,
    /// The scored resources, with their weights.
    pub resources: Vec<(String, i64)>,
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        Self {
            form: ScoringForm::LeastAllocated,
            resources: vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)],
        }
    }
}

/// The scoring function of NodeResourcesFit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScoringForm {
    /// More free resources are better.
    LeastAllocated,
    /// Fewer free resources are better.
    MostAllocated,
    /// A piecewise linear function of the utilization.
    RequestedToCapacityRatio(Shape),
}

/// How pods without spread constraints of their own are spread, together with the pods of the same service or workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultSpread {
    /// The constraints. They have no selector: it comes from the pod's services and its owner.
    pub constraints: Vec<TopologySpreadConstraint>,
    /// Whether nodes that lack one of the labels are scored like any other.
    pub counts_nodes_without_labels: bool,
}

impl DefaultSpread {
    /// What kube-scheduler does by default: softly over hosts and zones.
    #[must_use]
    pub fn system() -> Self {
        let soft = |topology_key: &str, max_skew| TopologySpreadConstraint {
            max_skew,
            topology_key: topology_key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..TopologySpreadConstraint::default()
        };
        Self {
            constraints: vec![soft(names::HOSTNAME, 3), soft(names::ZONE, 5)],
            counts_nodes_without_labels: true,
        }
    }

    /// A list of constraints; an empty one means that such pods are not spread.
    #[must_use]
    pub fn list(constraints: Vec<TopologySpreadConstraint>) -> Self {
        Self {
            constraints,
            counts_nodes_without_labels: false,
        }
    }
}

/// Arguments of VolumeBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// How long binding a pod's volumes may take.
    pub bind_timeout: Duration,
    /// How volumes are scored.
    pub score: CapacityScore,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout: Duration::from_secs(600),
            score: CapacityScore::default(),
        }
    }
}

/// Feature gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// Scores nodes by how well existing volumes fit.
    pub volume_capacity_priority: bool,
    /// Scores nodes by the remaining storage, as in current Kubernetes. If not set, new volumes are scored that way, and existing ones
    /// by `volume_capacity_priority`.
    pub storage_capacity_scoring: Option<bool>,
    /// Honours `preventPodSchedulingIfMissing` of CSI drivers.
    pub volume_limit_scaling: bool,
    /// Tolerations with `Gt` and `Lt`.
    pub taint_toleration_comparison_operators: bool,
    /// Those of volume decisions, which apply to all profiles of a scheduler.
    pub volumes: VolumeGates,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            volume_capacity_priority: true,
            storage_capacity_scoring: None,
            volume_limit_scaling: true,
            taint_toleration_comparison_operators: false,
            volumes: VolumeGates::default(),
        }
    }
}

impl FeatureGates {
    /// Which of the two volume capacity scores is on. If the one of Kubernetes is enabled explicitly, it wins. Without a word about it, its
    /// default is that of Kubernetes 1.37, which is on, for what the other one leaves to it.
    #[must_use]
    pub fn score_gate(&self) -> ScoreGate {
        match (self.volume_capacity_priority, self.storage_capacity_scoring) {
            (_, Some(true)) | (false, None) => ScoreGate::StorageCapacityScoring,
            (true, None) => ScoreGate::ExistingAndNew,
            (true, Some(false)) => ScoreGate::VolumeCapacityPriority,
            (false, Some(false)) => ScoreGate::Off,
        }
    }

    /// Sets a gate by name; returns false if there is no such gate.
    pub fn set(&mut self, gate: &str, on: bool) -> bool {
        let gate = match gate {
            "StorageCapacityScoring" => self.storage_capacity_scoring.get_or_insert(on),
            "VolumeCapacityPriority" => &mut self.volume_capacity_priority,
            "VolumeScheduling" => &mut self.volumes.volume_scheduling,
            "CSIStorageCapacity" => &mut self.volumes.csi_storage_capacity,
            "PersistentVolumeClaimUnusedSinceTime" => &mut self.volumes.claim_unused_since_time,
            "VolumeLimitScaling" => &mut self.volume_limit_scaling,
            "TaintTolerationComparisonOperators" => &mut self.taint_toleration_comparison_operators,
            _ => return false,
        };
        *gate = on;
        true
    }
}
