//! What the keys for TLS of `[backend]` mean.

use std::path::PathBuf;

use crate::target::{Identity, Target, TargetError, Tls};

use super::problem::{Problem, quoted};
use super::raw::RawBackend;
use super::resolve::Resolver;
use super::table::At;

impl Resolver<'_> {
    /// The files for TLS. What is in them is looked at by who connects: they may be replaced while an
    /// engine runs. Without a `target`, the command line may name one.
    pub(super) fn tls(&mut self, raw: &RawBackend, target: Option<&Target>) -> Option<Tls> {
        let pair = self.tls_pair(raw);
        let unused = target.is_some_and(|target| !target.is_tls());
        let first = [&raw.tls_ca, &raw.tls_cert, &raw.tls_key].into_iter().flatten().next();
        if let (true, Some(key)) = (unused, first) {
            let problem = Problem::at(&key.span, "there is no TLS that this file would be for");
            self.report(problem.help(TargetError::WithoutTls.to_string()));
            return None;
        }
        let ca = self.optional(raw.tls_ca.as_ref(), |this, raw| this.tls_file("tls_ca", raw));
        let cert = self.optional(raw.tls_cert.as_ref(), |this, raw| this.tls_file("tls_cert", raw));
        let key = self.optional(raw.tls_key.as_ref(), |this, raw| this.tls_file("tls_key", raw));
        pair?;
        let identity = cert?.zip(key?).map(|(cert, key)| Identity { cert, key });
        Some(Tls { ca: ca?, identity })
    }

    /// A certificate and its key come together.
    fn tls_pair(&mut self, raw: &RawBackend) -> Option<()> {
        let (lone, key, other) = match (&raw.tls_cert, &raw.tls_key) {
            (Some(cert), None) => (cert, "tls_cert", "tls_key"),
            (None, Some(key)) => (key, "tls_key", "tls_cert"),
            (Some(_), Some(_)) | (None, None) => return Some(()),
        };
        let problem = Problem::at(&lone.span, format!("`{key}` needs `{other}` beside it"));
        self.report(problem.help("`tls_cert` is a certificate, `tls_key` its private key: give both"));
        None
    }

    fn tls_file(&mut self, key: &str, raw: &At<String>) -> Option<PathBuf> {
        let text = self.text(raw)?;
        let help = format!("{} names a PEM file, relative to the folder of this file", quoted(key));
        self.file(&text, "a PEM file", &help)
    }
}
