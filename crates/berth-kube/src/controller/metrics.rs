//! What the volume controller counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The kind of object that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabel {
    pub(super) kind: &'static str,
}

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
    pub(super) relists: Family<KindLabel, Counter>,
    pub(super) watch_failures: Family<KindLabel, Counter>,
    pub(super) broken: Family<KindLabel, Counter>,
    pub(super) leader: Gauge,
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
        registry.register("relists", "Lists of all objects of a kind", metrics.relists.clone());
        registry.register("watch_failures", "Watches that failed", metrics.watch_failures.clone());
        registry.register(
            "broken_objects",
            "Objects that could not be decoded",
            metrics.broken.clone(),
        );
        registry.register("leader", "1 while this copy leads", metrics.leader.clone());
    }

    /// Whether nothing waits for a step and nothing is in flight, as of the last time the controller looked.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.get() == 0 && self.in_flight.get() == 0
    }

    /// How many steps there were.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }
}
