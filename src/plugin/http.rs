//! Outgoing HTTP: only to hosts that are granted, and only to the addresses that were looked at.
//!
//! The host resolves names itself and connects to an address that it has judged: a name that leads
//! to another address a moment later changes nothing.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::output::Output;
use crate::grants::{Grants, HttpGrant, is_private};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::instrument::WithSubscriber as _;
use tracing::{Instrument as _, Level};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// Waits of a guest that names none of its own; the call's own timeout is shorter as a rule.
const WAIT_DEFAULT: Duration = Duration::from_secs(600);

type Sent = (http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

/// Sends what is granted.
pub(super) struct Client {
    grants: Arc<Grants>,
    /// The guest's log, where it is said which grant is missing.
    output: Output,
}

impl Client {
    pub(super) fn new(grants: Arc<Grants>, output: Output) -> Self {
        Self { grants, output }
    }
}

impl WasiHttpHooks for Client {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, Error>> + Send> {
        let (grants, output) = (Arc::clone(&self.grants), self.output.clone());
        let sent = async move {
            let sent = send(&grants, request, options).await;
            if let Err(Error::InternalError(Some(denied))) = &sent {
                output.message(Level::WARN, "", denied);
            }
            sent
        };
        // What is said of it belongs to the attempt, on whichever task it is sent.
        Box::new(sent.in_current_span().with_current_subscriber())
    }
}

/// Where a request goes.
struct Target {
    host: String,
    port: u16,
    default_port: u16,
    tls: bool,
}

impl Target {
    fn of(uri: &http::Uri) -> Result<Self, Error> {
        let host = uri.host().ok_or(Error::HttpRequestUriInvalid)?.to_owned();
        let tls = uri.scheme() != Some(&http::uri::Scheme::HTTP);
        let default_port = if tls { 443 } else { 80 };
        Ok(Self { host, port: uri.port_u16().unwrap_or(default_port), default_port, tls })
    }

    /// The addresses that a request may go to.
    async fn addresses(&self, grants: &Grants) -> Result<Vec<SocketAddr>, Error> {
        let Self { host, port, default_port, .. } = self;
        if !grants.http.iter().any(|grant| grant.covers(host, *port, *default_port)) {
            return Err(denied(format!(
                "HTTP to {host}:{port} is not granted to this plugin: add \"{host}:{port}\" to `allow_http`"
            )));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, *port)]);
        }
        let found = tokio::net::lookup_host((bare, *port)).await;
        let found =
            found.map_err(|error| Error::DnsError { rcode: Some(error.to_string()), info_code: None })?;
        let (good, bad): (Vec<_>, Vec<_>) = found.partition(|found| {
            let address = found.ip();
            let granted = |grant: &HttpGrant| grant.covers_address(address, *port, *default_port);
            !is_private(address) || grants.http.iter().any(granted)
        });
        match (good.is_empty(), bad.first()) {
            (false, _) => Ok(good),
            (true, None) => Err(Error::DestinationNotFound),
            (true, Some(bad)) => Err(denied(format!(
                "{host} leads to the private address {address}, which is not granted to this plugin: add \
                 \"{address}:{port}\" to `allow_http`",
                address = bad.ip()
            ))),
        }
    }
}

/// An error that the guest can read: the others have no room for words.
fn denied(text: String) -> Error {
    Error::InternalError(Some(text))
}

async fn send(
    grants: &Grants,
    mut request: http::Request<WasiBody>,
    options: Option<RequestOptions>,
) -> Result<Sent, Error> {
    let target = Target::of(request.uri())?;
    let wait =
        |of: fn(&RequestOptions) -> Option<Duration>| options.as_ref().and_then(of).unwrap_or(WAIT_DEFAULT);
    let (connect_timeout, answer_timeout) = (wait(|o| o.connect_timeout), wait(|o| o.first_byte_timeout));
    let between_bytes = wait(|o| o.between_bytes_timeout);
    let connected = async {
        let addresses = target.addresses(grants).await?;
        let stream = TcpStream::connect(&addresses[..]).await.map_err(Error::Connect)?;
        secured(stream, &target).await
    };
    let stream = timeout(connect_timeout, connected).await.map_err(|_| Error::ConnectionTimeout)??;
    let handshake = hyper::client::conn::http1::Builder::new().handshake(TokioIo::new(stream));
    let (mut sender, connection) =
        timeout(connect_timeout, handshake).await.map_err(|_| Error::ConnectionTimeout)??;
    // On the wire stands the path alone; the `host` header says the rest.
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    // The connection moves only while someone asks it to.
    let mut connection = Box::pin(connection);
    let mut closed = false;
    let response = async {
        let response = sender.send_request(request);
        tokio::pin!(response);
        loop {
            tokio::select! {
                biased;
                response = &mut response => return response,
                ended = &mut connection, if !closed => {
                    ended?;
                    closed = true;
                }
            }
        }
    };
    let response = timeout(answer_timeout, response).await.map_err(|_| Error::ConnectionReadTimeout)??;
    let response = response.map(|body| Patient { body, between_bytes, alarm: None }.boxed_unsync());
    let rest = async move { if closed { Ok(()) } else { connection.await.map_err(Error::from) } };
    Ok((response, Box::new(rest)))
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn secured(stream: TcpStream, target: &Target) -> Result<Box<dyn Stream>, Error> {
    if !target.tls {
        return Ok(Box::new(stream));
    }
    let bare = target.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(bare).map_err(|_| Error::HttpRequestUriInvalid)?;
    let stream = TlsConnector::from(tls()).connect(name, stream).await.map_err(Error::Tls)?;
    Ok(Box::new(stream))
}

/// One configuration for the process: it trusts whom the system trusts (`SSL_CERT_FILE` says
/// otherwise).
fn tls() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "some of the system's certificates cannot be read");
        }
        roots.add_parsable_certificates(found.certs);
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }))
}

/// A body whose parts must not be too long in coming.
struct Patient {
    body: hyper::body::Incoming,
    between_bytes: Duration,
    alarm: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl hyper::body::Body for Patient {
    type Data = bytes::Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Error>>> {
        use std::task::Poll;
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.alarm = None;
                Poll::Ready(frame.map(|frame| frame.map_err(Error::from)))
            }
            Poll::Pending => {
                let wait = self.between_bytes;
                let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
                alarm.as_mut().poll(cx).map(|()| Some(Err(Error::ConnectionReadTimeout)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
