//! gRPC over Unix sockets.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

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
