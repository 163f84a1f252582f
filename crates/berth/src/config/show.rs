//! The effective configuration, as `/configz` serves it: in the form of the file, including defaults.

use super::extenders;
use super::plugins::DEFAULT_PREEMPTION;
use super::{API_VERSION, Configuration, Election, KIND, SchedulerProfile};
use berth_scheduler::profile::FeatureGates;
use serde_json::{Map, Value, json};
use std::num::NonZero;

impl Configuration {
    /// The configuration under the name that kube-scheduler uses for its own, and the feature gates. Read as a file, it
    /// gives the same configuration.
    #[must_use]
    pub fn shown(&self) -> Value {
        let profiles: Vec<_> = self.profiles.iter().map(shown_profile).collect();
        let gates = self.profiles.first().map(|profile| shown_gates(&profile.profile.gates));
        let mut shown = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "podInitialBackoffSeconds": self.times.initial_backoff.as_secs(),
            "podMaxBackoffSeconds": self.times.max_backoff.as_secs(),
            "together": {
                "triesPerPod": self.together.tries_per_pod,
                // Nanoseconds represent any duration of a file exactly.
                "timePerPod": format!("{}ns", self.together.time_per_pod.as_nanos()),
            },
            "profiles": profiles,
        });
        if let Some(election) = &self.process.election {
            shown["leaderElection"] = shown_election(election);
        }
        if !self.extenders.is_empty() {
            shown["extenders"] = self.extenders.iter().map(extenders::shown).collect();
        }
        json!({"kubescheduler.config.k8s.io": shown, "featureGates": gates})
    }
}

fn shown_election(election: &Election) -> Value {
    // Milliseconds represent any sensible duration of a file exactly.
    let time = |time: std::time::Duration| format!("{}ms", time.as_millis());
    let mut shown = json!({
        "leaderElect": election.elect,
        "leaseDuration": time(election.lease_duration),
        "renewDeadline": time(election.renew_deadline),
        "retryPeriod": time(election.retry_period),
        "resourceLock": "leases",
    });
    if let Some(name) = &election.name {
        shown["resourceName"] = json!(name);
    }
    if let Some(namespace) = &election.namespace {
        shown["resourceNamespace"] = json!(namespace);
    }
    shown
}

fn shown_gates(gates: &FeatureGates) -> Value {
    json!({
        "VolumeScheduling": gates.volumes.volume_scheduling,
        "CSIStorageCapacity": gates.volumes.csi_storage_capacity,
        "VolumeCapacityPriority": gates.volume_capacity_priority,
        // Null if not set: then it applies to new volumes only.
        "StorageCapacityScoring": gates.storage_capacity_scoring,
        "PersistentVolumeClaimUnusedSinceTime": gates.volumes.claim_unused_since_time,
        "VolumeLimitScaling": gates.volume_limit_scaling,
        "TaintTolerationComparisonOperators": gates.taint_toleration_comparison_operators,
    })
}

fn shown_profile(profile: &SchedulerProfile) -> Value {
    let decides = &profile.profile;
    let filters: Vec<_> = decides
        .filters
        .iter()
        .map(|name| json!({"name": name.as_str()}))
        .collect();
    let scores = decides.scores.iter();
    let scores: Vec<_> = scores
        .map(|(name, weight)| json!({"name": name.as_str(), "weight": weight}))
        .collect();
    let config = default_args().into_iter().map(|(plugin, mut args)| {
        if let Some(Value::Object(given)) = profile.plugin_args.get(plugin) {
            args.extend(given.clone());
        }
        args.insert("apiVersion".to_owned(), json!(API_VERSION));
        args.insert("kind".to_owned(), json!(format!("{plugin}Args")));
        json!({"name": plugin, "args": args})
    });
    let preemption = decides.preempts.then(|| json!({"name": DEFAULT_PREEMPTION}));
    let preemption: Vec<_> = preemption.into_iter().collect();
    json!({
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": decides.percentage_of_nodes_to_score.map_or(0, NonZero::get),
        // Enabled plugins are listed at their extension points.
        "plugins": {
            "multiPoint": {"disabled": [{"name": "*"}]},
            "filter": {"enabled": filters},
            "postFilter": {"enabled": preemption},
            "score": {"enabled": scores},
        },
        "pluginConfig": config.collect::<Vec<_>>(),
    })
}

/// The arguments of the plugins that have some, if a file sets none.
fn default_args() -> Vec<(&'static str, Map<String, Value>)> {
    let resources = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]);
    let args = [
        ("InterPodAffinity", json!({"hardPodAffinityWeight": 1})),
        ("NodeAffinity", json!({})),
        ("NodeResourcesBalancedAllocation", json!({"resources": resources})),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "LeastAllocated", "resources": resources}}),
        ),
        ("PodTopologySpread", json!({"defaultingType": "System"})),
        ("VolumeBinding", json!({"bindTimeoutSeconds": 600})),
    ];
    let fields = args.map(|(plugin, args)| match args {
        Value::Object(fields) => (plugin, fields),
        _ => (plugin, Map::new()),
    });
    fields.into()
}
