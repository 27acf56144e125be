//! A dial of the application, and the outcome of the connections that the module makes for it.
//! `instance` begins it, and `roles::component` waits for it.

use std::net::SocketAddr;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::{Destination, Error, ErrorCode, Network, Target};

/// The most connections of one dial whose outcome is reported: as many as the host tries addresses
/// of a name.
const MAX_ATTEMPTS: usize = 16;

/// The addresses of a connection: this end's, and the other's.
pub type Addresses = (Option<SocketAddr>, Option<SocketAddr>);

type Attempt = Result<Addresses, Error>;

/// A report on a dial.
enum Report {
    /// The outcome of a connection that it needs.
    Attempt(Attempt),
    /// The module also waits for an answer of the other side.
    Awaited,
    /// The answer has come, or will not.
    Answered(Result<(), Error>),
}

/// A request of the application to dial.
pub struct Dial {
    /// The protocol that the application uses.
    pub network: Network,
    /// The destination; `None` for the one in the module's configuration.
    pub destination: Option<Destination>,
    /// The runtime of the application's own code.
    pub runtime: Option<Handle>,
}

impl Dial {
    /// Returns true if the dial goes to this target.
    pub(super) fn is_to(&self, target: &Target) -> bool {
        self.network == target.network && self.destination.as_ref() == Some(&target.destination)
    }
}

/// A dial that the module has accepted.
pub struct BegunDial<F> {
    /// The application's end of the flow.
    pub flow: F,
    /// The attempts to connect that it waits for.
    pub attempts: Attempts,
}

/// The reports on the connections that the module asked for during a dial, and on the answer that
/// it waits for.
pub struct Attempts(mpsc::Receiver<Report>);

impl Attempts {
    /// Waits for the answer, if the module waits for one, or else for the first connection that is
    /// made. Fails if there is none. Without either it returns no addresses, and the stream itself
    /// reports later failures.
    pub async fn first(mut self) -> Result<Addresses, Error> {
        let (mut last, mut awaited) = (Ok((None, None)), false);
        while let Some(report) = self.0.recv().await {
            match report {
                Report::Attempt(attempt) => {
                    last = attempt;
                    if last.is_ok() && !awaited {
                        break;
                    }
                }
                Report::Awaited => awaited = true,
                Report::Answered(Ok(())) => return Ok(last.unwrap_or((None, None))),
                // The error of a failed connection says more.
                Report::Answered(Err(error)) => return last.and(Err(error)),
            }
        }
        last
    }

    /// Returns the attempts of a dial that need not be waited for.
    pub fn none() -> Attempts {
        Attempts(mpsc::channel(1).1)
    }
}

/// A call of `endpoint.dial` in progress.
pub(super) struct Dialling {
    pub(super) dial: Dial,
    reports: mpsc::Sender<Report>,
    /// The last refusal of a connection that the module asked for.
    refusal: Option<Error>,
    /// The handle of the application's stream, if the dial is one of a stream.
    pub(super) stream: Option<u32>,
}

impl Dialling {
    /// Begins a dial of the stream with this handle, or of datagrams.
    pub(super) fn new(dial: Dial, handle: u32) -> (Dialling, Attempts) {
        // Two more places hold the reports that an answer is awaited, and that it has come.
        let (reports, attempts) = mpsc::channel(MAX_ATTEMPTS + 2);
        let dialling = Dialling {
            stream: (dial.network == Network::Tcp).then_some(handle),
            dial,
            reports,
            refusal: None,
        };
        (dialling, Attempts(attempts))
    }

    /// Notes that the module was refused a connection.
    pub(super) fn refuse(&mut self, refusal: Error) {
        self.refusal = Some(refusal);
    }

    /// Notes that the module gets a connection, and returns where to report its outcome.
    pub(super) fn admit(&mut self, module: &str) -> AttemptReporter {
        self.refusal = None;
        AttemptReporter(Some((self.reports.clone(), module.to_owned())))
    }

    /// Notes that the module waits for an answer, and returns where to report it.
    pub(super) fn await_answer(&mut self, module: &str) -> AnswerReporter {
        // There is room; see `new`.
        let _ = self.reports.try_send(Report::Awaited);
        AnswerReporter(Some((self.reports.clone(), module.to_owned())))
    }

    /// Returns the reason why the module did not accept the dial, if it returned `code`.
    pub(super) fn failure(self, module: &str, code: ErrorCode) -> Error {
        self.refusal.unwrap_or_else(|| Error::Refused {
            module: module.to_owned(),
            code,
        })
    }
}

/// The place where a connection reports its outcome, if a dial has asked for it.
#[derive(Default)]
pub(super) struct AttemptReporter(Option<(mpsc::Sender<Report>, String)>);

impl AttemptReporter {
    pub(super) fn tell(&mut self, attempt: Attempt) {
        if let Some((reports, _)) = self.0.take() {
            // Nobody waits any more, or there were too many reports.
            let _ = reports.try_send(Report::Attempt(attempt));
        }
    }
}

/// Reports a failure: the module trapped, or dropped the connection.
impl Drop for AttemptReporter {
    fn drop(&mut self) {
        if let Some((reports, module)) = self.0.take() {
            // The error is ignored for the same reasons.
            let _ = reports.try_send(Report::Attempt(Err(given_up(module))));
        }
    }
}

/// The place where the module reports the answer to a stream.
pub(super) struct AnswerReporter(Option<(mpsc::Sender<Report>, String)>);

impl AnswerReporter {
    /// Reports that the answer has come, or the reason why it will not.
    pub(super) fn tell(mut self, answer: Result<(), ErrorCode>) {
        if let Some((reports, module)) = self.0.take() {
            let answer = answer.map_err(|code| Error::Refused { module, code });
            // Nobody waits any more.
            let _ = reports.try_send(Report::Answered(answer));
        }
    }
}

/// Reports a failure: the module trapped, or dropped the stream.
impl Drop for AnswerReporter {
    fn drop(&mut self) {
        if let Some((reports, module)) = self.0.take() {
            // The error is ignored for the same reason.
            let _ = reports.try_send(Report::Answered(Err(given_up(module))));
        }
    }
}

fn given_up(module: String) -> Error {
    Error::Handshake {
        module,
        reason: "closed the connection before it was established".to_owned(),
    }
}
