//! Updates: a running host takes newer modules from a source. Applications follow [`Updates`] beside
//! a server.

mod options;
mod status;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use watm_seal::{Digest, Release, Sealed, private};
use watm_update::{Network, Outcome, Place, Updater, Watch};

pub use options::UpdateOptions;
pub use status::{UpdateError, UpdateStatus, UpdateWaiting};

use crate::{Engine, Error, LoadOptions, Module};

/// The most requests that may wait during a check.
const ASKS: usize = 8;

/// The wait after a swap that could not be tried: the server was being restarted or swapped, or the
/// state could not be written.
const RETRY: Duration = Duration::from_secs(30);

/// A source of newer modules for a running server or dialer.
///
/// A downloaded module is verified like any other that the engine loads, kept in a file of this
/// machine, and swapped in if it is newer than the running one and asks for no more than is
/// approved. The running module keeps running whatever the source does. [`UpdateStatus`] has the
/// result of the last check, and records with the target `watm::update` report changes.
pub struct Updates {
    engine: Engine,
    load: LoadOptions,
    every: Duration,
    updater: Updater,
    status: watch::Sender<UpdateStatus>,
    asks: mpsc::Receiver<Ask>,
    handle: UpdatesHandle,
}

/// A handle on [`Updates`] that are being followed. Clones are handles on the same updates.
#[derive(Debug, Clone)]
pub struct UpdatesHandle {
    status: watch::Receiver<UpdateStatus>,
    asks: mpsc::Sender<Ask>,
    pending: Arc<Path>,
}

#[derive(Debug)]
enum Ask {
    Check,
    Approve(Release, oneshot::Sender<Result<(), String>>),
}

impl Updates {
    /// Prepares to follow a source, without asking it yet. Fails if nobody is trusted to sign
    /// modules, and if there is no place to keep them.
    pub fn new(engine: &Engine, options: UpdateOptions) -> Result<Updates, Error> {
        let trust = options
            .load
            .trust
            .clone()
            .unwrap_or_else(|| engine.trust().clone());
        // A module from a channel must have a seal.
        let trust = trust.allow_unsealed(false);
        let load = LoadOptions {
            unsealed: false,
            ..options.load
        };
        let terms = trust.terms(&load)?;
        let place = match options.place {
            Some(place) => place,
            None => default_place(terms.state.path(), &options.source.to_string(), &load)?,
        };
        let place = Place::new(place);
        let pending = place.pending().into();
        let source = options.source.to_string();
        let updater =
            Updater::new(options.source, place, terms).network(Network::from(options.network));
        let (sender, asks) = mpsc::channel(ASKS);
        let (status, seen) = watch::channel(UpdateStatus::new(source, options.every));
        Ok(Updates {
            engine: engine.clone(),
            load: LoadOptions {
                trust: Some(trust),
                ..load
            },
            every: options.every,
            updater: match options.note {
                Some(note) => updater.note(note),
                None => updater,
            },
            status,
            asks,
            handle: UpdatesHandle {
                status: seen,
                asks: sender,
                pending,
            },
        })
    }

    /// Returns a handle for use while the updates are followed.
    pub fn handle(&self) -> UpdatesHandle {
        self.handle.clone()
    }

    /// Returns the module that an earlier run took from the source and that served well: start with
    /// it in place of an older one, which the engine no longer loads. Returns `None` if there is
    /// none, or none that can be loaded now; a WARN record has the reason. Blocks, as
    /// [`load_file`](Engine::load_file).
    pub fn taken_before(&self) -> Option<Module> {
        let bytes = std::fs::read(self.updater.place().path()).ok()?;
        let manifest = Sealed::parse(&bytes).ok()?.manifest().clone();
        let trust = self.load.trust.as_ref()?;
        if !trust.has_accepted(&manifest) {
            // The module will be tried beside one that serves.
            return None;
        }
        match load(&self.engine, &self.load, &bytes) {
            Ok(module) => {
                self.status.send_modify(|status| status.serves(&manifest));
                Some(module)
            }
            Err(error) => {
                tracing::warn!(
                    target: "watm::update",
                    "{}: cannot load the previous update: {error}",
                    self.updater.source()
                );
                None
            }
        }
    }

    /// Checks the source at once, and then at intervals, and passes each new module to `swap`, which
    /// replaces the serving module with it. `running` is the serving module now. Never returns;
    /// dropping it ends it at once.
    ///
    /// A module that `swap` fails with is not tried again, unless the failure was not its own.
    pub async fn follow<Swapping>(self, running: &Module, swap: impl Fn(Module) -> Swapping)
    where
        Swapping: Future<Output = Result<(), Error>>,
    {
        let mut last = running.info().sha256.clone();
        let mut asks = self.asks;
        let path = self.updater.place().path().to_owned();
        let mut watch = Watch::new(self.updater, self.every);
        loop {
            let report = tokio::select! {
                report = watch.next() => report,
                Some(ask) = asks.recv() => match ask {
                    Ask::Check => {
                        watch.check_within(Duration::ZERO);
                        continue;
                    }
                    Ask::Approve(release, answer) => {
                        let report = watch.approve(release).await;
                        // The caller may have gone.
                        let _ = answer.send(match &report.outcome {
                            Outcome::Refused { reason, .. } => Err(reason.clone()),
                            _ => Ok(()),
                        });
                        report
                    }
                },
            };
            let source = report.source.clone();
            self.status.send_modify(|status| status.checked(&report));
            let (Outcome::Updated {
                module: Some(module),
                ..
            }
            | Outcome::Unchanged {
                module: Some(module),
            }) = report.outcome
            else {
                continue;
            };
            let found = module.sha256.to_string();
            if found == last {
                continue;
            }
            let loaded = load_file(&self.engine, &self.load, path.clone(), module.sha256).await;
            let swapped = match loaded {
                Ok(module) => swap(module).await,
                Err(error) => Err(error),
            };
            let manifest = &module.manifest;
            match swapped {
                Ok(()) => {
                    last = found;
                    self.status.send_modify(|status| status.serves(manifest));
                    tracing::info!(
                        target: "watm::update",
                        "{source}: now running {} {}",
                        manifest.name,
                        manifest.release
                    );
                }
                Err(error) => {
                    match is_passing(&error) {
                        true => watch.check_within(RETRY),
                        false => last = found,
                    }
                    self.status
                        .send_modify(|status| status.swap_failed(manifest, &error));
                }
            }
        }
    }
}

impl UpdatesHandle {
    /// Returns the result of the last check.
    pub fn status(&self) -> UpdateStatus {
        self.status.borrow().clone()
    }

    /// Waits until [`status`](UpdatesHandle::status) has changed since the last call. Returns false
    /// if it never will, since the source is no longer followed.
    pub async fn changed(&mut self) -> bool {
        self.status.changed().await.is_ok()
    }

    /// Has the source checked now.
    pub fn check(&self) {
        // A full queue already has such a request in it.
        let _ = self.asks.try_send(Ask::Check);
    }

    /// Approves what this release asks for, which [waits](UpdateStatus::waiting): the release is put
    /// into use, and so are later ones that ask for no more. Returns when the approval is written.
    /// Fails if no such release waits, or if it is no longer valid.
    pub async fn approve(&self, release: Release) -> Result<(), Error> {
        let refuse = |reason: String| Error::Untrusted {
            module: self.pending.display().to_string(),
            code: "needs-approval",
            reason,
        };
        let ended = || refuse("the source is no longer followed".to_owned());
        let (sender, answer) = oneshot::channel();
        let ask = Ask::Approve(release, sender);
        self.asks.send(ask).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?.map_err(refuse)
    }
}

/// Returns true if the same module may well be swapped in later.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy { .. }
            | Error::Restarting { .. }
            | Error::Timeout { .. }
            | Error::State(_)
            | Error::File { .. }
            | Error::System(_)
    )
}

async fn load_file(
    engine: &Engine,
    options: &LoadOptions,
    path: PathBuf,
    only: Digest,
) -> Result<Module, Error> {
    let engine = engine.clone();
    let options = LoadOptions {
        pins: [only].into(),
        ..options.clone()
    };
    let loading = spawn_blocking(move || {
        let bytes = std::fs::read(&path).map_err(|source| Error::File { path, source })?;
        load(&engine, &options, &bytes)
    });
    loading
        .await
        .unwrap_or_else(|error| Err(Error::System(format!("loading ended: {error}"))))
}

/// Loads a module under the name and the release in its seal, since its file's name means nothing to
/// people.
fn load(engine: &Engine, options: &LoadOptions, bytes: &[u8]) -> Result<Module, Error> {
    let name = match Sealed::parse(bytes) {
        Ok(sealed) => format!("{} {}", sealed.manifest().name, sealed.manifest().release),
        Err(_) => "update".to_owned(),
    };
    engine.load_with(&name, bytes, options)
}

/// Returns a path in the folder `updates` beside the state, named after the source and the wanted
/// modules.
fn default_place(state: &Path, source: &str, load: &LoadOptions) -> Result<PathBuf, Error> {
    let wanted = [&load.name, &load.channel].map(|name| name.as_ref().map(ToString::to_string));
    let [name, channel] = wanted.map(Option::unwrap_or_default);
    let key = Digest::of(format!("{source}\n{name}\n{channel}").as_bytes()).to_string();
    let folder = state.with_file_name("updates");
    private::create_directory(&folder).map_err(|source| Error::File {
        path: folder.clone(),
        source,
    })?;
    Ok(folder.join(format!("{}.wasm", &key[..16])))
}
