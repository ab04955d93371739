//! `[http]`: where the engine can be asked how it is.

use std::net::SocketAddr;

use super::Http;
use super::problem::Problem;
use super::raw::RawHttp;
use super::resolve::Resolver;
use super::table::At;

/// What `listen` looks like.
pub(super) const LISTEN_FORM: &str = "`listen` is an address and a port: `127.0.0.1:9464`, or `[::1]:9464`, or `0.0.0.0:9464` for all of the machine's";

impl Resolver<'_> {
    pub(super) fn http(&mut self, raw: &RawHttp) -> Option<Http> {
        let listen = self.optional(raw.listen.as_ref(), Self::listen);
        Some(Http { listen: listen? })
    }

    fn listen(&mut self, raw: &At<String>) -> Option<SocketAddr> {
        let text = self.text(raw)?;
        if let Ok(address) = text.value.parse() {
            return Some(address);
        }
        let title = format!("{} is no address to listen on", text.shown());
        self.report(Problem::at(&text.span, title).help(LISTEN_FORM));
        None
    }
}
