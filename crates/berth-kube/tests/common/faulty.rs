//! An API server that refuses requests, carries them out and reports failure, and cuts watches.

use berth_apiserver::{ApiService, ResponseBody, Server};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use kube::client::Body;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A proxy between a controller and the server.
#[derive(Clone)]
pub struct Faulty {
    inner: ApiService,
    requests: Arc<AtomicUsize>,
    /// Counted separately: a client that reads again after each conflict would get one forever if reads counted.
    patches: Arc<AtomicUsize>,
    /// Every second write gets a conflict.
    conflicts: bool,
}

impl Faulty {
    pub fn new(server: &Server, conflicts: bool) -> Self {
        Self {
            inner: server.service(),
            requests: Arc::default(),
            patches: Arc::default(),
            conflicts,
        }
    }
}

fn failure(status: StatusCode) -> Response<AnyBody> {
    let mut response = Response::new(
        Full::new(Bytes::from("out of order"))
            .map_err(Into::into)
            .boxed_unsync(),
    );
    *response.status_mut() = status;
    response
}

impl Service<Request<Body>> for Faulty {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if self.conflicts
            && request.method() == Method::PATCH
            && self.patches.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
        {
            return Box::pin(async { Ok(failure(StatusCode::CONFLICT)) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            match number % 23 {
                // Refused without effect.
                5 => return Ok(failure(StatusCode::TOO_MANY_REQUESTS)),
                11 => return Ok(failure(StatusCode::INTERNAL_SERVER_ERROR)),
                _ => {}
            }
            let response: Response<ResponseBody> = answer.await.unwrap_or_else(|never| match never {});
            if number % 23 == 17 && !is_watch {
                // Carried out, but no one receives the response.
                return Ok(failure(StatusCode::GATEWAY_TIMEOUT));
            }
            // The connection breaks after this many bytes: sometimes few, but not always too few for one batch of
            // events.
            let limit = if is_watch { 10_000 << (number % 8) } else { usize::MAX };
            Ok(response.map(|body| {
                Limited::new(body.map_err(BoxError::from), limit)
                    .map_err(Into::into)
                    .boxed_unsync()
            }))
        })
    }
}
