//! `wasmill run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use super::context::{Access, Context, Store, plugin_host};
use super::exit::Exit;
use super::{output, signals};
use crate::backend::{Error, ErrorClass};
use crate::config::{self, Config};
use crate::engine::{
    self, AssembleError, Conditions, Ended, Mark, Phase, Pipeline, Plugins, PrepareError, Reloader, Summary,
    UntilIdle, Watch, assemble,
};
use crate::http::Server;

/// Between two tries to reach a store that does not answer at the start.
const START_BACKOFF: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The pipeline file
    file: PathBuf,
    /// End once none of the groups has anything ready, parked or leased
    #[arg(long)]
    until_idle: bool,
    /// With --until-idle: how long to wait for retries and for leases of others [default: the
    /// longer of the pipeline's lease and its longest backoff]
    #[arg(long, value_name = "DURATION", requires = "until_idle", value_parser = config::duration)]
    idle_wait: Option<Duration>,
    /// Carry over changes of the file and of its plugins while running, as SIGHUP does
    #[arg(long, conflicts_with = "until_idle")]
    watch: bool,
    /// Answer on /livez, /readyz and /metrics at this address, such as 127.0.0.1:9464 [default: the
    /// file's, else nowhere]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Run although Redis may evict streams when its memory is full
    #[arg(long)]
    allow_eviction: bool,
}

pub(super) async fn run(context: &Context, args: RunArgs) -> Result<(), Exit> {
    // Before it is read: what changes afterwards is seen as a change.
    let mark = Mark::of(&args.file);
    let config = context.load_argument(&args.file)?;
    let conditions = answer(args.http.or(config.http.listen)).await?;
    let plugins = load_plugins(&config).await?;
    conditions.enter(Phase::OpeningStore);
    let stop = CancellationToken::new();
    signals::listen(stop.clone())?;
    let hangup = signals::hangup()?;

    let Some((store, pipelines)) = start(context, &config, &args, &plugins, &stop).await? else {
        return Ok(());
    };
    let settings = engine::Settings {
        drain_timeout: config.engine.drain_timeout,
        until_idle: args.until_idle.then_some(UntilIdle { wait: args.idle_wait }),
        consumer: consumer_name(),
        hops_max: config.engine.max_hops,
    };
    tracing::info!(backend = %store.target, consumer = settings.consumer, pipelines = pipelines.len(), "running");
    let (remote, changes) = engine::remote();
    let changes = if args.until_idle {
        signals::ignore(hangup);
        None
    } else {
        let read = context.reader(&args.file);
        let backend = Arc::clone(&store.backend);
        let (file, metrics) = (args.file.clone(), Arc::clone(conditions.metrics()));
        let reloader = Reloader::new(backend, remote, (file, mark, read), config, plugins, metrics);
        tokio::spawn(keep_up(reloader, hangup, args.watch));
        Some(changes)
    };
    let ended = engine::run(store.backend, pipelines, settings, conditions, changes, stop).await;
    report(context, &ended)
}

/// Reloads, and resumes what paused, when the process is told to; reloads with `watch` when a file has
/// changed.
async fn keep_up(mut reloader: Reloader, mut hangup: Signal, watch: bool) {
    let mut files = watch.then(Watch::new);
    loop {
        if let Some(files) = &mut files {
            files.set_files(reloader.files());
        }
        tokio::select! {
            told = hangup.recv() => match told {
                Some(()) => {
                    tracing::info!("SIGHUP: looking for changes of the file and its plugins");
                    reloader.reload().await;
                    // Last, so that those go on with the newest build.
                    reloader.resume().await;
                }
                None => return,
            },
            () = changed(&mut files) => {
                reloader.reload().await;
            }
        }
    }
}

/// Returns once a watched file has changed; never, where none is watched.
async fn changed(files: &mut Option<Watch>) {
    match files {
        Some(files) => files.changed().await,
        None => std::future::pending().await,
    }
}

/// What the engine is to be seen by: over HTTP, where it has an address, from now until the process ends.
async fn answer(address: Option<SocketAddr>) -> Result<Arc<Conditions>, Exit> {
    let Some(address) = address else { return Ok(Arc::default()) };
    let conditions = Arc::new(Conditions::scraped(Arc::default()));
    let bound = async {
        let server = Server::bind(address).await?;
        Ok::<_, std::io::Error>((server.address()?, server))
    };
    let failed =
        |error| Exit::Failed(anyhow::Error::new(error).context(format!("cannot listen on {address}")));
    let (address, server) = bound.await.map_err(failed)?;
    tracing::info!(%address, "answering on /livez, /readyz and /metrics");
    if let Some(detail) = super::check::exposed(address) {
        tracing::warn!("{detail}");
    }
    tokio::spawn(server.serve(Arc::clone(&conditions)));
    Ok(conditions)
}

async fn load_plugins(config: &Config) -> Result<Plugins, Exit> {
    Plugins::load(plugin_host()?, config).await.map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Exit::usage(problems.join("\n"))
    })
}

/// Opens the store and makes everything ready; `None` where a signal came first. A service waits
/// for its store; a run that is to end when idle says at once that there is none.
async fn start(
    context: &Context,
    config: &Config,
    args: &RunArgs,
    plugins: &Plugins,
    stop: &CancellationToken,
) -> Result<Option<(Store, Vec<Pipeline>)>, Exit> {
    let mut said = false;
    loop {
        let error = match try_start(context, config, args, plugins).await {
            Ok(started) => return Ok(Some(started)),
            Err(error) => error,
        };
        if args.until_idle || !may_pass(&error) {
            return Err(error);
        }
        if let Exit::Failed(error) = &error
            && !std::mem::replace(&mut said, true)
        {
            tracing::warn!(
                error = format!("{error:#}"),
                "the store does not answer; trying again until it does"
            );
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(START_BACKOFF) => {}
        }
    }
}

fn may_pass(exit: &Exit) -> bool {
    let Exit::Failed(error) = exit else { return false };
    let class = error.downcast_ref::<Error>().map(Error::class);
    matches!(class, Some(ErrorClass::Retry | ErrorClass::Ambiguous))
}

async fn try_start(
    context: &Context,
    config: &Config,
    args: &RunArgs,
    plugins: &Plugins,
) -> Result<(Store, Vec<Pipeline>), Exit> {
    let store = context.open(&config.backend, &config.engine, Access::Create).await?;
    if let Some(redis) = &store.redis {
        super::check::server_fit(redis, args.allow_eviction).await?;
        super::check::unbounded(config).for_each(|detail| tracing::warn!("{detail}"));
    }
    let mut ready = Vec::with_capacity(config.pipelines.len());
    for pipeline in &config.pipelines {
        // The file was validated: each pipeline's plugin is in it, and all of them were loaded.
        let slot = plugins.slot(&pipeline.plugin);
        let slot = slot.ok_or_else(|| Exit::usage(format!("there is no plugin `{}`", pipeline.plugin)))?;
        let assembled = assemble(store.backend.as_ref(), config, pipeline, slot).await;
        ready.push(assembled.map_err(prepare_failed)?);
    }
    Ok((store, ready))
}

/// A mismatch between file and store is the file's to mend.
fn prepare_failed(AssembleError { pipeline, error }: AssembleError) -> Exit {
    let exit = match error {
        PrepareError::Store(error) => Exit::from(error),
        error => Exit::Usage(error.into()),
    };
    exit.context(format!("pipeline `{pipeline}`"))
}

/// Unique per start, so that a dead process is never taken for a living one.
fn consumer_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String =
        host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).collect();
    let host = if host.is_empty() { "wasmill".to_owned() } else { host };
    let start = crate::event::random_id();
    format!("{host}-{}-{}", std::process::id(), &start[..8])
}

fn report(context: &Context, ended: &[Ended]) -> Result<(), Exit> {
    for end in ended {
        let name = &end.summary.pipeline;
        if let Some(left) = end.summary.left {
            let first =
                left.first_in_ms.map_or_else(String::new, |ms| format!(", the first {}", output::in_ms(ms)));
            let pending = output::count(left.pending as u64, "event");
            output::note(&format!(
                "pipeline `{name}` is not done: lag {}, {pending} leased by others or parked{first}",
                left.lag
            ));
        }
    }
    if context.json() {
        ended.iter().try_for_each(|end| output::json_line(&end.summary))?;
    } else {
        let rows: Vec<_> = ended.iter().map(|end| row(&end.summary)).collect();
        let headings = [
            "pipeline",
            ">claimed",
            ">acked",
            ">retried",
            ">dead-lettered",
            ">stale",
            ">unknown",
            "faults",
            ">events/s",
        ];
        output::table(headings, &rows)?;
    }
    let failed: Vec<_> =
        ended.iter().filter_map(|end| Some((&end.summary.pipeline, end.error.as_ref()?))).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let failed: Vec<_> =
        failed.iter().map(|(name, error)| format!("pipeline `{name}` stopped: {error}")).collect();
    Err(Exit::Failed(anyhow::anyhow!("{}", failed.join("\n"))))
}

fn row(summary: &Summary) -> [String; 9] {
    let faults = &summary.faults;
    let kinds = [("trap", faults.trap), ("timeout", faults.timeout), ("memory", faults.memory)];
    let kinds: Vec<_> = kinds.iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{kind} {n}")).collect();
    [
        summary.pipeline.clone(),
        summary.claimed.to_string(),
        summary.acked.to_string(),
        summary.retried.to_string(),
        summary.dead_lettered.to_string(),
        summary.stale.to_string(),
        summary.unknown.to_string(),
        if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") },
        format!("{:.1}", summary.events_per_second),
    ]
}
