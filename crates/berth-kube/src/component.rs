//! What the scheduler, the volume controller and a provisioner share: how they start, lead and stop.
//!
//! ```text
//!   endpoint     watches ──▶ inbox ──▶ owner of the state ──▶ API server
//!                                        ▲
//!                leader election ────────┘
//! ```
//!
//! With a warm standby, the owner follows the watches from the start, and acts when it leads. With a cold one, watches are
//! opened when it leads.
//!
//! A component provides the owner of its state and lists the kinds it watches. The first part that ends stops all
//! others. Nothing is decided here.

use crate::api::Api;
use crate::clock::Clock;
use crate::endpoint::{self, Answers, Health, Secured, Standby};
use crate::guard::Guard;
use crate::inbox::{self, Inbox, Scope};
use crate::lease::{LeaseOptions, lead};
use crate::process;
use crate::recorder::{Recorder, recorder};
use berth_core::api::{Kind, Object};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

/// How any component runs, independent of its work.
#[derive(Clone, Debug, Default)]
pub struct ProcessOptions {
    /// Compete for this lease, and work only while holding it.
    pub leader_election: Option<LeaseOptions>,
    /// Serve `/metrics`, `/healthz`, `/readyz` and, if available, `/configz` at this address.
    pub listen: Option<SocketAddr>,
    /// Serve the same over TLS, to clients that the API server authorizes.
    pub secure: Option<SecureOptions>,
    /// Its readiness.
    pub health: Health,
    /// How long it waits after the last change before it acts. Zero if components are separate. If they share a process,
    /// those that depend on the writes of others wait until the others are done.
    pub patience: Duration,
    /// The clock it uses.
    pub clock: Clock,
}

/// How a component is served over TLS.
#[derive(Clone, Debug)]
pub struct SecureOptions {
    /// The address.
    pub address: SocketAddr,
    /// Its certificate.
    pub tls: Arc<ServerConfig>,
    /// Paths without authorization. A trailing star matches any suffix.
    pub open_paths: Vec<String>,
}

/// Why a component stopped on its own.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address for metrics and health cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// Another replica leads now.
    #[error("lost the lease {namespace}/{name}")]
    LeaseLost {
        /// Namespace of the lease.
        namespace: String,
        /// Name of the lease.
        name: String,
    },
    /// A part of the component ended unexpectedly.
    #[error("the {component}'s {part} ended unexpectedly")]
    Ended {
        /// The component.
        component: &'static str,
        /// The part.
        part: &'static str,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

impl From<Kind> for KindLabel {
    fn from(kind: Kind) -> Self {
        Self { kind: kind.name() }
    }
}

/// Metrics of every component. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunMetrics {
    relists: Family<KindLabel, Counter>,
    watch_failures: Family<KindLabel, Counter>,
    broken: Family<KindLabel, Counter>,
    leader: Gauge,
    events_dropped: Counter,
}

impl RunMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("relists", "Lists of all objects of a kind", self.relists.clone());
        registry.register("watch_failures", "Watches that failed", self.watch_failures.clone());
        let help = "Objects that could not be decoded";
        registry.register("broken_objects", help, self.broken.clone());
        registry.register("leader", "1 while this replica leads", self.leader.clone());
        let help = "Events that were not written because too many were waiting";
        registry.register("events_dropped", help, self.events_dropped.clone());
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.leader.get() == 1
    }

    pub(crate) fn relisted(&self, kind: Kind) {
        self.relists.get_or_create(&kind.into()).inc();
    }

    pub(crate) fn watch_failed(&self, kind: Kind) {
        self.watch_failures.get_or_create(&kind.into()).inc();
    }

    pub(crate) fn broken(&self, kind: Kind) {
        self.broken.get_or_create(&kind.into()).inc();
    }
}

/// The single task that owns a component's state.
pub(crate) trait Owner {
    /// Follows its inbox until cancelled, acts once `leading` is cancelled, and then finishes work in progress. If it stands by cold,
    /// it leads from the start.
    fn run(self, leading: CancellationToken, cancel: CancellationToken) -> impl Future<Output = ()> + Send;
}

/// A component, as its options describe it.
pub(crate) trait Component: Sized + Send + Sync {
    /// Its name in messages.
    const NAME: &'static str;
    /// The field manager of its writes.
    const FIELD_MANAGER: &'static str;
    /// The kinds that it watches. All of them are listed before it starts work.
    const KINDS: &'static [Kind];
    /// A field selector for the pods that it watches; all if not set.
    const POD_FIELDS: Option<&'static str> = None;
    /// The owner of its state.
    type Owner: Owner + Send;

    /// How it runs.
    fn process(&self) -> &ProcessOptions;

    /// What it watches.
    fn scope(&self) -> Scope {
        Scope {
            kinds: Self::KINDS.to_vec(),
            pod_fields: Self::POD_FIELDS,
            capacity_namespace: None,
        }
    }

    /// What it does while another replica leads.
    fn standby(&self) -> Standby {
        Standby::Cold
    }

    /// Its metrics that every component has.
    fn run_metrics(&self) -> &RunMetrics;

    /// Registers all of its metrics.
    fn register(&self, registry: &mut Registry);

    /// What `/configz` shows.
    fn configuration(&self) -> Option<Arc<str>> {
        None
    }

    /// The source of its events.
    fn event_source(&self) -> String;

    /// Runs before its watches are opened.
    fn prepare(&self, _api: &Api) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The owner of its state.
    fn owner(self, api: Api, recorder: Recorder, inbox: Inbox<Object>) -> Self::Owner;
}

/// Runs a component until it is cancelled or fails.
pub(crate) async fn run<C: Component>(
    client: kube::Client,
    component: C,
    cancel: CancellationToken,
) -> Result<(), RunError> {
    let cancel = cancel.child_token();
    let _stop_all = cancel.clone().drop_guard();
    let api = Api::new(client, C::FIELD_MANAGER);
    let process = component.process().clone();
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    open_endpoints(&component, &api, &cancel, &mut tasks).await?;
    let election = process.leader_election.clone();
    let leader = &component.run_metrics().leader;
    let standby = component.standby();
    let lead = lead(&api, election, (&process.health, standby), leader, &cancel, &mut tasks);
    // The lease is released last, also if this future is dropped.
    let _stop_leading = lead.done.clone().drop_guard();
    let starts = standby == Standby::Warm || cancel.run_until_cancelled(lead.won.cancelled()).await.is_some();
    if !starts {
        lead.done.cancel();
        while tasks.join_next().await.is_some() {}
        return Ok(());
    }
    let api = api.gated(lead.gate.clone());
    component.prepare(&api).await;
    let owner = start(api, component, &cancel, &mut tasks);
    tracing::info!("{} started", C::NAME);
    let mut working = Box::pin(owner.run(lead.won.clone(), cancel.clone()));
    let ended = |part| {
        let component = C::NAME;
        cancel
            .is_cancelled()
            .then_some(())
            .ok_or(RunError::Ended { component, part })
    };
    let (result, finished) = tokio::select! {
        // The election ends with the lease: the loss of the lease takes precedence.
        biased;
        () = lead.lost.cancelled() => (Err(lease_lost(&process)), false),
        () = &mut working => (ended("state owner"), true),
        task = tasks.join_next() => match task {
            Some(Ok(part)) => (ended(part), false),
            Some(Err(_)) | None => (ended("task"), false),
        },
    };
    process.health.set_ready(false);
    cancel.cancel();
    let result = if finished {
        result
    } else {
        tokio::select! {
            biased;
            () = lead.lost.cancelled() => Err(lease_lost(&process)),
            () = &mut working => result,
        }
    };
    // If another replica may already be working, nothing is finished: the workers are dropped with the owner.
    drop(working);
    process.health.set_beating(false);
    if lead.lost.is_cancelled() {
        tasks.abort_all();
    }
    lead.done.cancel();
    // The recorder writes the remaining events, and the lease is released.
    while tasks.join_next().await.is_some() {}
    tracing::info!("{} stopped", C::NAME);
    result
}

async fn open_endpoints<C: Component>(
    component: &C,
    api: &Api,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> Result<(), RunError> {
    let process = component.process();
    let plain = process.listen.map(|address| (address, None));
    let secure = process.secure.as_ref().map(|secure| {
        let acceptor = TlsAcceptor::from(secure.tls.clone());
        let guard = Arc::new(Guard::new(api.clone(), secure.open_paths.clone()));
        (secure.address, Some(Secured { acceptor, guard }))
    });
    let mut registry = Registry::default();
    component.register(&mut registry);
    process::register(&mut registry);
    let answers = Answers::new(process.health.clone(), Arc::new(registry), component.configuration());
    for (address, secured) in plain.into_iter().chain(secure) {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| RunError::Listen { address, source })?;
        let (answers, cancel) = (answers.clone(), cancel.clone());
        tasks.spawn(async move {
            endpoint::serve_with(listener, answers, secured, cancel).await;
            "endpoint"
        });
    }
    Ok(())
}

/// Starts the event recorder and the watches.
fn start<C: Component>(
    api: Api,
    component: C,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> C::Owner {
    let election = component.process().leader_election.as_ref();
    let instance = election.map_or_else(|| C::FIELD_MANAGER.to_owned(), |lease| lease.identity.clone());
    let (recorder, writer) = recorder(api.clone(), component.event_source(), instance);
    let recorder = recorder.counting(component.run_metrics().events_dropped.clone());
    let writer_cancel = cancel.clone();
    tasks.spawn(async move {
        writer.run(writer_cancel).await;
        "event recorder"
    });
    let told = (component.run_metrics(), &component.process().health);
    let patience = component.process().patience;
    let inbox = inbox::open(&api, &component.scope(), told, cancel, tasks).patient(patience);
    component.owner(api, recorder, inbox)
}

fn lease_lost(process: &ProcessOptions) -> RunError {
    let lease = process.leader_election.as_ref();
    let (namespace, name) = lease
        .map(|lease| (lease.namespace.clone(), lease.name.clone()))
        .unwrap_or_default();
    RunError::LeaseLost { namespace, name }
}
