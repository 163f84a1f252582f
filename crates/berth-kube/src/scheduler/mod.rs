//! Runs the scheduler against an API server.
//!
//! ```text
//!   watches ──▶ inbox ──▶ ┌───────────┐ ──effects──▶ pool of workers ──▶ API server
//!                         │  owner of │
//!   deadlines, backoff ─▶ │ scheduler │ ◀──outcomes── pool of workers
//!                         └───────────┘
//! ```
//!
//! One task owns the scheduler, which decides; workers, of which there is a bounded number, write what it decided
//! and bring back how that went. Nothing is decided here.

mod effects;
mod hold;
mod inbox;
mod metrics;
mod owner;
mod pool;
mod stopwatch;

pub use metrics::Metrics;

use crate::api::Api;
use crate::endpoint::{self, Health};
use crate::lease::{LeaseOptions, lead};
use crate::recorder::recorder;
use berth_core::api::Pod;
use berth_scheduler::profile::Profile;
use berth_scheduler::queue::QueueTimes;
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use effects::Executor;
use owner::Owner;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The name under which writes are recorded.
const FIELD_MANAGER: &str = "berth-scheduler";

/// Changes a pod before it is decided on, as a profile's arguments ask for.
pub type AdaptPod = Arc<dyn Fn(&mut Pod) + Send + Sync>;

/// How the scheduler runs.
#[derive(Clone)]
pub struct Options {
    /// The profiles by the names that pods choose them by.
    pub profiles: BTreeMap<String, Profile>,
    /// What is changed in pods before they are decided on.
    pub adapt_pod: Option<AdaptPod>,
    /// How long pods wait.
    pub times: QueueTimes,
    /// Where chance begins.
    pub seed: u64,
    /// How many writes are under way at a time.
    pub workers: usize,
    /// Compete for this lease, and work only while holding it.
    pub leader_election: Option<LeaseOptions>,
    /// Answer `/metrics`, `/healthz`, `/readyz` and `/configz` here.
    pub listen: Option<SocketAddr>,
    /// What `/configz` shows: JSON.
    pub configuration: Option<Arc<str>>,
    /// What it tells of its readiness.
    pub health: Health,
    /// What it counts.
    pub metrics: Metrics,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("profiles", &self.profiles.keys())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    /// The default profile, in kube-scheduler's place.
    fn default() -> Self {
        Self {
            profiles: BTreeMap::from([(DEFAULT_SCHEDULER_NAME.to_owned(), Profile::default())]),
            adapt_pod: None,
            times: QueueTimes::default(),
            seed: 0,
            // A write takes some milliseconds, so these are thousands a second; an API server serves hundreds at a time.
            workers: 64,
            leader_election: None,
            listen: None,
            configuration: None,
            health: Health::default(),
            metrics: Metrics::default(),
        }
    }
}

/// Why the scheduler stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address for metrics and health is not ours to use.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// Another copy leads now.
    #[error("lost the lease {namespace}/{name}")]
    LeaseLost {
        /// Namespace of the lease.
        namespace: String,
        /// Name of the lease.
        name: String,
    },
    /// A part of the scheduler ended that should not have.
    #[error("the scheduler's {part} ended unexpectedly")]
    Ended {
        /// The part.
        part: &'static str,
    },
}

/// Runs the scheduler until it is cancelled, or cannot go on.
///
/// # Errors
/// If the endpoint's address cannot be used, the lease is lost, or a part of it fails.
pub async fn run(client: kube::Client, options: Options, cancel: CancellationToken) -> Result<(), RunError> {
    // Whatever ends first takes the rest with it.
    let cancel = cancel.child_token();
    let _stop_all = cancel.clone().drop_guard();
    let api = Api::new(client, FIELD_MANAGER);
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    if let Some(address) = options.listen {
        open_endpoint(address, &options, &cancel, &mut tasks).await?;
    }
    let election = options.leader_election.clone();
    let leader = &options.metrics.leader;
    let lost = lead(&api, election, &options.health, leader, &cancel, &mut tasks).await;
    if cancel.is_cancelled() {
        return Ok(());
    }
    let owner = start(&api, &options, &cancel, &mut tasks);
    tracing::info!(workers = options.workers, "scheduler started");
    let mut working = std::pin::pin!(owner.run(cancel.clone()));
    let (result, finished) = tokio::select! {
        () = &mut working => (unless_cancelled(&cancel, "owner"), true),
        // Another copy may already be at work: nothing begun is finished.
        () = lost.cancelled() => (Err(lease_lost(&options)), true),
        ended = tasks.join_next() => match ended {
            Some(Ok(part)) => (unless_cancelled(&cancel, part), false),
            Some(Err(_)) | None => (unless_cancelled(&cancel, "task"), false),
        },
    };
    options.health.set_ready(false);
    cancel.cancel();
    if !finished {
        working.await;
    }
    // The recorder writes what is left, the lease is given up.
    while tasks.join_next().await.is_some() {}
    tracing::info!("scheduler stopped");
    result
}

async fn open_endpoint(
    address: SocketAddr,
    options: &Options,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> Result<(), RunError> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Listen { address, source })?;
    let mut registry = Registry::default();
    options.metrics.register(&mut registry);
    let (health, configuration) = (options.health.clone(), options.configuration.clone());
    let cancel = cancel.clone();
    tasks.spawn(async move {
        endpoint::serve_with(listener, health, Arc::new(registry), configuration, cancel).await;
        "endpoint"
    });
    Ok(())
}

/// Starts the event recorder and the watches.
fn start(api: &Api, options: &Options, cancel: &CancellationToken, tasks: &mut JoinSet<&'static str>) -> Owner {
    let instance = options
        .leader_election
        .as_ref()
        .map_or_else(|| FIELD_MANAGER.to_owned(), |lease| lease.identity.clone());
    // Events of a cluster's own scheduler come from this name; so do those of one in its place.
    let component = options.profiles.keys().next().map_or(FIELD_MANAGER, String::as_str);
    let (recorder, writer) = recorder(api.clone(), component, instance);
    let writer_cancel = cancel.clone();
    tasks.spawn(async move {
        writer.run(writer_cancel).await;
        "event recorder"
    });
    let executor = Executor {
        api: api.clone(),
        recorder,
        metrics: options.metrics.clone(),
    };
    let inbox = inbox::open(api, &options.metrics, cancel, tasks);
    Owner::new(executor, options.clone(), inbox)
}

fn unless_cancelled(cancel: &CancellationToken, part: &'static str) -> Result<(), RunError> {
    if cancel.is_cancelled() {
        Ok(())
    } else {
        Err(RunError::Ended { part })
    }
}

fn lease_lost(options: &Options) -> RunError {
    let (namespace, name) = options
        .leader_election
        .as_ref()
        .map(|lease| (lease.namespace.clone(), lease.name.clone()))
        .unwrap_or_default();
    RunError::LeaseLost { namespace, name }
}
