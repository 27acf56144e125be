//! The life of a connection: moving bytes until both streams have ended, or the host wants
//! no more.

use wasip1::Errno;
use watm_core::ErrorCode;
use watm_stream::{Codec, Needs, Progress, Ready, Relay};

use crate::descriptor::Descriptor;
use crate::poll::{self, Woken};

/// How long after it was cancelled a module goes on sending what the application had
/// written before: the host that cancels waits for it.
const LINGER: u64 = 1_000_000_000;

/// A connection.
pub struct Worker<C> {
    pub relay: Relay<C>,
    pub network: Descriptor,
    pub application: Descriptor,
    /// Readable when the host wants the module to stop.
    pub control: Option<Descriptor>,
}

impl<C: Codec> Worker<C> {
    /// Run to the end, and say what that was: `EPIPE` for the end of both streams,
    /// `ECANCELED` if the host wanted it.
    pub fn run(mut self) -> Errno {
        let mut ready = Ready::BOTH;
        loop {
            let timeout = match self.step(ready) {
                Ok(Progress::Waiting) => None,
                // The host may want it to stop, and the other direction to go on.
                Ok(Progress::Again) => Some(0),
                Ok(Progress::Done) => return wasip1::ERRNO_PIPE,
                Err(errno) => return errno,
            };
            ready = match self.wait(self.relay.needs(), timeout) {
                Ok(Woken::Ready(ready)) => ready,
                Ok(Woken::TimedOut) => Ready::default(),
                Ok(Woken::Cancelled) => break,
                Err(errno) => return errno,
            };
        }
        self.linger();
        wasip1::ERRNO_CANCELED
    }

    /// Send what the application had written before it closed, as a socket does that is
    /// closed.
    fn linger(&mut self) {
        self.control = None;
        let deadline = poll::now().saturating_add(LINGER);
        loop {
            let needs = self.relay.needs();
            let outward = Needs {
                network_write: needs.network_write,
                application_read: needs.application_read,
                ..Needs::default()
            };
            let left = deadline.saturating_sub(poll::now());
            // What has not come yet will not come.
            let timeout = if needs.network_write { left } else { 0 };
            if left == 0 {
                break;
            }
            let Ok(Woken::Ready(ready)) = self.wait(outward, Some(timeout)) else {
                break;
            };
            if !matches!(self.step(ready), Ok(Progress::Waiting | Progress::Again)) {
                return;
            }
        }
        let _ = self.relay.hang_up(&mut self.network);
    }

    fn step(&mut self, ready: Ready) -> Result<Progress, Errno> {
        self.relay
            .run(ready, &mut self.network, &mut self.application)
            .map_err(|reason| {
                let failure = self.network.failure().or(self.application.failure());
                failure.unwrap_or_else(|| errno(&reason))
            })
    }

    fn wait(&self, needs: Needs, timeout: Option<u64>) -> Result<Woken, Errno> {
        poll::wait(
            needs,
            &self.network,
            &self.application,
            self.control.as_ref(),
            timeout,
        )
    }
}

/// The errno for what a transport does not put up with.
fn errno(reason: &ErrorCode) -> Errno {
    match reason {
        ErrorCode::AccessDenied => wasip1::ERRNO_ACCES,
        ErrorCode::NotSupported => wasip1::ERRNO_NOTSUP,
        ErrorCode::InvalidArgument => wasip1::ERRNO_INVAL,
        ErrorCode::Timeout => wasip1::ERRNO_TIMEDOUT,
        ErrorCode::RemoteUnreachable | ErrorCode::NameUnresolvable => wasip1::ERRNO_HOSTUNREACH,
        ErrorCode::ConnectionRefused => wasip1::ERRNO_CONNREFUSED,
        ErrorCode::ConnectionReset => wasip1::ERRNO_CONNRESET,
        ErrorCode::ConnectionAborted => wasip1::ERRNO_CONNABORTED,
        _ => wasip1::ERRNO_PROTO,
    }
}
