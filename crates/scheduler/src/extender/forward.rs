//! Handing a bind on to the replica that leads: its address is in its name in the lease.

use std::time::Duration;

use divvy_api::extender::BindArgs;
use divvy_service::mutual::Mutual;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the leader may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Most bytes of its answer: a head and one sentence.
const LONGEST: u64 = 64 << 10;

/// The address in an identity (`NAME@ADDRESS:PORT`), where there is one.
pub(super) fn address(identity: &str) -> Option<&str> {
    identity.split_once('@').map(|(_, address)| address).filter(|address| !address.is_empty())
}

/// Asks the leader to bind.
pub(super) async fn bind(leader: Option<&str>, body: &[u8], mutual: Option<&Mutual>) -> Result<(), String> {
    // What cannot be read here cannot be read there.
    BindArgs::parse(body).map_err(|error| format!("not ExtenderBindingArgs: {error}"))?;
    let leader = leader.ok_or("nobody leads at the moment; try again")?;
    let Some(address) = address(leader) else {
        return Err(format!(
            "the leader, {leader}, names no address for binds (--extender-advertise); ask it where it is"
        ));
    };
    #[derive(Deserialize)]
    struct Reply {
        #[serde(rename = "Error")]
        error: String,
    }
    let reply = tokio::time::timeout(LIMIT, call(address, mutual, body)).await;
    let reply = reply.map_err(|_| format!("the leader at {address} does not answer"))?;
    let reply = reply.map_err(|error| format!("the leader at {address} cannot be asked: {error}"))?;
    let reply: Reply =
        serde_json::from_slice(&reply).map_err(|error| format!("the leader's answer cannot be read: {error}"))?;
    if reply.error.is_empty() { Ok(()) } else { Err(reply.error) }
}

/// Asks the leader as its port wants it.
async fn call(address: &str, mutual: Option<&Mutual>, body: &[u8]) -> std::io::Result<Vec<u8>> {
    match mutual {
        Some(mutual) => post(mutual.connect(address).await?, address, body).await,
        None => post(TcpStream::connect(address).await?, address, body).await,
    }
}

/// One request, one answer: the body of it.
async fn post(mut stream: impl AsyncRead + AsyncWrite + Unpin, address: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let head = format!(
        "POST /divvy/bind HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut reply = Vec::new();
    stream.take(LONGEST).read_to_end(&mut reply).await?;
    let end = reply.windows(4).position(|w| w == b"\r\n\r\n").map_or(reply.len(), |at| at + 4);
    Ok(reply.split_off(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaders_address_is_in_its_name() {
        assert_eq!(address("divvy-7@10.0.0.5:8090"), Some("10.0.0.5:8090"));
        assert_eq!(address("divvy-7"), None);
        assert_eq!(address("divvy-7@"), None);
    }

    #[tokio::test]
    async fn without_a_leader_the_caller_is_told_to_try_again() {
        let body = br#"{"PodName":"p","PodNamespace":"n","Node":"x"}"#;
        assert_eq!(bind(None, body, None).await, Err("nobody leads at the moment; try again".into()));
        let unreached = bind(Some("divvy-7"), body, None).await.unwrap_err();
        assert!(unreached.starts_with("the leader, divvy-7, names no address for binds"), "{unreached}");
        assert!(bind(None, b"{", None).await.unwrap_err().starts_with("not ExtenderBindingArgs"));
    }
}
