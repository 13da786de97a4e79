//! A caller of the extender that shows what it likes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::ground::SOON;

/// What a caller shows.
#[derive(Debug)]
pub(crate) enum Shows<'a> {
    /// It does not speak TLS.
    Plain,
    /// TLS without a certificate.
    Nothing,
    /// The certificate in a folder: `tls.crt` and `tls.key`.
    Certificate(&'a Path),
}

/// A caller, and whom it calls.
pub(crate) struct Caller<'a> {
    pub(crate) port: u16,
    /// The authority that it believes.
    pub(crate) authority: &'a Path,
    pub(crate) shows: &'a Shows<'a>,
}

impl Caller<'_> {
    /// The answer to a question. An error where there is none.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(SOON))?;
        match self.shows {
            Shows::Plain => post(stream, path, body),
            _ => {
                let name = "divvy-extender.divvy-system.svc".try_into()?;
                post(StreamOwned::new(ClientConnection::new(self.config()?, name)?, stream), path, body)
            }
        }
    }

    fn config(&self) -> anyhow::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.authority)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        Ok(Arc::new(match self.shows {
            Shows::Certificate(folder) => {
                let chain = vec![CertificateDer::from_pem_file(folder.join("tls.crt"))?];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(folder.join("tls.key"))?)?
            }
            Shows::Plain | Shows::Nothing => config.with_no_client_auth(),
        }))
    }
}

fn post(mut stream: impl Read + Write, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nHost: extender\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let reply = String::from_utf8(reply)?;
    let (_, body) = reply.split_once("\r\n\r\n").with_context(|| format!("no answer: {reply}"))?;
    Ok(serde_json::from_str(body)?)
}
