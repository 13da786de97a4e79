//! TLS in which both sides show a certificate: of one authority, and with one name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::run::Stop;
use crate::tls::{self, Certificate};

/// What one side shows, and what it believes of the other.
#[derive(Clone, Debug)]
pub struct Mutual {
    own: Certificate,
    believed: Arc<Believed>,
}

/// The certificates that are believed: those of an authority with a name. The name is asked for because one authority may serve many: its
/// other certificates open nothing here.
#[derive(Debug)]
struct Believed {
    name: ServerName<'static>,
    authority: RwLock<Authority>,
}

#[derive(Clone, Debug)]
struct Authority {
    roots: Arc<RootCertStore>,
    callers: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    fn from_pem(pem: &[u8]) -> anyhow::Result<Authority> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.context("the authority's certificate is not PEM")?;
            roots.add(certificate).context("the authority's certificate cannot be read")?;
        }
        anyhow::ensure!(!roots.is_empty(), "the authority has no certificate");
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider).build()?;
        Ok(Authority { roots, callers })
    }
}

impl Mutual {
    /// With our own certificate, for servers and clients, and the authority's certificates (PEM). The other side's have this name.
    pub fn new(own: Certificate, authority: &[u8], name: &str) -> anyhow::Result<Mutual> {
        let authority = RwLock::new(Authority::from_pem(authority)?);
        let name = ServerName::try_from(name.to_owned()).with_context(|| format!("{name:?} is no name of a server"))?;
        Ok(Mutual { own, believed: Arc::new(Believed { name, authority }) })
    }

    /// The same, the authority's certificates in a file.
    pub fn from_files(own: Certificate, authority: &Path, name: &str) -> anyhow::Result<Mutual> {
        let pem = std::fs::read(authority).with_context(|| format!("could not read {}", authority.display()))?;
        Mutual::new(own, &pem, name).with_context(|| authority.display().to_string())
    }

    /// Believes what the authority's file holds, until `stop`: somebody else renews it. What cannot be used changes nothing.
    pub async fn follow(self, authority: PathBuf, stop: Stop) -> anyhow::Result<()> {
        self.look_every(tls::LOOK, authority, stop).await
    }

    async fn look_every(self, every: Duration, authority: PathBuf, stop: Stop) -> anyhow::Result<()> {
        let believe = |[pem]: [&[u8]; 1]| {
            let fresh = Authority::from_pem(pem)?;
            *self.believed.authority.write().unwrap_or_else(PoisonError::into_inner) = fresh;
            Ok(())
        };
        tls::follow(every, [authority], stop, believe).await
    }

    /// A listener's configuration: the handshake fails for callers without such a certificate, before they say anything.
    pub(crate) fn server_config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("no TLS version is available")?
            .with_client_cert_verifier(self.believed.clone())
            .with_cert_resolver(self.own.shown());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Each connection shows its certificate: one that is resumed is not asked for it again, though its authority may have gone.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Calls a server that has such a certificate.
    pub async fn connect(&self, address: &str) -> io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(self.believed.authority().roots)
            .with_client_cert_resolver(self.own.shown());
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(self.believed.name.clone(), stream).await
    }
}

impl Believed {
    fn authority(&self) -> Authority {
        self.authority.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientCertVerifier for Believed {
    /// Nothing: what is believed may change while the process runs, and callers have one certificate.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.authority().callers.verify_client_cert(own, chain, now)?;
        verify_server_name(&ParsedCertificate::try_from(own)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority().callers.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority().callers.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority().callers.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::routing::get;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

    use super::*;
    use crate::Tasks;
    use crate::http::{Port, bind};

    /// An authority in the making: its certificate, and what it signs.
    struct Signer {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Signer {
        fn new() -> Signer {
            let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Signer { pem, issuer: Issuer::new(params, key) }
        }

        fn certificate(&self, name: &str) -> Certificate {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
            Certificate::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
        }

        /// Shows a certificate of ours, and believes `other`'s.
        fn facing(&self, name: &str, other: &Signer) -> Mutual {
            Mutual::new(self.certificate(name), other.pem.as_bytes(), "extender").unwrap()
        }
    }

    async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Ok(reply)
    }

    /// Is a caller answered? One whose certificate is refused learns of it after its own handshake: so TLS 1.3 has it.
    async fn is_answered(caller: &Mutual, address: &str) -> bool {
        match caller.connect(address).await {
            Ok(stream) => ask(stream).await.is_ok_and(|reply| reply.ends_with("come in")),
            Err(_) => false,
        }
    }

    fn listens(mutual: Mutual, tasks: &mut Tasks) -> String {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let routes = Router::new().route("/", get(|| async { "come in" }));
        tasks.add("port", Port { mutual: Some(mutual), ..Port::new(listener, routes) }.serve(tasks.stop()));
        address
    }

    #[tokio::test]
    async fn a_caller_is_answered_with_a_certificate_of_the_authority_and_the_name_and_not_otherwise() {
        let (ours, theirs) = (Signer::new(), Signer::new());
        let mut tasks = Tasks::new();
        let address = listens(ours.facing("extender", &ours), &mut tasks);
        let callers = async {
            assert!(is_answered(&ours.facing("extender", &ours), &address).await);
            let refused = [
                ("another authority's certificate", theirs.facing("extender", &ours)),
                ("a certificate for something else", ours.facing("dashboard", &ours)),
                ("a caller that believes another authority", ours.facing("extender", &theirs)),
            ];
            for (what, caller) in refused {
                assert!(!is_answered(&caller, &address).await, "{what}");
            }
            let plain = ask(TcpStream::connect(&address).await.unwrap()).await.unwrap_or_default();
            assert!(!plain.contains("come in"), "{plain}");
            "all callers had their answers"
        };
        tasks.run_until(callers).await.unwrap();
    }

    #[tokio::test]
    async fn an_authority_that_somebody_replaces_is_believed_from_then_on_and_the_old_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (file, often) = (folder.path().join("ca.crt"), Duration::from_millis(1));
        let (old, new) = (Signer::new(), Signer::new());
        std::fs::write(&file, &old.pem).unwrap();
        let server = Mutual::from_files(old.certificate("extender"), &file, "extender").unwrap();
        let mut tasks = Tasks::new();
        let address = listens(server.clone(), &mut tasks);
        tasks.add("authority", server.look_every(often, file.clone(), tasks.stop()));
        let (before, after) = (old.facing("extender", &old), new.facing("extender", &old));
        let callers = async {
            assert!(is_answered(&before, &address).await && !is_answered(&after, &address).await);
            // Cut off as a slow hand leaves it: what was believed is believed.
            std::fs::write(&file, &new.pem[..new.pem.len() / 2]).unwrap();
            assert!(is_answered(&before, &address).await);
            std::fs::write(&file, &new.pem).unwrap();
            while !is_answered(&after, &address).await {
                tokio::time::sleep(often).await;
            }
            assert!(!is_answered(&before, &address).await);
            "the authority was replaced"
        };
        tasks.run_until(callers).await.unwrap();
    }

    #[test]
    fn an_authority_without_a_certificate_and_a_name_that_is_none_are_named() {
        let (signer, problem) = (Signer::new(), |made: anyhow::Result<Mutual>| made.unwrap_err().to_string());
        let own = signer.certificate("extender");
        assert_eq!(problem(Mutual::new(own.clone(), b"", "x")), "the authority has no certificate");
        let named = problem(Mutual::new(own, signer.pem.as_bytes(), "not a name"));
        assert_eq!(named, "\"not a name\" is no name of a server");
    }
}
