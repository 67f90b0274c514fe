//! Termination signals.

/// Completes at Ctrl-C or SIGTERM.
pub async fn interrupted() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                biased;
                _ = interrupt => (),
                _ = terminate.recv() => (),
            }
            return;
        }
    }
    let _ = interrupt.await;
}
