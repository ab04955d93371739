//! TLS to the server: the files that it is set up with, and what its failures mean to an operator.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;

use redis::RedisError;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore};
use tokio_rustls::TlsConnector;

use super::errors::Failure;
use crate::target::{Identity, Tls};

/// What makes TLS of a connection. The files are read each time, so that certificates can be renewed
/// under a running engine.
pub(super) async fn connector(files: &Tls) -> Result<TlsConnector, Failure> {
    let roots = match &files.ca {
        Some(path) => authorities(path).await?,
        None => system(),
    };
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match &files.identity {
        Some(identity) => own(config, identity).await?,
        None => config.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The authorities that the system trusts, or those that `SSL_CERT_FILE` names.
fn system() -> RootCertStore {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the system's certificates cannot be read");
    }
    store.add_parsable_certificates(found.certs);
    store
}

/// The authorities in a file; at least one.
async fn authorities(path: &Path) -> Result<RootCertStore, Failure> {
    let pem = read("tls_ca", path).await?;
    let mut store = RootCertStore::empty();
    for certificate in certificates("tls_ca", path, &pem)? {
        store.add(certificate).map_err(|error| wrong("tls_ca", path, &error.to_string()))?;
    }
    Ok(store)
}

/// With our own certificate and its key, which fit each other.
async fn own(
    config: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: &Identity,
) -> Result<ClientConfig, Failure> {
    let pem = read("tls_cert", &identity.cert).await?;
    let chain = certificates("tls_cert", &identity.cert, &pem)?;
    let pem = read("tls_key", &identity.key).await?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let why = "it holds no private key in PEM, or one that is encrypted";
        wrong("tls_key", &identity.key, why)
    })?;
    config.with_client_auth_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let why = format!("it is not the key of the certificate {}", identity.cert.display());
            wrong("tls_key", &identity.key, &why)
        }
        error => wrong("tls_cert", &identity.cert, &error.to_string()),
    })
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
