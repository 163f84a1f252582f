//! Bodies of writes that are handed to the socket only while a lease is held.
//!
//! A request waits for a connection, and for that connection's task, before its first byte is sent. A process that is suspended there for longer than
//! its lease resumes in the middle of it. The lease is therefore checked again when the connection asks for the body: what follows are the few
//! instructions up to the system call. All writes have a body, and a server acts on none before it is complete.

use crate::lease::Gate;
use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::BoxError;

/// The lease ran out before the body was sent.
#[derive(Debug, thiserror::Error)]
#[error("the lease has run out")]
struct RanOut;

/// Whether a request failed because its lease ran out on the way.
pub(crate) fn ran_out(error: &(dyn Error + 'static)) -> bool {
    error.is::<RanOut>() || error.source().is_some_and(ran_out)
}

/// The body of a request whose extensions may have a [`Gate`].
pub(crate) struct Gated<B> {
    body: B,
    gate: Gate,
}

/// Lets a request be sent only while its gate is open, if it has one.
pub(crate) fn by_its_gate<B>(mut request: Request<B>) -> Request<Gated<B>> {
    let gate = request.extensions_mut().remove().unwrap_or_default();
    request.map(|body| Gated { body, gate })
}

impl<B> Body for Gated<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.gate.is_open() {
            return Poll::Ready(Some(Err(RanOut.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
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
    use super::{Gate, Gated, by_its_gate, ran_out};
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use std::time::{Duration, SystemTime};
    use tokio::io::AsyncReadExt as _;
    use tokio::time::Instant;

    /// What a server receives of a write that was handed to its connection while the gate was open, and whether it failed for that gate.
    async fn received(stopped: bool) -> (String, bool) {
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = http1::handshake::<_, Gated<Full<Bytes>>>(TokioIo::new(client))
            .await
            .unwrap();
        let gate = Gate::shut();
        gate.open_for(Duration::from_secs(10), Instant::now(), SystemTime::now());
        let mut request = Request::post("/binding")
            .body(Full::new(Bytes::from_static(b"the node")))
            .unwrap();
        request.extensions_mut().insert(gate.clone());
        let answer = sender.send_request(by_its_gate(request));
        // The process is suspended before the connection's task takes the request up.
        if stopped {
            gate.close();
        }
        let connection = tokio::spawn(connection);
        let mut read = vec![0; 1 << 12];
        let bytes = server.read(&mut read).await.unwrap();
        drop(server);
        let failed = ran_out(&answer.await.unwrap_err());
        connection.await.unwrap().ok();
        (String::from_utf8_lossy(&read[..bytes]).into_owned(), failed)
    }

    #[tokio::test]
    async fn a_write_that_waits_for_its_connection_is_not_sent_after_the_lease() {
        let (sent, failed) = received(false).await;
        assert!(
            sent.starts_with("POST /binding") && sent.ends_with("the node"),
            "{sent}"
        );
        assert!(!failed);
        let (sent, failed) = received(true).await;
        assert!(!sent.contains("the node"), "{sent}");
        assert!(failed);
    }
}
