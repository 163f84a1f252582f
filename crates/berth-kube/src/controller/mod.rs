//! Runs the volume controller against an API server.
//!
//! Its steps are pure (`berth-controller`) and run by the loop for keyed work ([`crate::keyed`]).

mod census;
mod metrics;
mod volumes;

pub use metrics::Metrics;

pub use crate::component::RunError;
use berth_core::backoff::Backoff;

use crate::announce::RequiredScheduler;
use crate::api::{Api, ApiError};
use crate::component::{Component, ProcessOptions, RunMetrics};
use crate::inbox::Inbox;
use crate::keyed::{self, Keyed};
use crate::recorder::Recorder;
use crate::resource::Resource;
use berth_controller::zone::{NodeKeys, Plan, plan};
use berth_controller::{Change, Settings, ZoneUpgrade};
use berth_core::api::{Kind, Node, Object, PersistentVolume, StringMap};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use volumes::{Volumes, executor};

/// How long effects in flight may take when the controller stops. The default grace period of pods is 30 s.
const GRACE: Duration = Duration::from_secs(10);

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its decisions.
    pub settings: Settings,
    /// Number of effect lists carried out concurrently.
    pub workers: usize,
    /// How often everything is synced, whether or not it changed.
    pub resync: Duration,
    /// Delay claims only while a scheduler announces that it can bind them.
    pub required_scheduler: Option<RequiredScheduler>,
    /// What it shares with other components.
    pub process: ProcessOptions,
    /// Its metrics.
    pub metrics: Metrics,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            // Each binding is four sequential writes, so many workers are needed to keep an API server busy.
            workers: 128,
            resync: Duration::from_secs(15),
            required_scheduler: None,
            process: ProcessOptions::default(),
            metrics: Metrics::default(),
        }
    }
}

impl Component for Options {
    const NAME: &'static str = "volume controller";
    const FIELD_MANAGER: &'static str = "berth-controller";
    const KINDS: &'static [Kind] = &[
        Kind::PersistentVolumeClaim,
        Kind::PersistentVolume,
        Kind::StorageClass,
        Kind::Pod,
        Kind::Node,
    ];
    type Owner = Keyed<Volumes>;

    fn process(&self) -> &ProcessOptions {
        &self.process
    }

    fn run_metrics(&self) -> &RunMetrics {
        &self.metrics.run
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    fn event_source(&self) -> String {
        berth_controller::COMPONENT.to_owned()
    }

    async fn prepare(&self, api: &Api) {
        if self.settings.zone_upgrade == ZoneUpgrade::DryRun {
            report_zone_upgrade(api).await;
        }
    }

    fn owner(self, api: Api, recorder: Recorder, inbox: Inbox<Object>) -> Self::Owner {
        let volumes = Volumes::new(&api, &self);
        let options = keyed::Options {
            workers: self.workers,
            resync: self.resync,
            backoff: Backoff::EFFECT,
            grace: GRACE,
            health: self.process.health,
        };
        Keyed::new(volumes, executor(api, recorder, self.metrics), options, inbox).by(self.process.clock)
    }
}

/// Runs the controller until it is cancelled or fails.
///
/// In a real cluster it replaces kube-controller-manager's `persistentvolume-binder-controller`, which must be disabled
/// there (`--controllers=*,-persistentvolume-binder-controller`).
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
    crate::component::run(client, options, cancel).await
}

/// A volume that the zone upgrade would change, with the merge patch.
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
    plan_upgrade(&Api::new(client, Options::FIELD_MANAGER)).await
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
    let nodes = items(api, Kind::Node).await?;
    let nodes = nodes
        .into_iter()
        .filter_map(|item| serde_json::from_value::<Node>(item).ok());
    let labels: Vec<StringMap> = nodes.map(|node| node.metadata.labels).collect();
    let keys = NodeKeys::of(&labels);
    let volumes = items(api, Kind::PersistentVolume).await?;
    let planned = volumes.into_iter().filter_map(|item| {
        let name = item
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let volume = name.to_owned();
        let change = match serde_json::from_value::<PersistentVolume>(item).map(|volume| plan(&volume, keys)) {
            Ok(Plan::Nothing) => return None,
            Ok(Plan::Upgrade(affinity)) => Ok(Change::NodeAffinity(affinity).merge_patch()),
            Ok(Plan::Unreadable { key, value }) => Err(format!("label {key} has the value {value:?}")),
            Err(error) => Err(error.to_string()),
        };
        Some(PlannedUpgrade { volume, change })
    });
    Ok(planned.collect())
}

/// All objects of a kind, unparsed.
async fn items(api: &Api, kind: Kind) -> Result<Vec<Value>, ApiError> {
    #[derive(Deserialize)]
    struct Listed {
        items: Option<Vec<Value>>,
    }
    let path = Resource::of(kind).collection(None);
    let bytes = api.get_path(&path).await?;
    let listed: Listed = serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed {
        path,
        problem: error.to_string(),
    })?;
    Ok(listed.items.unwrap_or_default())
}
