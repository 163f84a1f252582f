//! What the volume controller counts.

use crate::component::RunMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A change and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EffectLabels {
    pub(super) effect: &'static str,
    pub(super) result: &'static str,
}

/// The controller's metrics. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) effects: Family<EffectLabels, Counter>,
    pub(super) steps: Counter,
    pub(super) bound: Counter,
    pub(super) queue: Gauge,
    pub(super) in_flight: Gauge,
    pub(super) announced: Gauge,
    pub(super) undelayed: Counter,
    pub(super) run: RunMetrics,
}

impl Metrics {
    /// Registers the metrics under `berth_controller_`.
    pub fn register(&self, registry: &mut Registry) {
        let metrics = self;
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
