//! A proxy between a component and the API server: counts its writes, and makes the chosen one fail.

use berth_apiserver::{ApiService, ResponseBody, Server};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = UnsyncBoxBody<Bytes, BoxError>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<AnyBody>, BoxError>> + Send>>;

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused once: the object has another version.
    Conflict,
    /// Not handled: the server is busy, and asks to retry.
    Busy,
    /// Carried out, but the connection breaks before the response.
    AnswerLost,
    /// Carried out, and the server reports a timeout.
    TimedOut,
    /// Refused each time, until healed.
    Refused(StatusCode),
    /// Held back until healed.
    Held,
}

#[derive(Default)]
struct Plan {
    /// The write that fails, counted from one, and how.
    fault: Option<(usize, Fault)>,
    /// The request that is refused each time.
    refused: Option<(String, StatusCode)>,
    /// All writes of bindings so far.
    writes: Vec<String>,
    /// Whether the fault has happened.
    struck: bool,
}

/// A service like the API server's, with faults.
#[derive(Clone)]
pub(crate) struct Interposer {
    inner: ApiService,
    plan: Arc<Mutex<Plan>>,
    healed: Arc<Notify>,
}

impl Interposer {
    pub(crate) fn new(server: &Server, fault: Option<(usize, Fault)>) -> Self {
        Self {
            inner: server.service(),
            plan: Arc::new(Mutex::new(Plan {
                fault,
                ..Plan::default()
            })),
            healed: Arc::default(),
        }
    }

    /// The writes of bindings so far.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.plan.lock().unwrap().writes.clone()
    }

    pub(crate) fn has_struck(&self) -> bool {
        self.plan.lock().unwrap().struck
    }

    /// Holds a write back, counted from one.
    pub(crate) fn hold(&self, number: usize) {
        self.plan.lock().unwrap().fault = Some((number, Fault::Held));
    }

    /// From now on everything succeeds.
    pub(crate) fn heal(&self) {
        let mut plan = self.plan.lock().unwrap();
        plan.fault = None;
        plan.refused = None;
        self.healed.notify_waiters();
    }

    /// Counts a write, and returns what happens to it.
    fn meets(&self, write: &str) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap();
        plan.writes.push(write.to_owned());
        if let Some((refused, status)) = &plan.refused
            && refused == write
        {
            return Some(Fault::Refused(*status));
        }
        let number = plan.writes.len();
        let (_, fault) = plan.fault.filter(|(at, _)| *at == number)?;
        plan.struck = true;
        if let Fault::Refused(status) = fault {
            plan.refused = Some((write.to_owned(), status));
        }
        Some(fault)
    }
}

/// The name of a write that belongs to a binding. Events and conditions do not.
fn binding_write(request: &Request<Body>) -> Option<String> {
    let path = request.uri().path();
    let told = path.contains("/events") || path.contains("/leases/") || path.ends_with("/leases");
    let condition = path.contains("/pods/") && path.ends_with("/status");
    let is_write = request.method() != Method::GET && !told && !condition;
    is_write.then(|| format!("{} {path}", request.method()))
}

fn refusal(status: StatusCode) -> Response<AnyBody> {
    let reason = status.canonical_reason().unwrap_or_default();
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{},"reason":"{reason}","message":"refused by the test"}}"#,
        status.as_u16()
    );
    let mut response = Response::new(Full::new(Bytes::from(body)).map_err(Into::into).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn busy() -> Response<AnyBody> {
    let mut response = refusal(StatusCode::TOO_MANY_REQUESTS);
    let at_once = http::HeaderValue::from_static("0");
    response.headers_mut().insert(http::header::RETRY_AFTER, at_once);
    response
}

impl Service<Request<Body>> for Interposer {
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let fault = binding_write(&request).and_then(|write| self.meets(&write));
        match fault {
            Some(Fault::Busy) => return Box::pin(async { Ok(busy()) }),
            Some(Fault::Conflict) => return Box::pin(async { Ok(refusal(StatusCode::CONFLICT)) }),
            Some(Fault::Refused(status)) => return Box::pin(async move { Ok(refusal(status)) }),
            Some(Fault::Held | Fault::AnswerLost | Fault::TimedOut) | None => {}
        }
        // Registered before anyone can learn that the write is held.
        let healed = Arc::clone(&self.healed).notified_owned();
        let mut inner = self.inner.clone();
        Box::pin(async move {
            if fault == Some(Fault::Held) {
                healed.await;
            }
            let answer = inner.call(request);
            let response: Response<ResponseBody> = answer.await.unwrap_or_else(|never| match never {});
            match fault {
                Some(Fault::AnswerLost) => Err("the connection broke".into()),
                Some(Fault::TimedOut) => Ok(refusal(StatusCode::GATEWAY_TIMEOUT)),
                Some(Fault::Held | Fault::Busy | Fault::Conflict | Fault::Refused(_)) | None => {
                    Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
                }
            }
        })
    }
}
