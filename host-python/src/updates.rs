//! A server's source of newer modules, for event loops. The package's `updates.py` uses it.

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

/// A source that is checked repeatedly. Ends when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Updates {
    handle: UpdatesHandle,
    changed: Arc<Signal>,
    work: Mutex<Work>,
}

/// A server or dialer that runs modules.
#[derive(FromPyObject)]
pub enum Host<'py> {
    Server(PyRef<'py, Server>),
    Dialer(PyRef<'py, Dialer>),
}

/// The server or dialer that newer modules go to.
#[derive(Clone)]
enum Place {
    Server(watm_runtime::Server),
    Dialer(Way),
}

/// The state of the work.
enum Work {
    Waiting(Box<watm_runtime::Updates>),
    Following(Vec<AbortHandle>),
    Ended,
}

#[pymethods]
impl Updates {
    /// Creates a source. Nothing is requested from it before `follow`.
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

    /// Returns the module that an earlier run took from the source and ran well, to start in place
    /// of an older one. Other Python threads continue meanwhile.
    fn taken_before(&self, py: Python<'_>) -> Option<Module> {
        py.detach(|| match &*self.lock() {
            Work::Waiting(updates) => updates.taken_before().map(Module),
            Work::Following(_) | Work::Ended => None,
        })
    }

    /// Checks the source regularly, and swaps newer modules into the server or dialer, on which
    /// `module` runs. Can be called once. Open connections of a dialer stay as they are, so nothing
    /// drains.
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
                return Err(PyRuntimeError::new_err("is already followed, or closed"));
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

    /// Returns the result of the last check.
    fn status(&self) -> UpdateStatus {
        self.handle.status().into()
    }

    /// Checks the source now.
    fn check(&self) {
        self.handle.check();
    }

    /// Approves the capabilities of the waiting release. Other Python threads continue meanwhile.
    fn approve(&self, py: Python<'_>, release: &str) -> PyResult<()> {
        let release: Release = release
            .parse()
            .map_err(|error| PyValueError::new_err(format!("release: {error}")))?;
        let (runtime, handle) = (thread::handle()?, self.handle.clone());
        py.detach(|| runtime.block_on(handle.approve(release)))
            .map_err(runtime_error)
    }

    /// Stops checking. Repeated calls have no effect.
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

/// Reads a file. The error names it.
fn read(path: PathBuf) -> PyResult<Vec<u8>> {
    fs::read(&path).map_err(|source| runtime_error(Error::File { path, source }))
}

/// The result of following a source.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct UpdateStatus {
    /// The source as it was given, without a password.
    source: String,
    /// Seconds between checks.
    every: f64,
    /// The time of the last check, in seconds since 1970. None before the first.
    checked: Option<f64>,
    /// The name of the module from there that serves. None if it is the one that the server was
    /// started with.
    name: Option<String>,
    /// The release of that module.
    release: Option<String>,
    /// The release that waits because it requests more than is approved.
    waiting: Option<String>,
    /// The capabilities that it requests in addition.
    more: Vec<String>,
    /// The file that it is kept in, for `watm trust --approve`.
    file: Option<PathBuf>,
    /// The reason why the last check failed, or the newest module does not serve.
    error: Option<String>,
    /// The code of that reason, for programs.
    code: Option<&'static str>,
    /// Warnings that apply nevertheless.
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
