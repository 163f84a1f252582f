//! What a provisioner counts.

use crate::component::RunMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

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

/// The class of a claim, and the kind of its data source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProvisionLabels {
    pub(super) class: String,
    pub(super) source: String,
}

/// The class of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DeleteLabels {
    pub(super) class: String,
}

/// A call to a CSI driver and its status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OperationLabels {
    pub(super) driver_name: String,
    pub(super) method_name: &'static str,
    pub(super) grpc_status_code: String,
}

/// The default buckets of Prometheus, which the external-provisioner uses.
fn usual_seconds() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

/// The buckets of CSI sidecars.
fn operation_seconds() -> Histogram {
    Histogram::new([
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
    ])
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
    pub(super) provisioned: Family<ProvisionLabels, Counter>,
    pub(super) provision_failed: Family<ProvisionLabels, Counter>,
    pub(super) provision_seconds: Family<ProvisionLabels, Histogram, fn() -> Histogram>,
    pub(super) deleted: Family<DeleteLabels, Counter>,
    pub(super) delete_failed: Family<DeleteLabels, Counter>,
    pub(super) delete_seconds: Family<DeleteLabels, Histogram, fn() -> Histogram>,
    pub(super) operations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    pub(super) capacities_wanted: Gauge,
    pub(super) capacities_current: Gauge,
    pub(super) capacities_obsolete: Gauge,
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
            provisioned: Family::default(),
            provision_failed: Family::default(),
            provision_seconds: Family::new_with_constructor(usual_seconds),
            deleted: Family::default(),
            delete_failed: Family::default(),
            delete_seconds: Family::new_with_constructor(usual_seconds),
            operations: Family::new_with_constructor(operation_seconds),
            capacities_wanted: Gauge::default(),
            capacities_current: Gauge::default(),
            capacities_obsolete: Gauge::default(),
            run: RunMetrics::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics under `berth_provisioner_`, and those of the external-provisioner under its names.
    pub fn register(&self, registry: &mut Registry) {
        let claims = registry.sub_registry_with_prefix("controller_persistentvolumeclaim");
        let help = "Volumes that were created, as of the external-provisioner";
        claims.register("provision", help, self.provisioned.clone());
        let help = "Failed attempts to create a volume, as of the external-provisioner";
        claims.register("provision_failed", help, self.provision_failed.clone());
        let help = "How long it takes to create a volume, as of the external-provisioner";
        claims.register("provision_duration_seconds", help, self.provision_seconds.clone());
        let volumes = registry.sub_registry_with_prefix("controller_persistentvolume");
        let help = "Volumes that were deleted, as of the external-provisioner";
        volumes.register("delete", help, self.deleted.clone());
        let help = "Failed attempts to delete a volume, as of the external-provisioner";
        volumes.register("delete_failed", help, self.delete_failed.clone());
        let help = "How long it takes to delete a volume, as of the external-provisioner";
        volumes.register("delete_duration_seconds", help, self.delete_seconds.clone());
        let sidecar = registry.sub_registry_with_prefix("csi_sidecar");
        let help = "How long calls to the CSI driver take, as of CSI sidecars";
        sidecar.register("operations_seconds", help, self.operations.clone());
        let capacities = registry.sub_registry_with_prefix("csistoragecapacities");
        let help = "Capacity objects that should exist, as of the external-provisioner";
        capacities.register("desired_goal", help, self.capacities_wanted.clone());
        let help = "Capacity objects that should exist and do, as of the external-provisioner";
        capacities.register("desired_current", help, self.capacities_current.clone());
        let help = "Capacity objects that exist and should not, as of the external-provisioner";
        capacities.register("obsolete", help, self.capacities_obsolete.clone());
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

    /// A volume was requested, which ended like this.
    pub(super) fn count_provisioned(&self, labels: &ProvisionLabels, is_made: bool, took: Duration) {
        if is_made {
            self.provisioned.get_or_create(labels).inc();
            self.provision_seconds.get_or_create(labels).observe(took.as_secs_f64());
        } else {
            self.provision_failed.get_or_create(labels).inc();
        }
    }

    /// A volume was to be deleted, which ended like this.
    pub(super) fn count_deleted(&self, labels: &DeleteLabels, is_gone: bool, took: Duration) {
        if is_gone {
            self.deleted.get_or_create(labels).inc();
            self.delete_seconds.get_or_create(labels).observe(took.as_secs_f64());
        } else {
            self.delete_failed.get_or_create(labels).inc();
        }
    }

    /// A call to a CSI driver has ended.
    pub(super) fn count_operation(&self, driver_name: &str, method_name: &'static str, code: &str, took: Duration) {
        let labels = OperationLabels {
            driver_name: driver_name.to_owned(),
            method_name,
            grpc_status_code: code.to_owned(),
        };
        self.operations.get_or_create(&labels).observe(took.as_secs_f64());
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
