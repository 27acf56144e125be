//! A server's source of newer modules, as an event loop sees it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::task::AbortHandle;
use watm_runtime::seal::{Name, Release};
use watm_runtime::update::{Credentials, NetworkOptions, Source};
use watm_runtime::{Error, LoadOptions, SwapOptions, UpdateOptions, UpdatesHandle};

use crate::dialer::Dialer;
use crate::dialers::Way;
use crate::error::runtime_error;
use crate::module::{Module, engine};
use crate::server::Server;
use crate::signals::Signal;
use crate::thread;
use crate::wake::Wake;

/// A source that is looked at again and again. It ends when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Updates {
    handle: UpdatesHandle,
    changed: Arc<Signal>,
    work: Mutex<Work>,
}

/// What runs modules.
#[derive(FromPyObject)]
pub enum Host<'py> {
    Server(PyRef<'py, Server>),
    Dialer(PyRef<'py, Dialer>),
}

/// Where a newer module is to serve.
#[derive(Clone)]
enum Place {
    Server(watm_runtime::Server),
    Dialer(Way),
}

/// Whose turn it is.
enum Work {
    Waiting(Box<watm_runtime::Updates>),
    Following(Vec<AbortHandle>),
    Ended,
}

#[pymethods]
impl Updates {
    /// Nothing is asked of the source before `follow`.
    #[new]
    #[pyo3(signature = (source, *, every, name, channel, note, ca, credentials, credentials_for, plain_http, place, wake))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        source: &str,
        every: Duration,
        name: Option<&str>,
        channel: Option<&str>,
        note: Option<&str>,
        ca: Option<PathBuf>,
        credentials: Option<&str>,
        credentials_for: Vec<String>,
        plain_http: bool,
        place: Option<PathBuf>,
        wake: Py<Wake>,
    ) -> PyResult<Updates> {
        let invalid =
            |field: &str, reason: String| PyValueError::new_err(format!("{field}: {reason}"));
        if every.is_zero() {
            return Err(invalid("every", "must be more than 0 seconds".to_owned()));
        }
        let source_of = |field, text: &str| {
            Source::parse(text).map_err(|error| invalid(field, error.to_string()))
        };
        let name_of = |field, text: Option<&str>| {
            let name = text.map(str::parse::<Name>).transpose();
            name.map_err(|error| invalid(field, error.to_string()))
        };
        let credentials = match credentials.map(Credentials::parse) {
            None => None,
            Some(None) => {
                let reason = "must be user:password or Bearer TOKEN".to_owned();
                return Err(invalid("credentials", reason));
            }
            Some(parsed) => parsed,
        };
        let options = UpdateOptions {
            every,
            note: note.map(|note| source_of("note", note)).transpose()?,
            network: NetworkOptions {
                authorities: ca.map(read).transpose()?.unwrap_or_default(),
                plain_http,
                credentials,
                credential_hosts: credentials_for,
                ..NetworkOptions::default()
            },
            load: LoadOptions {
                name: name_of("name", name)?,
                channel: name_of("channel", channel)?,
                ..LoadOptions::default()
            },
            place,
            ..UpdateOptions::new(source_of("source", source)?)
        };
        let updates = py
            .detach(|| watm_runtime::Updates::new(&engine()?, options))
            .map_err(runtime_error)?;
        Ok(Updates {
            handle: updates.handle(),
            changed: wake.get().signal(),
            work: Mutex::new(Work::Waiting(Box::new(updates))),
        })
    }

    /// The key that wakes the loop each time that `status` has changed.
    #[getter]
    fn changed_key(&self) -> u64 {
        self.changed.key
    }

    /// What an earlier run took from the source and did well with, to be started in the place of
    /// an older one. Other Python threads go on meanwhile.
    fn taken_before(&self, py: Python<'_>) -> Option<Module> {
        py.detach(|| match &*self.lock() {
            Work::Waiting(updates) => updates.taken_before().map(Module),
            Work::Following(_) | Work::Ended => None,
        })
    }

    /// Look at the source now and then, and swap what is new into the server or dialer, on which
    /// `module` runs. Once. Of a dialer, what is open stays as it is, so that nothing drains.
    #[pyo3(signature = (host, module, *, drain, probation))]
    fn follow(
        &self,
        host: Host<'_>,
        module: &Module,
        drain: Option<Duration>,
        probation: Duration,
    ) -> PyResult<()> {
        let runtime = thread::handle()?;
        let place = match host {
            Host::Server(server) => Place::Server(server.handle()),
            Host::Dialer(dialer) => Place::Dialer(dialer.way()?),
        };
        let mut work = self.lock();
        let updates = match std::mem::replace(&mut *work, Work::Ended) {
            Work::Waiting(updates) => updates,
            other => {
                *work = other;
                return Err(PyRuntimeError::new_err("is followed already, or closed"));
            }
        };
        let module = module.0.clone();
        let options = SwapOptions {
            config: None,
            keys: None,
            drain,
            probation,
        };
        let following = runtime.spawn(async move {
            let swap = |next: watm_runtime::Module| {
                let (place, options) = (place.clone(), options.clone());
                async move {
                    match place {
                        Place::Server(server) => server.swap_async(&next, options).await.map(drop),
                        Place::Dialer(way) => way.swap(&next).await,
                    }
                }
            };
            updates.follow(&module, swap).await;
        });
        let (mut handle, changed) = (self.handle.clone(), self.changed.clone());
        let telling = runtime.spawn(async move {
            while handle.changed().await {
                changed.waker().wake();
            }
        });
        *work = Work::Following(vec![following.abort_handle(), telling.abort_handle()]);
        Ok(())
    }

    /// What came of the last check.
    fn status(&self) -> UpdateStatus {
        self.handle.status().into()
    }

    /// Look at the source now.
    fn check(&self) {
        self.handle.check();
    }

    /// Approve what the release asks for that waits. Other Python threads go on meanwhile.
    fn approve(&self, py: Python<'_>, release: &str) -> PyResult<()> {
        let release: Release = release
            .parse()
            .map_err(|error| PyValueError::new_err(format!("release: {error}")))?;
        let (runtime, handle) = (thread::handle()?, self.handle.clone());
        py.detach(|| runtime.block_on(handle.approve(release)))
            .map_err(runtime_error)
    }

    /// Look no more. Again: no effect.
    fn close(&self) {
        if let Work::Following(tasks) = std::mem::replace(&mut *self.lock(), Work::Ended) {
            tasks.iter().for_each(AbortHandle::abort);
        }
    }
}

impl Updates {
    fn lock(&self) -> std::sync::MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.close();
    }
}

/// A file, or the fault with its name.
fn read(path: PathBuf) -> PyResult<Vec<u8>> {
    fs::read(&path).map_err(|source| runtime_error(Error::File { path, source }))
}

/// What came of following a source.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct UpdateStatus {
    /// As it was given, without a password.
    source: String,
    /// Seconds from one look to the next.
    every: f64,
    /// When it was last looked at, in seconds since 1970. None: not yet.
    checked: Option<f64>,
    /// The module from there that serves. None: the one that the server was started with.
    name: Option<String>,
    /// Its release.
    release: Option<String>,
    /// The release that asks for more than is approved, and waits.
    waiting: Option<String>,
    /// What it asks for in addition.
    more: Vec<String>,
    /// Where it is kept, for `watm trust --approve`.
    file: Option<PathBuf>,
    /// Why the last check came to nothing, or the newest module does not serve.
    error: Option<String>,
    /// The same for programs.
    code: Option<&'static str>,
    /// What somebody should look at all the same.
    warnings: Vec<String>,
}

impl From<watm_runtime::UpdateStatus> for UpdateStatus {
    fn from(status: watm_runtime::UpdateStatus) -> UpdateStatus {
        let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let (name, release) = status.serves.unzip();
        let error = status.error.map(|error| (error.reason, error.code));
        let (error, code) = error.unzip();
        let mut shown = UpdateStatus {
            source: status.source,
            every: status.every.as_secs_f64(),
            checked: status
                .checked
                .and_then(since_1970)
                .map(|age| age.as_secs_f64()),
            name: name.map(|name| name.to_string()),
            release: release.map(|release| release.to_string()),
            waiting: None,
            more: Vec::new(),
            file: None,
            error,
            code,
            warnings: status.warnings,
        };
        if let Some(waiting) = status.waiting {
            shown.waiting = Some(waiting.release.to_string());
            shown.more = waiting.more;
            shown.file = Some(waiting.file);
        }
        shown
    }
}
