//! How schedulers announce to volume controllers that they can bind delayed claims.
//!
//! If a controller leaves claims to a scheduler that cannot bind them, they remain unbound forever. A scheduler
//! therefore lists its capabilities in annotations of its lease, and a controller can be configured to delay claims
//! only while such a lease is alive. Clocks of different machines are never compared: a lease is alive while it is
//! observed to change.
//!
//! A lease keeps its annotations when another program takes it over. They count only together with the holder that
//! wrote them.

use crate::api::{Api, ApiError};
use crate::lease::LeaseOptions;
use crate::resource::Resource;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Label of a lease: its component.
pub const COMPONENT: &str = "berth.dev/component";
/// Annotation of a scheduler's lease: the capabilities of the scheduler, separated by commas.
pub const CAPABILITIES: &str = "berth.dev/scheduler-capabilities";
/// Annotation of a scheduler's lease: the holder that wrote the others.
pub const ANNOUNCED_BY: &str = "berth.dev/announced-by";
/// Annotation of a scheduler's lease: its version.
pub const VERSION: &str = "berth.dev/version";
/// It chooses and reserves volumes for delayed claims.
pub const DELAYED_BINDING: &str = "delayed-binding";

const SCHEDULER: &str = "scheduler";

/// A scheduler's lease with the annotations that list its capabilities.
#[must_use]
pub fn announcing(mut lease: LeaseOptions) -> LeaseOptions {
    lease.labels.insert(COMPONENT.to_owned(), SCHEDULER.to_owned());
    let identity = lease.identity.clone();
    lease.annotations.extend([
        (CAPABILITIES.to_owned(), DELAYED_BINDING.to_owned()),
        (ANNOUNCED_BY.to_owned(), identity),
        (VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    lease
}

/// How a controller looks for schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredScheduler {
    /// The namespace of their leases.
    pub namespace: String,
    /// Polling interval.
    pub poll: Duration,
    /// How long to assume a scheduler after it was last observed, or after startup: claims bound without a scheduler
    /// stay bound, and schedulers restart.
    pub grace: Duration,
}

impl RequiredScheduler {
    /// Looks in a namespace, with a grace period of a minute.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            poll: Duration::from_secs(5),
            grace: Duration::from_secs(60),
        }
    }
}

#[derive(Deserialize)]
struct Leases {
    items: Option<Vec<LeaseObject>>,
}

#[derive(Deserialize)]
struct LeaseObject {
    metadata: LeaseMeta,
    #[serde(default)]
    spec: Value,
}

#[derive(Deserialize)]
struct LeaseMeta {
    name: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl LeaseObject {
    /// Whether the current holder of the lease announces that it can bind delayed claims.
    fn announces(&self) -> bool {
        let annotation = |key: &str| self.metadata.annotations.as_ref().and_then(|all| all.get(key));
        let capable = annotation(CAPABILITIES).is_some_and(|list| list.split(',').any(|one| one == DELAYED_BINDING));
        let holder = self.spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        capable && holder.is_some() && annotation(ANNOUNCED_BY).map(String::as_str) == holder
    }
}

/// Tracks whether a scheduler announces that it can bind delayed claims.
pub(crate) async fn listen(api: Api, required: RequiredScheduler, fact: watch::Sender<bool>) {
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    let mut heard = Instant::now();
    let mut failing = false;
    loop {
        let leases = scheduler_leases(&api, &required.namespace).await;
        let failed = leases.is_err();
        match leases {
            Ok(leases) => {
                for lease in leases.into_iter().filter(LeaseObject::announces) {
                    let before = seen.insert(lease.metadata.name, lease.spec.clone());
                    if before.is_some_and(|before| before != lease.spec) {
                        heard = Instant::now();
                    }
                }
            }
            Err(error) if !failing => tracing::warn!(%error, "cannot listen for schedulers, trying on"),
            Err(_) => {}
        }
        failing = failed;
        let announced = heard.elapsed() < required.grace;
        let changed = fact.send_if_modified(|fact| std::mem::replace(fact, announced) != announced);
        if changed && announced {
            tracing::info!("a scheduler announces that it can bind delayed claims");
        } else if changed {
            tracing::warn!("no scheduler announces that it can bind delayed claims: they are bound at once");
        }
        sleep(required.poll).await;
    }
}

async fn scheduler_leases(api: &Api, namespace: &str) -> Result<Vec<LeaseObject>, ApiError> {
    let collection = Resource::LEASES.collection(Some(namespace));
    let path = format!(
        "{collection}?labelSelector={}%3D{SCHEDULER}",
        COMPONENT.replace('/', "%2F")
    );
    let bytes = api.get_path(&path).await?;
    let leases: Leases = serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed {
        path,
        problem: error.to_string(),
    })?;
    Ok(leases.items.unwrap_or_default())
}
