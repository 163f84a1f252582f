//! What the volume controller counts.

use crate::component::RunMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// A change and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EffectLabels {
    pub(super) effect: &'static str,
    pub(super) result: &'static str,
}

/// The class of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClassLabels {
    pub(super) storage_class: String,
}

/// The namespace and classes of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClaimLabels {
    pub(super) namespace: String,
    pub(super) storage_class: String,
    pub(super) volume_attributes_class: String,
}

/// The plugin and mode of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginLabels {
    pub(super) plugin_name: String,
    pub(super) volume_mode: String,
}

/// The creation or deletion of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OperationLabels {
    pub(super) plugin_name: String,
    pub(super) operation_name: &'static str,
}

/// The buckets of kube-controller-manager for operations on volumes.
fn operation_seconds() -> Histogram {
    Histogram::new([
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
    ])
}

/// The controller's metrics. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) effects: Family<EffectLabels, Counter>,
    pub(super) steps: Counter,
    pub(super) bound: Counter,
    pub(super) queue: Gauge,
    pub(super) in_flight: Gauge,
    pub(super) announced: Gauge,
    pub(super) undelayed: Counter,
    pub(super) bound_volumes: Family<ClassLabels, Gauge>,
    pub(super) unbound_volumes: Family<ClassLabels, Gauge>,
    pub(super) bound_claims: Family<ClaimLabels, Gauge>,
    pub(super) unbound_claims: Family<ClaimLabels, Gauge>,
    pub(super) volumes: Family<PluginLabels, Gauge>,
    pub(super) operation_seconds: Family<OperationLabels, Histogram, fn() -> Histogram>,
    pub(super) operation_errors: Family<OperationLabels, Gauge>,
    pub(super) retroactive: Counter,
    pub(super) retroactive_errors: Counter,
    pub(super) run: RunMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            effects: Family::default(),
            steps: Counter::default(),
            bound: Counter::default(),
            queue: Gauge::default(),
            in_flight: Gauge::default(),
            announced: Gauge::default(),
            undelayed: Counter::default(),
            bound_volumes: Family::default(),
            unbound_volumes: Family::default(),
            bound_claims: Family::default(),
            unbound_claims: Family::default(),
            volumes: Family::default(),
            operation_seconds: Family::new_with_constructor(operation_seconds),
            operation_errors: Family::default(),
            retroactive: Counter::default(),
            retroactive_errors: Counter::default(),
            run: RunMetrics::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics under `berth_controller_`, and those of kube-controller-manager under its names.
    pub fn register(&self, registry: &mut Registry) {
        let metrics = self;
        let collector = registry.sub_registry_with_prefix("pv_collector");
        let help = "Volumes that are bound to a claim, as of kube-controller-manager";
        collector.register("bound_pv_count", help, metrics.bound_volumes.clone());
        let help = "Volumes that are not bound to a claim, as of kube-controller-manager";
        collector.register("unbound_pv_count", help, metrics.unbound_volumes.clone());
        let help = "Claims that are bound to a volume, as of kube-controller-manager";
        collector.register("bound_pvc_count", help, metrics.bound_claims.clone());
        let help = "Claims that are not bound to a volume, as of kube-controller-manager";
        collector.register("unbound_pvc_count", help, metrics.unbound_claims.clone());
        let help = "Volumes by plugin, as of kube-controller-manager";
        collector.register("total_pv_count", help, metrics.volumes.clone());
        let operation = registry.sub_registry_with_prefix("volume_operation");
        let help = "Time until a requested volume is bound or a released one is gone, as of kube-controller-manager";
        operation.register("total_seconds", help, metrics.operation_seconds.clone());
        let help = "Failures to have a volume created or deleted, as of kube-controller-manager";
        operation.register("total_errors", help, metrics.operation_errors.clone());
        let retroactive = registry.sub_registry_with_prefix("retroactive");
        let help = "Claims without a class that got the default class later, as of kube-controller-manager";
        retroactive.register("storageclass", help, metrics.retroactive.clone());
        let help = "Failures to assign the default class to such a claim, as of kube-controller-manager";
        retroactive.register("storageclass_errors", help, metrics.retroactive_errors.clone());
        let registry = registry.sub_registry_with_prefix("berth_controller");
        registry.register("effects", "Effects carried out, by result", metrics.effects.clone());
        registry.register("steps", "Steps of the state machine", metrics.steps.clone());
        registry.register("claims_bound", "Claims that were bound", metrics.bound.clone());
        registry.register("queue_length", "Objects that wait for a step", metrics.queue.clone());
        registry.register(
            "in_flight",
            "Lists of effects being carried out",
            metrics.in_flight.clone(),
        );
        let help = "1 while a scheduler that can bind delayed claims is assumed to exist, if one is required";
        registry.register("delayed_binding_announced", help, metrics.announced.clone());
        let help = "Warnings that a delayed claim is bound immediately because no scheduler announced itself";
        registry.register("undelayed_claims", help, metrics.undelayed.clone());
        metrics.run.register(registry);
    }

    /// Whether nothing waits for a step and nothing is in flight, as of the last time the controller looked.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.get() == 0 && self.in_flight.get() == 0
    }

    /// Warnings that a delayed claim is bound immediately because no scheduler announced itself.
    #[must_use]
    pub fn undelayed(&self) -> u64 {
        self.undelayed.get()
    }

    /// How many steps there were.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }
}
