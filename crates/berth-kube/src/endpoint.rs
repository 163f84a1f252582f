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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A client that does not send its request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time: a scraper, the kubelet's probes, and room for people.
const MAX_CONNECTIONS: usize = 64;

/// Whether the component is alive and ready, as it says itself.
#[derive(Clone, Debug)]
pub struct Health {
    healthy: Arc<AtomicBool>,
    ready: Arc<AtomicBool>,
}

impl Default for Health {
    /// Alive, not ready yet.
    fn default() -> Self {
        Self {
            healthy: Arc::new(AtomicBool::new(true)),
            ready: Arc::default(),
        }
    }
}

impl Health {
    /// Says whether the component can do its work.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Says whether the component should be restarted.
    pub fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::Relaxed);
    }

    /// Whether the component can do its work.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Whether the component is alive.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
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
    let state = |good| {
        if good {
            (StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned())
        } else {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            (status, "text/plain; charset=utf-8", "not yet".to_owned())
        }
    };
    let (status, content_type, body) = match (request.uri().path(), configuration) {
        ("/healthz" | "/livez", _) => state(health.is_healthy()),
        ("/readyz", _) => state(health.is_ready()),
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
