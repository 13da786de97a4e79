//! Reading nodes' journals.

use std::time::Duration;

use anyhow::Context;
use divvy_core::budget::{Cut, Page};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Records asked for at once.
const LIMIT: usize = 500;
/// Largest page taken: a record is below 1 KiB.
const LARGEST: usize = 4 << 20;
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Somebody who can read journals.
pub trait Journals: Clone + Send + Sync + 'static {
    /// The records after a place in the journal of the agent at this address.
    fn page(&self, agent: &str, after: Option<Cut>) -> impl Future<Output = anyhow::Result<Page>> + Send;
}

/// Reads them over HTTP, from the agents' own port.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpJournals;

impl Journals for HttpJournals {
    async fn page(&self, agent: &str, after: Option<Cut>) -> anyhow::Result<Page> {
        tokio::time::timeout(PATIENCE, ask(agent, after)).await.context("no answer in time")?
    }
}

async fn ask(agent: &str, after: Option<Cut>) -> anyhow::Result<Page> {
    let place = after.map(|cut| format!("&epoch={}&after={}", cut.epoch, cut.sequence)).unwrap_or_default();
    let stream = TcpStream::connect(agent).await.with_context(|| format!("could not reach the agent at {agent}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(format!("/journal?limit={LIMIT}{place}"))
        .header(hyper::header::HOST, agent)
        .body(Empty::<Bytes>::new())?;
    let talk = async {
        let reply = sender.send_request(request).await?;
        anyhow::ensure!(reply.status() == StatusCode::OK, "the agent at {agent} answered {}", reply.status());
        let body = Limited::new(reply.into_body(), LARGEST).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!("the agent at {agent} broke off: {e}"))?.to_bytes();
        serde_json::from_slice(&body).with_context(|| format!("the agent at {agent} answered something else"))
    };
    tokio::pin!(talk);
    // The connection is driven beside the talk. A server that closes it after its last word has said all there is.
    tokio::select! {
        biased;
        page = &mut talk => return page,
        ended = connection => ended?,
    }
    talk.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers one request with this, and returns what was asked.
    async fn answer(reply: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).await.unwrap();
            stream.write_all(reply.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        (address, served)
    }

    #[tokio::test]
    async fn a_page_is_asked_for_from_where_we_stopped() {
        let body = r#"{"node":"n0","epoch":7,"records":[],"more":false}"#;
        let reply: &'static str =
            Box::leak(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_boxed_str());
        let (address, served) = answer(reply).await;
        let page = HttpJournals.page(&address, Some(Cut { epoch: 7, sequence: 41 })).await.unwrap();
        assert_eq!((page.epoch, page.more), (7, false));
        assert!(served.await.unwrap().starts_with("GET /journal?limit=500&epoch=7&after=41 "));
    }

    #[tokio::test]
    async fn what_is_not_a_page_is_an_error_that_says_who() {
        for reply in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "nonsense\r\n\r\n",
        ] {
            let (address, served) = answer(reply).await;
            let error = HttpJournals.page(&address, None).await.unwrap_err();
            served.await.unwrap();
            assert!(!format!("{error:#}").is_empty());
        }
        let error = HttpJournals.page("127.0.0.1:1", None).await.unwrap_err();
        assert!(format!("{error:#}").contains("127.0.0.1:1"));
    }
}
