//! A dial, and what becomes of the connections that the module makes for it.

use std::net::SocketAddr;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::flow::StreamFlow;
use crate::{Destination, Error, ErrorCode};

/// Connections of one dial that are heard of: as many as the host tries addresses of a name.
const MAX_ATTEMPTS: usize = 16;

/// Of a connection: this end's address, and the other's.
pub(crate) type Addresses = (Option<SocketAddr>, Option<SocketAddr>);

type Attempt = Result<Addresses, Error>;

/// What the application asks for.
pub(crate) struct Dial {
    /// `None`: where the module's configuration says.
    pub(crate) destination: Option<Destination>,
    /// Where the application's own code runs.
    pub(crate) runtime: Option<Handle>,
}

/// A dial that the module has taken on.
pub(crate) struct Begun {
    pub(crate) flow: StreamFlow,
    pub(crate) attempts: Attempts,
}

/// The connections that the module asked for when it was told to dial.
pub(crate) struct Attempts(mpsc::Receiver<Attempt>);

impl Attempts {
    /// Wait for the first connection that is made; an error if all of them fail. Without any,
    /// no addresses are known, and the stream itself tells what fails later.
    pub(crate) async fn first(mut self) -> Result<Addresses, Error> {
        let mut last = Ok((None, None));
        while let Some(attempt) = self.0.recv().await {
            if attempt.is_ok() {
                return attempt;
            }
            last = attempt;
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
    news: mpsc::Sender<Attempt>,
    /// What the module was told last when it asked for a connection.
    refusal: Option<Error>,
}

impl Dialling {
    pub(super) fn new(dial: Dial) -> (Dialling, Attempts) {
        let (news, attempts) = mpsc::channel(MAX_ATTEMPTS);
        let dialling = Dialling {
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
pub(super) struct News(Option<(mpsc::Sender<Attempt>, String)>);

impl News {
    pub(super) fn tell(&mut self, attempt: Attempt) {
        if let Some((news, _)) = self.0.take() {
            // Nobody waits any more, or there were too many.
            let _ = news.try_send(attempt);
        }
    }
}

/// The module failed, or wants the connection no more.
impl Drop for News {
    fn drop(&mut self) {
        if let Some((news, module)) = self.0.take() {
            // As above.
            let _ = news.try_send(Err(Error::Handshake {
                module,
                reason: "gave up the connection before it was made".to_owned(),
            }));
        }
    }
}
