//! Requests of a server's handle to its driver. The methods of `Server` call it.

use std::sync::mpsc as blocking;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::Handle;
use crate::Error;
use crate::driver::{Command, Reply};

/// The time that a blocking caller waits: several times the CPU limit of a call, for a machine that
/// is busy with other things.
const PATIENCE: Duration = Duration::from_secs(10);

impl Handle {
    /// Asks the driver and waits for its answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        self.ask_for(Duration::ZERO, command)
    }

    /// Asks as [`ask`](Handle::ask), for a request that takes `longer` than a call.
    pub(super) fn ask_for<T: Send + 'static>(
        &self,
        longer: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        let patience = PATIENCE.saturating_add(longer);
        let (sender, receiver) = blocking::sync_channel(1);
        self.send(command(Box::new(move |answer| {
            // The caller may have stopped waiting.
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

    /// Asks as [`ask`](Handle::ask), without blocking. Concurrent callers wait for each other.
    pub(super) async fn ask_async<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let command = command(Box::new(move |answer| {
            // The caller may have stopped waiting.
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

    /// Returns the sender, unless the server is closed. Must not be kept: dropping the last one
    /// closes the server.
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
