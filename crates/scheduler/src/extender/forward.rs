//! Handing a bind on to the replica that leads: its address is in its name in the lease.

use std::time::Duration;

use divvy_api::extender::BindArgs;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the leader may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The address in an identity (`NAME@ADDRESS:PORT`), where there is one.
pub(super) fn address(identity: &str) -> Option<&str> {
    identity.split_once('@').map(|(_, address)| address).filter(|address| !address.is_empty())
}

/// Asks the leader to bind.
pub(super) async fn bind(leader: Option<&str>, body: &[u8]) -> Result<(), String> {
    // What cannot be read here cannot be read there.
    BindArgs::parse(body).map_err(|error| format!("not ExtenderBindingArgs: {error}"))?;
    let Some(address) = leader.and_then(address) else {
        return Err("nobody leads at the moment; try again".into());
    };
    #[derive(Deserialize)]
    struct Reply {
        #[serde(rename = "Error")]
        error: String,
    }
    let reply = tokio::time::timeout(LIMIT, post(address, "/divvy/bind", body)).await;
    let reply = reply.map_err(|_| format!("the leader at {address} does not answer"))?;
    let reply = reply.map_err(|error| format!("the leader at {address} cannot be asked: {error}"))?;
    let reply: Reply =
        serde_json::from_slice(&reply).map_err(|error| format!("the leader's answer cannot be read: {error}"))?;
    if reply.error.is_empty() { Ok(()) } else { Err(reply.error) }
}

/// One plain request, one answer: the body of it.
async fn post(address: &str, path: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
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
        assert_eq!(bind(None, body).await, Err("nobody leads at the moment; try again".into()));
        assert!(bind(None, b"{").await.unwrap_err().starts_with("not ExtenderBindingArgs"));
    }
}
