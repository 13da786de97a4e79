//! gRPC over Unix sockets.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::nonsense::{Nonsense, Socket};

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a caller may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// Callers that have not begun, at once; the rest wait in the socket's queue.
const AT_ONCE: usize = 64;

/// A channel to a socket, connected when first used and again whenever the other side was restarted.
pub fn channel(path: PathBuf, patience: Duration) -> Channel {
    // Every address does: the connector ignores it, and "localhost" is what servers on sockets expect to be called.
    Endpoint::from_static("http://localhost").timeout(patience).connect_with_connector_lazy(tower::service_fn(
        move |_: Uri| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        },
    ))
}

/// Everybody who calls at `listener` and begins as HTTP/2 does; others are turned away and counted.
pub fn http2(
    listener: UnixListener,
    nonsense: Nonsense,
    socket: Socket,
) -> impl Stream<Item = io::Result<UnixStream>> + Send {
    let judged = UnixListenerStream::new(listener).map(move |caller| {
        let nonsense = nonsense.clone();
        async move {
            let caller = match caller {
                Ok(caller) => caller,
                Err(error) => return Some(Err(error)),
            };
            match tokio::time::timeout(PATIENCE, beginning(&caller)).await {
                Ok(Ok(first)) if first.is_empty() => return None,
                Ok(Ok(first)) if PREFACE.starts_with(&first) => return Some(Ok(caller)),
                Ok(Ok(_)) => nonsense.note(socket, "no HTTP/2"),
                Ok(Err(_)) => {}
                Err(_) => nonsense.note(socket, "silence"),
            }
            None
        }
    });
    judged.buffer_unordered(AT_ONCE).filter_map(std::future::ready)
}

/// The first bytes that somebody says, left where they are; none from somebody who leaves.
async fn beginning(caller: &UnixStream) -> io::Result<Vec<u8>> {
    let mut bytes = [0; PREFACE.len()];
    loop {
        caller.readable().await?;
        let peeked = caller.try_io(Interest::READABLE, || Ok(recv(caller, &mut bytes, RecvFlags::PEEK)?.1));
        match peeked {
            Ok(length) => return Ok(bytes[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn who_does_not_begin_as_http2_does_is_turned_away_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let nonsense = Nonsense::default();
        let mut callers = Box::pin(http2(UnixListener::bind(&path).unwrap(), nonsense.clone(), Socket::Plugin));
        let mut kept = Vec::new();
        for first in [b"".as_slice(), &[0x80; 1 << 10], PREFACE, b"GET / HTTP/1.0", &PREFACE[..3]] {
            let mut caller = UnixStream::connect(&path).await.unwrap();
            caller.write_all(first).await.unwrap();
            // Who says nothing leaves; the others wait.
            kept.extend((!first.is_empty()).then_some(caller));
        }
        assert!(callers.next().await.unwrap().is_ok());
        assert!(callers.next().await.unwrap().is_ok());
        let more = tokio::time::timeout(Duration::from_millis(50), callers.next()).await;
        assert!(more.is_err(), "nobody else comes in");
        assert_eq!(nonsense.count(Socket::Plugin), 2);
    }
}
