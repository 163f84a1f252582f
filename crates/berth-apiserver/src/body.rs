//! The body of a response: complete, a list that is rendered while it is read, or a stream of watch events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};

use crate::listing::Listing;

/// The body of a response.
pub struct ResponseBody {
    inner: Inner,
}

enum Inner {
    Chunks(VecDeque<Bytes>),
    /// A list, rendered one chunk ahead of its reader.
    List(Option<Bytes>, Box<Listing>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match &self.inner {
            Inner::Chunks(_) => "Chunks",
            Inner::List(..) => "List",
            Inner::Stream(_) => "Stream",
        };
        formatter.debug_tuple("ResponseBody").field(&name).finish()
    }
}

impl ResponseBody {
    pub(crate) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self {
            inner: Inner::Stream(Box::pin(stream)),
        }
    }

    /// A list. One that fits into a single chunk is complete at once: most are, and then their length is known.
    pub(crate) fn list(mut list: Listing) -> Self {
        let first = list.next();
        let inner = match first {
            Some(first) if !list.is_over() => Inner::List(Some(first), Box::new(list)),
            first => Inner::Chunks(first.into_iter().collect()),
        };
        Self { inner }
    }

    pub(crate) fn chunks(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        Self {
            inner: Inner::Chunks(chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect()),
        }
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::chunks([bytes])
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = match &mut self.inner {
            Inner::Chunks(chunks) => Poll::Ready(chunks.pop_front()),
            Inner::List(next, rest) => Poll::Ready(mem::replace(next, rest.next())),
            Inner::Stream(stream) => stream.as_mut().poll_next(context),
        };
        chunk.map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Chunks(chunks) => chunks.is_empty(),
            Inner::List(next, _) => next.is_none(),
            Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Chunks(chunks) => SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum()),
            Inner::List(..) | Inner::Stream(_) => SizeHint::default(),
        }
    }
}
