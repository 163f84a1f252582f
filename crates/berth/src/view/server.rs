//! Serves the page and its data over HTTP.
//!
//! No client keeps another one out. A connection carries one request. Who has shown no token is closed after a while, and earlier if there are many;
//! who has shown it may stay, but must send its request and read its response in time, and the oldest makes room if there are too many.

use super::answers::Answers;
use super::assets;
use super::guard::{Guard, Refused};
use super::owner::Asker;
use super::stream::Stream;
use berth_apiserver::{Outgoing, Watched};
use berth_kube::CancellationToken;
use berth_kube::crowd::Crowd;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body as HttpBody, Incoming};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A client that does not send its request in this time is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that does not send the body of its request in this time is cut off.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that reads nothing of what waits for it in this time is cut off.
const READING_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that has not shown the token in this time is cut off, whatever it does: it gets the files of the page alone.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at a time, with the token and without: some tens of pages, each with one that stays and some that come and go.
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
    guard: Arc<Guard>,
    asker: Asker,
    answers: Answers,
    crowds: Arc<Crowds>,
}

/// The connections, by whether they have shown the token.
struct Crowds {
    strangers: Crowd,
    guests: Crowd,
}

/// The place of a connection in a crowd.
struct Place {
    crowds: Arc<Crowds>,
    /// Among strangers. Cancelled when it leaves them.
    stranger: CancellationToken,
    /// Among guests, once it has shown the token.
    guest: OnceLock<CancellationToken>,
}

impl Place {
    fn take(crowds: Arc<Crowds>) -> Self {
        let stranger = CancellationToken::new();
        crowds.strangers.enter(&stranger);
        Self {
            crowds,
            stranger,
            guest: OnceLock::new(),
        }
    }

    /// Records that the token was shown.
    fn is_admitted(&self) {
        let guest = self.guest.get_or_init(CancellationToken::new);
        self.crowds.guests.enter(guest);
        self.stranger.cancel();
    }

    /// Completes when the connection must end.
    async fn lost(&self) {
        let _ = tokio::time::timeout(STRANGER_TIMEOUT, self.stranger.cancelled()).await;
        if let Some(guest) = self.guest.get() {
            guest.cancelled().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stranger.cancel();
        if let Some(guest) = self.guest.get() {
            guest.cancel();
        }
    }
}

impl Server {
    pub(super) fn new(guard: Guard, asker: Asker, answers: Answers) -> Self {
        let crowds = Crowds {
            strangers: Crowd::new(CONNECTIONS_MAX),
            guests: Crowd::new(CONNECTIONS_MAX),
        };
        Self {
            guard: Arc::new(guard),
            asker,
            answers,
            crowds: Arc::new(crowds),
        }
    }

    /// Serves until it is cancelled.
    pub(super) async fn serve(self, listener: TcpListener, cancel: CancellationToken) {
        let mut connections = JoinSet::new();
        while let Some(accepted) = cancel.run_until_cancelled(listener.accept()).await {
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, _)) => {
                    let place = Place::take(Arc::clone(&self.crowds));
                    connections.spawn(self.clone().converse(stream, place));
                    // Who has sent a request is served before the next one is accepted: a burst must not push out a page.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    // Out of file descriptors, most likely: it passes.
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Answers one request, unless the connection loses its place.
    async fn converse(self, stream: TcpStream, place: Place) {
        let (server, place) = (&self, &place);
        let service = service_fn(move |request: Request<Incoming>| async move {
            Ok::<_, Infallible>(server.respond(request, place).await)
        });
        tokio::select! {
            () = talk(stream, service) => {}
            () = place.lost() => tracing::debug!("a connection made room for others, or showed no token in time"),
        }
    }

    async fn respond(&self, request: Request<Incoming>, place: &Place) -> Response<Body> {
        let answer = self.answer(request, place).await;
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

    async fn answer(&self, request: Request<Incoming>, place: &Place) -> Result<Response<Body>, Refused> {
        self.guard.admit(request.headers())?;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some(about) = path.strip_prefix("/api/") else {
            let asset = assets::find(&path).filter(|_| method == Method::GET);
            let asset = asset.ok_or((StatusCode::NOT_FOUND, "not found"))?;
            return Ok(text(StatusCode::OK, asset.content_type, asset.text));
        };
        self.guard.identify(request.headers())?;
        place.is_admitted();
        let ended = (StatusCode::SERVICE_UNAVAILABLE, "berth is stopping");
        match (method, about) {
            (Method::GET, "events") => {
                let body = Either::Right(Stream::start(self.asker.clone()));
                Ok(with_type(Response::new(body), "text/event-stream"))
            }
            (Method::GET, "history") => {
                let history = self.answers.history(&self.asker).await.ok_or(ended)?;
                Ok(text(StatusCode::OK, JSON, history))
            }
            (Method::GET, "explain") => {
                let query = request.uri().query().unwrap_or_default();
                let (status, answer) = self.answers.explain(&self.asker, query).await.ok_or(ended)?;
                Ok(text(status, JSON, answer))
            }
            (Method::POST, "what-if") => {
                let body = read(request.into_body()).await?;
                let answer = self.answers.what_if(&self.asker, &body).await;
                let (status, answer) = answer.ok_or(ended)?;
                Ok(text(status, JSON, answer))
            }
            _ => Err((StatusCode::NOT_FOUND, "not found")),
        }
    }
}

/// Handles the request of a connection. The client must send it, and read the response, in time.
async fn talk<B>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: impl HttpService<Incoming, ResBody = B, Error = Infallible>,
) where
    B: HttpBody<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let outgoing = Arc::new(Outgoing::default());
    let stream = TokioIo::new(Watched::new(stream, Arc::clone(&outgoing)));
    let mut http = http1::Builder::new();
    let http = http
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    tokio::select! {
        served = http.serve_connection(stream, service) => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection to the page failed");
            }
        }
        () = outgoing.stuck(READING_TIMEOUT) => tracing::debug!("a page does not read what it is sent"),
    }
}

/// The body of a request.
async fn read(body: Incoming) -> Result<Bytes, Refused> {
    let body = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_MAX).collect()).await;
    let body = body.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in 30 s"))?;
    let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "more than 1 MiB, or cut off"))?;
    Ok(body.to_bytes())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    const HALF_A_BODY: &[u8] = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";

    /// Sends a request and nothing more, and gives how long the connection lasts and what it was sent. The service reads the body, and responds with
    /// this many bytes.
    async fn lasts(request: &[u8], size: usize, reads: bool) -> (Duration, String) {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let began = Instant::now();
        let service = service_fn(|request: Request<Incoming>| async move {
            let response = match read(request.into_body()).await {
                Ok(_) => text(StatusCode::OK, JSON, "x".repeat(size)),
                Err((status, why)) => text(status, JSON, why),
            };
            Ok::<_, Infallible>(response)
        });
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        let reading = async {
            if reads {
                client.read_to_string(&mut answer).await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), async {
            tokio::join!(talk(server, service), reading)
        })
        .await
        .unwrap();
        (began.elapsed(), answer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_must_send_its_request_and_read_its_response_in_time() {
        let (time, answer) = lasts(GET, 1 << 20, true).await;
        assert!(time < Duration::from_secs(1) && answer.len() > 1 << 20, "{time:?}");
        let (time, _) = lasts(b"GET / HTTP/1.1\r\n", 0, true).await;
        assert_eq!(time, HEADER_TIMEOUT);
        let (time, answer) = lasts(HALF_A_BODY, 0, true).await;
        assert!(answer.contains("408") && answer.contains("did not arrive"), "{answer}");
        assert_eq!(time, BODY_TIMEOUT);
        let (time, _) = lasts(GET, 1 << 20, false).await;
        assert!(time >= READING_TIMEOUT && time <= READING_TIMEOUT * 2, "{time:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_push_out_strangers_and_guests_push_out_guests() {
        let crowds = Arc::new(Crowds {
            strangers: Crowd::new(2),
            guests: Crowd::new(2),
        });
        let enter = |admitted: bool| {
            let place = Place::take(Arc::clone(&crowds));
            if admitted {
                place.is_admitted();
            }
            place
        };
        let is_lost = async |place: &Place| tokio::time::timeout(Duration::ZERO, place.lost()).await.is_ok();
        let guest = enter(true);
        let strangers = [enter(false), enter(false), enter(false)];
        assert!(is_lost(&strangers[0]).await && !is_lost(&strangers[2]).await);
        assert!(!is_lost(&guest).await, "strangers push out no guest");
        let _two_more = [enter(true), enter(true)];
        assert!(is_lost(&guest).await && !is_lost(&strangers[2]).await);
        let began = Instant::now();
        strangers[2].lost().await;
        assert_eq!(began.elapsed(), STRANGER_TIMEOUT);
    }
}
