//! Runs the scheduler against an API server.
//!
//! ```text
//!   watches ──▶ inbox ──▶ ┌───────────┐ ──effects──▶ pool of workers ──▶ API server
//!                         │  owner of │
//!   deadlines, backoff ─▶ │ scheduler │ ◀──outcomes── pool of workers
//!                         └───────────┘
//!                             ▲  │
//!                      advice │  ▼ consultations
//!                           extenders
//! ```
//!
//! One task owns the scheduler, which decides. A bounded number of workers write the decisions and return the results.
//! Nothing is decided here.

pub mod extenders;
mod metrics;
mod owner;
mod pool;
mod stopwatch;
mod worker;

pub use metrics::Metrics;

pub use crate::component::RunError;

use crate::api::Api;
use crate::component::{Component, ProcessOptions, RunMetrics};
use crate::endpoint::Standby;
use crate::executor::Executor;
use crate::inbox::Inbox;
use crate::lease::LeaseOptions;
use crate::recorder::Recorder;
use berth_core::api::Kind;
use berth_scheduler::scheduler::{DEFAULT_SEED, POD_FIELDS, Settings};
use extenders::Extenders;
use owner::Owner;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use worker::Worker;

/// How the scheduler runs.
#[derive(Clone)]
pub struct Options {
    /// Settings that affect decisions: the profiles, and how long pods wait.
    pub settings: Settings,
    /// Random seed.
    pub seed: u64,
    /// Number of concurrent writes.
    pub workers: usize,
    /// The JSON that `/configz` serves.
    pub configuration: Option<Arc<str>>,
    /// Keep this lease while working, to announce this scheduler's capabilities. With an election, the lease of the
    /// election is used for it: see [`announce`](crate::announce).
    pub announcement: Option<LeaseOptions>,
    /// Open watches only when this replica leads. By default it follows them while it stands by, and decides as soon as it leads.
    pub cold_standby: bool,
    /// What it shares with other components.
    pub process: ProcessOptions,
    /// Its metrics.
    pub metrics: Metrics,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("profiles", &self.settings.profiles.keys())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    /// The default profile, replacing kube-scheduler.
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            seed: DEFAULT_SEED,
            // A write takes some milliseconds, so this allows thousands per second; an API server handles hundreds at a
            // time.
            workers: 128,
            configuration: None,
            announcement: None,
            cold_standby: false,
            process: ProcessOptions::default(),
            metrics: Metrics::default(),
        }
    }
}

impl Component for Options {
    const NAME: &'static str = "scheduler";
    const FIELD_MANAGER: &'static str = "berth-scheduler";
    const KINDS: &'static [Kind] = Kind::ALL;
    const POD_FIELDS: Option<&'static str> = Some(POD_FIELDS);
    type Owner = Owner;

    fn process(&self) -> &ProcessOptions {
        &self.process
    }

    fn standby(&self) -> Standby {
        if self.cold_standby {
            Standby::Cold
        } else {
            Standby::Warm
        }
    }

    fn run_metrics(&self) -> &RunMetrics {
        &self.metrics.run
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    fn configuration(&self) -> Option<Arc<str>> {
        self.configuration.clone()
    }

    fn event_source(&self) -> String {
        self.settings.event_source().to_owned()
    }

    fn owner(self, api: Api, recorder: Recorder, inbox: Inbox) -> Owner {
        let extenders = Extenders::new(&self.settings.extenders, api.clone());
        let executor = Executor::new(api, recorder);
        let worker = Worker::new(executor, extenders, self.metrics.clone(), self.process.clock);
        Owner::new(worker, self, inbox)
    }
}

/// Runs the scheduler until it is cancelled or fails.
///
/// # Errors
/// If the endpoint's address cannot be used, the lease is lost, or a part of it fails.
pub async fn run(client: kube::Client, options: Options, cancel: CancellationToken) -> Result<(), RunError> {
    crate::component::run(client, options, cancel).await
}
