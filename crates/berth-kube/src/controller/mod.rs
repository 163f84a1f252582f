//! Runs the volume controller against an API server.
//!
//! ```text
//!   watches ──▶ inbox ──▶ ┌───────────┐ ──effects──▶ workers ──▶ API server
//!                         │  owner of │
//!   resync, delays ─────▶ │ the state │ ◀──answers── workers
//!                         └───────────┘
//! ```
//!
//! One task owns the state and runs the steps. Watches and workers talk to it through channels, and
//! workers alone talk to the API server.

mod effects;
mod inbox;
mod metrics;
mod owner;

pub use metrics::Metrics;

use crate::api::{Api, ApiError};
use crate::endpoint::{self, Health};
use crate::lease::{LeaseOptions, lead};
use crate::recorder::recorder;
use crate::resource::Resource;
use berth_controller::zone::{Plan, plan};
use berth_controller::{Change, Settings, ZoneUpgrade};
use berth_core::api::{Kind, PersistentVolume};
use effects::Executor;
use owner::Owner;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The name under which events are told: the one users know from kube-controller-manager.
const COMPONENT: &str = "persistentvolume-controller";
/// The name under which writes are recorded.
const FIELD_MANAGER: &str = "berth-controller";

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it does.
    pub settings: Settings,
    /// How many lists of effects are carried out at a time.
    pub workers: usize,
    /// How often everything is looked at, whether or not it changed.
    pub resync: Duration,
    /// Compete for this lease, and work only while holding it.
    pub leader_election: Option<LeaseOptions>,
    /// Answer `/metrics`, `/healthz` and `/readyz` here.
    pub listen: Option<SocketAddr>,
    /// What it tells of its readiness.
    pub health: Health,
    /// What it counts.
    pub metrics: Metrics,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            workers: 16,
            resync: Duration::from_secs(15),
            leader_election: None,
            listen: None,
            health: Health::default(),
            metrics: Metrics::default(),
        }
    }
}

/// Why the controller stopped by itself.
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
    /// A part of the controller ended that should not have.
    #[error("the controller's {part} ended unexpectedly")]
    Ended {
        /// The part.
        part: &'static str,
    },
}

/// Runs the controller until it is cancelled, or cannot go on.
///
/// In a real cluster it takes the place of kube-controller-manager's `persistentvolume-binder-controller`,
/// which has to be switched off there (`--controllers=*,-persistentvolume-binder-controller`).
///
/// ```no_run
/// use berth_kube::controller::{Options, run};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = berth_kube::connect::infer().await?;
/// let cancel = berth_kube::CancellationToken::new();
/// run(client, Options::default(), cancel).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the endpoint's address cannot be used, the lease is lost, or a part of it fails.
pub async fn run(client: kube::Client, options: Options, cancel: CancellationToken) -> Result<(), RunError> {
    let metrics = options.metrics.clone();
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
        metrics.register(&mut registry);
        let (health, cancel) = (options.health.clone(), cancel.clone());
        tasks.spawn(async move {
            endpoint::serve(listener, health, Arc::new(registry), cancel).await;
            "endpoint"
        });
    }
    let election = options.leader_election.clone();
    let lost = lead(&api, election, &options.health, &metrics.leader, &cancel, &mut tasks).await;
    if cancel.is_cancelled() {
        return Ok(());
    }
    if options.settings.zone_upgrade == ZoneUpgrade::DryRun {
        report_zone_upgrade(&api).await;
    }
    let instance = options
        .leader_election
        .as_ref()
        .map_or_else(|| FIELD_MANAGER.to_owned(), |lease| lease.identity.clone());
    let (recorder, writer) = recorder(api.clone(), COMPONENT, instance);
    let writer_cancel = cancel.clone();
    tasks.spawn(async move {
        writer.run(writer_cancel).await;
        "event recorder"
    });
    let executor = Executor {
        api: api.clone(),
        recorder,
        metrics: metrics.clone(),
    };
    let inbox = inbox::open(&api, &metrics, &cancel, &mut tasks);
    let owner = Owner::new(executor, options.clone(), inbox);
    tracing::info!(workers = options.workers, "volume controller started");
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
    tracing::info!("volume controller stopped");
    result
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

/// A volume that the zone upgrade would change, and the merge patch that would change it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedUpgrade {
    /// The volume's name.
    pub volume: String,
    /// What would change, or why it cannot.
    pub change: Result<Value, String>,
}

/// What the zone upgrade would do to the volumes of a cluster. Changes nothing.
///
/// # Errors
/// If the volumes cannot be listed.
pub async fn plan_zone_upgrade(client: kube::Client) -> Result<Vec<PlannedUpgrade>, ApiError> {
    plan_upgrade(&Api::new(client, FIELD_MANAGER)).await
}

/// Logs what the zone upgrade would do.
async fn report_zone_upgrade(api: &Api) {
    match plan_upgrade(api).await {
        Ok(planned) => {
            for PlannedUpgrade { volume, change } in planned {
                match change {
                    Ok(patch) => tracing::info!(volume, %patch, "zone upgrade, dry run: would change"),
                    Err(problem) => tracing::warn!(volume, problem, "zone upgrade, dry run: would skip"),
                }
            }
        }
        Err(error) => tracing::warn!(%error, "zone upgrade, dry run: cannot list volumes"),
    }
}

async fn plan_upgrade(api: &Api) -> Result<Vec<PlannedUpgrade>, ApiError> {
    #[derive(Deserialize)]
    struct Volumes {
        items: Option<Vec<Value>>,
    }
    let path = Resource::of(Kind::PersistentVolume).collection(None);
    let bytes = api.get_path(&path).await?;
    let volumes: Volumes = serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed {
        path,
        problem: error.to_string(),
    })?;
    let planned = volumes.items.unwrap_or_default().into_iter().filter_map(|item| {
        let name = item
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let volume = name.to_owned();
        let change = match serde_json::from_value::<PersistentVolume>(item).map(|volume| plan(&volume)) {
            Ok(Plan::Nothing) => return None,
            Ok(Plan::Upgrade(affinity)) => Ok(Change::NodeAffinity(affinity).merge_patch()),
            Ok(Plan::Unreadable { key, value }) => Err(format!("label {key} has the value {value:?}")),
            Err(error) => Err(error.to_string()),
        };
        Some(PlannedUpgrade { volume, change })
    });
    Ok(planned.collect())
}
