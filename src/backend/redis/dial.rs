//! Reaches the server: by TCP, TLS or a Unix socket.

use std::io;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Bytes to and from the server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Connects, without a word to the server yet.
///
/// # Errors
/// The system's, TLS's, or that the address is of no kind that is served here.
pub(super) async fn dial(server: &ConnectionInfo) -> Result<Box<dyn Stream>, RedisError> {
    Ok(match server.addr() {
        ConnectionAddr::Tcp(host, port) => Box::new(tcp(host, *port).await?),
        ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
            Box::new(tls(host, tcp(host, *port).await?).await?)
        }
        ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
        _ => return Err((ErrorKind::InvalidClientConfig, "certificates are always verified").into()),
    })
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Requests overlap: none of them may wait until the one before is answered.
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn tls(host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, RedisError> {
    let name = ServerName::try_from(host)?.to_owned();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}
