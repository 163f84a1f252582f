//! How work that takes several requests is written down as if it had a runtime.
//!
//! A job is a future that is polled by the simulator alone. It asks for one thing at a time through its [`Port`] and goes on when the
//! simulator brings the answer. To kill it is to drop it, between any two requests.

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

/// What a job asks for.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// An object.
    Read(ObjectKey),
    /// Whether something is so.
    Holds(Fact),
    /// A write: create, patch, delete or bind.
    Write(Effect),
    /// A volume, of a backend.
    CreateVolume(Box<VolumeRequest>),
    /// The end of a volume, of a backend.
    DeleteVolume(String),
    /// Whether a time is over: answered when it is.
    Sleep(Millis),
}

/// Why a request to the API server failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApiError {
    /// The server says no.
    Refused(Refusal),
    /// The server is too busy.
    Busy,
    /// The server failed, or nobody heard its answer.
    InDoubt,
    /// The process does not lead: nothing was sent.
    NotLeading,
}

/// What comes back.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The object as it is now, unless it is gone.
    Object(Result<Option<Rc<Doc>>, ApiError>),
    /// Whether it is so.
    Holds(Result<bool, ApiError>),
    /// What the backend made.
    Volume(Answer),
    /// How deleting went.
    Deleted(Result<(), String>),
}

#[derive(Debug, Default)]
struct Exchange {
    request: Option<Request>,
    reply: Option<Reply>,
}

/// The way of one job to the world.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    exchange: Rc<RefCell<Exchange>>,
    mutation: Option<Mutation>,
}

impl Port {
    /// Whether a bug is switched on.
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Asks, and waits for the answer.
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

    /// Brings an answer.
    pub(crate) fn reply(&self, reply: Reply) {
        self.exchange.borrow_mut().reply = Some(reply);
    }

    /// What was asked for since the last time.
    pub(crate) fn take_request(&self) -> Option<Request> {
        self.exchange.borrow_mut().request.take()
    }
}

fn object(reply: Reply) -> Result<Option<Rc<Doc>>, ApiError> {
    match reply {
        Reply::Object(answer) => answer,
        // Each request is answered by its own kind of reply.
        Reply::Holds(_) | Reply::Volume(_) | Reply::Deleted(_) => Err(ApiError::InDoubt),
    }
}

/// Work under way.
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

    /// Goes on until it asks for something, or is done.
    pub(crate) fn go_on(&mut self) -> Poll<T> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}
