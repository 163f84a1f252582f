//! Leader election among replicas of a component.
//!
//! The leader renews a lease object. The others watch it and take over when it has not changed for its whole duration
//! by their own clocks: clocks of different machines are never compared.
//!
//! A leader counts its lease from the moment it sent the request, not from the response, and for less than the
//! duration: whatever happens to its requests, it steps down before another one can take over.

use crate::api::{Api, ApiError};
use crate::endpoint::{Health, Standby};
use crate::resource::Resource;
use berth_core::time::micros;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Timeout for releasing the lease. If that fails, the next leader waits for the lease to expire.
const RELEASE: Duration = Duration::from_secs(2);

/// Time between getting the lease and acting as the leader. The last writes of a leader that released it may still be on their way to the
/// watches of its successor. If it crashed instead, they arrived while the lease ran out.
const SETTLE: Duration = Duration::from_millis(200);

/// Whether this replica may write at this moment. Clones refer to the same lease.
///
/// A suspended process resumes in the middle of what it was about to do, before any of its timers fires. The clock is
/// therefore checked right before each write (and by `gated` when its bytes are sent), not only by the task that renews the lease.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Without an election, every replica may write.
    term: Option<Arc<Mutex<Option<Term>>>>,
}

/// How long the lease is considered valid.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// By the monotonic clock.
    until: Instant,
    /// By the wall clock, which advances while a machine sleeps.
    until_on_the_wall: SystemTime,
}

impl Gate {
    /// A gate that is closed until there is a lease.
    pub(crate) fn shut() -> Self {
        Self {
            term: Some(Arc::default()),
        }
    }

    /// Whether the lease is held.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let Some(term) = &self.term else {
            return true;
        };
        let term = *term.lock().unwrap_or_else(PoisonError::into_inner);
        term.is_some_and(|term| Instant::now() < term.until && SystemTime::now() < term.until_on_the_wall)
    }

    /// Opens it for a duration that starts at the same moment by both clocks.
    pub(crate) fn open_for(&self, time: Duration, since: Instant, since_on_the_wall: SystemTime) {
        self.set(Some(Term {
            until: since + time,
            until_on_the_wall: since_on_the_wall + time,
        }));
    }

    pub(crate) fn close(&self) {
        self.set(None);
    }

    fn set(&self, new: Option<Term>) {
        if let Some(term) = &self.term {
            *term.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
    }
}

/// Settings of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// The identity of this replica, which must be unique.
    pub identity: String,
    /// A leader that has not renewed for this long is replaced.
    pub duration: Duration,
    /// A leader that could not renew for this long steps down. Less than the duration.
    pub renew_deadline: Duration,
    /// Retry interval.
    pub retry: Duration,
    /// Labels of the lease.
    pub labels: BTreeMap<String, String>,
    /// Annotations that the holder sets on the lease.
    pub annotations: BTreeMap<String, String>,
}

impl LeaseOptions {
    /// A lease with the durations that Kubernetes components use.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// The purpose of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// To lead exclusively.
    Lead,
    /// To announce a component.
    Announce,
}

/// A lease for which this replica competes.
pub struct Lease {
    api: Api,
    options: LeaseOptions,
    /// The lease as last observed to change, and when.
    observed: Option<(Value, Instant)>,
    /// When the last successful acquire or renew request was sent.
    renewed: Instant,
    /// Allows writes while this replica holds the lease.
    gate: Gate,
    /// Where readiness and liveness are reported.
    health: Option<Health>,
}

impl Lease {
    /// Enters the competition.
    #[must_use]
    pub fn new(api: Api, options: LeaseOptions) -> Self {
        Self {
            api,
            options,
            observed: None,
            renewed: Instant::now(),
            gate: Gate::shut(),
            health: None,
        }
    }

    /// The gate for writes that only the leader may make.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Reports health: a standby replica is ready only while it can read the lease, and a leader is alive while it renews.
    fn telling(mut self, health: &Health, standby: Standby) -> Self {
        health.stand_by(standby);
        self.health = Some(health.clone());
        self
    }

    /// Timeout of one try: there is time for another one before the deadline.
    fn patience(&self) -> Duration {
        self.options.renew_deadline / 2
    }

    /// Waits until this replica leads. Returns `false` if cancelled before.
    pub async fn acquire(&mut self, cancel: &CancellationToken) -> bool {
        let attempts = async {
            loop {
                let (sent, on_the_wall) = (Instant::now(), SystemTime::now());
                let tried = timeout(self.patience(), self.try_once()).await;
                match &tried {
                    Ok(Ok(true)) => {
                        self.renew(sent, on_the_wall);
                        return;
                    }
                    Ok(Ok(false)) => {}
                    Ok(Err(error)) if error.is_conflict() => tracing::debug!(%error, "another replica was faster"),
                    Ok(Err(error)) => tracing::warn!(%error, "could not acquire the lease"),
                    Err(_) => tracing::warn!("could not acquire the lease: no response"),
                }
                // A standby replica is ready if it can read the lease.
                if let Some(health) = &self.health {
                    health.set_lease_read(matches!(tried, Ok(Ok(_))));
                }
                sleep(self.options.retry).await;
            }
        };
        cancel.run_until_cancelled(attempts).await.is_some()
    }

    fn renew(&mut self, sent: Instant, on_the_wall: SystemTime) {
        self.renewed = sent;
        self.gate.open_for(self.options.renew_deadline, sent, on_the_wall);
        if let Some(health) = &self.health {
            health.set_lease(Some(sent + self.options.duration));
        }
    }

    /// Renews the lease until it is lost. When cancelled, releases it and returns `true`.
    pub async fn hold(&mut self, cancel: &CancellationToken) -> bool {
        let given_up = self.hold_on(cancel).await;
        if !given_up {
            // Another replica may lead now. After an orderly end, only events are left to write.
            self.gate.close();
        }
        if let Some(health) = &self.health {
            health.set_lease(None);
        }
        given_up
    }

    async fn hold_on(&mut self, cancel: &CancellationToken) -> bool {
        let mut sent = Instant::now();
        loop {
            let deadline = self.renewed + self.options.renew_deadline;
            // Counted from the start of the last try, not from its end: a try without a response has waited long
            // enough.
            let next = (sent + self.options.retry).min(deadline);
            if cancel.run_until_cancelled(sleep_until(next)).await.is_none() {
                if timeout(RELEASE, self.release()).await.is_err() {
                    tracing::debug!("could not give up the lease in time");
                }
                return true;
            }
            let on_the_wall = SystemTime::now();
            sent = Instant::now();
            if sent >= deadline {
                return false;
            }
            match timeout_at(deadline.min(sent + self.patience()), self.try_once()).await {
                Ok(Ok(true)) => self.renew(sent, on_the_wall),
                // Another replica holds it now.
                Ok(Ok(false)) => return false,
                // Another replica wrote it: the next try shows who holds it now.
                Ok(Err(error)) if error.is_conflict() => tracing::debug!(%error, "the lease has changed"),
                Ok(Err(error)) => tracing::warn!(%error, "could not renew the lease"),
                Err(_) => tracing::warn!("could not renew the lease: no response"),
            }
        }
    }

    /// Keeps the lease without competing for it: every instance announces itself.
    pub(crate) async fn keep(mut self) {
        let mut failing = false;
        loop {
            let kept = self.try_to(Aim::Announce).await;
            if let Err(error) = &kept
                && !failing
                && !error.is_conflict()
            {
                tracing::warn!(%error, "cannot renew the lease that announces the scheduler, retrying");
            }
            failing = kept.is_err();
            sleep(self.options.retry).await;
        }
    }

    /// Takes or renews the lease if possible. Returns `false` if another replica leads.
    async fn try_once(&mut self) -> Result<bool, ApiError> {
        self.try_to(Aim::Lead).await
    }

    async fn try_to(&mut self, aim: Aim) -> Result<bool, ApiError> {
        let LeaseOptions { namespace, name, .. } = &self.options.clone();
        let Some(bytes) = self.api.get(Resource::LEASES, namespace, name).await? else {
            self.api.create(Resource::LEASES, namespace, &self.record(None)).await?;
            return Ok(true);
        };
        let current: Value = serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed {
            path: Resource::LEASES.object(namespace, name),
            problem: error.to_string(),
        })?;
        if aim == Aim::Lead && self.is_held_by_another(&current) {
            return Ok(false);
        }
        let record = self.record(Some(&current));
        self.api.replace(Resource::LEASES, namespace, name, &record).await?;
        Ok(true)
    }

    fn is_held_by_another(&mut self, current: &Value) -> bool {
        let holder = current.pointer("/spec/holderIdentity").and_then(Value::as_str);
        if holder.is_none_or(|holder| holder.is_empty() || holder == self.options.identity) {
            return false;
        }
        match &self.observed {
            Some((spec, since)) if *spec == current["spec"] => {
                let seconds = current.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
                let duration = seconds.map_or(self.options.duration, Duration::from_secs);
                since.elapsed() < duration
            }
            _ => {
                self.observed = Some((current["spec"].clone(), Instant::now()));
                true
            }
        }
    }

    fn record(&self, current: Option<&Value>) -> Value {
        let now = micro_time();
        let spec = current.map_or(&Value::Null, |current| &current["spec"]);
        let renewing = spec["holderIdentity"] == self.options.identity.as_str();
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or(0);
        let mut record = current.cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": Resource::LEASES.api_version(),
                "kind": Resource::LEASES.kind,
                "metadata": {"name": self.options.name, "namespace": self.options.namespace},
            })
        });
        for (field, entries) in [
            ("labels", &self.options.labels),
            ("annotations", &self.options.annotations),
        ] {
            for (key, value) in entries {
                record["metadata"][field][key] = json!(value);
            }
        }
        record["spec"] = json!({
            "holderIdentity": self.options.identity,
            "leaseDurationSeconds": self.options.duration.as_secs().max(1),
            "acquireTime": if renewing { spec["acquireTime"].clone() } else { json!(now) },
            "renewTime": now,
            "leaseTransitions": if renewing || current.is_none() { transitions } else { transitions + 1 },
        });
        record
    }

    /// Lets the next replica take over at once instead of after the whole duration.
    async fn release(&self) {
        let LeaseOptions {
            namespace,
            name,
            identity,
            ..
        } = &self.options;
        let Ok(Some(bytes)) = self.api.get(Resource::LEASES, namespace, name).await else {
            return;
        };
        let Ok(mut current) = serde_json::from_slice::<Value>(&bytes) else {
            return;
        };
        if current["spec"]["holderIdentity"] == identity.as_str() {
            current["spec"]["holderIdentity"] = json!("");
            if let Err(error) = self.api.replace(Resource::LEASES, namespace, name, &current).await {
                tracing::debug!(%error, "could not give up the lease");
            }
        }
    }
}

/// The tokens of a leadership.
#[derive(Default)]
pub(crate) struct Lead {
    /// Cancelled when this replica begins to lead.
    pub(crate) won: CancellationToken,
    /// Cancelled when leadership is lost.
    pub(crate) lost: CancellationToken,
    /// To be cancelled when the work is done: until then the lease is renewed, or another replica would start.
    pub(crate) done: CancellationToken,
    /// The gate for every write.
    pub(crate) gate: Gate,
}

/// Competes to become the leader in a task, if there is an election.
pub(crate) fn lead(
    api: &Api,
    election: Option<LeaseOptions>,
    (health, standby): (&Health, Standby),
    leader: &Gauge,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> Lead {
    let mut lead = Lead::default();
    let Some(election) = election else {
        leader.set(1);
        lead.won.cancel();
        return lead;
    };
    let mut lease = Lease::new(api.clone(), election).telling(health, standby);
    lead.gate = lease.gate();
    let (won, lost, done) = (lead.won.clone(), lead.lost.clone(), lead.done.clone());
    let (health, leader, cancel) = (health.clone(), leader.clone(), cancel.clone());
    tasks.spawn(async move {
        if lease.acquire(&cancel).await {
            let begin = async {
                sleep(SETTLE).await;
                tracing::info!("leading");
                leader.set(1);
                health.end_standby();
                won.cancel();
            };
            let (given_up, ()) = tokio::join!(lease.hold(&done), begin);
            leader.set(0);
            if !given_up {
                lost.cancel();
            }
        }
        "leader election"
    });
    lead
}

/// The current time in the format of leases.
fn micro_time() -> String {
    micros(Timestamp::now())
}
