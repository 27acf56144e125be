//! The module of a running program follows its file.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use watm_runtime::{Error, Module};

use crate::failure::Failure;
use crate::options::Loaded;

/// Between two looks. A file is taken when two in a row saw the same, so that one that is still
/// being written is left alone.
const INTERVAL: Duration = Duration::from_millis(500);

/// By what a file is told from another, or itself when it was written again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    len: u64,
    modified: Option<SystemTime>,
}

/// Load the module again whenever there is another file, and hand it to `swap`. Never ready. What
/// comes of it is said; on an error the module before goes on.
pub(crate) async fn follow<Swapping>(loaded: &Loaded, swap: impl Fn(Module) -> Swapping)
where
    Swapping: Future<Output = Result<(), Error>>,
{
    if !loaded.watch {
        return std::future::pending().await;
    }
    let mut known = loaded.mark;
    let mut seen = known;
    loop {
        sleep(INTERVAL).await;
        let now = Mark::of(&loaded.file);
        if now.is_some() && now == seen && now != known {
            known = now;
            match replace(loaded, &swap).await {
                Ok(()) => eprintln!("swapped in {}", loaded.file.display()),
                Err(failure) => eprintln!("watm: {failure}; the module before goes on"),
            }
        }
        seen = now;
    }
}

async fn replace<Swapping>(
    loaded: &Loaded,
    swap: &impl Fn(Module) -> Swapping,
) -> Result<(), Failure>
where
    Swapping: Future<Output = Result<(), Error>>,
{
    let (loading, file) = (loaded.loading.clone(), loaded.file.clone());
    let module = spawn_blocking(move || loading.load(&file, false))
        .await
        .map_err(Failure::failed)??;
    Ok(swap(module).await?)
}

impl Mark {
    /// To be taken before the file is read. `None`: there is no such file.
    pub(crate) fn of(path: &Path) -> Option<Mark> {
        let found = fs::metadata(path).ok()?;
        Some(Mark {
            len: found.len(),
            modified: found.modified().ok(),
        })
    }
}
