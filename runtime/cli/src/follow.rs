//! Following an origin of newer modules: a running program swaps its module when the file changes, or
//! when a source has a newer release. The commands that accept connections call it.

use std::future::Future;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use watm_runtime::{Error, Module};

use crate::failure::Failure;
use crate::logging::PROGRAM;
use crate::options::Loaded;
use crate::watch::{Following, Mark};

/// The interval of checks. A file is loaded when two checks in a row saw the same, so that one that
/// is still being written is left alone.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);

/// Passes each new module to `swap`, and logs the results. After an error the previous module
/// continues. Never returns.
pub(crate) async fn follow<Swapping>(loaded: &Loaded, swap: impl Fn(Module) -> Swapping)
where
    Swapping: Future<Output = Result<(), Error>>,
{
    match &loaded.following {
        Following::Nothing => {}
        Following::File(mark) => follow_file(loaded, *mark, &swap).await,
        Following::Source(updates) => {
            let updates = updates
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(updates) = updates {
                let swap = async |module: Module| {
                    swap(module.clone()).await?;
                    log_swapped(&module);
                    Ok(())
                };
                updates.follow(&loaded.module, swap).await;
            }
        }
    }
    std::future::pending().await
}

/// Logs that another module serves: by the name and the release of its seal, if it has one.
pub(crate) fn log_swapped(module: &Module) {
    let module = named(module);
    tracing::info!(target: PROGRAM, %module, "swapped in {module}");
}

fn named(module: &Module) -> String {
    match module.seal() {
        Some(proof) => format!("{} {}", proof.manifest.name, proof.manifest.release),
        None => module.name().to_owned(),
    }
}

/// Logs that another module could not be put in place.
pub(crate) fn log_refused(failure: &Failure) {
    tracing::error!(target: PROGRAM, "{failure}; keeping the previous module");
}

/// Waits until a file has changed since it was `known`, and is complete: two checks in a row saw the
/// same. Notes the new state.
pub(crate) async fn changed(path: &Path, known: &mut Option<Mark>) {
    let mut seen = *known;
    loop {
        sleep(INTERVAL).await;
        let now = Mark::of(path);
        if now.is_some() && now == seen && now != *known {
            *known = now;
            return;
        }
        seen = now;
    }
}

async fn follow_file<Swapping>(
    loaded: &Loaded,
    mut known: Option<Mark>,
    swap: &impl Fn(Module) -> Swapping,
) where
    Swapping: Future<Output = Result<(), Error>>,
{
    loop {
        changed(&loaded.file, &mut known).await;
        match replace(loaded, swap).await {
            Ok(module) => log_swapped(&module),
            Err(failure) => log_refused(&failure),
        }
    }
}

async fn replace<Swapping>(
    loaded: &Loaded,
    swap: &impl Fn(Module) -> Swapping,
) -> Result<Module, Failure>
where
    Swapping: Future<Output = Result<(), Error>>,
{
    let (loading, file) = (loaded.loading.bound_to(&loaded.module), loaded.file.clone());
    let module = spawn_blocking(move || loading.load(&file, false))
        .await
        .map_err(Failure::failed)??;
    swap(module.clone()).await?;
    Ok(module)
}
