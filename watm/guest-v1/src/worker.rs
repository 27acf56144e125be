//! The life of a connection: it moves bytes until both streams have ended, or the host cancels.
//! Used by `shell`.

use wasip1::Errno;
use watm_stream::{Needs, Progress, Ready};

use crate::carrier::Session;
use crate::descriptor::Descriptor;
use crate::poll::{self, Woken};

/// The nanoseconds for which a cancelled module still sends data that the application had written:
/// the host that cancels waits for it.
const LINGER: u64 = 5_000_000_000;

/// The longest of those without an event. A segment that is lost twice is sent again sooner, over
/// most paths.
const PATIENCE: u64 = 2_000_000_000;

/// Runs a session.
pub struct Worker<S> {
    pub session: S,
    /// The control pipe: readable when the host cancels.
    pub control: Option<Descriptor>,
}

impl<S: Session> Worker<S> {
    /// Runs to the end, and returns its errno: `EPIPE` for the end of both streams, `ECANCELED` if
    /// the host cancelled.
    pub fn run(mut self) -> Errno {
        let mut ready = Ready::BOTH;
        loop {
            let timeout = match self.session.run(ready) {
                Ok(Progress::Waiting) => self.session.deadline().map(until),
                // The host may cancel meanwhile, and the other direction may go on.
                Ok(Progress::Again) => Some(0),
                Ok(Progress::Done) => return wasip1::ERRNO_PIPE,
                Err(errno) => return errno,
            };
            ready = match self.wait(self.session.needs(), timeout) {
                Ok(Woken::Ready(ready)) => ready,
                Ok(Woken::TimedOut) => Ready::default(),
                Ok(Woken::Cancelled) => break,
                Err(errno) => return errno,
            };
        }
        self.linger();
        wasip1::ERRNO_CANCELED
    }

    /// Sends data that the application had written before the cancellation, as a closed socket
    /// does.
    fn linger(&mut self) {
        self.control = None;
        self.session.cancel();
        let end = poll::now().saturating_add(LINGER);
        // The time of the last event.
        let mut moved = poll::now();
        loop {
            let linger = self.session.linger();
            let patience = if linger.waits { PATIENCE } else { 0 };
            let give_up = moved.saturating_add(patience).min(end);
            let next = self
                .session
                .deadline()
                .map_or(give_up, |at| at.min(give_up));
            let ready = match self.wait(linger.needs, Some(until(next))) {
                Ok(Woken::Ready(ready)) => {
                    moved = poll::now();
                    ready
                }
                Ok(Woken::TimedOut) if poll::now() < give_up => Ready::default(),
                _ => break,
            };
            if poll::now() >= end {
                break;
            }
            if !matches!(
                self.session.run(ready),
                Ok(Progress::Waiting | Progress::Again)
            ) {
                return;
            }
        }
        self.session.hang_up();
    }

    fn wait(&self, needs: Needs, timeout: Option<u64>) -> Result<Woken, Errno> {
        let (network, application) = self.session.streams();
        poll::wait(needs, network, application, self.control.as_ref(), timeout)
    }
}

/// The nanoseconds until `at`.
fn until(at: u64) -> u64 {
    at.saturating_sub(poll::now())
}
