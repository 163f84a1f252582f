//! Limits of a connection: how long it may stay open without a token, and how long it may leave responses unread.
//!
//! A client gets no more than a slot in a list when it connects. An unauthenticated client that shows no token in time is
//! disconnected, and the oldest ones earlier if there are many, so that authenticated clients can always connect. An
//! authenticated client may stay, but must read its responses: pending output that is not sent for a while ends the
//! connection.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::body::ResponseBody;
use crate::call::BoxError;

/// With more unauthenticated connections than this, the oldest are closed.
const STRANGERS_MAX: usize = 256;
/// An unauthenticated client stays this long however many there are: thousands of clients that connect at once all need
/// a handshake.
const GRACE: Duration = Duration::from_secs(5);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connections that have shown no token yet, oldest first.
#[derive(Default)]
pub(crate) struct Strangers {
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

/// An unauthenticated client in the list.
struct Waiting {
    since: Instant,
    /// Ends the connection when it is dropped.
    _stay: oneshot::Sender<Infallible>,
}

impl Strangers {
    /// Adds a connection. The oldest are closed if there are too many.
    pub(crate) fn enter(self: &Arc<Self>) -> (Arc<Visitor>, Eviction) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, evicted) = oneshot::channel();
        let visitor = Arc::new(Visitor {
            strangers: self.clone(),
            number,
            is_known: AtomicBool::new(false),
        });
        let mut waiting = lock(&self.waiting);
        let since = Instant::now();
        waiting.insert(number, Waiting { since, _stay: sender });
        while waiting.len() > STRANGERS_MAX
            && let Some(oldest) = waiting.first_entry()
            && since.duration_since(oldest.get().since) >= GRACE
        {
            oldest.remove();
        }
        drop(waiting);
        let eviction = Eviction {
            visitor: visitor.clone(),
            evicted,
        };
        (visitor, eviction)
    }

    /// Makes room: closes the oldest, however new it is.
    pub(crate) fn evict_oldest(&self) {
        lock(&self.waiting).pop_first();
    }
}

/// The client of a connection.
pub(crate) struct Visitor {
    strangers: Arc<Strangers>,
    number: u64,
    is_known: AtomicBool,
}

impl Visitor {
    /// Records that the token was shown.
    pub(crate) fn is_admitted(&self) {
        if !self.is_known.swap(true, Ordering::AcqRel) {
            lock(&self.strangers.waiting).remove(&self.number);
        }
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        lock(&self.strangers.waiting).remove(&self.number);
    }
}

/// The deadline of an unauthenticated client.
pub(crate) struct Eviction {
    visitor: Arc<Visitor>,
    evicted: oneshot::Receiver<Infallible>,
}

impl Eviction {
    /// Completes when the client must be disconnected. Never, if the token was shown by then.
    pub(crate) async fn due(self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.evicted).await;
        if self.visitor.is_known.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
    }
}

/// Pending output of a connection, by stream.
#[derive(Debug, Default)]
pub struct Outgoing {
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Instant>>,
}

impl Outgoing {
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Records that output is pending, since the first call.
    fn waits(&self, number: u64) {
        lock(&self.waiting).entry(number).or_insert_with(Instant::now);
    }

    /// Records that output proceeds.
    fn goes_on(&self, number: u64) {
        lock(&self.waiting).remove(&number);
    }

    /// Completes when output was pending for too long.
    pub async fn stuck(&self, patience: Duration) {
        loop {
            tokio::time::sleep(patience / 2).await;
            let now = Instant::now();
            if lock(&self.waiting)
                .values()
                .any(|since| now.duration_since(*since) >= patience)
            {
                return;
            }
        }
    }
}

/// A stream that records when the peer does not accept written data.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    outgoing: Arc<Outgoing>,
    number: u64,
}

impl<S> Watched<S> {
    /// Records writes to `stream` in `outgoing`.
    pub fn new(stream: S, outgoing: Arc<Outgoing>) -> Self {
        let number = outgoing.number();
        Self {
            stream,
            outgoing,
            number,
        }
    }

    fn note<T>(&self, written: &Poll<io::Result<T>>) {
        match written {
            Poll::Pending => self.outgoing.waits(self.number),
            Poll::Ready(_) => self.outgoing.goes_on(self.number),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A response body that records when its next chunk is not requested: over HTTP/2 a client can stop one response and
/// read on.
pub(crate) struct Paced {
    body: ResponseBody,
    outgoing: Arc<Outgoing>,
    number: u64,
}

impl Paced {
    pub(crate) fn new(body: ResponseBody, outgoing: Arc<Outgoing>) -> Self {
        let number = outgoing.number();
        Self { body, outgoing, number }
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.outgoing.goes_on(self.number);
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.outgoing.goes_on(self.number);
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(Some(_))) && !self.body.is_end_stream() {
            self.outgoing.waits(self.number);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request body with a deadline.
pub(crate) struct Timely<B> {
    body: B,
    due: Pin<Box<Sleep>>,
}

impl<B> Timely<B> {
    pub(crate) fn new(body: B, patience: Duration) -> Self {
        let due = Box::pin(tokio::time::sleep(patience));
        Self { body, due }
    }
}

impl<B> Body for Timely<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let due = self.due.as_mut().poll(context);
        due.map(|()| Some(Err("it did not arrive in time".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_stranger_goes_in_time_and_a_guest_stays() {
        let strangers = Arc::new(Strangers::default());
        let (_visitor, eviction) = strangers.enter();
        let began = Instant::now();
        eviction.due(PATIENCE).await;
        assert_eq!(began.elapsed(), PATIENCE);

        let (visitor, eviction) = strangers.enter();
        visitor.is_admitted();
        let forever = tokio::time::timeout(PATIENCE * 100, eviction.due(PATIENCE));
        assert!(forever.await.is_err(), "a guest is never shown out");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_makes_room_and_guests_do_not() {
        let strangers = Arc::new(Strangers::default());
        let (guest, _guest_eviction) = strangers.enter();
        guest.is_admitted();
        let mut crowd: Vec<_> = (0..STRANGERS_MAX).map(|_| strangers.enter()).collect();
        let (_first, first_eviction) = crowd.remove(0);
        let mut first_due = Box::pin(first_eviction.due(PATIENCE));
        assert_eq!(first_due.as_mut().now_or_never(), None);
        let _one_more = strangers.enter();
        assert_eq!(first_due.as_mut().now_or_never(), None, "all of them may shake hands");
        tokio::time::advance(GRACE).await;
        let _another = strangers.enter();
        assert_eq!(first_due.as_mut().now_or_never(), Some(()), "the oldest goes");
        let (_second, second_eviction) = crowd.remove(1);
        let mut second_due = Box::pin(second_eviction.due(PATIENCE));
        assert_eq!(second_due.as_mut().now_or_never(), None);
        (0..2).for_each(|_| strangers.evict_oldest());
        assert_eq!(
            second_due.as_mut().now_or_never(),
            Some(()),
            "there is no more room at all"
        );
        crowd.clear();
        assert!(lock(&strangers.waiting).len() <= 3, "who left takes no place");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_waits_for_long_is_stuck() {
        let outgoing = Arc::new(Outgoing::default());
        let quiet = tokio::time::timeout(PATIENCE * 10, outgoing.stuck(PATIENCE));
        assert!(quiet.await.is_err(), "nothing waits");
        let mut answer = Paced::new(ResponseBody::chunks(["a".into(), "b".into()]), outgoing.clone());
        let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
        let _ = Pin::new(&mut answer).poll_frame(&mut context);
        let began = Instant::now();
        outgoing.stuck(PATIENCE).await;
        assert!(began.elapsed() <= PATIENCE * 2);
        let _ = Pin::new(&mut answer).poll_frame(&mut context);
        let read = tokio::time::timeout(PATIENCE * 10, outgoing.stuck(PATIENCE));
        assert!(read.await.is_err(), "all of it was taken");
    }
}
