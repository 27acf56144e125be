//! A server and a dialer of one module, with streams between them. Used by `streams`.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use watm_runtime::{Connection, Dialer, Error, ErrorCode, Flow, Server, StreamFlow};

use super::report::Verdict;
use super::server::{end, runs};
use super::subject::Subject;

/// Flows that wait for a check to take them.
const BACKLOG: usize = 256;

/// A server and a dialer.
pub(super) struct Pair {
    pub(super) server: Arc<Server>,
    pub(super) dialer: Dialer,
    target: String,
    accepted: mpsc::Receiver<StreamFlow>,
    accepting: JoinHandle<()>,
}

impl Pair {
    /// Starts both.
    pub(super) fn of(subject: &Subject) -> Result<Pair, Verdict> {
        let serving = subject.serve(&subject.config);
        let serving = serving.map_err(|error| Verdict::failed("the start of a server", error))?;
        let dialer = subject.dialer(serving.address);
        let dialer = dialer.map_err(|error| Verdict::failed("the start of a client", error))?;
        let server = Arc::new(serving.server);
        let (offer, accepted) = mpsc::channel(BACKLOG);
        let from = server.clone();
        let accepting = tokio::spawn(async move {
            while let Some(flow) = from.accept().await {
                // Datagrams are not the subject.
                if let Flow::Stream(flow) = flow
                    && offer.send(flow).await.is_err()
                {
                    break;
                }
            }
        });
        Ok(Pair {
            server,
            dialer,
            target: subject.target(serving.address),
            accepted,
            accepting,
        })
    }

    /// Opens a stream. Returns its ends at the client and the server. The client writes a byte
    /// first, which the server has read: many protocols begin with the first data.
    pub(super) async fn open(&mut self) -> Result<(Connection, StreamFlow), Verdict> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let dialled = self.dialer.dial(&self.target).await;
        let mut client = dialled.map_err(|error| match error {
            Error::Refused {
                code: ErrorCode::NotSupported,
                ..
            } => Verdict::Skipped("dials nothing, or needs --dial-config".to_owned()),
            error => Verdict::failed("a dial", error),
        })?;
        let written = async {
            client.write_all(b"!").await?;
            client.flush().await
        };
        written
            .await
            .map_err(|error| Verdict::failed("the first byte of a stream", error))?;
        let Some(mut server) = self.accepted.recv().await else {
            return Err(Verdict::Failed(
                "the server offers no stream to its application".to_owned(),
            ));
        };
        let mut first = [0];
        match server.read_exact(&mut first).await {
            Ok(_) if first == *b"!" => Ok((client, server)),
            Ok(_) => Err(Verdict::Failed(format!(
                "the first byte of a stream was {:#04x}, and 0x21 was sent",
                first[0]
            ))),
            Err(error) => Err(Verdict::failed("the first byte of a stream", error)),
        }
    }

    /// Fails if an end failed meanwhile, or cannot end.
    pub(super) async fn finish(self) -> Result<(), Verdict> {
        runs(&self.server).await?;
        let status = self.dialer.status().await;
        let status = status.map_err(|error| Verdict::failed("the status of the client", error))?;
        let restarts = status.counters.get("host.restarts").copied().unwrap_or(0);
        if restarts > 0 {
            return Err(Verdict::Failed(format!(
                "the client failed and was started again, {restarts} times; the log has the reasons"
            )));
        }
        let ended = end(&self.server).await;
        self.accepting.abort();
        ended
    }
}
