//! Bodies of requests and of answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connections::{Connection, Phase};
use super::limits::{BUFFER, SMALL};

/// A request's body, and its place among the large ones.
pub(super) type Received = (Bytes, Option<OwnedSemaphorePermit>);

/// Receives a request's body, of at most `most` bytes. Beyond [`SMALL`] it waits for a place among the large ones.
pub(super) async fn receive(
    mut body: Incoming,
    most: usize,
    large: &Arc<Semaphore>,
) -> Result<Received, (StatusCode, String)> {
    let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the request's body is larger than {most} bytes\n"));
    let hint = body.size_hint();
    if hint.lower() > most as u64 {
        return Err(too_large());
    }
    let mut place = None;
    let mut received = Vec::new();
    if let Some(length) = hint.exact() {
        if length > SMALL as u64 {
            place = large.clone().acquire_owned().await.ok();
        }
        received.reserve_exact(length as usize);
    }
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| (StatusCode::BAD_REQUEST, format!("the request's body broke off: {error}\n")))?;
        let Ok(data) = frame.into_data() else { continue };
        if received.len() + data.len() > most {
            return Err(too_large());
        }
        if received.len() + data.len() > SMALL && place.is_none() {
            place = large.clone().acquire_owned().await.ok();
        }
        received.extend_from_slice(&data);
    }
    Ok((received.into(), place))
}

/// An answer's body, given out in pieces as the peer takes them: its place among the answers is free again when the peer has nearly all.
pub(super) struct Answer {
    body: axum::body::Body,
    rest: Bytes,
    connection: Arc<Connection>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Answer {
    pub(super) fn new(
        body: axum::body::Body,
        connection: Arc<Connection>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Answer {
        Answer { body, rest: Bytes::new(), connection, _place: place }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = self.rest.len().min(BUFFER / 2);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.enter(Phase::Idle);
    }
}
