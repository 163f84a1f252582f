//! Runs a provisioner against an API server.
//!
//! ```text
//!   watches ──▶ ┌────────────────────┐ ──attempts──▶ workers ──▶ backend (CSI driver or built in)
//!               │ loop for keyed work │                 │
//!   delays ───▶ │  (claims, volumes)  │ ◀──responses────┴──────▶ API server
//!               └────────────────────┘
//! ```
//!
//! Its steps are pure (`berth-provisioner`) and run by the loop for keyed work ([`crate::keyed`]). The backend may be called
//! between two writes of a step. Capacity is published independently of the steps.

mod backend;
mod metrics;
mod ownership;
mod publish;
mod secrets;
mod steps;
mod worker;

pub use backend::{Answering, Backend, Driver};
pub use berth_provisioner::capacity::{CapacityForm, CapacityOptions};
pub use metrics::Metrics;
pub use ownership::{OwnerError, owner_of_pod};
pub use secrets::ClusterSecrets;

pub use crate::component::RunError;
use berth_core::backoff::Backoff;

use crate::api::Api;
use crate::component::{Component, ProcessOptions, RunMetrics};
use crate::executor::Executor;
use crate::inbox::{Inbox, Scope};
use crate::keyed::{self, Keyed};
use crate::recorder::Recorder;
use berth_core::api::{Kind, Object};
use berth_provisioner::request::Naming;
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use prometheus_client::registry::Registry;
use publish::Publishing;
use std::sync::Arc;
use std::time::Duration;
use steps::Provisioning;
use tokio_util::sync::CancellationToken;
use worker::Worker;

/// How long calls and effects in flight may take when the provisioner stops. The default grace period of pods is 30 s;
/// interrupted work is recorded on its claim, and the next provisioner continues from there.
const GRACE: Duration = Duration::from_secs(15);

/// The settings for a provisioner name in classes, if it is served.
pub type Others = fn(&str) -> Option<Settings>;

/// How a provisioner runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it serves: one entry for each provisioner name in classes.
    pub settings: Vec<Settings>,
    /// Further names that it serves.
    pub others: Option<Others>,
    /// What creates the volumes.
    pub backend: Backend,
    /// Number of claims and volumes processed concurrently.
    pub workers: usize,
    /// How often everything is synced, whether or not it changed.
    pub resync: Duration,
    /// The delay after a failure.
    pub backoff: Backoff,
    /// How volumes are named.
    pub naming: Naming,
    /// Publish capacity.
    pub capacity: Option<CapacityOptions>,
    /// What it shares with other components.
    pub process: ProcessOptions,
    /// Its metrics.
    pub metrics: Metrics,
}

impl Options {
    /// For a CSI driver, with its topology support.
    #[must_use]
    pub fn csi(client: berth_provisioner::csi::Client) -> Self {
        let identity = client.identity();
        let mut settings = Settings::csi(identity.name.clone());
        settings.topology = settings.topology.filter(|_| identity.topology);
        settings.abilities = Some(identity.abilities);
        let (metrics, driver) = (Metrics::default(), identity.name.clone());
        let observer = metrics.clone();
        let client = client.observed(Arc::new(move |method, code: &str, took| {
            observer.count_operation(&driver, method, code, took);
        }));
        Self {
            metrics,
            ..Self::new(vec![settings], Backend::csi(client))
        }
    }

    /// For the built-in provisioners.
    #[must_use]
    pub fn builtin() -> Self {
        let settings = berth_provisioner::builtin::PROVISIONERS.map(Settings::builtin);
        Self::new(settings.into(), Backend::builtin())
    }

    /// For drivers provided by the caller, under names that only classes specify.
    #[must_use]
    pub fn others(others: Others, driver: Arc<dyn Driver>) -> Self {
        Self {
            others: Some(others),
            ..Self::new(Vec::new(), Backend::other(driver))
        }
    }

    fn new(settings: Vec<Settings>, backend: Backend) -> Self {
        Self {
            settings,
            others: None,
            backend,
            // Drivers that create volumes one at a time are common, drivers that cannot handle a few concurrent calls
            // are not.
            workers: 32,
            resync: Duration::from_secs(900),
            backoff: Backoff::CALL,
            naming: Naming::default(),
            capacity: None,
            process: ProcessOptions::default(),
            metrics: Metrics::default(),
        }
    }
}

impl Component for Options {
    const NAME: &'static str = "provisioner";
    const FIELD_MANAGER: &'static str = "berth-provisioner";
    const KINDS: &'static [Kind] = &[
        Kind::PersistentVolumeClaim,
        Kind::PersistentVolume,
        Kind::StorageClass,
        Kind::Node,
        Kind::CsiNode,
        Kind::VolumeAttachment,
        Kind::CsiStorageCapacity,
    ];
    type Owner = Keyed<Provisioning>;

    fn process(&self) -> &ProcessOptions {
        &self.process
    }

    /// Roles of CSI sidecars may omit permissions that a driver does not need.
    fn scope(&self) -> Scope {
        let capacity = self.capacity.as_ref().filter(|one| one.form == CapacityForm::Objects);
        let is_needed = |kind: &Kind| match kind {
            Kind::CsiStorageCapacity => capacity.is_some(),
            Kind::VolumeAttachment => self.backend.attaches(),
            _ => true,
        };
        Scope {
            kinds: Self::KINDS.iter().copied().filter(is_needed).collect(),
            pod_fields: None,
            capacity_namespace: capacity.map(|capacity| capacity.namespace.clone()),
        }
    }

    fn run_metrics(&self) -> &RunMetrics {
        &self.metrics.run
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    fn event_source(&self) -> String {
        match self.settings.as_slice() {
            [one] => one.provisioner.clone(),
            _ => Self::FIELD_MANAGER.to_owned(),
        }
    }

    fn owner(self, api: Api, recorder: Recorder, inbox: Inbox<Object>) -> Self::Owner {
        let worker = Worker::new(
            Executor::new(api.replacing(), recorder),
            self.backend,
            self.metrics,
            self.process.clock,
        );
        let publishing = self
            .capacity
            .map(|capacity| Publishing::new(worker.clone(), capacity, &self.settings));
        let options = keyed::Options {
            workers: self.workers,
            resync: self.resync,
            backoff: self.backoff,
            grace: GRACE,
            health: self.process.health,
        };
        let executor = worker.executor.clone();
        let state = State::naming(self.naming);
        let provisioning = Provisioning::new(worker, &self.settings, self.others, publishing, state);
        Keyed::new(provisioning, executor, options, inbox).by(self.process.clock)
    }
}

/// Runs a provisioner until it is cancelled or fails.
///
/// # Errors
/// If the endpoint's address cannot be used, the lease is lost, or a part of it fails.
pub async fn run(client: kube::Client, options: Options, cancel: CancellationToken) -> Result<(), RunError> {
    let metrics = options.metrics.clone();
    let result = crate::component::run(client, options, cancel).await;
    let (create_calls, create_failed) = metrics.calls("CreateVolume");
    let (delete_calls, delete_failed) = metrics.calls("DeleteVolume");
    tracing::info!(
        create_calls,
        create_failed,
        delete_calls,
        delete_failed,
        "calls to the backend"
    );
    result
}
