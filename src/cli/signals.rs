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
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        let mut next = async move || {
            tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" }
        };
        let name = next().await;
        tracing::info!(signal = name, "draining: running attempts finish; a second signal ends at once");
        stop.cancel();
        next().await;
        output::note("ended by a second signal; what was held comes again once its lease has run out");
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
