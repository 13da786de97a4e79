//! A registry that answers for every registry's name with the images a test has given it.
//!
//! containerd asks it for `docker.io/library/ubuntu:18.04` or `example.com/a/b:1` alike (the `ns` parameter says which), so manifests
//! with foreign image names and `imagePullPolicy: Always` run as they are. It can only be read: tests put images in by a call.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use crate::image::{Image, MANIFEST_TYPE, digest};

/// The registry of one cluster. It serves until the process ends.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    address: SocketAddr,
    content: Arc<Mutex<Content>>,
}

#[derive(Debug, Default)]
struct Content {
    /// Full name with tag -> digest of the manifest.
    names: HashMap<String, String>,
    blobs: HashMap<String, Arc<Vec<u8>>>,
}

impl Registry {
    /// Starts to serve on this address.
    pub(crate) fn serve(on: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(on).with_context(|| format!("the registry cannot listen on {on}"))?;
        let registry = Self { address: listener.local_addr()?, content: Arc::default() };
        let content = registry.content.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let content = content.clone();
                // A client that goes away in the middle is its own affair.
                thread::spawn(move || answer(&stream, &content));
            }
        });
        Ok(registry)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Offers `image` under `name`, in any of the forms a pod may use.
    pub(crate) fn offer(&self, name: &str, image: &Image) -> anyhow::Result<()> {
        let packed = image.pack().with_context(|| format!("image {name}"))?;
        let manifest = digest(&packed.manifest);
        let mut content = lock(&self.content);
        for blob in [packed.manifest, packed.config, packed.layer] {
            content.blobs.insert(digest(&blob), Arc::new(blob));
        }
        content.names.insert(full_name(name), manifest);
        Ok(())
    }
}

fn lock(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name with registry, `library/` and tag spelled out, as container runtimes complete it.
fn full_name(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let host = if first.contains(['.', ':']) || first == "localhost" { first } else { "" };
    let path = match (host, first) {
        ("", "") => format!("docker.io/library/{rest}"),
        ("", _) => format!("docker.io/{name}"),
        _ => name.to_owned(),
    };
    let last = path.rsplit('/').next().unwrap_or_default();
    if last.contains(':') { path } else { format!("{path}:latest") }
}

fn answer(stream: &TcpStream, content: &Mutex<Content>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let found = find(target, &lock(content));
    let (status, kind, body) = match &found {
        Some((kind, body)) => ("200 OK", *kind, body.as_slice()),
        None if target.starts_with("/v2/") && target.len() == 4 => ("200 OK", "application/json", b"{}".as_slice()),
        None => ("404 Not Found", "application/json", br#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#.as_slice()),
    };
    let mut out = stream;
    write!(
        out,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\nConnection: close\r\n\r\n",
        body.len(),
        digest(body),
    )?;
    if method != "HEAD" {
        out.write_all(body)?;
    }
    out.flush()
}

/// `/v2/NAME/manifests/TAG-OR-DIGEST?ns=HOST` and `/v2/NAME/blobs/DIGEST`.
fn find(target: &str, content: &Content) -> Option<(&'static str, Arc<Vec<u8>>)> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path.strip_prefix("/v2/")?;
    if let Some((_, wanted)) = path.split_once("/blobs/") {
        return Some(("application/octet-stream", content.blobs.get(wanted)?.clone()));
    }
    let (name, reference) = path.split_once("/manifests/")?;
    let wanted = if reference.starts_with("sha256:") {
        reference.to_owned()
    } else {
        let host = query.split('&').find_map(|pair| pair.strip_prefix("ns="))?.replace("%3A", ":");
        content.names.get(&format!("{host}/{name}:{reference}"))?.clone()
    };
    Some((MANIFEST_TYPE, content.blobs.get(&wanted)?.clone()))
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn short_names_are_completed_as_runtimes_do() {
        assert_eq!(full_name("ubuntu:18.04"), "docker.io/library/ubuntu:18.04");
        assert_eq!(full_name("riyazhu/mnist:test"), "docker.io/riyazhu/mnist:test");
        assert_eq!(full_name("divvy.test/pause:1"), "divvy.test/pause:1");
        assert_eq!(full_name("localhost/a"), "localhost/a:latest");
        assert_eq!(full_name("example.com:5000/a/b"), "example.com:5000/a/b:latest");
    }
}
