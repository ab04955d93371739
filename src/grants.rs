//! What the operator lets a plugin do: nothing but what is named. Plain values without I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::event::{Name, NameError};
use crate::state::Bucket;

/// Everything that is granted to a plugin.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Hosts that it may send HTTP requests to.
    pub http: Vec<HttpGrant>,
    /// Variables of its environment, as pairs of name and value.
    pub env: Vec<(String, String)>,
    /// Directories that it sees.
    pub dirs: Vec<DirGrant>,
    /// Buckets that it shares with others: its own name for one → the bucket's name.
    pub buckets: BTreeMap<String, Name>,
    /// Streams that it may append to.
    pub streams: Vec<Name>,
}

/// Values of variables may be secrets, and are not shown.
impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        let http: Vec<String> = self.http.iter().map(ToString::to_string).collect();
        f.debug_struct("Grants")
            .field("http", &http)
            .field("env", &env)
            .field("dirs", &self.dirs)
            .field("buckets", &self.buckets)
            .field("streams", &self.streams)
            .finish()
    }
}

impl Grants {
    /// The bucket that a handler of this pipeline means by `identifier`.
    ///
    /// # Errors
    /// The identifier is no portable name, and no one maps it.
    pub fn bucket(&self, pipeline: &str, identifier: &str) -> Result<Bucket, NameError> {
        match self.buckets.get(identifier) {
            Some(name) => Ok(Bucket::shared(name)),
            None => Bucket::own(pipeline, identifier),
        }
    }
}

/// A directory that a plugin sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirGrant {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where the guest sees it.
    pub guest: String,
    /// Whether the guest may change what is in it.
    pub writable: bool,
}

/// A host that a plugin may send HTTP requests to.
///
/// Named by address, it may be a private one. A name that leads to a private address (of this
/// machine, of a private or link-local network) is refused unless that address is granted as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    host: HostPattern,
    /// Only this port; without it, 443 for HTTPS and 80 for HTTP.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    /// This name, in lower case.
    Name(String),
    /// Names below this one, in lower case.
    Below(String),
    /// This address.
    Address(IpAddr),
}

/// Why a text is no HTTP grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a host is `name`, `name:port`, `*.name`, `address` or `[v6 address]:port`, without scheme and path")]
pub struct HttpGrantError;

impl HttpGrant {
    /// Reads `host[:port]`; the host is a name, `*.name` for all names below it, or an address.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<Self, HttpGrantError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { host: HostPattern::Address(address), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
                let port = port.parse().ok().filter(|&port| port > 0).ok_or(HttpGrantError)?;
                (host, Some(port))
            }
            _ => (text, None),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(host).parse::<IpAddr>() {
            return Ok(Self { host: HostPattern::Address(address), port });
        }
        let below = host.strip_prefix("*.");
        let name = below.unwrap_or(host);
        let label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if bare.is_some() || !name.split('.').all(label) {
            return Err(HttpGrantError);
        }
        let name = name.to_ascii_lowercase();
        let host = if below.is_some() { HostPattern::Below(name) } else { HostPattern::Name(name) };
        Ok(Self { host, port })
    }

    fn port_fits(&self, port: u16, default_port: u16) -> bool {
        self.port.map_or(port == default_port, |granted| granted == port)
    }

    /// Whether requests to this host, by name or address as the guest wrote it, are granted.
    /// `default_port` is the scheme's own.
    #[must_use]
    pub fn covers(&self, host: &str, port: u16, default_port: u16) -> bool {
        let host =
            host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
        let named = match &self.host {
            HostPattern::Name(name) => *name == host,
            HostPattern::Below(name) => {
                host.strip_suffix(name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            HostPattern::Address(address) => host.parse() == Ok(*address),
        };
        named && self.port_fits(port, default_port)
    }

    /// Whether this very address is granted.
    #[must_use]
    pub fn covers_address(&self, address: IpAddr, port: u16, default_port: u16) -> bool {
        self.host == HostPattern::Address(address) && self.port_fits(port, default_port)
    }
}

impl fmt::Display for HttpGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (HostPattern::Address(IpAddr::V6(address)), Some(_)) => write!(f, "[{address}]")?,
            (HostPattern::Address(address), _) => write!(f, "{address}")?,
            (HostPattern::Name(name), _) => f.write_str(name)?,
            (HostPattern::Below(name), _) => write!(f, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Whether an address belongs to this machine, to a private network, or to no single host.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
                || v4.is_documentation()
                || a == 0
                // Carrier-grade NAT (RFC 6598) and benchmarks (RFC 2544).
                || (a == 100 && (64..128).contains(&b))
                || (a == 198 && (18..20).contains(&b))
        }
        IpAddr::V6(v6) => {
            // An IPv4 address in IPv6's clothes is judged as what it is.
            if let Some(v4) = v6.to_ipv4_mapped() {
                return is_private(IpAddr::V4(v4));
            }
            let [first, second, ..] = v6.segments();
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                // NAT64 and 6to4 lead to IPv4 addresses, Teredo too; documentation leads nowhere.
                || (first == 0x64 && second == 0xff9b)
                || first == 0x2002
                || (first == 0x2001 && (second == 0 || second == 0xdb8))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_cover_what_they_name_and_nothing_else() {
        for (grant, host, port, default_port, covered) in [
            ("api.example.com", "api.example.com", 443, 443, true),
            ("api.example.com", "API.example.COM.", 443, 443, true),
            ("api.example.com", "api.example.com", 80, 80, true),
            ("api.example.com", "api.example.com", 8080, 443, false),
            ("api.example.com:8080", "api.example.com", 8080, 443, true),
            ("api.example.com:8080", "api.example.com", 443, 443, false),
            ("api.example.com", "evil-api.example.com", 443, 443, false),
            ("api.example.com", "api.example.com.evil.org", 443, 443, false),
            ("*.example.com", "a.b.example.com", 443, 443, true),
            ("*.example.com", "example.com", 443, 443, false),
            ("*.example.com", "badexample.com", 443, 443, false),
            ("127.0.0.1:9000", "127.0.0.1", 9000, 80, true),
            ("127.0.0.1:9000", "localhost", 9000, 80, false),
            ("::1", "[::1]", 80, 80, true),
            ("[::1]:9000", "[::1]", 9000, 80, true),
        ] {
            let parsed = HttpGrant::parse(grant).unwrap();
            assert_eq!(parsed.covers(host, port, default_port), covered, "{grant} {host}:{port}");
            assert_eq!(parsed.to_string(), grant);
        }
        for wrong in ["", "http://a", "a/b", "a:0", "a:99999", "*", "a..b", "[a]", "a b", "*.*.a", "user@a"] {
            assert_eq!(HttpGrant::parse(wrong), Err(HttpGrantError), "{wrong}");
        }
    }

    #[test]
    fn private_addresses_are_known_in_every_form() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "100.63.0.1", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_bucket_is_the_pipelines_own_unless_it_is_mapped() {
        let grants = Grants {
            buckets: [("rates".to_owned(), Name::new("shared-rates").unwrap())].into(),
            ..Grants::default()
        };
        assert_eq!(grants.bucket("risk", "rates").unwrap().as_str(), "shared-rates");
        assert_eq!(grants.bucket("risk", "default").unwrap().as_str(), "risk/default");
        assert!(grants.bucket("risk", "a/b").is_err());
        assert!(grants.bucket("risk", "").is_err());
    }
}
