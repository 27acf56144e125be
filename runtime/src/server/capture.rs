//! Captures that begin and end while a server runs, and the TLS secrets that an application adds to
//! them.

use std::mem::take;
use std::sync::MutexGuard;

use super::Server;
use crate::driver::Command;
use crate::{Capture, Error};
use watm_policy::capture::StartingCapture;

impl Server {
    /// Begins a capture. Fails if one is being written, if a file cannot be made, and if the module
    /// has no capability `capture` or learns of captures at its start only. Waits for 10 s at most.
    pub fn start_capture(&self, capture: Capture) -> Result<(), Error> {
        let name = &self.handle.hub.name;
        if let Some(module) = self.status()?.module {
            module.check_capture(name)?;
        }
        let begun = self.claim(&capture)?;
        let wanted = Some(capture);
        match self.handle.ask(|reply| Command::Capture(wanted, reply)) {
            Ok(()) => {
                begun.keep();
                Ok(())
            }
            Err(error) => {
                self.capture().take();
                Err(error)
            }
        }
    }

    /// Ends the capture, if there is one. Its files are complete, also after an error. Waits for
    /// 10 s at most.
    pub fn stop_capture(&self) -> Result<(), Error> {
        let Some(capture) = take(&mut *self.capture()) else {
            return Ok(());
        };
        let told = self.handle.ask(|reply| Command::Capture(None, reply));
        capture.end();
        told
    }

    /// Adds lines of TLS secrets (in the format of an NSS key log) to the packet file, so that
    /// programs decrypt the packets after them. Ignored while nothing is captured.
    pub fn tls_secret(&self, lines: &str) {
        if let Some(capture) = &*self.capture() {
            capture.tls_secret(lines);
        }
    }

    /// Opens the files, and takes the place of the server's capture, if it is free.
    fn claim(&self, capture: &Capture) -> Result<StartingCapture, Error> {
        let name = &self.handle.hub.name;
        let refused = |reason: &str| Err(Error::Options(format!("{name}: {reason}")));
        let mut current = self.capture();
        if current.is_some() {
            return refused("a capture is being written; stop it first");
        }
        let Some(begun) = capture.begin(name)? else {
            return refused("this capture belongs to another server; make one for each");
        };
        *current = Some(capture.clone());
        Ok(begun)
    }

    fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        let capture = self.handle.capture.lock();
        capture.expect("no panic under this lock")
    }
}
