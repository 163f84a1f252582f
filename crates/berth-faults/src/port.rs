//! Allows multi-request work to be written as async code without a runtime.
//!
//! A job is a future that only the simulator polls. It sends one request at a time through its [`Port`] and continues when the
//! simulator delivers the response. Dropping it kills it, between any two requests.

use crate::mutation::Mutation;
use crate::world::{Doc, Millis};
use berth_core::effect::{Effect, Fact, ObjectKey, Refusal};
use berth_provisioner::answer::Answer;
use berth_provisioner::request::Request as VolumeRequest;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The request of a job.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Read an object.
    Read(ObjectKey),
    /// Check a fact.
    Holds(Fact),
    /// A write: create, patch, delete or bind.
    Write(Effect),
    /// Create a volume in a backend.
    CreateVolume(Box<VolumeRequest>),
    /// Delete a volume in a backend.
    DeleteVolume(String),
    /// Wait for a time.
    Sleep(Millis),
}

/// Why a request to the API server failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApiError {
    /// The server refused it.
    Refused(Refusal),
    /// The server is too busy.
    Busy,
    /// The server failed, or its response was lost.
    InDoubt,
    /// The process does not lead: nothing was sent.
    NotLeading,
}

/// The response.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The current object, unless it is gone.
    Object(Result<Option<Rc<Doc>>, ApiError>),
    /// Whether the fact is true.
    Holds(Result<bool, ApiError>),
    /// The result of the backend.
    Volume(Answer),
    /// The result of the deletion.
    Deleted(Result<(), String>),
}

#[derive(Debug, Default)]
struct Exchange {
    request: Option<Request>,
    reply: Option<Reply>,
}

/// The connection of one job to the world.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    exchange: Rc<RefCell<Exchange>>,
    mutation: Option<Mutation>,
}

impl Port {
    /// Whether a bug is enabled.
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Sends a request, and waits for the response.
    pub(crate) async fn ask(&self, request: Request) -> Reply {
        self.exchange.borrow_mut().request = Some(request);
        poll_fn(|_| match self.exchange.borrow_mut().reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        })
        .await
    }

    pub(crate) async fn read(&self, key: &ObjectKey) -> Result<Option<Rc<Doc>>, ApiError> {
        object(self.ask(Request::Read(key.clone())).await)
    }

    pub(crate) async fn write(&self, effect: Effect) -> Result<Option<Rc<Doc>>, ApiError> {
        object(self.ask(Request::Write(effect)).await)
    }

    pub(crate) async fn holds(&self, fact: Fact) -> Result<bool, ApiError> {
        match self.ask(Request::Holds(fact)).await {
            Reply::Holds(answer) => answer,
            Reply::Object(_) | Reply::Volume(_) | Reply::Deleted(_) => Err(ApiError::InDoubt),
        }
    }

    /// Waits for a time.
    pub(crate) async fn sleep(&self, time: Duration) {
        let millis = Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX / 2);
        self.ask(Request::Sleep(millis)).await;
    }

    /// Delivers a response.
    pub(crate) fn reply(&self, reply: Reply) {
        self.exchange.borrow_mut().reply = Some(reply);
    }

    /// The request since the last call.
    pub(crate) fn take_request(&self) -> Option<Request> {
        self.exchange.borrow_mut().request.take()
    }
}

fn object(reply: Reply) -> Result<Option<Rc<Doc>>, ApiError> {
    match reply {
        Reply::Object(answer) => answer,
        // Each request has its own kind of reply.
        Reply::Holds(_) | Reply::Volume(_) | Reply::Deleted(_) => Err(ApiError::InDoubt),
    }
}

/// Work in progress.
pub(crate) struct Job<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    pub(crate) port: Port,
}

impl<T> Job<T> {
    pub(crate) fn new<F>(mutation: Option<Mutation>, work: impl FnOnce(Port) -> F) -> Self
    where
        F: Future<Output = T> + 'static,
    {
        let exchange = Rc::default();
        let port = Port { exchange, mutation };
        Self {
            future: Box::pin(work(port.clone())),
            port,
        }
    }

    /// Runs until it sends a request, or is done.
    pub(crate) fn go_on(&mut self) -> Poll<T> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}
