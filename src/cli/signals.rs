//! SIGTERM and SIGINT: the first begins a drain, the second ends the process at once. SIGHUP reloads.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use super::output;

/// The exit code after a second signal.
const INTERRUPTED: i32 = 130;

/// Begins to listen; the first signal cancels `stop`.
///
/// # Errors
/// The process cannot listen to signals.
pub(super) fn listen(stop: CancellationToken) -> Result<(), Exit> {
    let first = "draining: running attempts finish; a second signal ends at once";
    let last = || "ended by a second signal; what was held comes again once its lease has run out".to_owned();
    listen_saying(stop, first, last)
}

/// The same with other words: those of the first signal, and those of the second.
///
/// # Errors
/// The process cannot listen to signals.
pub(super) fn listen_saying(
    stop: CancellationToken,
    first: &'static str,
    last: impl FnOnce() -> String + Send + 'static,
) -> Result<(), Exit> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        let mut next = async move || {
            tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" }
        };
        let name = next().await;
        tracing::info!(signal = name, "{first}");
        stop.cancel();
        next().await;
        output::note(&last());
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

/// SIGHUP, which from now on no longer ends the process.
///
/// # Errors
/// The process cannot listen to signals.
pub(super) fn hangup() -> Result<Signal, Exit> {
    Ok(signal(SignalKind::hangup())?)
}

/// Says of each SIGHUP that it does nothing here.
pub(super) fn ignore(mut hangup: Signal) {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::warn!("SIGHUP: a run that ends when idle does not reload");
        }
    });
}
