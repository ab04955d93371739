//! TLS to the server: the files that it is set up with, and what its failures mean to an operator.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;

use redis::{Client, ClientTlsConfig, RedisError, TlsCertificates};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, RootCertStore};

use super::errors::Failure;
use crate::target::{Identity, RedisUrl};

/// What connects to the server. The files are read each time, so that certificates can be renewed
/// under a running engine.
pub(super) async fn client(url: &RedisUrl) -> Result<Client, Failure> {
    let tls = url.tls();
    if tls.ca.is_none() && tls.identity.is_none() {
        return Client::open(url.secret()).map_err(|error| Failure::of(&error));
    }
    let root_cert = match &tls.ca {
        Some(path) => Some(authorities(path).await?),
        None => None,
    };
    let client_tls = match &tls.identity {
        Some(identity) => Some(own(identity).await?),
        None => None,
    };
    let certificates = TlsCertificates { client_tls, root_cert };
    Client::build_with_tls(url.secret(), certificates).map_err(|error| Failure::of(&error))
}

/// The authorities in a file; at least one.
async fn authorities(path: &Path) -> Result<Vec<u8>, Failure> {
    let pem = read("tls_ca", path).await?;
    let mut store = RootCertStore::empty();
    for certificate in certificates("tls_ca", path, &pem)? {
        store.add(certificate).map_err(|error| wrong("tls_ca", path, &error.to_string()))?;
    }
    Ok(pem)
}

/// Our own certificate with its key, which fit each other.
async fn own(identity: &Identity) -> Result<ClientTlsConfig, Failure> {
    let client_cert = read("tls_cert", &identity.cert).await?;
    let chain = certificates("tls_cert", &identity.cert, &client_cert)?;
    let client_key = read("tls_key", &identity.key).await?;
    let key = PrivateKeyDer::from_pem_slice(&client_key).map_err(|_| {
        let why = "it holds no private key in PEM, or one that is encrypted";
        wrong("tls_key", &identity.key, why)
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    match rustls::sign::CertifiedKey::from_der(chain, key, &provider) {
        Ok(_) => Ok(ClientTlsConfig { client_cert, client_key }),
        Err(rustls::Error::InconsistentKeys(_)) => {
            let why = format!("it is not the key of the certificate {}", identity.cert.display());
            Err(wrong("tls_key", &identity.key, &why))
        }
        Err(error) => Err(wrong("tls_cert", &identity.cert, &error.to_string())),
    }
}

async fn read(key: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    tokio::fs::read(path).await.map_err(|error| wrong(key, path, &error.to_string()))
}

fn certificates(key: &str, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(wrong(key, path, "it holds no certificate in PEM")),
    }
}

/// A file that cannot be used. What is in it is never repeated.
fn wrong(key: &str, path: &Path, why: &str) -> Failure {
    Failure::Tls(format!("`{key}`, the file {}: {why}", path.display()))
}

/// What a failure of TLS itself means, in an operator's words; `None` for any other.
pub(super) fn explain(error: &RedisError) -> Option<String> {
    let inner = error.source()?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    let inner = inner.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match inner {
        rustls::Error::InvalidCertificate(why) => format!("the server's certificate: {}", distrust(why)),
        rustls::Error::AlertReceived(alert) => {
            format!("the server ended the TLS handshake: {}", refusal(*alert))
        }
        rustls::Error::InvalidMessage(_) => {
            "no TLS is spoken there: a port without TLS is reached by `redis://`".to_owned()
        }
        other => format!("TLS failed: {other}"),
    })
}

/// Why we do not trust the server.
fn distrust(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "it is signed by none of the authorities that are trusted here; `tls_ca` names others".to_owned()
        }
        // The library's words name the host, and the names that the certificate is for.
        other => format!("it is not valid: {other}"),
    }
}

/// Why the server does not go on with us.
fn refusal(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "it asks for a certificate of ours (`tls_cert` and `tls_key`)".to_owned()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            format!("it does not accept our certificate, `tls_cert` ({alert:?})")
        }
        other => format!("{other:?}"),
    }
}
