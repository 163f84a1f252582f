//! Serves the page and its data over HTTP.

use super::answers::Answers;
use super::assets;
use super::guard::{Guard, Refused};
use super::owner::{Asker, Question};
use super::stream::Stream;
use berth_kube::CancellationToken;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A client that does not send its request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time: some tens of pages, each with one that stays and some that come and go.
const CONNECTIONS_MAX: usize = 128;

/// The most that somebody may paste: what an API server takes is not much more.
const BODY_MAX: usize = 1 << 20;

/// No script and no style but those of this server, nothing from anywhere else, and in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type Body = Either<Full<Bytes>, Stream>;

/// What a server of a page is made of.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) guard: Arc<Guard>,
    pub(super) asker: Asker,
    pub(super) answers: Answers,
}

impl Server {
    /// Serves until it is cancelled.
    pub(super) async fn serve(self, listener: TcpListener, cancel: CancellationToken) {
        let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        while let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await {
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    // With none left, the connection is closed: the page tries again.
                    if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
                        let server = self.clone();
                        connections.spawn(async move {
                            server.converse(stream).await;
                            drop(permit);
                        });
                    }
                }
                Err(error) => {
                    // Out of file descriptors, most likely: it passes.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Answers one request.
    async fn converse(self, stream: TcpStream) {
        let service = service_fn(|request: Request<Incoming>| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let mut http = http1::Builder::new();
        let http = http
            .keep_alive(false)
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT);
        if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a connection to the page failed");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let answer = self.answer(request).await;
        let mut response = answer.unwrap_or_else(|(status, why)| text(status, "text/plain; charset=utf-8", why));
        let headers = response.headers_mut();
        for (name, value) in [
            (CACHE_CONTROL, "no-store"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        self.guard.admit(request.headers())?;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some(about) = path.strip_prefix("/api/") else {
            let asset = assets::find(&path).filter(|_| method == Method::GET);
            let asset = asset.ok_or((StatusCode::NOT_FOUND, "not found"))?;
            return Ok(text(StatusCode::OK, asset.content_type, asset.text));
        };
        self.guard.identify(request.headers())?;
        let ended = (StatusCode::SERVICE_UNAVAILABLE, "berth is stopping");
        match (method, about) {
            (Method::GET, "events") => {
                let body = Either::Right(Stream::start(self.asker.clone()));
                Ok(with_type(Response::new(body), "text/event-stream"))
            }
            (Method::GET, "history") => {
                let history = self.asker.ask(Question::History).await.ok_or(ended)?;
                Ok(text(StatusCode::OK, JSON, history))
            }
            (Method::GET, "explain") => {
                let query = request.uri().query().unwrap_or_default();
                let (status, answer) = self.answers.explain(&self.asker, query).await.ok_or(ended)?;
                Ok(text(status, JSON, answer))
            }
            (Method::POST, "what-if") => {
                let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
                let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "more than 1 MiB, or cut off"))?;
                let answer = self.answers.what_if(&self.asker, &body.to_bytes()).await;
                let (status, answer) = answer.ok_or(ended)?;
                Ok(text(status, JSON, answer))
            }
            _ => Err((StatusCode::NOT_FOUND, "not found")),
        }
    }
}

const JSON: &str = "application/json";

fn text(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(text.into())));
    *response.status_mut() = status;
    with_type(response, content_type)
}

fn with_type(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}
