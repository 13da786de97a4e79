//! A server certificate that can change while connections come in.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate a listener shows. Clones share it; replacing it needs no new listener and breaks no connection.
#[derive(Clone, Debug)]
pub struct Certificate(Arc<Shown>);

#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Certificate {
    /// From a chain (leaf first) and its key, both PEM.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> anyhow::Result<Certificate> {
        Ok(Certificate(Arc::new(Shown(RwLock::new(Arc::new(certified(chain, key)?))))))
    }

    /// From two files, as cert-manager or kubelet lay them down (`tls.crt`, `tls.key`).
    pub fn from_files(chain: &Path, key: &Path) -> anyhow::Result<Certificate> {
        let read = |path: &Path| std::fs::read(path).with_context(|| format!("could not read {}", path.display()));
        Certificate::from_pem(&read(chain)?, &read(key)?)
    }

    /// Shows this one from now on.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> anyhow::Result<()> {
        let fresh = Arc::new(certified(chain, key)?);
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// A listener's configuration that always shows the current one.
    pub fn server_config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("no TLS version is available")?
            .with_no_client_auth()
            .with_cert_resolver(self.0.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn certified(chain: &[u8], key: &[u8]) -> anyhow::Result<CertifiedKey> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().context("the certificate chain is not PEM")?;
    anyhow::ensure!(!chain.is_empty(), "the certificate chain is empty");
    let key = PrivateKeyDer::from_pem_slice(key).context("the private key is not PEM")?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
        .context("the private key does not belong to the certificate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_key_of_another_certificate_is_refused_and_the_old_one_stays() {
        let (chain, key) = pair();
        let shown = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let before = shown.0.0.read().unwrap().cert.clone();
        let (other, _) = pair();
        let error = shown.replace(other.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "the private key does not belong to the certificate");
        assert_eq!(shown.0.0.read().unwrap().cert, before);
    }

    #[test]
    fn garbage_is_named() {
        assert_eq!(Certificate::from_pem(b"hello", b"x").unwrap_err().to_string(), "the certificate chain is empty");
    }
}
