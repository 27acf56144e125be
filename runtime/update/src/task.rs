//! Blocking work of updates on threads of its own. Used by `part`, `path` and `updater`.

/// Runs work that may wait for a disk or use much CPU on a blocking thread. It completes even if
/// the caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only the end of the runtime cancels it, and then nobody waits.
        Err(_) => std::future::pending().await,
    }
}
