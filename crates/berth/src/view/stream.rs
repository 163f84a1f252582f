//! What one page is sent while it is open: everything, then what changes. A page that falls behind is given everything anew.

use super::owner::{Asker, Following, Question};
use bytes::Bytes;
use http_body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

/// Frames on their way to one page, besides those of the broadcast.
const ON_THE_WAY: usize = 4;

/// The body of an answer that goes on until one of both sides ends it.
pub(super) struct Stream(mpsc::Receiver<Bytes>);

impl Stream {
    /// Starts sending. It ends when the page goes, or the owner.
    pub(super) fn start(asker: Asker) -> Self {
        let (sender, frames) = mpsc::channel(ON_THE_WAY);
        tokio::spawn(async move {
            while let Some(following) = asker.ask(Question::Follow).await {
                if !follow(following, &sender).await {
                    return;
                }
            }
        });
        Self(frames)
    }
}

/// Sends until the page has fallen behind, or it or the owner has ended. Says whether it has fallen behind.
async fn follow(following: Following, page: &mpsc::Sender<Bytes>) -> bool {
    let Following { first, mut next } = following;
    for frame in first {
        if page.send(frame).await.is_err() {
            return false;
        }
    }
    loop {
        match next.recv().await {
            Ok(frame) => {
                if page.send(frame).await.is_err() {
                    return false;
                }
            }
            Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = self.0.poll_recv(context);
        polled.map(|received| received.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::follow;
    use crate::view::owner::Following;
    use bytes::Bytes;
    use tokio::sync::{broadcast, mpsc};

    #[tokio::test]
    async fn a_page_that_fell_behind_is_to_be_given_everything_anew() {
        let frames = broadcast::Sender::new(2);
        let following = |text| Following {
            first: vec![Bytes::from_static(text)],
            next: frames.subscribe(),
        };
        let (sender, mut page) = mpsc::channel(8);
        let behind = following(b"everything");
        for number in 0_u8..5 {
            frames.send(vec![number].into()).unwrap();
        }
        assert!(follow(behind, &sender).await, "it missed some");
        assert_eq!(page.recv().await.unwrap(), "everything");
        assert!(page.try_recv().is_err(), "and gets nothing that does not follow");
        let keeps_up = following(b"anew");
        frames.send(Bytes::from_static(b"next")).unwrap();
        drop(frames);
        assert!(!follow(keeps_up, &sender).await, "the owner has ended");
        assert_eq!(page.recv().await.unwrap(), "anew");
        assert_eq!(page.recv().await.unwrap(), "next");
        let gone = Following {
            first: vec![Bytes::new()],
            next: broadcast::Sender::new(1).subscribe(),
        };
        drop(page);
        assert!(!follow(gone, &sender).await, "the page has gone");
    }
}
