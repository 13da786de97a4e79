//! A certificate authority for one cluster, and what it signs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// The authority of a cluster and the folder its certificates are kept in.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl Authority {
    /// A fresh authority, its certificate in `folder/ca.crt`.
    pub fn create(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "test cluster authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(folder.join("ca.crt"), issuer.pem())?;
        Ok(Self { issuer, folder: folder.into() })
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The authority's certificate in the form a webhook's `caBundle` wants.
    pub fn bundle(&self) -> String {
        STANDARD.encode(self.issuer.pem())
    }

    /// A certificate for `user` in `group`, good for clients and, under `names`, for servers.
    pub fn sign(&self, file: &str, user: &str, group: Option<&str>, names: &[String]) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let pair =
            Pair { certificate: self.folder.join(format!("{file}.crt")), key: self.folder.join(format!("{file}.key")) };
        fs::write(&pair.certificate, params.signed_by(&key, &self.issuer)?.pem())?;
        fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }

    /// The key pair that signs service-account tokens: (public, private).
    pub fn token_key(&self) -> anyhow::Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate()?;
        let (public, private) = (self.folder.join("tokens.pub"), self.folder.join("tokens.key"));
        fs::write(&public, key.public_key_pem())?;
        fs::write(&private, key.serialize_pem())?;
        Ok((public, private))
    }

    /// A kubeconfig that carries everything in itself, so that it can be copied anywhere.
    pub fn kubeconfig(&self, server: &str, pair: &Pair) -> anyhow::Result<String> {
        let file = |path: &Path| -> anyhow::Result<String> {
            Ok(STANDARD.encode(fs::read(path).with_context(|| path.display().to_string())?))
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": self.bundle()}}],
            "users": [{"name": "test", "user": {
                "client-certificate-data": file(&pair.certificate)?,
                "client-key-data": file(&pair.key)?,
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        Ok(serde_json::to_string_pretty(&config)?)
    }
}
