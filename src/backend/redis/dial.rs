//! Reaches the server: by TCP, TLS or a Unix socket.

use std::io;

use redis::{ConnectionAddr, RedisError};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::errors::Failure;
use super::tls;
use crate::target::Tls;

/// Bytes to and from the server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Connects, without a word to the server yet.
///
/// # Errors
/// The system's, TLS's, or that the address is of no kind that is served here.
pub(super) async fn dial(address: &ConnectionAddr, files: &Tls) -> Result<Box<dyn Stream>, Failure> {
    let failed = |error: io::Error| Failure::of(&RedisError::from(error));
    Ok(match address {
        ConnectionAddr::Tcp(host, port) => Box::new(tcp(host, *port).await.map_err(failed)?),
        ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
            let connector = tls::connector(files).await?;
            let name = ServerName::try_from(host.as_str());
            let name = name.map_err(|_| Failure::Client(format!("`{host}` is no name of a host")))?.to_owned();
            let stream = tcp(host, *port).await.map_err(failed)?;
            Box::new(connector.connect(name, stream).await.map_err(failed)?)
        }
        ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(failed)?),
        _ => return Err(Failure::Client("the certificate of a server is always verified".to_owned())),
    })
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // Requests overlap: none of them may wait until the one before is answered.
    stream.set_nodelay(true)?;
    Ok(stream)
}
