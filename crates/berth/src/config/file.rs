//! The structure of a `KubeSchedulerConfiguration` of version `v1`, field by field.
//!
//! Every field of kube-scheduler is listed, so that its files are accepted and a misspelt field is not. Fields that do
//! not affect decisions (profiling, connections) are read and kept for the commands that need them, or ignored there.

use berth_core::api::{NodeAffinity, TopologySpreadConstraint};
use serde::Deserialize;
use serde_json::Value;

/// A `KubeSchedulerConfiguration`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct File {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[allow(dead_code, reason = "read so that it is a known field; Berth decides on one thread")]
    parallelism: Option<i64>,
    pub(super) leader_election: Option<LeaderElection>,
    pub(super) client_connection: Option<ClientConnection>,
    #[allow(dead_code, reason = "read so that it is a known field")]
    enable_profiling: Option<bool>,
    #[allow(dead_code, reason = "read so that it is a known field")]
    enable_contention_profiling: Option<bool>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) pod_initial_backoff_seconds: Option<i64>,
    pub(super) pod_max_backoff_seconds: Option<i64>,
    pub(super) delay_cache_until_active: Option<bool>,
    pub(super) profiles: Option<Vec<ProfileFile>>,
    pub(super) extenders: Option<Vec<ExtenderFile>>,
    pub(super) together: Option<Together>,
}

/// How pending pods are considered together: kube-scheduler has no such field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Together {
    pub(super) tries_per_pod: Option<i64>,
    pub(super) time_per_pod: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExtenderFile {
    pub(super) url_prefix: Option<String>,
    pub(super) filter_verb: Option<String>,
    pub(super) prioritize_verb: Option<String>,
    pub(super) bind_verb: Option<String>,
    pub(super) preempt_verb: Option<String>,
    pub(super) weight: Option<i64>,
    #[serde(rename = "enableHTTPS")]
    pub(super) enable_https: bool,
    pub(super) tls_config: Option<TlsConfigFile>,
    pub(super) http_timeout: Option<String>,
    pub(super) node_cache_capable: bool,
    pub(super) managed_resources: Vec<ManagedResourceFile>,
    pub(super) ignorable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ManagedResourceFile {
    pub(super) name: String,
    pub(super) ignored_by_scheduler: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TlsConfigFile {
    pub(super) insecure: bool,
    pub(super) server_name: Option<String>,
    pub(super) cert_file: Option<String>,
    pub(super) key_file: Option<String>,
    pub(super) ca_file: Option<String>,
    pub(super) cert_data: Option<String>,
    pub(super) key_data: Option<String>,
    pub(super) ca_data: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LeaderElection {
    pub(super) leader_elect: Option<bool>,
    pub(super) lease_duration: Option<String>,
    pub(super) renew_deadline: Option<String>,
    pub(super) retry_period: Option<String>,
    pub(super) resource_lock: Option<String>,
    pub(super) resource_name: Option<String>,
    pub(super) resource_namespace: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientConnection {
    pub(super) kubeconfig: Option<String>,
    pub(super) accept_content_types: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) qps: Option<f64>,
    pub(super) burst: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProfileFile {
    pub(super) scheduler_name: Option<String>,
    pub(super) percentage_of_nodes_to_score: Option<i32>,
    pub(super) plugins: Option<Plugins>,
    pub(super) plugin_config: Option<Vec<PluginConfig>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Plugins {
    pub(super) multi_point: PluginSet,
    pub(super) pre_filter: PluginSet,
    pub(super) filter: PluginSet,
    pub(super) pre_score: PluginSet,
    pub(super) score: PluginSet,
    pub(super) pre_enqueue: PluginSet,
    pub(super) queue_sort: PluginSet,
    pub(super) post_filter: PluginSet,
    pub(super) reserve: PluginSet,
    pub(super) permit: PluginSet,
    pub(super) pre_bind: PluginSet,
    pub(super) bind: PluginSet,
    pub(super) post_bind: PluginSet,
    pub(super) placement_generate: PluginSet,
    pub(super) placement_score: PluginSet,
    pub(super) pod_group_post_filter: PluginSet,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PluginSet {
    pub(super) enabled: Vec<Plugin>,
    pub(super) disabled: Vec<Plugin>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Plugin {
    pub(super) name: String,
    pub(super) weight: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PluginConfig {
    pub(super) name: String,
    pub(super) args: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ShapePointFile {
    pub(super) utilization: i64,
    pub(super) score: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeBindingArgsFile {
    pub(super) bind_timeout_seconds: Option<i64>,
    pub(super) shape: Option<Vec<ShapePointFile>>,
    pub(super) storage_class_weights: Option<Vec<std::collections::BTreeMap<String, Value>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourceFile {
    pub(super) name: String,
    pub(super) weight: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeResourcesFitArgsFile {
    pub(super) ignored_resources: Vec<String>,
    pub(super) ignored_resource_groups: Vec<String>,
    pub(super) scoring_strategy: Option<ScoringStrategyFile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScoringStrategyFile {
    #[serde(rename = "type")]
    pub(super) form: Option<String>,
    pub(super) resources: Option<Vec<ResourceFile>>,
    pub(super) requested_to_capacity_ratio: Option<RequestedToCapacityRatioFile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RequestedToCapacityRatioFile {
    pub(super) shape: Vec<ShapePointFile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BalancedAllocationArgsFile {
    pub(super) resources: Option<Vec<ResourceFile>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InterPodAffinityArgsFile {
    pub(super) hard_pod_affinity_weight: Option<i64>,
    pub(super) ignore_preferred_terms_of_existing_pods: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodTopologySpreadArgsFile {
    pub(super) defaulting_type: Option<String>,
    pub(super) default_constraints: Vec<TopologySpreadConstraint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeAffinityArgsFile {
    pub(super) added_affinity: Option<NodeAffinity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(dead_code, reason = "read so that its fields are known")]
pub(super) struct DefaultPreemptionArgsFile {
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DynamicResourcesArgsFile {
    pub(super) filter_timeout: Option<String>,
    pub(super) binding_timeout: Option<String>,
}
