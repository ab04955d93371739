//! Answers who asks a running engine how it is: `/livez`, `/readyz` and `/metrics`. It reads what the
//! engine keeps in memory, changes nothing, and asks nothing of the store.
//!
//! Nobody has to be trusted here: one request a connection, each connection is cut after a few seconds,
//! and there are never more than a few of them.

mod routes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::engine::Conditions;

/// Connections at once; others wait until one of them ends.
pub const CONNECTIONS_MAX: usize = 32;

/// How long a connection lasts at most, from its first byte to the last one of the answer.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Before the next try, after the system had no socket to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address that is listened to.
#[derive(Debug)]
pub struct Server(TcpListener);

impl Server {
    /// Takes an address. Its port may be 0: the system then chooses one.
    ///
    /// # Errors
    /// The system does not give it.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self)
    }

    /// The address, with the port that it has.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers until dropped.
    pub async fn serve(self, conditions: Arc<Conditions>) {
        let service = TowerToHyperService::new(routes::router(conditions));
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // It is never closed.
        while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
            let stream = match self.0.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let service = service.clone();
            tokio::spawn(async move {
                let _permit = permit;
                // Who is cut off, or goes away, hears nothing more.
                let _ = tokio::time::timeout(CONNECTION_TIME_MAX, answer(stream, service)).await;
            });
        }
    }
}

async fn answer(stream: TcpStream, service: TowerToHyperService<axum::Router>) -> hyper::Result<()> {
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).max_buf_size(HEAD_BYTES_MAX);
    connection.serve_connection(TokioIo::new(stream), service).await
}
