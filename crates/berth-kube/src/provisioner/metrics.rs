//! What a provisioner counts.

use crate::component::RunMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A change and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EffectLabels {
    pub(super) effect: &'static str,
    pub(super) result: &'static str,
}

/// A call to the backend and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    pub(super) call: &'static str,
    pub(super) result: &'static str,
}

/// A call to the backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabel {
    pub(super) call: &'static str,
}

/// From ten milliseconds to about five minutes.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 15))
}

/// The provisioner's metrics. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) effects: Family<EffectLabels, Counter>,
    pub(super) calls: Family<CallLabels, Counter>,
    pub(super) call_seconds: Family<CallLabel, Histogram, fn() -> Histogram>,
    pub(super) queue: Gauge,
    pub(super) in_flight: Gauge,
    pub(super) capacity_queue: Gauge,
    pub(super) capacity_published: Gauge,
    pub(super) run: RunMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            effects: Family::default(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(seconds),
            queue: Gauge::default(),
            in_flight: Gauge::default(),
            capacity_queue: Gauge::default(),
            capacity_published: Gauge::default(),
            run: RunMetrics::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics under `berth_provisioner_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("berth_provisioner");
        registry.register("effects", "Effects carried out, by result", self.effects.clone());
        registry.register("backend_calls", "Calls to the backend, by result", self.calls.clone());
        let help = "How long calls to the backend take";
        registry.register("backend_call_seconds", help, self.call_seconds.clone());
        registry.register("queue_length", "Objects that wait for a step", self.queue.clone());
        registry.register("in_flight", "Objects being worked on", self.in_flight.clone());
        let help = "Class and segment pairs waiting for a capacity query";
        registry.register("capacity_queue_length", help, self.capacity_queue.clone());
        let help = "Objects that publish capacity";
        registry.register("capacity_objects", help, self.capacity_published.clone());
        self.run.register(registry);
    }

    /// How many calls to the backend there were, and how many of them failed.
    #[must_use]
    pub fn calls(&self, call: &'static str) -> (u64, u64) {
        let count = |result| self.calls.get_or_create(&CallLabels { call, result }).get();
        let failed = ["final", "in_doubt", "not_asked", "error"]
            .map(count)
            .iter()
            .sum::<u64>();
        (count("ok") + failed, failed)
    }
}
