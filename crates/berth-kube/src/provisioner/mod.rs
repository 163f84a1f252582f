//! Runs a provisioner against an API server.
//!
//! ```text
//!   watches ──▶ inbox ──▶ ┌───────────┐ ──attempts──▶ workers ──▶ backend (CSI driver or built in)
//!                         │  owner of │                  │
//!   poll, delays ───────▶ │ the state │ ◀──answers───────┴──────▶ API server
//!                         └───────────┘
//! ```
//!
//! One task owns the state and decides. Workers, of which there is a bounded number, call the backend and write to
//! the API server. Two of them never work on the same claim or volume.

mod backend;
mod capacity;
mod effects;
mod inbox;
mod metrics;
mod owner;
mod ownership;
mod secrets;

pub use backend::Backend;
pub use capacity::{CapacityForm, CapacityOptions};
pub use metrics::Metrics;
pub use ownership::{OwnerError, owner_of_pod};
pub use secrets::ClusterSecrets;

use crate::api::Api;
use crate::endpoint::{self, Health};
use crate::lease::{LeaseOptions, lead};
use crate::recorder::recorder;
use berth_provisioner::settings::Settings;
use effects::Executor;
use owner::Owner;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The name under which writes are recorded.
const FIELD_MANAGER: &str = "berth-provisioner";

/// How a provisioner runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it serves: one entry for each name that classes call it by.
    pub settings: Vec<Settings>,
    /// Who makes the volumes.
    pub backend: Backend,
    /// How many claims and volumes are worked on at a time.
    pub workers: usize,
    /// How often everything is looked at, whether or not it changed.
    pub resync: Duration,
    /// Publish capacity.
    pub capacity: Option<CapacityOptions>,
    /// Compete for this lease, and work only while holding it.
    pub leader_election: Option<LeaseOptions>,
    /// Answer `/metrics`, `/healthz` and `/readyz` here.
    pub listen: Option<SocketAddr>,
    /// What it tells of its readiness.
    pub health: Health,
    /// What it counts.
    pub metrics: Metrics,
}

impl Options {
    /// For a CSI driver, with the topology that it knows.
    #[must_use]
    pub fn csi(client: berth_provisioner::csi::Client) -> Self {
        let identity = client.identity();
        let mut settings = Settings::csi(identity.name.clone());
        settings.topology = settings.topology.filter(|_| identity.topology);
        Self::new(vec![settings], Backend::csi(client))
    }

    /// For the built-in provisioners.
    #[must_use]
    pub fn builtin() -> Self {
        let settings = berth_provisioner::builtin::PROVISIONERS.map(Settings::builtin);
        Self::new(settings.into(), Backend::builtin())
    }

    fn new(settings: Vec<Settings>, backend: Backend) -> Self {
        Self {
            settings,
            backend,
            // Drivers that make volumes one at a time are common, drivers that mind a few calls at once are not.
            workers: 32,
            resync: Duration::from_secs(900),
            capacity: None,
            leader_election: None,
            listen: None,
            health: Health::default(),
            metrics: Metrics::default(),
        }
    }
}

/// Why a provisioner stopped by itself.
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
    /// A part of the provisioner ended that should not have.
    #[error("the provisioner's {part} ended unexpectedly")]
    Ended {
        /// The part.
        part: &'static str,
    },
}

/// Runs a provisioner until it is cancelled, or cannot go on.
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
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| RunError::Listen { address, source })?;
        let mut registry = Registry::default();
        options.metrics.register(&mut registry);
        let (health, cancel) = (options.health.clone(), cancel.clone());
        tasks.spawn(async move {
            endpoint::serve(listener, health, Arc::new(registry), cancel).await;
            "endpoint"
        });
    }
    let election = options.leader_election.clone();
    let leader = &options.metrics.leader;
    let lost = lead(&api, election, &options.health, leader, &cancel, &mut tasks).await;
    if cancel.is_cancelled() {
        return Ok(());
    }
    let owner = start(&api, &options, &cancel, &mut tasks);
    tracing::info!(workers = options.workers, "provisioner started");
    let mut working = std::pin::pin!(owner.run(cancel.clone()));
    let (result, finished) = tokio::select! {
        () = &mut working => (unless_cancelled(&cancel, "state owner"), true),
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
    let (create_calls, create_failed) = options.metrics.calls("CreateVolume");
    let (delete_calls, delete_failed) = options.metrics.calls("DeleteVolume");
    tracing::info!(
        create_calls,
        create_failed,
        delete_calls,
        delete_failed,
        "provisioner stopped"
    );
    result
}

/// Starts the event recorder and the watches.
fn start(api: &Api, options: &Options, cancel: &CancellationToken, tasks: &mut JoinSet<&'static str>) -> Owner {
    let instance = options
        .leader_election
        .as_ref()
        .map_or_else(|| FIELD_MANAGER.to_owned(), |lease| lease.identity.clone());
    let component = match options.settings.as_slice() {
        [one] => one.provisioner.clone(),
        _ => FIELD_MANAGER.to_owned(),
    };
    let (recorder, writer) = recorder(api.clone(), component, instance);
    let writer_cancel = cancel.clone();
    tasks.spawn(async move {
        writer.run(writer_cancel).await;
        "event recorder"
    });
    let executor = Executor {
        api: api.clone(),
        recorder,
        backend: options.backend.clone(),
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
