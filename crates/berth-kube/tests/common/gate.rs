//! A proxy between a component and the API server that decides about each request.

use berth_apiserver::{ApiService, ResponseBody, Server};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is carried out.
    Pass,
    /// It is not carried out, and this is the response.
    Answer(StatusCode, &'static str),
    /// It is not carried out, and this is the response after a delay.
    Late(StatusCode, &'static str, Duration),
    /// It is carried out at once, and answered after a delay.
    Slow(Duration),
    /// It is not carried out, and there is no response.
    Hang,
    /// It is carried out, and there is no response.
    Silent,
}

/// The response of a load balancer without a backend.
pub const HTML: Verdict = Verdict::Answer(StatusCode::NOT_FOUND, "<html><body>404 Not Found</body></html>");

type Rule = dyn FnMut(&str) -> Verdict + Send;

/// A service like the API server's, with a rule for requests such as `GET /api/v1/pods?limit=1`.
#[derive(Clone)]
pub struct Gate {
    inner: ApiService,
    rule: Arc<Mutex<Box<Rule>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    /// Lets everything pass.
    pub fn new(server: &Server) -> Self {
        Self {
            inner: server.service(),
            rule: Arc::new(Mutex::new(Box::new(|_| Verdict::Pass))),
            asked: Arc::default(),
        }
    }

    /// Sets the rule.
    pub fn decide(&self, rule: impl FnMut(&str) -> Verdict + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// Number of requests that contain this part.
    pub fn asked(&self, part: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|request| request.contains(part)).count()
    }
}

impl Service<Request<Body>> for Gate {
    type Response = Response<AnyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = format!("{} {}", request.method(), request.uri());
        let verdict = (self.rule.lock().unwrap())(&asked);
        self.asked.lock().unwrap().push(asked);
        let mut inner = self.inner.clone();
        Box::pin(async move {
            let verdict = match verdict {
                Verdict::Late(status, body, after) => {
                    tokio::time::sleep(after).await;
                    Verdict::Answer(status, body)
                }
                verdict => verdict,
            };
            match verdict {
                Verdict::Pass | Verdict::Slow(_) => {
                    let response: Response<ResponseBody> =
                        inner.call(request).await.unwrap_or_else(|never| match never {});
                    if let Verdict::Slow(after) = verdict {
                        tokio::time::sleep(after).await;
                    }
                    Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
                }
                Verdict::Answer(status, body) => {
                    let body = Full::new(Bytes::from_static(body.as_bytes()));
                    let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
                    *response.status_mut() = status;
                    Ok(response)
                }
                Verdict::Hang | Verdict::Late(..) => std::future::pending().await,
                Verdict::Silent => {
                    let _ = inner.call(request).await;
                    std::future::pending().await
                }
            }
        })
    }
}
