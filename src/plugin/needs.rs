//! What a component imports that does nothing without a grant.

use std::fmt;

use serde::Serialize;

use crate::grants::Grants;

/// A kind of import, and the grant that makes it work. Files and sockets are not among them: many
/// libraries import them and never use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// `wasi:http/outgoing-handler`.
    Http,
    /// `wasmill:handler/outbox`.
    Outbox,
    /// `wasi:keyvalue`: a pipeline's own buckets need no grant, those that are shared do.
    State,
}

impl Need {
    const ALL: [Self; 3] = [Self::Http, Self::Outbox, Self::State];

    /// What these imports need.
    pub(super) fn of(imports: &[String]) -> Vec<Self> {
        let imported = |need: &Self| imports.iter().any(|name| name.starts_with(need.import()));
        Self::ALL.into_iter().filter(imported).collect()
    }

    fn import(self) -> &'static str {
        match self {
            Self::Http => "wasi:http/outgoing-handler",
            Self::Outbox => "wasmill:handler/outbox",
            Self::State => "wasi:keyvalue/",
        }
    }

    /// Whether it works, at least in part, with these grants.
    pub(super) fn is_granted(self, grants: &Grants) -> bool {
        match self {
            Self::Http => !grants.http.is_empty(),
            Self::Outbox => !grants.streams.is_empty(),
            Self::State => true,
        }
    }

    fn grant(self) -> &'static str {
        match self {
            Self::Http => "`allow_http = [\"host:port\"]`",
            Self::Outbox => "`allow_streams = [\"stream\"]`",
            Self::State => "`buckets = { name = \"shared-name\" }`",
        }
    }
}

/// What an import may do here, and the key that grants it where it needs one. `None` where it always
/// works.
#[must_use]
pub fn grant_of(import: &str) -> Option<&'static str> {
    const GRANTS: &[(&str, &str)] = &[
        ("wasi:http/outgoing-handler@", "needs allow_http"),
        ("wasmill:handler/outbox@", "needs allow_streams"),
        ("wasi:keyvalue/", "own buckets need nothing, shared ones need buckets"),
        ("wasi:config/store@", "reads config"),
        ("wasi:cli/environment@", "sees what allow_env names"),
        ("wasi:filesystem/", "sees what allow_dirs names"),
        ("wasi:sockets/", "is always refused"),
    ];
    GRANTS.iter().find(|(prefix, _)| import.starts_with(prefix)).map(|(_, grant)| *grant)
}

/// The import, and the line to write below `[plugins.NAME]`.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (import, grant) = (self.import().trim_end_matches('/'), self.grant());
        match self {
            Self::State => write!(f, "imports {import}: its own buckets need no grant, shared ones {grant}"),
            Self::Http | Self::Outbox => write!(f, "imports {import}: add {grant}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_imported_is_needed() {
        let imports = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all = imports(&[
            "wasi:keyvalue/batch@0.2.0-draft",
            "wasi:http/outgoing-handler@0.2.3",
            "wasmill:handler/outbox@0.1.0",
        ]);
        assert_eq!(Need::of(&all), Need::ALL);
        let others =
            imports(&["wasi:http/types@0.2.0", "wasi:sockets/tcp@0.2.0", "wasmill:handler/types@0.1.0"]);
        assert_eq!(Need::of(&others), []);
    }

    #[test]
    fn state_needs_no_grant() {
        let granted = |need: Need| need.is_granted(&Grants::default());
        assert_eq!(Need::ALL.map(granted), [false, false, true]);
    }
}
