//! Metrics of the server, in Prometheus format.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: String,
    resource: String,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

/// The server's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabels, Histogram>,
    watches: Family<ResourceLabels, Gauge>,
    watch_events: Family<ResourceLabels, Counter>,
    version: Gauge<u64, AtomicU64>,
    objects: Family<ResourceLabels, Gauge>,
}

/// From a tenth of a millisecond to a little over three seconds.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 16))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("berth_apiserver"),
            requests: Family::default(),
            durations: Family::new_with_constructor(duration_histogram),
            watches: Family::default(),
            watch_events: Family::default(),
            version: Gauge::default(),
            objects: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Requests answered", metrics.requests.clone());
        registry.register(
            "request_duration_seconds",
            "Time to the answer, watches aside",
            metrics.durations.clone(),
        );
        registry.register("watches", "Watches that are open", metrics.watches.clone());
        registry.register("watch_events", "Events sent to watchers", metrics.watch_events.clone());
        registry.register(
            "resource_version",
            "The version of the last change",
            metrics.version.clone(),
        );
        registry.register("objects", "Objects in the store", metrics.objects.clone());
        metrics
    }

    pub(crate) fn answered(&self, verb: &str, resource: &str, code: u16, took: Duration) {
        let (verb, resource) = (verb.to_owned(), resource.to_owned());
        self.requests
            .get_or_create(&RequestLabels {
                verb: verb.clone(),
                resource,
                code,
            })
            .inc();
        if verb != "watch" {
            self.durations
                .get_or_create(&VerbLabels { verb })
                .observe(took.as_secs_f64());
        }
    }

    /// Counts an open watch while the guard exists.
    pub(crate) fn watching(&self, resource: &str) -> WatchGuard {
        let labels = ResourceLabels {
            resource: resource.to_owned(),
        };
        let open = self.watches.get_or_create_owned(&labels);
        open.inc();
        WatchGuard {
            open,
            events: self.watch_events.get_or_create_owned(&labels),
        }
    }

    pub(crate) fn text(&self, store: &Store) -> String {
        self.version.set(store.version());
        for (table, objects) in store.tables() {
            let labels = ResourceLabels {
                resource: table.to_string(),
            };
            self.objects
                .get_or_create(&labels)
                .set(i64::try_from(objects).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics cannot be encoded");
        }
        text
    }
}

/// One open watch.
pub(crate) struct WatchGuard {
    open: Gauge,
    events: Counter,
}

impl WatchGuard {
    pub(crate) fn sent(&self, events: usize) {
        self.events.inc_by(events as u64);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.open.dec();
    }
}
