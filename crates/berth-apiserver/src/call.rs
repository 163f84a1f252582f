//! A request with its body, before it is interpreted.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bounds;
use crate::error::ApiError;
use crate::protobuf;
use crate::request::{self, Parameters};

/// How much of a body is read only to be discarded: ten times what kube-apiserver accepts, which is more than any client
/// sends by mistake, and little enough not to keep the server busy.
const DISCARDED_BYTES_MAX: usize = 32 << 20;

/// Maximum total size of buffered bodies of all requests: some forty of the largest.
pub(crate) const HELD_BYTES_MAX: usize = 128 << 20;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request whose body has been read.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) parameters: Parameters,
    pub(crate) headers: HeaderMap,
    body: Bytes,
    /// The share of the total body size, returned with the request.
    _room: Option<OwnedSemaphorePermit>,
}

impl Call {
    /// Reads the body of a request, up to a limit and as long as there is room.
    pub(crate) async fn read<B>(
        request: Request<B>,
        parameters: Parameters,
        bytes_max: usize,
        room: &Arc<Semaphore>,
    ) -> Result<Self, ApiError>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let (body, room) = read_body(body, bytes_max, room).await?;
        Ok(Self {
            method: head.method,
            path: head.uri.path().to_owned(),
            parameters,
            headers: head.headers,
            body,
            _room: room,
        })
    }

    /// The length of the body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// The parsed body, no deeper and no denser than objects may be.
    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let value = self.parse()?;
        bounds::check_body(&value)?;
        Ok(value)
    }

    fn parse(&self) -> Result<Value, ApiError> {
        if request::media_type(&self.headers) == protobuf::CONTENT_TYPE {
            return protobuf::decode(&self.body).map_err(|error| ApiError::bad_request(error.to_string()));
        }
        if request::media_type(&self.headers).ends_with("yaml") {
            // JSON is YAML, so clients may send either with this type, and most send JSON.
            return serde_json::from_slice(&self.body).or_else(|_| yaml(&self.body));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| ApiError::bad_request(format!("the body of the request is not valid JSON: {error}")))
    }

    /// The body, if it is JSON.
    pub(crate) fn document(&self) -> &[u8] {
        if request::media_type(&self.headers) == "application/json" {
            &self.body
        } else {
            &[]
        }
    }
}

fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    let bad = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("the body of the request is not valid YAML: {error}"))
    };
    let text = std::str::from_utf8(body).map_err(|error| bad(&error))?;
    serde_saphyr::from_str(text).map_err(|error| bad(&error))
}

/// Reads a body up to a limit. A larger one is still read to its end, within bounds: a client that is still sending
/// would see the refusal as a broken connection.
async fn read_body<B>(
    body: B,
    bytes_max: usize,
    room: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), ApiError>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut read = BytesMut::new();
    let mut bytes = 0;
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: BoxError = error.into();
            ApiError::bad_request(format!("the body of the request cannot be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        bytes += data.remaining();
        if bytes <= bytes_max {
            // Data that has not arrived takes no room, so that partially sent requests do not block others.
            let share = u32::try_from(data.remaining()).unwrap_or(u32::MAX);
            let share = room.clone().try_acquire_many_owned(share);
            let share = share.map_err(|_| ApiError::too_many_requests())?;
            match &mut held {
                Some(held) => held.merge(share),
                none => *none = Some(share),
            }
            read.put(data);
        } else if bytes > DISCARDED_BYTES_MAX {
            break;
        }
    }
    if bytes > bytes_max {
        return Err(ApiError::body_too_large(bytes_max));
    }
    Ok((read.freeze(), held))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn body(pieces: usize, bytes: usize, read: &mut usize) -> impl http_body::Body<Data = Bytes, Error = BoxError> {
        let pieces = (0..pieces).map(move |_| {
            *read += bytes;
            Ok(Frame::data(Bytes::from(vec![b' '; bytes])))
        });
        StreamBody::new(stream::iter(pieces))
    }

    /// A client over HTTP/2 that is still sending sees the refusal only if the server keeps reading.
    #[tokio::test]
    async fn a_large_body_is_read_to_its_end() {
        let room = Arc::new(Semaphore::new(HELD_BYTES_MAX));
        let mut read = 0;
        let refused = read_body(body(4, 1 << 20, &mut read), 3 << 20, &room).await;
        assert_eq!(refused.map_err(|error| error.code.as_u16()).err(), Some(413));
        assert_eq!(read, 4 << 20);
        let mut read = 0;
        let refused = read_body(body(1000, 1 << 20, &mut read), 3 << 20, &room).await;
        assert!(
            refused.is_err() && read < 40 << 20,
            "{read} bytes were read: there is a bound"
        );
        let mut read = 0;
        let taken = read_body(body(3, 1 << 20, &mut read), 3 << 20, &room).await;
        assert_eq!(taken.map(|(bytes, _)| bytes.len()), Ok(3 << 20));
        assert_eq!(room.available_permits(), HELD_BYTES_MAX, "all of it was given back");
    }

    #[tokio::test]
    async fn bodies_share_a_bound() {
        let room = Arc::new(Semaphore::new(5 << 20));
        let mut read = 0;
        let first = read_body(body(3, 1 << 20, &mut read), 3 << 20, &room).await;
        let second = read_body(body(3, 1 << 20, &mut read), 3 << 20, &room).await;
        assert_eq!(second.map_err(|error| error.code.as_u16()).err(), Some(429));
        drop(first);
        let third = read_body(body(3, 1 << 20, &mut read), 3 << 20, &room).await;
        assert!(third.is_ok());
    }
}
