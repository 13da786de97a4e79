//! A server certificate that can change while connections come in.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme};

use crate::run::Stop;

/// How often files are looked at that somebody else renews. The kubelet brings a changed Secret within about a minute; certificates are
/// renewed days before they end.
pub(crate) const LOOK: Duration = Duration::from_secs(60);

/// The certificate a listener shows. Clones share it; replacing it needs no new listener and breaks no connection.
#[derive(Clone, Debug)]
pub struct Certificate(Arc<Shown>);

#[derive(Debug)]
pub(crate) struct Shown(RwLock<Arc<CertifiedKey>>);

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

    /// Shows what the two files hold, until `stop`: somebody else renews them. What cannot be used leaves the certificate as it was.
    pub async fn follow(self, chain: PathBuf, key: PathBuf, stop: Stop) -> anyhow::Result<()> {
        self.look_every(LOOK, chain, key, stop).await
    }

    async fn look_every(self, every: Duration, chain: PathBuf, key: PathBuf, stop: Stop) -> anyhow::Result<()> {
        follow(every, [chain, key], stop, |[chain, key]| self.replace(chain, key)).await
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

    /// What shows it to the other side, as a server and as a client.
    pub(crate) fn shown(&self) -> Arc<Shown> {
        self.0.clone()
    }
}

/// Hands the contents of these files to `take` whenever they change, until `stop`. What cannot be used is handed over again at the next look.
pub(crate) async fn follow<const N: usize>(
    every: Duration,
    files: [PathBuf; N],
    stop: Stop,
    take: impl Fn([&[u8]; N]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let read = || files.each_ref().map(|file| std::fs::read(file).unwrap_or_default());
    let mut taken = read();
    loop {
        tokio::select! {
            () = stop.requested() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let found = read();
        if found == taken {
            continue;
        }
        let file = files.first().map(|file| file.display().to_string()).unwrap_or_default();
        match take(found.each_ref().map(Vec::as_slice)) {
            Ok(()) => {
                tracing::info!(file, "a new certificate is in use");
                taken = found;
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(file, error, "the new certificate cannot be used yet");
            }
        }
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn has_certs(&self) -> bool {
        true
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

    #[tokio::test]
    async fn what_somebody_else_renews_is_shown_once_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let lay_down = |(made, of): &(String, String)| {
            std::fs::write(&chain, made).unwrap();
            std::fs::write(&key, of).unwrap();
        };
        let (first, second) = (pair(), pair());
        lay_down(&first);
        let shown = Certificate::from_files(&chain, &key).unwrap();
        let leaf = || shown.0.0.read().unwrap().cert[0].clone();
        let before = leaf();
        let mut tasks = crate::Tasks::new();
        let often = Duration::from_millis(1);
        tasks.add("certificate", shown.clone().look_every(often, chain.clone(), key.clone(), tasks.stop()));
        let renewed = async {
            // The chain first, as a slow hand does it.
            std::fs::write(&chain, &second.0).unwrap();
            tokio::time::sleep(5 * often).await;
            lay_down(&second);
            while leaf() == before {
                tokio::time::sleep(often).await;
            }
            "it was renewed"
        };
        tasks.run_until(renewed).await.unwrap();
    }

    #[test]
    fn garbage_is_named() {
        assert_eq!(Certificate::from_pem(b"hello", b"x").unwrap_err().to_string(), "the certificate chain is empty");
    }
}
