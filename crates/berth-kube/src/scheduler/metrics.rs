//! What the scheduler counts, under the names that dashboards of kube-scheduler read.

use crate::component::RunMetrics;
use berth_core::api::Object;
use berth_scheduler::framework::PluginName;
use berth_scheduler::profile::Profile;
use berth_scheduler::queue::{Place, PodKey};
use berth_scheduler::scheduler::{Counts, Effect, FailedStage, Look, Outcome, Scheduler, Write, scheduler_name};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A write and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WriteLabels {
    pub(super) write: &'static str,
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptsLabel {
    attempts: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    r#type: &'static str,
}

const ASSUMED_PODS: TypeLabel = TypeLabel { r#type: "assumed_pods" };

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IncomingLabels {
    queue: &'static str,
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
    extension_point: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PointLabels {
    extension_point: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    plugin: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookLabels {
    result: &'static str,
}

/// From a tenth of a millisecond to a little under two minutes.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 20))
}

/// From a hundredth of a millisecond to five seconds: most plugins have little to do.
fn short_durations() -> Histogram {
    Histogram::new(exponential_buckets(0.00001, 2.0, 20))
}

/// From ten milliseconds to a little under an hour and a half, as kube-scheduler has it.
fn long_durations() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

/// The scheduler's metrics. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    attempts: Family<AttemptLabels, Counter>,
    sli: Family<AttemptsLabel, Histogram>,
    attempts_per_pod: Histogram,
    algorithm: Histogram,
    attempt: Family<AttemptLabels, Histogram>,
    plugins: Family<PluginLabels, Histogram>,
    points: Family<PointLabels, Histogram>,
    pending: Family<QueueLabel, Gauge>,
    incoming: Family<IncomingLabels, Counter>,
    preemptions: Counter,
    victims: Histogram,
    volume_errors: Family<OperationLabel, Counter>,
    assumed: Family<TypeLabel, Gauge>,
    unschedulable: Family<RefusedLabels, Gauge>,
    woken: Counter,
    looks: Family<LookLabels, Counter>,
    look_duration: Histogram,
    look_pods: Histogram,
    look_gain: Counter,
    look_gap: Gauge,
    pub(super) writes: Family<WriteLabels, Counter>,
    pub(super) run: RunMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            attempts: Family::default(),
            sli: Family::new_with_constructor(long_durations),
            attempts_per_pod: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            algorithm: durations(),
            attempt: Family::new_with_constructor(durations),
            plugins: Family::new_with_constructor(short_durations),
            points: Family::new_with_constructor(short_durations),
            pending: Family::default(),
            incoming: Family::default(),
            preemptions: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            volume_errors: Family::default(),
            assumed: Family::default(),
            unschedulable: Family::default(),
            woken: Counter::default(),
            looks: Family::default(),
            look_duration: durations(),
            look_pods: Histogram::new(exponential_buckets(2.0, 2.0, 10)),
            look_gain: Counter::default(),
            look_gap: Gauge::default(),
            writes: Family::default(),
            run: RunMetrics::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics: kube-scheduler's under `scheduler_`, those of Berth alone under `berth_scheduler_`.
    pub fn register(&self, registry: &mut Registry) {
        let known = registry.sub_registry_with_prefix("scheduler");
        let help = "Attempts to schedule pods, by result";
        known.register("schedule_attempts", help, self.attempts.clone());
        let help = "Time from when a pod could be scheduled until it was bound";
        known.register("pod_scheduling_sli_duration_seconds", help, self.sli.clone());
        let help = "Attempts until a pod was bound";
        known.register("pod_scheduling_attempts", help, self.attempts_per_pod.clone());
        let help = "Time that a decision took";
        known.register("scheduling_algorithm_duration_seconds", help, self.algorithm.clone());
        let help = "Time from a decision until the pod was bound, or the attempt failed";
        known.register("scheduling_attempt_duration_seconds", help, self.attempt.clone());
        let help = "Time that a plugin took at an extension point";
        known.register("plugin_execution_duration_seconds", help, self.plugins.clone());
        let help = "Time that all plugins took at an extension point, in one decision of ten";
        known.register("framework_extension_point_duration_seconds", help, self.points.clone());
        known.register("pending_pods", "Pending pods, by queue", self.pending.clone());
        let help = "Pods added to a queue, by event";
        known.register("queue_incoming_pods", help, self.incoming.clone());
        let help = "Preemption attempts for pods that fit nowhere";
        known.register("preemption_attempts", help, self.preemptions.clone());
        let help = "Pods evicted to make room for one";
        known.register("preemption_victims", help, self.victims.clone());
        let help = "Stages of volume scheduling that failed: assume or bind";
        known.register("volume_scheduling_stage_error", help, self.volume_errors.clone());
        let help = "Objects in the scheduler's cache, by type";
        known.register("cache_size", help, self.assumed.clone());
        let help = "Pods that fit nowhere, by the plugins that refused them";
        known.register("unschedulable_pods", help, self.unschedulable.clone());
        let own = registry.sub_registry_with_prefix("berth_scheduler");
        own.register("api_writes", "Writes to the API server, by result", self.writes.clone());
        let help = "Sleeping pods that an event woke";
        own.register("woken_pods", help, self.woken.clone());
        let help = "Joint looks at several waiting pods, by result";
        own.register("joint_looks", help, self.looks.clone());
        let help = "Time that a joint look took";
        own.register("joint_look_duration_seconds", help, self.look_duration.clone());
        let help = "Pods in a joint look";
        own.register("joint_look_pods", help, self.look_pods.clone());
        let help = "Pods that joint looks placed in addition to those that deciding one by one would have placed";
        own.register("joint_look_gained_pods", help, self.look_gain.clone());
        let help = "Pods that any assignment could place in addition to that of the last joint look, at most";
        own.register("joint_look_gap_pods", help, self.look_gap.clone());
        self.run.register(own);
    }

    /// How many pods have a node that the watch does not show yet.
    #[must_use]
    pub fn assumed_pods(&self) -> i64 {
        self.assumed.get_or_create(&ASSUMED_PODS).get()
    }

    /// How many pods wait in a queue: `active`, `backoff`, `unschedulable` or `gated`.
    #[must_use]
    pub fn pending(&self, queue: &'static str) -> i64 {
        self.pending.get_or_create(&QueueLabel { queue }).get()
    }

    /// How often an event woke a sleeping pod.
    #[must_use]
    pub fn woken(&self) -> u64 {
        self.woken.get()
    }

    /// Whether this copy leads, or needs no lease to.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.run.is_leader()
    }

    /// How many writes went to the API server.
    #[must_use]
    pub fn writes(&self) -> u64 {
        let names = [
            "reserve_volume",
            "select_node",
            "bind_pod",
            "evict_pod",
            "condition",
            "nominate",
        ];
        let results = ["ok", "conflict", "not_found", "error"];
        let each = names
            .iter()
            .flat_map(|write| results.map(|result| WriteLabels { write, result }));
        each.map(|labels| self.writes.get_or_create(&labels).get()).sum()
    }

    /// Counts a joint look.
    pub(super) fn looked(&self, look: &Look, took: Duration) {
        let result = match (look.placed > look.one_by_one, look.is_optimal) {
            (true, true) => "improved_optimal",
            (true, false) => "improved",
            (false, true) => "optimal",
            (false, false) => "unchanged",
        };
        self.looks.get_or_create(&LookLabels { result }).inc();
        self.look_duration.observe(took.as_secs_f64());
        self.look_pods.observe(look.pods as f64);
        self.look_gain
            .inc_by(look.placed.saturating_sub(look.one_by_one) as u64);
        let gap = look.at_most.saturating_sub(look.placed);
        self.look_gap.set(i64::try_from(gap).unwrap_or(i64::MAX));
    }

    pub(super) fn plugin_took(&self, plugin: &'static str, extension_point: &'static str, took: Duration) {
        let labels = PluginLabels {
            plugin,
            extension_point,
            status: "Success",
        };
        self.plugins.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(super) fn point_took(&self, extension_point: &'static str, took: Duration) {
        let labels = PointLabels {
            extension_point,
            status: "Success",
        };
        self.points.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(super) fn wrote(&self, write: &'static str, done: bool, took: Duration) {
        let (plugin, extension_point) = match write {
            "bind_pod" => ("DefaultBinder", "Bind"),
            "evict_pod" => ("DefaultPreemption", "PostFilter"),
            _ => ("VolumeBinding", "PreBind"),
        };
        let status = if done { "Success" } else { "Error" };
        let labels = PluginLabels {
            plugin,
            extension_point,
            status,
        };
        self.plugins.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// A pod that waits for a node.
struct Waiting {
    uid: String,
    profile: Arc<str>,
    since: Instant,
    /// When the last attempt began.
    tried: Instant,
    attempts: u32,
}

/// The stage of volume scheduling that failed, if one did.
fn failed_operation(stage: FailedStage) -> Option<&'static str> {
    match stage {
        FailedStage::AssumeVolumes => Some("assume"),
        FailedStage::BindVolumes => Some("bind"),
        FailedStage::Decision | FailedStage::NodeGone | FailedStage::BindPod | FailedStage::BindPodInDoubt => None,
    }
}

/// What is remembered between two calls of the scheduler, in order to count what came between.
pub(super) struct Ledger {
    metrics: Metrics,
    counts: Counts,
    pods: FxHashMap<PodKey, Waiting>,
}

impl Ledger {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            counts: Counts::default(),
            pods: FxHashMap::default(),
        }
    }

    /// This replica leads: the pods that wait were counted by no one here yet.
    pub(super) fn begin(&mut self) {
        let waiting = u64::try_from(self.pods.len()).unwrap_or(u64::MAX);
        self.incoming("active", "PodAdd", waiting);
    }

    /// Takes in an object before the scheduler does: pods that wait from now on.
    pub(super) fn seen(&mut self, object: &Object, profiles: &BTreeMap<String, Profile>, leading: bool) {
        let Object::Pod(pod) = object else { return };
        let key = pod.metadata.full_name();
        if !pod.spec.node_name.is_empty() {
            // The leader placed it. A leader itself still waits for the response to the binding.
            if !leading {
                self.pods.remove(key.as_str());
            }
            return;
        }
        let known = self.pods.get(key.as_str());
        let gated = !pod.spec.scheduling_gates.is_empty();
        if gated || known.is_some_and(|known| known.uid == pod.metadata.uid) {
            return;
        }
        let Some((profile, _)) = profiles.get_key_value(scheduler_name(pod)) else {
            return;
        };
        if leading {
            self.incoming("active", "PodAdd", 1);
        }
        let now = Instant::now();
        let waiting = Waiting {
            uid: pod.metadata.uid.clone(),
            profile: profile.as_str().into(),
            since: now,
            tried: now,
            attempts: 0,
        };
        self.pods.insert(key.into(), waiting);
    }

    pub(super) fn gone(&mut self, namespace: &str, name: &str) {
        self.pods.remove(format!("{namespace}/{name}").as_str());
    }

    /// A decision about a pod was made.
    pub(super) fn decided(&mut self, pod: Option<&PodKey>, begun: Instant) {
        self.metrics.algorithm.observe(begun.elapsed().as_secs_f64());
        if let Some(waiting) = pod.and_then(|pod| self.pods.get_mut(pod)) {
            waiting.tried = begun;
        }
    }

    /// Counts what the last call of the scheduler brought.
    pub(super) fn saw(&mut self, effects: &[Effect], counts: Counts, cause: &'static str) {
        let before = std::mem::replace(&mut self.counts, counts);
        let woken = counts.woken - before.woken;
        if woken > 0 {
            self.metrics.woken.inc_by(woken);
            self.incoming("active", cause, woken);
        }
        let refused = counts.unschedulable - before.unschedulable;
        // Preemption is tried for every pod that fits nowhere.
        self.metrics.preemptions.inc_by(refused);
        let mut victims = 0;
        for effect in effects {
            match effect {
                Effect::Event { pod, outcome, .. } => self.told(&pod.key, *outcome),
                Effect::Write {
                    write: Write::EvictPod { .. },
                    ..
                } => victims += 1,
                Effect::Write { .. } | Effect::Condition { .. } | Effect::Nominate { .. } => {}
            }
        }
        if victims > 0 {
            self.metrics.victims.observe(f64::from(victims));
        }
    }

    fn told(&mut self, key: &PodKey, outcome: Outcome) {
        let result = match outcome {
            Outcome::Scheduled => "scheduled",
            Outcome::Unschedulable => "unschedulable",
            Outcome::Failed(_) => "error",
            Outcome::Preempted => return,
        };
        let Some(waiting) = self.pods.get_mut(key) else { return };
        waiting.attempts += 1;
        let labels = AttemptLabels {
            result,
            profile: waiting.profile.to_string(),
        };
        self.metrics.attempts.get_or_create(&labels).inc();
        let attempt = waiting.tried.elapsed().as_secs_f64();
        self.metrics.attempt.get_or_create(&labels).observe(attempt);
        let took = waiting.since.elapsed().as_secs_f64();
        match outcome {
            Outcome::Scheduled => {
                let attempts = waiting.attempts;
                let attempts_label = AttemptsLabel {
                    attempts: if attempts > 15 {
                        "16+".to_owned()
                    } else {
                        attempts.to_string()
                    },
                };
                self.metrics.sli.get_or_create(&attempts_label).observe(took);
                self.metrics.attempts_per_pod.observe(f64::from(attempts));
                self.pods.remove(key);
            }
            Outcome::Unschedulable => self.incoming("unschedulable", "ScheduleAttemptFailure", 1),
            Outcome::Preempted => {}
            Outcome::Failed(stage) => {
                if let Some(operation) = failed_operation(stage) {
                    let labels = OperationLabel { operation };
                    self.metrics.volume_errors.get_or_create(&labels).inc();
                }
                self.incoming("backoff", "ScheduleAttemptFailure", 1);
            }
        }
    }

    /// Another scheduler has bound a pod while we tried: the attempt failed, and there is no other.
    pub(super) fn overtaken(&mut self, key: &PodKey) {
        let Some(waiting) = self.pods.remove(key) else { return };
        let labels = AttemptLabels {
            result: "error",
            profile: waiting.profile.to_string(),
        };
        self.metrics.attempts.get_or_create(&labels).inc();
        let took = waiting.tried.elapsed().as_secs_f64();
        self.metrics.attempt.get_or_create(&labels).observe(took);
    }

    fn incoming(&self, queue: &'static str, event: &'static str, count: u64) {
        let labels = IncomingLabels { queue, event };
        self.metrics.incoming.get_or_create(&labels).inc_by(count);
    }

    /// Counts the pods that fit nowhere by the plugins that refused them. This walks them one by one, so not after each decision.
    pub(super) fn count_refused(&self, scheduler: &Scheduler, profiles: &BTreeMap<String, Profile>) {
        let mut counts: BTreeMap<(&str, &'static str), i64> = BTreeMap::new();
        for (profile, plugins) in scheduler.refused_pods() {
            for plugin in plugins.iter() {
                *counts.entry((profile, plugin.as_str())).or_default() += 1;
            }
        }
        for profile in profiles.keys() {
            let plugins = PluginName::ALL.iter().chain([&PluginName::Extender]);
            for plugin in plugins.map(|plugin| plugin.as_str()) {
                let count = counts.get(&(profile.as_str(), plugin)).copied().unwrap_or(0);
                let profile = profile.clone();
                self.metrics
                    .unschedulable
                    .get_or_create(&RefusedLabels { plugin, profile })
                    .set(count);
            }
        }
    }

    pub(super) fn pending(&self, scheduler: &Scheduler) {
        let places = [
            ("active", Place::Active),
            ("backoff", Place::Backoff),
            ("unschedulable", Place::Unschedulable),
            ("gated", Place::Gated),
        ];
        for (queue, place) in places {
            let count = i64::try_from(scheduler.pending(place)).unwrap_or(i64::MAX);
            self.metrics.pending.get_or_create(&QueueLabel { queue }).set(count);
        }
        let assumed = i64::try_from(scheduler.bindings_under_way()).unwrap_or(i64::MAX);
        self.metrics.assumed.get_or_create(&ASSUMED_PODS).set(assumed);
    }
}

#[cfg(test)]
mod tests;
