//! How schedulers announce which pods they serve, and to volume controllers that they can bind delayed claims.
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
/// Annotation of a scheduler's lease: the values of `schedulerName` that it serves, separated by commas.
pub const SCHEDULER_NAMES: &str = "berth.dev/scheduler-names";
/// Annotation of a scheduler's lease: the holder that wrote the others.
pub const ANNOUNCED_BY: &str = "berth.dev/announced-by";
/// Annotation of a scheduler's lease: its version.
pub const VERSION: &str = "berth.dev/version";
/// It chooses and reserves volumes for delayed claims.
pub const DELAYED_BINDING: &str = "delayed-binding";

const SCHEDULER: &str = "scheduler";

/// A scheduler's lease with the annotations that list its capabilities and the pods that it serves, by `schedulerName`.
#[must_use]
pub fn announcing<'n>(mut lease: LeaseOptions, names: impl IntoIterator<Item = &'n str>) -> LeaseOptions {
    let names: Vec<&str> = names.into_iter().collect();
    lease.labels.insert(COMPONENT.to_owned(), SCHEDULER.to_owned());
    let identity = lease.identity.clone();
    lease.annotations.extend([
        (CAPABILITIES.to_owned(), DELAYED_BINDING.to_owned()),
        (SCHEDULER_NAMES.to_owned(), names.join(",")),
        (ANNOUNCED_BY.to_owned(), identity),
        (VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    lease
}

/// What the holder of a lease announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// It chooses and reserves volumes for delayed claims.
    pub binds_delayed_claims: bool,
    /// The values of `schedulerName` that it serves; `None` if it does not list them.
    pub scheduler_names: Option<Vec<String>>,
}

impl Announcement {
    /// What the current holder of a lease announces, if anything.
    #[must_use]
    pub fn of(lease: &Value) -> Option<Self> {
        let annotations = lease.pointer("/metadata/annotations")?;
        let annotation = |key: &str| annotations.get(key)?.as_str();
        let list = |key: &str| Some(annotation(key)?.split(',').filter(|one| !one.is_empty()));
        let holder = lease.pointer("/spec/holderIdentity")?.as_str()?;
        let mut capabilities = list(CAPABILITIES)?;
        (!holder.is_empty() && annotation(ANNOUNCED_BY) == Some(holder)).then(|| Self {
            binds_delayed_claims: capabilities.any(|one| one == DELAYED_BINDING),
            scheduler_names: list(SCHEDULER_NAMES).map(|names| names.map(str::to_owned).collect()),
        })
    }
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
    items: Option<Vec<Value>>,
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
                let capable =
                    |lease: &Value| Announcement::of(lease).is_some_and(|announced| announced.binds_delayed_claims);
                for lease in leases.into_iter().filter(capable) {
                    let name = lease["metadata"]["name"].as_str().unwrap_or_default();
                    let before = seen.insert(name.to_owned(), lease["spec"].clone());
                    if before.is_some_and(|before| before != lease["spec"]) {
                        heard = Instant::now();
                    }
                }
            }
            Err(error) if !failing => tracing::warn!(%error, "cannot list the leases of schedulers, retrying"),
            Err(_) => {}
        }
        failing = failed;
        let announced = heard.elapsed() < required.grace;
        let changed = fact.send_if_modified(|fact| std::mem::replace(fact, announced) != announced);
        if changed && announced {
            tracing::info!("a scheduler announces that it can bind delayed claims");
        } else if changed {
            tracing::warn!("no scheduler announces that it can bind delayed claims: they are bound immediately");
        }
        sleep(required.poll).await;
    }
}

async fn scheduler_leases(api: &Api, namespace: &str) -> Result<Vec<Value>, ApiError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_announcement_counts_for_the_holder_that_wrote_it() {
        let options = announcing(
            LeaseOptions::new("kube-system", "berth-scheduler", "me"),
            ["batch", "web"],
        );
        let lease = |holder: &str| json!({"metadata": {"annotations": options.annotations}, "spec": {"holderIdentity": holder}});
        let announced = Announcement::of(&lease("me")).unwrap();
        assert!(announced.binds_delayed_claims);
        assert_eq!(
            announced.scheduler_names.unwrap(),
            ["batch".to_owned(), "web".to_owned()]
        );
        assert_eq!(Announcement::of(&lease("kube-scheduler-7")), None);
        assert_eq!(Announcement::of(&lease("")), None);
        let older = json!({"metadata": {"annotations": {CAPABILITIES: DELAYED_BINDING, ANNOUNCED_BY: "me"}},
            "spec": {"holderIdentity": "me"}});
        assert_eq!(Announcement::of(&older).unwrap().scheduler_names, None);
    }
}
