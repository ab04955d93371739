//! Handlers for benchmarks, made without any toolchain: a small core module ([`module`]), around which
//! a component is put.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, SourceMap};

use super::{Error, Result};
use crate::event::{Name, random_id};
use crate::plugin::{Host, HostSettings, Plugin, PluginSpec};

mod module;

/// From this time on a handler waits; a shorter one computes.
const WAITS_FROM: Duration = Duration::from_millis(1);

/// The world that the guests are in.
const WORLD: &str = "guest";

/// The texts of that world and of what it uses, one package after the other.
const WIT: [&[(&str, &str)]; 3] = [
    &[
        ("types.wit", include_str!("../../../wit/types.wit")),
        ("outbox.wit", include_str!("../../../wit/outbox.wit")),
    ],
    &[("wasi-keyvalue.wit", include_str!("../../../wit/deps/wasi-keyvalue.wit"))],
    &[("world.wit", include_str!("world.wit"))],
];

/// What a handler does before it answers that all is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// It looks at the clock until this time is over, and holds a processor meanwhile.
    Compute(Duration),
    /// It sleeps for this time, and holds nothing but its instance.
    Wait(Duration),
    /// It appends an event to this stream, and writes a key of this bucket: one of 64 keys, the character
    /// that stands so far behind `0` as the last six bits of the event's sequence say, which is the
    /// key of the appended event too.
    Effects {
        /// The stream; it is granted.
        stream: Name,
        /// The bucket's name as the guest knows it.
        bucket: String,
        /// The appended event's payload.
        payload: String,
    },
}

impl Work {
    /// Work of this time: below a millisecond the handler computes, from there on it waits, as one does
    /// that asks another service.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        if time.is_zero() {
            Self::Nothing
        } else if time < WAITS_FROM {
            Self::Compute(time)
        } else {
            Self::Wait(time)
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("noop"),
            Self::Compute(time) => write!(f, "computes {time:?}"),
            Self::Wait(time) => write!(f, "waits {time:?}"),
            Self::Effects { .. } => f.write_str("effects"),
        }
    }
}

/// A guest that is loaded. Its file and its compiled form are gone again.
pub struct Guest {
    pub(super) plugin: Arc<Plugin>,
}

impl Guest {
    /// Makes and loads a guest that does this work.
    ///
    /// # Errors
    /// The host does not start, or a temporary file cannot be written.
    pub async fn load(work: &Work) -> Result<Self> {
        let module = module::working(work);
        let component =
            component(&module).map_err(|why| Error::Wrong(format!("its guest cannot be made: {why}")))?;
        let folder = Folder::new()?;
        let path = folder.0.join("guest.wasm");
        std::fs::write(&path, component).map_err(|error| Error::File { path: path.clone(), error })?;
        let host = Host::new(HostSettings { cache_dir: Some(folder.0.join("compiled")) })?;
        let mut spec = PluginSpec::new("bench", &path);
        if let Work::Effects { stream, .. } = work {
            spec.grants.streams.push(stream.clone());
        }
        Ok(Self { plugin: host.load(&spec).await? })
    }
}

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("wasmill-bench-{}", random_id()));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) => Err(Error::File { path, error }),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "a temporary folder stays behind");
        }
    }
}

/// The component around a core module.
fn component(module: &[u8]) -> Result<Vec<u8>, String> {
    let encode = || {
        let mut resolve = Resolve::default();
        let mut last = None;
        for files in WIT {
            let mut sources = SourceMap::new();
            for (name, text) in files {
                sources.push_str(name, *text);
            }
            let group = sources.parse().map_err(|(_, error)| anyhow::anyhow!("{error}"))?;
            last = Some(resolve.push_group(group)?);
        }
        let world = resolve.select_world(&Vec::from_iter(last), Some(WORLD))?;
        let mut module = module.to_vec();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
        ComponentEncoder::default().validate(true).module(&module)?.encode()
    };
    encode().map_err(|error: anyhow::Error| format!("{error:#}"))
}
