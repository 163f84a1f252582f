//! The API on a socket: TLS, a bearer token, limits on connections, and an orderly shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::connection::{Outgoing, Paced, Strangers, Timely, Visitor, Watched};
use crate::error::ApiError;
use crate::server::Server;
use crate::service::{ApiService, json_response};
use crate::tls::Tls;

/// How long open requests may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of connections. Each takes tens of kilobytes, so this is some hundred megabytes.
const CONNECTIONS_MAX: usize = 16_384;
/// Maximum number of concurrent requests on one connection: the limit of kube-apiserver.
const STREAMS_MAX: u32 = 250;
/// Delay when the system has no more file descriptors, to avoid spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Timeouts of a listener for its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the token, from the start of the connection.
    pub token: Duration,
    /// For the whole body of a request.
    pub body: Duration,
    /// For a client to read pending output.
    pub reading: Duration,
    /// For the next request, or the response to a ping.
    pub idle: Duration,
}

impl Default for Patience {
    /// The timeouts of kube-apiserver, or close to them.
    fn default() -> Self {
        Self {
            token: Duration::from_secs(30),
            body: Duration::from_secs(60),
            reading: Duration::from_secs(60),
            idle: Duration::from_secs(90),
        }
    }
}

/// The server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address of the socket cannot be determined.
    #[error("the listener has no address: {0}")]
    Address(std::io::Error),
    /// The address is reachable from other machines, and the token was generated.
    #[error("{0} is not a loopback address: set a token to serve there")]
    TokenRequired(SocketAddr),
}

impl Server {
    /// Serves until `stop` completes or [`Server::shutdown`] is called, then finishes open requests.
    ///
    /// # Errors
    /// If the address is not a loopback address and the user did not specify the token.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: &Tls,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        Self::may_listen(address, self.own_token)?;
        *self.api.address.write().unwrap_or_else(PoisonError::into_inner) = address.to_string();
        let acceptor = TlsAcceptor::from(tls.config.clone());
        let guarded = Guarded {
            service: self.service(),
            token: self.token.clone(),
            patience: self.patience,
        };
        let (strangers, room) = (Arc::<Strangers>::default(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        let graceful = GracefulShutdown::new();
        let mut stopping = self.api.stopping.subscribe();
        let mut stop = std::pin::pin!(stop);
        let mut expiring = std::pin::pin!(self.api.keep_expiring());
        tracing::info!(%address, "listening");
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => match room.clone().try_acquire_owned() {
                        Ok(place) => accept(stream, place, &strangers, &acceptor, &guarded, graceful.watcher()),
                        Err(_) => {
                            strangers.evict_oldest();
                            tracing::warn!("refused a connection: there are already {CONNECTIONS_MAX}");
                        }
                    },
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                never = &mut expiring => match never {},
                () = &mut stop => break,
                () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => break,
            }
        }
        drop(listener);
        self.shutdown();
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            tracing::warn!("aborted requests when the server stopped");
        }
        Ok(())
    }

    /// Whether a server may listen at an address; known before there is one. `own_token` is whether the user specified
    /// the token.
    ///
    /// # Errors
    /// If it is not a loopback address and the token would be generated.
    pub fn may_listen(address: SocketAddr, own_token: bool) -> Result<(), ServeError> {
        if address.ip().is_loopback() || own_token {
            return Ok(());
        }
        Err(ServeError::TokenRequired(address))
    }

    /// A kubeconfig for a listener with this certificate at this address.
    pub fn kubeconfig(&self, tls: &Tls, address: SocketAddr) -> String {
        let authority = STANDARD.encode(tls.authority_pem());
        let token = &self.token;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: berth\n  cluster:\n    server: https://{address}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: berth\n  user:\n    token: {token:?}\ncontexts:\n\
             - name: berth\n  context:\n    cluster: berth\n    user: berth\n    namespace: default\n\
             current-context: berth\n"
        )
    }
}

/// Serves one connection in its own task, which ends with the connection or the server.
fn accept(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    strangers: &Arc<Strangers>,
    acceptor: &TlsAcceptor,
    guarded: &Guarded,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let (acceptor, guarded) = (acceptor.clone(), guarded.clone());
    let (visitor, eviction) = strangers.enter();
    tokio::spawn(async move {
        let (patience, outgoing) = (guarded.patience, Arc::new(Outgoing::default()));
        tokio::select! {
            () = converse(stream, acceptor, guarded, visitor, &outgoing, watcher) => {}
            () = eviction.due(patience.token) => tracing::debug!("a connection showed no token in time"),
            () = outgoing.stuck(patience.reading) => tracing::debug!("a client does not read its answers"),
        }
        drop(place);
    });
}

/// Handles requests until the client disconnects.
async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    guarded: Guarded,
    visitor: Arc<Visitor>,
    outgoing: &Arc<Outgoing>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let stream = Watched::new(stream, outgoing.clone());
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS"),
        Err(_) => return tracing::debug!("the TLS handshake took too long"),
    };
    let idle = guarded.patience.idle;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(idle / 2)
        .keep_alive_timeout(idle / 2)
        .max_concurrent_streams(STREAMS_MAX);
    let service = Conversation {
        guarded,
        visitor,
        outgoing: outgoing.clone(),
    };
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error, "a connection ended");
    }
}

/// The service with authentication.
#[derive(Clone)]
struct Guarded {
    service: ApiService,
    token: Arc<str>,
    patience: Patience,
}

/// How a request is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// It has the token.
    Token,
    /// Health is public, because probes have no token.
    Probe,
    /// It has neither.
    Refused,
}

impl Guarded {
    /// Compares in constant time, so that the response time reveals nothing about the token.
    fn entry<B>(&self, request: &Request<B>) -> Entry {
        let given = request.headers().get(header::AUTHORIZATION);
        let given = given.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let given = given.strip_prefix("Bearer ").unwrap_or_default();
        if given.as_bytes().ct_eq(self.token.as_bytes()).into() {
            Entry::Token
        } else if matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz") {
            Entry::Probe
        } else {
            Entry::Refused
        }
    }
}

/// The service for one connection.
#[derive(Clone)]
struct Conversation {
    guarded: Guarded,
    visitor: Arc<Visitor>,
    outgoing: Arc<Outgoing>,
}

impl hyper::service::Service<Request<Incoming>> for Conversation {
    type Response = Response<Paced>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let outgoing = self.outgoing.clone();
        let paced = |response: Response<_>| response.map(|body| Paced::new(body, outgoing));
        match self.guarded.entry(&request) {
            Entry::Token => self.visitor.is_admitted(),
            Entry::Probe => {}
            Entry::Refused => {
                // The body is not even read.
                let error = ApiError::unauthorized();
                let response = paced(json_response(error.code, &error.status()));
                return Box::pin(std::future::ready(Ok(response)));
            }
        }
        let body_patience = self.guarded.patience.body;
        let request = request.map(|body| Timely::new(body, body_patience));
        let answer = tower_service::Service::call(&mut self.guarded.service.clone(), request);
        Box::pin(async { answer.await.map(paced) })
    }
}
