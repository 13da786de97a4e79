//! The agent's desk: where the shim on the same machine asks what a container gets. One line of JSON each way, on a socket that
//! only root can open.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use divvy_service::Stop;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::edits::ContainerEdits;
use crate::events::Events;
use crate::node::{No, Node};
use crate::nonsense::{Nonsense, Socket};

/// A question is short, an answer less so.
const LONGEST_QUESTION: u64 = 16 << 10;
const LONGEST_ANSWER: u64 = 1 << 20;
/// Whoever connects must say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions at the same time; the rest wait.
const AT_ONCE: usize = 64;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    pod: String,
    container: String,
}

/// What the shim says.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Question(Question),
    Nonsense { nonsense: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Edits(ContainerEdits),
    No(String),
}

/// Asks the agent at `socket`. An error is a sentence for the pod's events.
pub async fn ask(socket: &Path, pod: &str, container: &str, patience: Duration) -> Result<ContainerEdits, String> {
    let away = |e: &dyn std::fmt::Display| format!("Divvy's agent does not answer on {}: {e}", socket.display());
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        let mut line = serde_json::to_vec(&Question { pod: pod.into(), container: container.into() })?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(patience, exchange).await.map_err(|e| away(&e))?.map_err(|e| away(&e))?;
    match serde_json::from_str(&answer).map_err(|e| away(&e))? {
        Answer::Edits(edits) => Ok(edits),
        Answer::No(reason) => Err(reason),
    }
}

/// Tells the agent at `socket` how much nonsense the shim has heard on its own socket. Lost where the agent is away: the next tells all.
pub async fn tell(socket: &Path, nonsense: u64, patience: Duration) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(&Line::Nonsense { nonsense })?;
    line.push(b'\n');
    let exchange = async { UnixStream::connect(socket).await?.write_all(&line).await };
    tokio::time::timeout(patience, exchange).await?
}

/// Answers at `socket` until asked to stop.
pub async fn serve(
    socket: PathBuf,
    node: Arc<Node>,
    events: Events,
    nonsense: Nonsense,
    stop: Stop,
) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).with_context(|| format!("could not listen on {}", socket.display()))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
    let seats = Arc::new(Semaphore::new(AT_ONCE));
    let mut visits = tokio::task::JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.context("the agent's desk is gone")?.0,
            Some(_) = visits.join_next() => continue,
            () = stop.requested() => return Ok(()),
        };
        let Ok(seat) = seats.clone().acquire_owned().await else { return Ok(()) };
        let (node, events, nonsense) = (node.clone(), events.clone(), nonsense.clone());
        visits.spawn(async move {
            let _seat = seat;
            if let Err(error) = visit(stream, &node, &events, &nonsense).await {
                tracing::debug!(%error, "a visitor left the desk");
            }
        });
    }
}

async fn visit(stream: UnixStream, node: &Arc<Node>, events: &Events, nonsense: &Nonsense) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    let mut read = BufReader::new(read.take(LONGEST_QUESTION));
    match tokio::time::timeout(PATIENCE, read.read_until(b'\n', &mut line)).await {
        Ok(read) => drop(read?),
        Err(_) => {
            nonsense.note(Socket::Desk, "silence");
            return Ok(());
        }
    }
    let answer = match serde_json::from_slice(&line) {
        Ok(Line::Question(question)) => answer(node, events, &question).await,
        Ok(Line::Nonsense { nonsense: heard }) => {
            nonsense.learn(Socket::Cri, heard);
            return Ok(());
        }
        Err(error) => {
            nonsense.note(Socket::Desk, "no question");
            Answer::No(format!("this is no question: {error}"))
        }
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await
}

async fn answer(node: &Arc<Node>, events: &Events, question: &Question) -> Answer {
    let (uid, container) = (question.pod.as_str().into(), question.container.as_str().into());
    match node.prepare(&uid, &container, &[]).await {
        Ok(edits) => {
            tracing::info!(%uid, %container, "a container may start");
            Answer::Edits(edits)
        }
        // The pod has a grant, this container has no part in it.
        Err(No::NoGrant(_)) => Answer::Edits(ContainerEdits::closed()),
        Err(no) => {
            if let (No::Refused(..), Some(pod)) = (&no, node.pods.get(&uid)) {
                events.refused(&pod, &no.to_string());
            }
            tracing::warn!(%uid, %container, reason = %no, "a container may not start");
            Answer::No(no.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use divvy_service::Tasks;

    use super::*;
    use crate::testing::node;

    #[tokio::test]
    async fn nonsense_is_refused_counted_and_survived() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("desk.sock");
        let (tasks, nonsense) = (Tasks::new(), Nonsense::default());
        let (events, _queue) = Events::new("n");
        let desk = tokio::spawn(serve(socket.clone(), node(dir.path()), events, nonsense.clone(), tasks.stop()));
        while !socket.exists() {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            // 1 MiB of bytes that are no text; the desk may close before it has read them all.
            let noise: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 0x80).collect();
            let _ = stream.write_all(&noise).await;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
        assert_eq!(nonsense.count(Socket::Desk), 3);
        tell(&socket, 7, Duration::from_secs(5)).await.unwrap();
        while nonsense.count(Socket::Cri) != 7 {
            tokio::task::yield_now().await;
        }
        let no = ask(&socket, "u", "main", Duration::from_secs(5)).await.unwrap_err();
        assert!(no.contains("is not known to this node's agent yet"), "{no}");
        desk.abort();
    }
}
