//! Where a log lives, as a user writes it: a URL that is read here and opened elsewhere.

use std::fmt;
use std::path::{Path, PathBuf};

/// The store that is meant when no one names one, relative to the working directory.
pub const DEFAULT_FILE: &str = "wasmill.db";

/// A store, named but not opened.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// An embedded database in a file.
    Sqlite(PathBuf),
    /// An embedded database that ends with the process.
    Memory,
    /// A Redis server; the URL may hold a password.
    Redis(RedisUrl),
}

/// The URL of a Redis server: `redis://[user:password@]host[:port][/database]`, `rediss://…` for
/// TLS, `redis+unix:///path/to/socket[?db=N&user=…&pass=…]` (also `unix:`) for a Unix socket.
/// Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    url: String,
    tls: Tls,
}

impl RedisUrl {
    fn new(url: &str) -> Self {
        Self { url: url.to_owned(), tls: Tls::default() }
    }

    /// The URL with its password, for the one place that connects.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.url
    }

    /// Whether the server is reached by TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.url.starts_with("rediss:")
    }

    /// What TLS is set up with; nothing but defaults where the server is reached without it.
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }
}

/// The files that a connection by TLS is set up with, all of them PEM. The server's certificate is
/// verified with and without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that may have signed the server's certificate; the system's by default.
    pub ca: Option<PathBuf>,
    /// What the server knows us by, where it asks.
    pub identity: Option<Identity>,
}

/// A certificate of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those between it and its authority.
    pub cert: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

/// Why a text names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// An unknown scheme, or none.
    #[error(
        "a backend is `sqlite:FILE`, `memory:`, `redis://HOST[:PORT][/DATABASE]`, `rediss://…` (TLS) or `redis+unix:///SOCKET`"
    )]
    Scheme,
    /// `sqlite:` with nothing behind it.
    #[error("`sqlite:` needs the path of a file, as in `sqlite:{DEFAULT_FILE}`")]
    NoFile,
    /// A Redis URL that cannot be read.
    #[error("not a Redis URL: {0}")]
    Redis(String),
    /// Files for TLS, and a store that is reached without.
    #[error("`tls_ca`, `tls_cert` and `tls_key` need a server that is reached by TLS: `rediss://HOST`")]
    WithoutTls,
}

impl Target {
    /// Reads a URL. A relative file is relative to `base`.
    ///
    /// # Errors
    /// The text names no store; the message never repeats it, since it may hold a password.
    pub fn parse(text: &str, base: &Path) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once(':').ok_or(TargetError::Scheme)?;
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.is_empty() { Err(TargetError::NoFile) } else { Ok(Self::Sqlite(base.join(path))) }
            }
            "redis" | "rediss" => {
                check_host(rest).map_err(|why| TargetError::Redis(why.to_owned()))?;
                Ok(Self::Redis(RedisUrl::new(text)))
            }
            "redis+unix" | "unix" => {
                if rest.trim_start_matches('/').is_empty() || !rest.starts_with('/') {
                    return Err(TargetError::Redis("a Unix socket needs an absolute path".to_owned()));
                }
                Ok(Self::Redis(RedisUrl::new(text)))
            }
            _ => Err(TargetError::Scheme),
        }
    }

    /// Whether it is a server that is reached by TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Redis(url) if url.is_tls())
    }

    /// The same store, reached with these files.
    ///
    /// # Errors
    /// [`TargetError::WithoutTls`] where there are files, and no TLS to use them: what was meant to be
    /// encrypted is not sent in the clear.
    pub fn with_tls(self, tls: Tls) -> Result<Self, TargetError> {
        match self {
            Self::Redis(url) if url.is_tls() => Ok(Self::Redis(RedisUrl { tls, ..url })),
            other if tls == Tls::default() => Ok(other),
            _ => Err(TargetError::WithoutTls),
        }
    }
}

/// Checks what stands behind `redis:`.
fn check_host(rest: &str) -> Result<(), &'static str> {
    let rest = rest.strip_prefix("//").ok_or("`//` is missing behind the scheme")?;
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[') {
        Some(v6) => {
            let (name, port) = v6.split_once(']').ok_or("`]` is missing behind the address")?;
            (name, port.strip_prefix(':'))
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Err("the host is missing");
    }
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err("the port must be a number from 0 to 65535");
    }
    let database = path.split_once('?').map_or(path, |(database, _)| database);
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err("the database behind `/` must be a number");
    }
    Ok(())
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.url.split_once(':').unwrap_or(("redis", ""));
        // A query can hold a password too (`pass=` of a Unix socket).
        let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
        match rest.strip_prefix("//").and_then(|rest| rest.rsplit_once('@')) {
            Some((credentials, host)) => {
                let user = credentials.split_once(':').map_or(credentials, |(user, _)| user);
                write!(f, "{scheme}://{user}:***@{host}")
            }
            None => write!(f, "{scheme}:{rest}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Memory => f.write_str("memory:"),
            Self::Redis(url) => url.fmt(f),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, TargetError> {
        Target::parse(text, Path::new("/base"))
    }

    #[test]
    fn reads_every_form() {
        assert_eq!(parse("memory:"), Ok(Target::Memory));
        assert_eq!(parse("sqlite:a.db"), Ok(Target::Sqlite("/base/a.db".into())));
        assert_eq!(parse("sqlite:///abs/a.db"), Ok(Target::Sqlite("/abs/a.db".into())));
        for url in [
            "redis://localhost",
            "redis://127.0.0.1:6379/3",
            "rediss://user:p%40ss@example.com:6380/0",
            "redis://[::1]:6379",
            "redis+unix:///run/redis.sock?db=2",
            "unix:///run/redis.sock",
        ] {
            assert!(matches!(parse(url), Ok(Target::Redis(_))), "{url}");
        }
    }

    #[test]
    fn refuses_with_the_way_out() {
        for (text, expected) in [
            ("wasmill.db", "a backend is"),
            ("postgres://x", "a backend is"),
            ("memory:x", "a backend is"),
            ("sqlite:", "needs the path"),
            ("redis:host", "`//` is missing"),
            ("redis://", "host is missing"),
            ("redis://h:99999", "port must be"),
            ("redis://h/zero", "database behind"),
            ("unix:", "absolute path"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn files_for_tls_need_tls() {
        let tls = Tls { ca: Some("ca.pem".into()), identity: None };
        let Ok(Target::Redis(url)) = parse("rediss://h").unwrap().with_tls(tls.clone()) else { panic!() };
        assert_eq!(url.tls(), &tls);
        for text in ["redis://h", "redis+unix:///s", "sqlite:a.db", "memory:"] {
            let target = parse(text).unwrap();
            assert_eq!(target.clone().with_tls(Tls::default()).as_ref(), Ok(&target), "{text}");
            assert_eq!(target.with_tls(tls.clone()), Err(TargetError::WithoutTls), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "redis://user:hunter2@h:1/0",
            "rediss://:hunter2@h",
            "redis://u:a@hunter2@h",
            "redis+unix:///s?pass=hunter2",
            "redis://h/0?password=hunter2",
        ] {
            let target = parse(url).unwrap();
            assert!(!format!("{target} {target:?}").contains("hunter2"), "{url}: {target}");
        }
    }
}
