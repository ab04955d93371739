//! `wasmill check`: everything that can be known before running. Creates nothing.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::context::{Access, Context, Store, plugin_host};
use super::exit::Exit;
use super::output;
use crate::backend::redis::{Persistence, Redis, ServerReport};
use crate::backend::{Backend, Error};
use crate::config::Config;
use crate::engine::{
    Output, Wanted, fit_attempts, fit_output, fit_partitions, outputs, retention, spec, wanted,
};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The pipeline file
    file: PathBuf,
    /// Do not complain that Redis may evict streams when its memory is full
    #[arg(long)]
    allow_eviction: bool,
}

pub(super) async fn run(context: &Context, args: CheckArgs) -> Result<(), Exit> {
    let config = context.load_argument(&args.file)?;
    let mut findings = Findings { json: context.json(), refused: 0 };
    let host = plugin_host()?;
    for plugin in &config.plugins {
        match host.load(&spec(&config.engine, plugin)).await {
            Ok(loaded) => {
                let digest = crate::telemetry::short_digest(loaded.digest());
                findings.ok(
                    "plugin",
                    &plugin.name,
                    &format!("{} (sha256 {digest})", plugin.path.display()),
                )?;
                for need in loaded.missing_grants() {
                    let detail = format!("{need} to [plugins.{}]", plugin.name);
                    findings.warn("plugin", &plugin.name, &detail)?;
                }
            }
            Err(error) => {
                let detail = format!("{}: {}", plugin.path.display(), error.refusal);
                findings.refuse("plugin", &plugin.name, &detail)?;
            }
        }
    }
    let mut unreachable = None;
    let store = match context.missing_file(&config.backend)? {
        Some(file) => {
            findings.ok("backend", &format!("sqlite:{}", file.display()), "`run` will create the file")?;
            None
        }
        None => match open(context, &config, &args, &mut findings).await {
            Ok(store) => Some(store),
            // The rest can be looked at all the same.
            Err(Exit::Failed(error)) => {
                findings.refuse("backend", "store", &format!("{error:#}"))?;
                unreachable = Some(error);
                None
            }
            Err(exit) => return Err(exit),
        },
    };
    for pipeline in &config.pipelines {
        let wanted = wanted(&config, pipeline);
        let backend = store.as_ref().map(|store| store.backend.as_ref());
        check_pipeline(backend, pipeline.name.as_str(), &wanted, &mut findings).await?;
    }
    if let Some(address) = config.http.listen {
        match exposed(address) {
            Some(detail) => findings.warn("http", "listen", &detail)?,
            None => findings.ok("http", "listen", &format!("{address}, for this machine alone"))?,
        }
    }
    if store.as_ref().is_some_and(|store| store.redis.is_some()) {
        for detail in unbounded(&config) {
            findings.warn("stream", "retention", &detail)?;
        }
    }
    for plugin in &config.plugins {
        let backend = store.as_ref().map(|store| store.backend.as_ref());
        for output in outputs(&config, plugin) {
            check_output(backend, &plugin.name, &output, &mut findings).await?;
        }
    }
    match (findings.refused, unreachable) {
        (0, _) => Ok(()),
        // The file is right: what failed is the store.
        (1, Some(error)) => Err(Exit::Failed(error)),
        (refused, _) => Err(Exit::usage(format!("it cannot run so: {}", output::count(refused, "refusal")))),
    }
}

/// What was found, said as it is found.
struct Findings {
    json: bool,
    refused: u64,
}

impl Findings {
    fn ok(&self, what: &str, name: &str, detail: &str) -> Result<(), Exit> {
        self.say("ok", what, name, detail)
    }

    fn warn(&self, what: &str, name: &str, detail: &str) -> Result<(), Exit> {
        self.say("warning", what, name, detail)
    }

    fn refuse(&mut self, what: &str, name: &str, detail: &str) -> Result<(), Exit> {
        self.refused += 1;
        self.say("refused", what, name, detail)
    }

    fn say(&self, verdict: &str, what: &str, name: &str, detail: &str) -> Result<(), Exit> {
        if self.json {
            return output::json_line(&serde_json::json!({
                "verdict": verdict, "what": what, "name": name, "detail": detail
            }));
        }
        output::line(&format!("{verdict:<8} {what:<9} {name}: {}", output::printable(detail)))
    }
}

async fn open(
    context: &Context,
    config: &Config,
    args: &CheckArgs,
    findings: &mut Findings,
) -> Result<Store, Exit> {
    let store = context.open(&config.backend, &config.engine, Access::Existing).await?;
    check_store(&store, args, findings).await?;
    Ok(store)
}

async fn check_store(store: &Store, args: &CheckArgs, findings: &mut Findings) -> Result<(), Exit> {
    let name = store.target.to_string();
    store.backend.ping().await?;
    let Some(redis) = &store.redis else { return findings.ok("backend", &name, "can be opened") };
    let report = redis.server_report().await?;
    let version = report.version.as_deref().unwrap_or("of an unknown version");
    findings.ok("backend", &name, &format!("answers, Redis {version}"))?;
    for problem in problems(&report, args.allow_eviction) {
        match problem {
            Problem::Refuse(detail) => findings.refuse("backend", &name, &detail)?,
            Problem::Warn(detail) => findings.warn("backend", &name, &detail)?,
        }
    }
    Ok(())
}

/// What there is to say of an address that not only this machine can reach.
pub(super) fn exposed(address: SocketAddr) -> Option<String> {
    let is_exposed = !address.ip().to_canonical().is_loopback();
    is_exposed.then(|| {
        format!(
            "{address} can be reached from other machines, and the endpoint has no authentication: whoever \
             reaches it reads the names of streams, groups and plugins, and how much they do"
        )
    })
}

/// The streams of a file that grow without a bound, which a server's memory has: one text for each.
pub(super) fn unbounded(config: &Config) -> impl Iterator<Item = String> {
    let streams: BTreeSet<_> = config.pipelines.iter().map(|pipeline| &pipeline.stream).collect();
    let unbounded = streams.into_iter().filter(|stream| !retention(config, stream).is_bounded());
    unbounded.map(|stream| match stream.is_portable() {
        true => format!(
            "the stream `{stream}` is never trimmed: give `[streams.{stream}]` a `max_age` or `max_length`"
        ),
        false => format!("the stream `{stream}` is never trimmed, unless by `wasmill stream trim`"),
    })
}

/// Something about a server that endangers a log.
enum Problem {
    Refuse(String),
    Warn(String),
}

fn problems(report: &ServerReport, allow_eviction: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    if report.is_supported() == Some(false) {
        let version = report.version.as_deref().unwrap_or("unknown");
        problems.push(Problem::Refuse(format!("the server is Redis {version}: 6.2 or later is needed")));
    }
    if let Some(policy) = report.eviction_policy.as_deref().filter(|policy| policy.starts_with("allkeys-")) {
        let detail = format!(
            "maxmemory-policy is {policy}: Redis deletes streams when its memory is full; set `noeviction`"
        );
        problems.push(match allow_eviction {
            true => Problem::Warn(detail),
            false => Problem::Refuse(format!("{detail}, or say --allow-eviction")),
        });
    }
    if report.persistence == Some(Persistence::None) {
        problems
            .push(Problem::Warn("neither appendonly nor save is set: a restart loses the log".to_owned()));
    }
    if report.is_replica == Some(true) {
        problems.push(Problem::Warn("the server is a replica: it takes no writes".to_owned()));
    }
    problems
}

/// Refuses a server that would lose the log, and warns of what endangers it: for `run`.
pub(super) async fn server_fit(redis: &Redis, allow_eviction: bool) -> Result<(), Exit> {
    for problem in problems(&redis.server_report().await?, allow_eviction) {
        match problem {
            Problem::Refuse(detail) => return Err(Exit::usage(detail)),
            Problem::Warn(detail) => tracing::warn!("{detail}"),
        }
    }
    Ok(())
}

/// Compares a stream that a plugin may append to with the store; without one, with what will be created.
async fn check_output(
    backend: Option<&dyn Backend>,
    plugin: &str,
    output: &Output,
    findings: &mut Findings,
) -> Result<(), Exit> {
    let stream = &output.stream;
    let info = match backend {
        Some(backend) => backend.stream_info(stream).await,
        None => Err(Error::StreamNotFound(stream.clone())),
    };
    match info {
        Ok(info) => {
            let found = u32::try_from(info.partitions.len()).unwrap_or(u32::MAX);
            match fit_output(output, found) {
                Ok(()) => findings.ok("plugin", plugin, &format!("may append to the stream `{stream}`")),
                Err(error) => findings.refuse("plugin", plugin, &error.to_string()),
            }
        }
        Err(Error::StreamNotFound(_)) if !stream.is_portable() => {
            let detail =
                format!("the stream `{stream}` does not exist, and has a name that we would not create");
            findings.refuse("plugin", plugin, &detail)
        }
        Err(Error::StreamNotFound(_)) => {
            let partitions = output::count(output.partitions.unwrap_or(1).into(), "partition");
            let detail =
                format!("may append to the stream `{stream}`; `run` will create it with {partitions}");
            findings.ok("plugin", plugin, &detail)
        }
        Err(error) => Err(error.into()),
    }
}

/// Compares a pipeline with the store; without one, with what will be created.
async fn check_pipeline(
    backend: Option<&dyn Backend>,
    name: &str,
    wanted: &Wanted,
    findings: &mut Findings,
) -> Result<(), Exit> {
    let (stream, group) = (&wanted.group.stream, &wanted.group.group);
    for existing in [stream, group] {
        if !existing.is_portable() {
            let detail =
                format!("the name `{existing}` is one that we would not create: it can only be read");
            findings.warn("pipeline", name, &detail)?;
        }
    }
    let found = match backend {
        Some(backend) => match backend.stream_info(stream).await {
            Ok(info) => Some((backend, info)),
            Err(Error::StreamNotFound(_)) => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    let Some((backend, info)) = found else {
        let partitions = wanted.stream_partitions.unwrap_or(1);
        if let Err(error) = fit_partitions(wanted, partitions) {
            return findings.refuse("pipeline", name, &error.to_string());
        }
        let partitions = output::count(partitions.into(), "partition");
        let detail =
            format!("`run` will create the stream `{stream}` with {partitions}, and the group `{group}`");
        return findings.ok("pipeline", name, &detail);
    };
    let found = u32::try_from(info.partitions.len()).unwrap_or(u32::MAX);
    let partitions = match fit_partitions(wanted, found) {
        Ok(partitions) => partitions,
        Err(error) => return findings.refuse("pipeline", name, &error.to_string()),
    };
    let partitions = output::count(partitions.len() as u64, "partition");
    let detail = match fit_attempts(backend, wanted).await {
        Ok(_) => format!("stream `{stream}`, group `{group}`, {partitions}"),
        Err(crate::engine::PrepareError::Store(Error::GroupNotFound(_))) => {
            format!("stream `{stream}`, {partitions}; `run` will create the group `{group}`")
        }
        Err(crate::engine::PrepareError::Store(error)) => return Err(error.into()),
        Err(error) => return findings.refuse("pipeline", name, &error.to_string()),
    };
    findings.ok("pipeline", name, &detail)
}
