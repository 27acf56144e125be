//! A dial, and what becomes of the connections that the module makes for it.

use std::net::SocketAddr;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::{Destination, Error, ErrorCode, Network, Target};

/// Connections of one dial that are heard of: as many as the host tries addresses of a name.
const MAX_ATTEMPTS: usize = 16;

/// Of a connection: this end's address, and the other's.
pub(crate) type Addresses = (Option<SocketAddr>, Option<SocketAddr>);

type Attempt = Result<Addresses, Error>;

/// What is told of a dial.
enum Told {
    /// What became of a connection that it takes.
    Attempt(Attempt),
    /// Somebody has to answer beyond those.
    Awaited,
    /// Somebody has, or nobody will.
    Answered(Result<(), Error>),
}

/// What the application asks for.
pub(crate) struct Dial {
    /// By what the application wants to get there.
    pub(crate) network: Network,
    /// `None`: where the module's configuration says.
    pub(crate) destination: Option<Destination>,
    /// Where the application's own code runs.
    pub(crate) runtime: Option<Handle>,
}

impl Dial {
    /// Whether it is to go there.
    pub(super) fn is_to(&self, target: &Target) -> bool {
        self.network == target.network && self.destination.as_ref() == Some(&target.destination)
    }
}

/// A dial that the module has taken on.
pub(crate) struct Begun<F> {
    pub(crate) flow: F,
    pub(crate) attempts: Attempts,
}

/// The connections that the module asked for when it was told to dial, and the answer that it
/// waits for.
pub(crate) struct Attempts(mpsc::Receiver<Told>);

impl Attempts {
    /// Wait for the answer, if the module waits for one, or else for the first connection that is
    /// made; an error if there is none. Without either, no addresses are known, and the stream
    /// itself tells what fails later.
    pub(crate) async fn first(mut self) -> Result<Addresses, Error> {
        let (mut last, mut awaited) = (Ok((None, None)), false);
        while let Some(told) = self.0.recv().await {
            match told {
                Told::Attempt(attempt) => {
                    last = attempt;
                    if last.is_ok() && !awaited {
                        break;
                    }
                }
                Told::Awaited => awaited = true,
                Told::Answered(Ok(())) => return Ok(last.unwrap_or((None, None))),
                // A connection that failed says more.
                Told::Answered(Err(error)) => return last.and(Err(error)),
            }
        }
        last
    }

    /// None, or none that the dial did not wait for already.
    pub(crate) fn none() -> Attempts {
        Attempts(mpsc::channel(1).1)
    }
}

/// A call of `endpoint.dial` under way.
pub(super) struct Dialling {
    pub(super) dial: Dial,
    news: mpsc::Sender<Told>,
    /// What the module was told last when it asked for a connection.
    refusal: Option<Error>,
    /// The handle of the application's stream, if it is one.
    pub(super) stream: Option<u32>,
}

impl Dialling {
    /// Of the stream with this handle, or of datagrams.
    pub(super) fn new(dial: Dial, handle: u32) -> (Dialling, Attempts) {
        // That an answer is awaited, and what it is, come beside them.
        let (news, attempts) = mpsc::channel(MAX_ATTEMPTS + 2);
        let dialling = Dialling {
            stream: (dial.network == Network::Tcp).then_some(handle),
            dial,
            news,
            refusal: None,
        };
        (dialling, Attempts(attempts))
    }

    /// The module is not given the connection that it asked for.
    pub(super) fn refuse(&mut self, refusal: Error) {
        self.refusal = Some(refusal);
    }

    /// The module is given one, which tells whether it is made.
    pub(super) fn admit(&mut self, module: &str) -> News {
        self.refusal = None;
        News(Some((self.news.clone(), module.to_owned())))
    }

    /// Somebody has to answer first.
    pub(super) fn await_answer(&mut self, module: &str) -> Answer {
        // There is room; see `new`.
        let _ = self.news.try_send(Told::Awaited);
        Answer(Some((self.news.clone(), module.to_owned())))
    }

    /// Why the module did not take the dial on, if it answered `code`.
    pub(super) fn failure(self, module: &str, code: ErrorCode) -> Error {
        self.refusal.unwrap_or_else(|| Error::Refused {
            module: module.to_owned(),
            code,
        })
    }
}

/// Where a connection tells what became of it, if somebody has asked for it.
#[derive(Default)]
pub(super) struct News(Option<(mpsc::Sender<Told>, String)>);

impl News {
    pub(super) fn tell(&mut self, attempt: Attempt) {
        if let Some((news, _)) = self.0.take() {
            // Nobody waits any more, or there were too many.
            let _ = news.try_send(Told::Attempt(attempt));
        }
    }
}

/// The module failed, or wants the connection no more.
impl Drop for News {
    fn drop(&mut self) {
        if let Some((news, module)) = self.0.take() {
            // As above.
            let _ = news.try_send(Told::Attempt(Err(given_up(module))));
        }
    }
}

/// Where the module tells that somebody has answered a stream.
pub(super) struct Answer(Option<(mpsc::Sender<Told>, String)>);

impl Answer {
    /// Somebody has; or nobody will, for this reason.
    pub(super) fn tell(mut self, answer: Result<(), ErrorCode>) {
        if let Some((news, module)) = self.0.take() {
            let answer = answer.map_err(|code| Error::Refused { module, code });
            // Nobody waits any more.
            let _ = news.try_send(Told::Answered(answer));
        }
    }
}

/// The module failed, or let go of the stream.
impl Drop for Answer {
    fn drop(&mut self) {
        if let Some((news, module)) = self.0.take() {
            // As above.
            let _ = news.try_send(Told::Answered(Err(given_up(module))));
        }
    }
}

fn given_up(module: String) -> Error {
    Error::Handshake {
        module,
        reason: "gave up the connection before it was made".to_owned(),
    }
}
