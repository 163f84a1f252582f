//! Answers `/metrics`, `/healthz` (also `/livez`), `/readyz` and, where there is something to show, `/configz` over
//! plain HTTP.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A client that does not send its request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time: a scraper, the kubelet's probes, and room for people.
const MAX_CONNECTIONS: usize = 64;

/// An owner of a state that has not come round for so long hangs. One turn takes far less, also of a large cluster.
const STALL: Duration = Duration::from_secs(60);
/// How often an owner of a state comes round at least.
pub(crate) const PULSE: Duration = Duration::from_secs(10);

/// Whether the component is alive and ready, as it says itself. Clones speak for the same component.
#[derive(Clone, Debug, Default)]
pub struct Health {
    told: Arc<Told>,
}

/// What a component told of itself.
#[derive(Debug, Default)]
struct Told {
    unhealthy: AtomicBool,
    ready: AtomicBool,
    /// Kinds that are not read yet.
    missing: Mutex<Vec<&'static str>>,
    /// Until when the lease holds, while it leads.
    lease: Mutex<Option<Instant>>,
    /// When the owner of the state last came round, while there is one.
    beat: Mutex<Option<Instant>>,
}

/// A lock that a panic left behind holds what it held before: each write is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Says whether the component can do its work.
    pub fn set_ready(&self, ready: bool) {
        self.told.ready.store(ready, Ordering::Relaxed);
    }

    /// Says whether the component should be restarted.
    pub fn set_healthy(&self, healthy: bool) {
        self.told.unhealthy.store(!healthy, Ordering::Relaxed);
    }

    /// Says which kinds are not read yet.
    pub(crate) fn set_missing(&self, kinds: Vec<&'static str>) {
        *lock(&self.told.missing) = kinds;
    }

    /// Says until when the lease holds, if the component leads.
    pub(crate) fn set_lease(&self, until: Option<Instant>) {
        *lock(&self.told.lease) = until;
    }

    /// Says that the owner of the state has come round, or that there is none any more.
    pub(crate) fn set_beating(&self, beating: bool) {
        *lock(&self.told.beat) = beating.then(Instant::now);
    }

    /// Whether the component can do its work.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.told.ready.load(Ordering::Relaxed)
    }

    /// Whether the component is alive: it renews its lease, if it leads, and the owner of its state does not hang.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.ailment().is_none()
    }

    fn ailment(&self) -> Option<&'static str> {
        let now = Instant::now();
        if self.told.unhealthy.load(Ordering::Relaxed) {
            return Some("not healthy");
        }
        if lock(&self.told.lease).is_some_and(|until| until < now) {
            return Some("the lease was not renewed");
        }
        let beat = *lock(&self.told.beat);
        beat.is_some_and(|beat| now.duration_since(beat) > STALL)
            .then_some("the owner of the state hangs")
    }

    fn unreadiness(&self) -> Option<String> {
        if self.is_ready() {
            return None;
        }
        let missing = lock(&self.told.missing).join(", ");
        Some(if missing.is_empty() {
            "not yet".to_owned()
        } else {
            format!("not yet read: {missing}")
        })
    }
}

/// Serves until cancelled.
pub async fn serve(listener: TcpListener, health: Health, registry: Arc<Registry>, cancel: CancellationToken) {
    serve_with(listener, health, registry, None, cancel).await;
}

/// Serves until cancelled, with the configuration at `/configz`.
pub async fn serve_with(
    listener: TcpListener,
    health: Health,
    registry: Arc<Registry>,
    configuration: Option<Arc<str>>,
    cancel: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            let _ = connections.join_next().await;
            continue;
        }
        let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await else {
            return;
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: it passes.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (health, registry, configuration) = (health.clone(), Arc::clone(&registry), configuration.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &health, &registry, configuration.as_deref());
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = http1::Builder::new();
            let server = server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a connection to the endpoint failed");
            }
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    health: &Health,
    registry: &Registry,
    configuration: Option<&str>,
) -> Response<Full<Bytes>> {
    let state = |problem: Option<String>| {
        let status = match &problem {
            None => StatusCode::OK,
            Some(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let body = problem.unwrap_or_else(|| "ok".to_owned());
        (status, "text/plain; charset=utf-8", body)
    };
    let (status, content_type, body) = match (request.uri().path(), configuration) {
        ("/healthz" | "/livez", _) => state(health.ailment().map(str::to_owned)),
        ("/readyz", _) => state(health.unreadiness()),
        ("/configz", Some(text)) => (StatusCode::OK, "application/json", text.to_owned()),
        ("/metrics", _) => {
            let mut text = String::new();
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            match encode(&mut text, registry) {
                Ok(()) => (StatusCode::OK, content_type, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
            }
        }
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain; charset=utf-8",
            "not found".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::{Health, STALL};
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
