//! `--watch`: the modules of running listeners follow their files.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::sleep;

use super::service::Service;
use crate::follow::{self, INTERVAL};
use crate::watch::Mark;

pub(super) struct Watching(Vec<Followed>);

struct Followed {
    file: PathBuf,
    known: Option<Mark>,
    seen: Option<Mark>,
}

impl Followed {
    fn new(file: PathBuf) -> Followed {
        let mark = Mark::of(&file);
        Followed {
            file,
            known: mark,
            seen: mark,
        }
    }

    /// Returns true if the file has changed, and nobody writes it any more.
    fn look(&mut self) -> bool {
        let now = Mark::of(&self.file);
        let changed = now.is_some() && now == self.seen && now != self.known;
        if changed {
            self.known = now;
        }
        self.seen = now;
        changed
    }
}

impl Watching {
    /// Starts with the files as they are now.
    pub(super) fn new(service: &Service) -> Watching {
        let files = service.module_files().into_iter();
        Watching(files.map(|(file, _)| Followed::new(file)).collect())
    }

    /// Follows the files, and logs the results. Never returns.
    pub(super) async fn follow(mut self, service: Arc<Service>) {
        loop {
            sleep(INTERVAL).await;
            let files = service.module_files();
            self.0
                .retain(|followed| files.iter().any(|(file, _)| *file == followed.file));
            for (file, _) in &files {
                if !self.0.iter().any(|followed| followed.file == *file) {
                    self.0.push(Followed::new(file.clone()));
                }
            }
            for followed in &mut self.0 {
                if !followed.look() {
                    continue;
                }
                for (file, frontend) in &files {
                    if *file != followed.file {
                        continue;
                    }
                    match service.reload_module(frontend).await {
                        Ok(true) => follow::log_swapped(&frontend.module().await),
                        Ok(false) => {}
                        Err(failure) => follow::log_refused(&failure),
                    }
                }
            }
        }
    }
}
