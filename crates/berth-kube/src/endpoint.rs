//! Serves `/metrics`, `/healthz` (also `/livez` and `/healthz/leader-election`), `/readyz` and, if available, `/configz` over plain HTTP, or over
//! TLS to authorized clients (`guard`).
//!
//! Health is always served. A connection carries one request and is closed soon, read or unread; if there are too many,
//! the oldest is closed and the new one served; and other threads do the component's work.

use crate::crowd::Crowd;
use crate::guard::Guard;
use crate::resource::Resource;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const METRICS: &str = "/metrics";
const TEXT: &str = "text/plain; charset=utf-8";

/// A client that does not send its request within this time is disconnected.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection is closed after this time in any state, even if the client never reads its response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of connections: the kubelet's probes, people, and room for bursts.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of concurrent scrapes: unread metrics take memory.
const SCRAPERS_MAX: usize = 16;

/// A state owner that has not reported for this long hangs. One iteration takes far less, even in a large cluster.
const STALL: Duration = Duration::from_secs(60);
/// A kind whose watch has failed for this long is outdated. A temporary failure is shorter.
const STALE: Duration = Duration::from_secs(60);
/// Minimum reporting frequency of a state owner.
pub(crate) const PULSE: Duration = Duration::from_secs(10);

/// What a replica does while another one leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standby {
    /// It keeps its watches open, so that it can act as soon as it leads. It is ready when it could take over at once.
    Warm,
    /// It only watches the lease.
    Cold,
}

/// Whether the component is alive and ready, as it reports itself. Clones refer to the same component.
#[derive(Clone, Debug, Default)]
pub struct Health {
    told: Arc<Told>,
}

/// What a component reported about itself.
#[derive(Debug, Default)]
struct Told {
    ready: AtomicBool,
    /// While it does not lead: how it stands by, and whether it could read the lease at the last try.
    standby: Mutex<Option<(Standby, bool)>>,
    /// Kinds that are not listed yet.
    missing: Mutex<Vec<&'static str>>,
    /// Kinds whose watches fail, and since when.
    failing: Mutex<BTreeMap<&'static str, Instant>>,
    /// Until when the lease is held, while it leads.
    lease: Mutex<Option<Instant>>,
    /// When the state owner last reported, while there is one.
    beat: Mutex<Option<Instant>>,
}

/// A lock poisoned by a panic still holds valid data: each write is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// The component competes for a lease, which it has not read yet.
    pub(crate) fn stand_by(&self, standby: Standby) {
        *lock(&self.told.standby) = Some((standby, false));
    }

    /// Sets whether the last try to read the lease succeeded, while the component does not lead.
    pub(crate) fn set_lease_read(&self, read: bool) {
        if let Some((_, last)) = &mut *lock(&self.told.standby) {
            *last = read;
        }
    }

    /// The component leads.
    pub(crate) fn end_standby(&self) {
        *lock(&self.told.standby) = None;
    }

    /// Sets whether the component can do its work.
    pub fn set_ready(&self, ready: bool) {
        self.told.ready.store(ready, Ordering::Relaxed);
    }

    /// Sets which kinds are not listed yet.
    pub(crate) fn set_missing(&self, kinds: Vec<&'static str>) {
        *lock(&self.told.missing) = kinds;
    }

    /// Sets whether the watch of a kind works.
    pub(crate) fn set_watching(&self, kind: &'static str, works: bool) {
        let mut failing = lock(&self.told.failing);
        if works {
            failing.remove(kind);
        } else {
            failing.entry(kind).or_insert_with(Instant::now);
        }
    }

    /// Sets until when the lease is held, if the component leads.
    pub(crate) fn set_lease(&self, until: Option<Instant>) {
        *lock(&self.told.lease) = until;
    }

    /// Records that the state owner is alive, or that there is none any more.
    pub(crate) fn set_beating(&self, beating: bool) {
        *lock(&self.told.beat) = beating.then(Instant::now);
    }

    /// Whether the component can do its work, or take over from the replica that leads.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ready = self.told.ready.load(Ordering::Relaxed);
        match *lock(&self.told.standby) {
            None => ready,
            Some((Standby::Warm, lease_read)) => ready && lease_read,
            Some((Standby::Cold, lease_read)) => lease_read,
        }
    }

    /// Whether the component is alive: it renews its lease if it leads, and its state owner does not hang.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.ailment().is_none()
    }

    fn ailment(&self) -> Option<&'static str> {
        let now = Instant::now();
        if lock(&self.told.lease).is_some_and(|until| until < now) {
            return Some("the lease was not renewed");
        }
        let beat = *lock(&self.told.beat);
        beat.is_some_and(|beat| now.duration_since(beat) > STALL)
            .then_some("the owner of the state hangs")
    }

    fn unreadiness(&self) -> Option<String> {
        let now = Instant::now();
        let stale: Vec<_> = lock(&self.told.failing)
            .iter()
            .map(|(kind, since)| (kind, now.duration_since(*since)))
            .filter(|(_, time)| *time > STALE)
            .map(|(kind, time)| format!("{kind} (for {} s)", time.as_secs()))
            .collect();
        if !stale.is_empty() {
            return Some(format!("watches fail: {}", stale.join(", ")));
        }
        if self.is_ready() {
            return None;
        }
        let mut missing = lock(&self.told.missing).clone();
        if matches!(*lock(&self.told.standby), Some((_, false))) {
            missing.insert(0, Resource::LEASES.kind);
        }
        Some(if missing.is_empty() {
            "not yet".to_owned()
        } else {
            format!("not yet read: {}", missing.join(", "))
        })
    }
}

/// Serves until cancelled.
pub async fn serve(listener: TcpListener, health: Health, registry: Arc<Registry>, cancel: CancellationToken) {
    serve_with(listener, Answers::new(health, registry, None), None, cancel).await;
}

/// Serves until cancelled, in a separate thread.
pub(crate) async fn serve_with(
    listener: TcpListener,
    answers: Answers,
    secured: Option<Secured>,
    cancel: CancellationToken,
) {
    let (ended, end) = oneshot::channel::<Infallible>();
    // The thread also ends if no one waits for it any more.
    let stop = cancel.child_token();
    let _stop = stop.clone().drop_guard();
    let thread = std::thread::Builder::new().name("endpoint".to_owned());
    let spawned = thread.spawn(move || {
        let _ended = ended;
        if let Err(error) = serve_here(listener, &Served { answers, secured }, &stop) {
            tracing::error!(%error, "cannot serve the metrics endpoint");
        }
    });
    match spawned {
        // Nothing is ever sent: the channel closes when the thread ends.
        Ok(_) => drop(end.await),
        Err(error) => tracing::error!(%error, "cannot start the thread of the metrics endpoint"),
    }
}

/// Serves in this thread.
fn serve_here(listener: TcpListener, served: &Served, cancel: &CancellationToken) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A listener belongs to the runtime in which it was created.
    let listener = listener.into_std()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        accept(&listener, served, cancel).await;
        Ok(())
    })
}

async fn accept(listener: &TcpListener, served: &Served, cancel: &CancellationToken) {
    let mut connections = JoinSet::new();
    let crowd = Crowd::new(CONNECTIONS_MAX);
    while let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely out of file descriptors, which is temporary.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let stay = CancellationToken::new();
        crowd.enter(&stay);
        connections.spawn(converse(stream, served.clone(), stay));
        // A client that has sent its request is served before the next one is accepted: a burst must not push out a
        // probe unanswered.
        tokio::task::yield_now().await;
    }
}

/// Serves one request, until `stay` is cancelled.
async fn converse(stream: TcpStream, served: Served, stay: CancellationToken) {
    let _over = stay.clone().drop_guard();
    let talk = async {
        match served.secured.clone() {
            None => talk(stream, served, stay.clone()).await,
            Some(secured) => match secured.acceptor.accept(stream).await {
                Ok(stream) => talk(stream, served, stay.clone()).await,
                Err(error) => tracing::debug!(%error, "a client of the endpoint cannot speak TLS"),
            },
        }
    };
    let talk = tokio::time::timeout(CONNECTION_TIMEOUT, talk);
    let _ = stay.run_until_cancelled(talk).await;
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, served: Served, stay: CancellationToken) {
    let (served, stay) = (&served, &stay);
    let service = service_fn(move |request: Request<Incoming>| async move {
        let path = request.uri().path();
        if let Some(secured) = &served.secured
            && let Err(refusal) = secured.guard.admit(request.method(), path, request.headers()).await
        {
            return Ok(response(refusal.code, TEXT, refusal.text));
        }
        if path == METRICS {
            served.answers.scrapers.enter(stay);
        }
        Ok::<_, Infallible>(served.answers.answer(path))
    });
    let mut server = http1::Builder::new();
    let server = server
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to the endpoint failed");
    }
}

/// TLS settings and authorization.
#[derive(Clone)]
pub(crate) struct Secured {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) guard: Arc<Guard>,
}

/// What is served, and how.
#[derive(Clone)]
struct Served {
    answers: Answers,
    secured: Option<Secured>,
}

/// The content of the endpoint.
#[derive(Clone)]
pub(crate) struct Answers {
    health: Health,
    registry: Arc<Registry>,
    configuration: Option<Arc<str>>,
    scrapers: Arc<Crowd>,
}

impl Answers {
    pub(crate) fn new(health: Health, registry: Arc<Registry>, configuration: Option<Arc<str>>) -> Self {
        Self {
            health,
            registry,
            configuration,
            scrapers: Arc::new(Crowd::new(SCRAPERS_MAX)),
        }
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let state = |problem: Option<String>| {
            let status = match &problem {
                None => StatusCode::OK,
                Some(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            let body = problem.unwrap_or_else(|| "ok".to_owned());
            (status, TEXT, body)
        };
        let (status, content_type, body) = match (path, &self.configuration) {
            // The last one is the path at which the kubelet probes CSI sidecars.
            ("/healthz" | "/livez" | "/healthz/leader-election", _) => state(self.health.ailment().map(str::to_owned)),
            ("/readyz", _) => state(self.health.unreadiness()),
            ("/configz", Some(text)) => (StatusCode::OK, "application/json", text.to_string()),
            (METRICS, _) => {
                let mut text = String::new();
                let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                match encode(&mut text, &self.registry) {
                    Ok(()) => (StatusCode::OK, content_type, text),
                    Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
                }
            }
            _ => (StatusCode::NOT_FOUND, TEXT, "not found".to_owned()),
        };
        response(status, content_type, body)
    }
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::{Health, STALE, STALL, Standby};
    use tokio::time::{Duration, Instant, advance};

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_does_not_renew_and_an_owner_that_hangs_are_not_healthy() {
        let health = Health::default();
        assert!(health.is_healthy());
        health.set_lease(Some(Instant::now() + Duration::from_secs(15)));
        health.set_beating(true);
        advance(Duration::from_secs(14)).await;
        assert!(health.is_healthy());
        advance(Duration::from_secs(2)).await;
        assert_eq!(health.ailment(), Some("the lease was not renewed"));
        health.set_lease(None);
        assert!(health.is_healthy());
        advance(STALL).await;
        assert_eq!(health.ailment(), Some("the owner of the state hangs"));
        health.set_beating(true);
        assert!(health.is_healthy());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_not_heard_of_a_kind_for_long_is_not_ready() {
        let health = Health::default();
        health.set_ready(true);
        health.set_watching("Node", false);
        advance(STALE).await;
        assert_eq!(health.unreadiness(), None, "it may pass");
        health.set_watching("Node", false);
        advance(Duration::from_secs(1)).await;
        assert_eq!(health.unreadiness().as_deref(), Some("watches fail: Node (for 61 s)"));
        health.set_watching("Node", true);
        assert_eq!(health.unreadiness(), None);
    }

    #[test]
    fn a_standby_is_ready_if_it_could_take_over() {
        let health = Health::default();
        health.stand_by(Standby::Warm);
        health.set_missing(vec!["Node"]);
        assert_eq!(health.unreadiness().as_deref(), Some("not yet read: Lease, Node"));
        health.set_lease_read(true);
        assert_eq!(health.unreadiness().as_deref(), Some("not yet read: Node"));
        health.set_ready(true);
        assert_eq!(health.unreadiness(), None);
        health.set_lease_read(false);
        assert!(!health.is_ready());
        health.end_standby();
        assert!(health.is_ready());
        health.set_ready(false);
        health.stand_by(Standby::Cold);
        assert!(!health.is_ready());
        health.set_lease_read(true);
        assert!(health.is_ready());
    }

    #[test]
    fn what_is_missing_is_named() {
        let health = Health::default();
        assert_eq!(health.unreadiness().as_deref(), Some("not yet"));
        health.set_missing(vec!["Node", "Pod"]);
        assert_eq!(health.unreadiness().as_deref(), Some("not yet read: Node, Pod"));
        health.set_ready(true);
        assert_eq!(health.unreadiness(), None);
    }
}
