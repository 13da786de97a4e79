//! The webhook's own certificates: an authority shared by all replicas through a Secret, and a leaf each replica makes for itself.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use divvy_cluster::{Failure, get, post, put};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use kube::Client;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::Deserialize;
use serde_json::json;

/// How long an authority is trusted. It is replaced when a third of this is left; until it ends, both are in the bundle.
const AUTHORITY_DAYS: i64 = 360;
/// How long a leaf is shown. A replica makes a new one when a third of this is left, and at every start.
const LEAF_DAYS: i64 = 30;
const NAME: &str = "Divvy webhook authority";

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The library could not make one.
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
    /// The Secret could not be read or written.
    #[error("the Secret {name} could not be kept")]
    Secret {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Failure,
    },
}

/// Who signs, and who else is still believed.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    key: String,
    /// Its own certificate first, then those before it that have not ended.
    bundle: Vec<Believed>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("bundle", &self.bundle.len()).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Believed {
    certificate: String,
    ends: Timestamp,
}

/// What a listener shows.
#[derive(Clone)]
pub struct Leaf {
    /// The chain, PEM.
    pub chain: String,
    /// The key, PEM.
    pub key: String,
    /// When it should be replaced.
    pub renew_at: Timestamp,
}

impl Authority {
    /// A new one, that succeeds `before`.
    pub fn make(now: Timestamp, before: Option<&Authority>) -> Result<Authority, rcgen::Error> {
        let key = KeyPair::generate()?;
        let (params, ends) = authority_params(now)?;
        let own = Believed { certificate: params.self_signed(&key)?.pem(), ends };
        let still = before.into_iter().flat_map(|b| b.bundle.clone()).filter(|b| b.ends > now);
        Ok(Authority { key: key.serialize_pem(), bundle: std::iter::once(own).chain(still).collect() })
    }

    /// Is it time for the next one?
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.bundle.first().is_none_or(|own| days_until(own.ends, now) < AUTHORITY_DAYS / 3)
    }

    /// What clients must trust, PEM.
    pub fn bundle(&self) -> String {
        self.bundle.iter().map(|b| b.certificate.as_str()).collect()
    }

    /// A leaf for these names and addresses.
    pub fn leaf(&self, names: &[String], now: Timestamp) -> Result<Leaf, rcgen::Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, "divvy-webhook");
        params.distinguished_name = subject;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let ends = now.saturating_add((LEAF_DAYS * 24).hours()).unwrap_or(now);
        set_validity(&mut params, now, ends);
        let issuer = Issuer::new(authority_params(now)?.0, KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let chain = params.signed_by(&key, &issuer)?.pem();
        let renew_at = now.saturating_add((LEAF_DAYS * 24 * 2 / 3).hours()).unwrap_or(now);
        Ok(Leaf { chain, key: key.serialize_pem(), renew_at })
    }
}

/// The authority's certificate but for its key. Its name is always the same, so that a leaf's issuer is found by it.
fn authority_params(now: Timestamp) -> Result<(CertificateParams, Timestamp), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, NAME);
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ends = now.saturating_add((AUTHORITY_DAYS * 24).hours()).unwrap_or(now);
    set_validity(&mut params, now, ends);
    Ok((params, ends))
}

/// Whole days, and one early at the beginning: clocks differ.
fn set_validity(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC);
        rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(from.saturating_sub(24.hours()).unwrap_or(from));
    params.not_after = day(to);
}

fn days_until(end: Timestamp, now: Timestamp) -> i64 {
    (end.as_second() - now.as_second()) / 86_400
}

#[derive(Deserialize)]
struct Secret {
    metadata: divvy_api::wire::Meta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The authority of this installation: the one in the Secret, else (or when it is due) a new one, written there first. Two replicas
/// that do this at once end with the same one: the second write conflicts, and reads again.
pub async fn shared_authority(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Result<Authority, CertificateError> {
    let failed = |source| CertificateError::Secret { name: format!("{namespace}/{name}"), source };
    let list = format!("/api/v1/namespaces/{namespace}/secrets");
    let path = format!("{list}/{name}");
    loop {
        let found: Option<Secret> = match get(client, &path).await {
            Ok(secret) => Some(secret),
            Err(Failure::Gone) => None,
            Err(failure) => return Err(failed(failure)),
        };
        let known = found.as_ref().and_then(|secret| read(&secret.data));
        if let Some(authority) = known.as_ref().filter(|a| !a.is_due(now)) {
            return Ok(authority.clone());
        }
        let next = Authority::make(now, known.as_ref())?;
        let mut body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": namespace},
            "data": write(&next),
        });
        let written: Result<Secret, Failure> = match &found {
            None => post(client, &list, &body).await,
            Some(secret) => {
                body["metadata"]["resourceVersion"] = json!(secret.metadata.resource_version);
                put(client, &path, &body).await
            }
        };
        match written {
            Ok(_) => return Ok(next),
            Err(Failure::Conflict { .. }) => {}
            Err(failure) => return Err(failed(failure)),
        }
    }
}

fn write(authority: &Authority) -> BTreeMap<String, String> {
    let ends: Vec<String> = authority.bundle.iter().map(|b| b.ends.to_string()).collect();
    let fields = [("ca.key", authority.key.clone()), ("ca.crt", authority.bundle()), ("ca.ends", ends.join(","))];
    fields.into_iter().map(|(name, text)| (name.to_owned(), BASE64_STANDARD.encode(text))).collect()
}

/// What is in the Secret, unless it is not what we wrote.
fn read(data: &BTreeMap<String, String>) -> Option<Authority> {
    let text = |name: &str| String::from_utf8(BASE64_STANDARD.decode(data.get(name)?).ok()?).ok();
    let (key, certificates, ends) = (text("ca.key")?, text("ca.crt")?, text("ca.ends")?);
    const END: &str = "-----END CERTIFICATE-----";
    let certificates = certificates.split_inclusive(END).map(str::trim).filter(|c| c.ends_with(END));
    let bundle: Vec<Believed> = certificates
        .zip(ends.split(','))
        .map(|(certificate, ends)| Some(Believed { certificate: format!("{certificate}\n"), ends: ends.parse().ok()? }))
        .collect::<Option<_>>()?;
    KeyPair::from_pem(&key).ok()?;
    (!bundle.is_empty()).then_some(Authority { key, bundle })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    #[test]
    fn an_authority_survives_the_secret() {
        let authority = Authority::make(at(0), None).unwrap();
        assert!(read(&write(&authority)).unwrap() == authority);
        assert!(read(&BTreeMap::new()).is_none());
        let mut broken = write(&authority);
        broken.insert("ca.key".into(), BASE64_STANDARD.encode("not a key"));
        assert!(read(&broken).is_none());
    }

    #[test]
    fn the_old_authority_is_believed_until_it_ends() {
        let first = Authority::make(at(0), None).unwrap();
        assert!(!first.is_due(at(239)) && first.is_due(at(241)));
        let second = Authority::make(at(241), Some(&first)).unwrap();
        assert_eq!(second.bundle().matches("BEGIN CERTIFICATE").count(), 2);
        assert!(second.bundle().ends_with(&first.bundle()));
        let third = Authority::make(at(482), Some(&second)).unwrap();
        assert_eq!(third.bundle().matches("BEGIN CERTIFICATE").count(), 2, "the first has ended");
    }

    #[test]
    fn a_leaf_is_renewed_well_before_it_ends() {
        let authority = Authority::make(at(0), None).unwrap();
        let leaf = authority.leaf(&["localhost".into(), "127.0.0.1".into()], at(0)).unwrap();
        assert_eq!(leaf.renew_at, at(20));
        divvy_service::tls::Certificate::from_pem(leaf.chain.as_bytes(), leaf.key.as_bytes()).unwrap();
    }
}
