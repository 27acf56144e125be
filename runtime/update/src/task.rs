/// Do what may wait for a disk or take a processor's time, on a thread for that. If the caller is
/// dropped it still ends by itself.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only the end of the runtime cancels it, and then nobody is waiting.
        Err(_) => std::future::pending().await,
    }
}
