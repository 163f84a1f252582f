//! Elects one leader among several copies of a component.
//!
//! The leader renews a lease object; the others watch it and take over when it has not changed for
//! its whole duration, by their own clocks: clocks of different machines are never compared.
//!
//! A leader believes in its lease from the moment at which it asked for it, not from the answer, and for less than the
//! duration: whatever becomes of its requests, it has stepped down before another one can take over.

use crate::api::{Api, ApiError};
use crate::endpoint::Health;
use crate::resource::Resource;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long giving up the lease may take. Without it the next leader waits for the lease to run out.
const RELEASE: Duration = Duration::from_secs(2);

/// Whether this copy may write at this moment. Clones ask about the same lease.
///
/// A process that was stopped goes on where it was, in the middle of whatever it was about to do, before any of its timers
/// has had a turn. So the clock is asked right before each write, and not only the task that renews the lease.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Without an election everybody may write.
    term: Option<Arc<Mutex<Option<Term>>>>,
}

/// For how long the lease is believed in.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// By the clock that tells how much time has passed.
    until: Instant,
    /// By the clock on the wall, which goes on while a machine sleeps.
    until_on_the_wall: SystemTime,
}

impl Gate {
    /// A gate that is shut until there is a lease.
    fn shut() -> Self {
        Self {
            term: Some(Arc::default()),
        }
    }

    /// Whether the lease holds.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let Some(term) = &self.term else {
            return true;
        };
        let term = *term.lock().unwrap_or_else(PoisonError::into_inner);
        term.is_some_and(|term| Instant::now() < term.until && SystemTime::now() < term.until_on_the_wall)
    }

    /// Opens it for a time that began at two moments which are the same.
    fn open_for(&self, time: Duration, since: Instant, since_on_the_wall: SystemTime) {
        self.set(Some(Term {
            until: since + time,
            until_on_the_wall: since_on_the_wall + time,
        }));
    }

    fn close(&self) {
        self.set(None);
    }

    fn set(&self, new: Option<Term>) {
        if let Some(term) = &self.term {
            *term.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
    }
}

/// Which lease, and how patient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who we are: different for every copy.
    pub identity: String,
    /// A leader that was silent for so long is deposed.
    pub duration: Duration,
    /// A leader that could not renew for so long steps down. Less than the duration.
    pub renew_deadline: Duration,
    /// How often to try.
    pub retry: Duration,
    /// Labels that the lease gets.
    pub labels: BTreeMap<String, String>,
    /// Annotations that the lease gets from its holder.
    pub annotations: BTreeMap<String, String>,
}

impl LeaseOptions {
    /// A lease with the times that Kubernetes components use.
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

/// What a lease is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// To lead alone.
    Lead,
    /// To tell that somebody is there.
    Announce,
}

/// A lease that somebody competes for.
pub struct Lease {
    api: Api,
    options: LeaseOptions,
    /// The lease as last seen to change, and when that was.
    observed: Option<(Value, Instant)>,
    /// When the request was sent by which we last took or renewed it.
    renewed: Instant,
    /// Lets writes through while it is ours.
    gate: Gate,
    /// Who tells whether this copy can work.
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

    /// What writes have to pass that only the leader may do.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Makes it tell of itself: who stands by is ready once the lease could be read, and who leads is alive while it
    /// renews.
    fn telling(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// The longest that one try may take: there is time for another one before the deadline.
    fn patience(&self) -> Duration {
        self.options.renew_deadline / 2
    }

    /// Waits until we lead. `false` if cancelled before.
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
                    Ok(Err(error)) if error.is_conflict() => tracing::debug!(%error, "another copy was faster"),
                    Ok(Err(error)) => tracing::warn!(%error, "could not compete for the lease"),
                    Err(_) => tracing::warn!("could not compete for the lease: no answer"),
                }
                // A copy that stands by is as ready as it can be, if it can read the lease.
                if let Some(health) = &self.health {
                    health.set_ready(matches!(tried, Ok(Ok(_))));
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

    /// Renews the lease until it is lost. Ends early, giving it up, when cancelled: `true`.
    pub async fn hold(&mut self, cancel: &CancellationToken) -> bool {
        let given_up = self.hold_on(cancel).await;
        if !given_up {
            // Another one may lead. After an orderly end there is nothing left to write but what was seen.
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
            // Counted from the last try, not from its end: one without an answer has waited long enough.
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
                // Somebody else holds it now.
                Ok(Ok(false)) => return false,
                // Somebody else wrote it: who holds it now, the next try tells.
                Ok(Err(error)) if error.is_conflict() => tracing::debug!(%error, "the lease has changed"),
                Ok(Err(error)) => tracing::warn!(%error, "could not renew the lease"),
                Err(_) => tracing::warn!("could not renew the lease: no answer"),
            }
        }
    }

    /// Keeps the lease without competing for it: whoever is there says so.
    pub(crate) async fn keep(mut self) {
        let mut failing = false;
        loop {
            let kept = self.try_to(Aim::Announce).await;
            if let Err(error) = &kept
                && !failing
                && !error.is_conflict()
            {
                tracing::warn!(%error, "cannot keep the lease that announces the scheduler, trying on");
            }
            failing = kept.is_err();
            sleep(self.options.retry).await;
        }
    }

    /// Takes or renews the lease if it is ours to take. `false` if another one leads.
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

    /// Lets the next one in at once instead of after the whole duration.
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

/// The tokens of a lead.
#[derive(Default)]
pub(crate) struct Lead {
    /// Cancelled when the lead is lost.
    pub(crate) lost: CancellationToken,
    /// To be cancelled when the work is done: until then the lease is renewed, or another copy would begin.
    pub(crate) done: CancellationToken,
    /// What every write has to pass.
    pub(crate) gate: Gate,
}

/// Waits to become the leader, if there is an election.
pub(crate) async fn lead(
    api: &Api,
    election: Option<LeaseOptions>,
    health: &Health,
    leader: &Gauge,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> Lead {
    let mut lead = Lead::default();
    let Some(election) = election else {
        leader.set(1);
        return lead;
    };
    health.set_missing(vec![Resource::LEASES.kind]);
    let mut lease = Lease::new(api.clone(), election).telling(health);
    lead.gate = lease.gate();
    if lease.acquire(cancel).await {
        tracing::info!("leading");
        health.set_ready(false);
        leader.set(1);
        let (lost, done, leader) = (lead.lost.clone(), lead.done.clone(), leader.clone());
        tasks.spawn(async move {
            let given_up = lease.hold(&done).await;
            leader.set(0);
            if !given_up {
                lost.cancel();
            }
            "leader election"
        });
    }
    lead
}

/// Now, as leases spell it.
fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
