use std::sync::mpsc as blocking;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::Handle;
use crate::Error;
use crate::driver::{Command, Reply};

/// How long a blocking caller waits: several times the CPU limit of a call, for a machine
/// that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(10);

impl Handle {
    /// Ask the driver and wait for its answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        self.ask_for(Duration::ZERO, command)
    }

    /// As [`ask`](Handle::ask), of what takes `longer` than a call.
    pub(super) fn ask_for<T: Send + 'static>(
        &self,
        longer: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        let patience = PATIENCE.saturating_add(longer);
        let (sender, receiver) = blocking::sync_channel(1);
        self.send(command(Box::new(move |answer| {
            // Nobody waits any more; that is theirs to decide.
            let _ = sender.send(answer);
        })))?;
        match receiver.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(blocking::RecvTimeoutError::Disconnected) => Err(self.closed()),
            Err(blocking::RecvTimeoutError::Timeout) => Err(Error::Timeout {
                module: self.hub.name.clone(),
                after: patience,
            }),
        }
    }

    /// As [`ask`](Handle::ask), without blocking; where many ask at once, they wait for each other.
    pub(super) async fn ask_async<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let command = command(Box::new(move |answer| {
            // As above.
            let _ = sender.send(answer);
        }));
        let sent = self.sender()?.send(command).await;
        sent.map_err(|_| self.closed())?;
        receiver.await.unwrap_or_else(|_| Err(self.closed()))
    }

    fn send(&self, command: Command) -> Result<(), Error> {
        self.sender()?
            .try_send(command)
            .map_err(|error| match error {
                TrySendError::Closed(_) => self.closed(),
                TrySendError::Full(_) => Error::Busy {
                    module: self.hub.name.clone(),
                },
            })
    }

    /// While the server is not closed. Not to be kept: with the last one it closes.
    fn sender(&self) -> Result<Sender<Command>, Error> {
        let commands = self.commands.lock().expect("no panic under this lock");
        commands.clone().ok_or_else(|| self.closed())
    }

    fn closed(&self) -> Error {
        Error::Closed {
            module: self.hub.name.clone(),
        }
    }
}
