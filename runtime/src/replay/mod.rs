//! Runs what was recorded.
//!
//! A [`Recording`] has everything that a module was told, so it takes the host's place:
//! [`Recording::replay`] makes the same calls in the same order and answers the module's
//! imports as the host did. A module is a function of what it is told, so the same module
//! does the same again, bit for bit, and another one shows where it does otherwise.
//!
//! - [`Mode::Exact`]: everything that the module does has to be what was recorded. The
//!   replay ends at the first difference.
//! - [`Mode::Fitting`], for another version of the module: what the host said is given to
//!   the module by resource, as far as it asks for it. See [`Mode::Fitting`] for the rules.
//!
//! A trap that was recorded is part of what has to happen. Only an interruption by the host,
//! for the CPU time that a call took or because the server closed, meets the module at
//! another instruction each time: there the replay stops the call too, wherever it is past
//! the last thing that it was seen to do.

mod exact;
mod fitting;
mod report;
mod run;
mod signing;
mod world;

use std::path::Path;

pub use report::{Difference, LogRecord, RecordingEnd, Report};

use crate::recording::{Header, Reader};
use crate::{Error, Module};

/// A file that [`ServerBuilder::record`](crate::ServerBuilder::record) has written.
pub struct Recording {
    reader: Reader,
    header: Header,
}

/// How strictly a module has to follow a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To the bit.
    Exact,
    /// For another version of the module than the one that was recorded.
    ///
    /// Calls are made as recorded, and imports answered as recorded, up to the first in a call
    /// that was not made then. From there on in that call, a socket is known by its label, a flow by its source and
    /// destination, an accepted connection by its listener and its turn. What the recorded
    /// module received from one of these during a call is there for this module from that
    /// call on; what it sends is accepted whole. Tokens are those that this module gave to
    /// the same resources, and it is called again while it has not taken everything. Random
    /// numbers and times are the recorded ones in their order, and go on from there by
    /// themselves; a module that draws other random numbers than the recorded one makes
    /// other keys, and cannot follow an encrypted conversation.
    ///
    /// The first thing done differently from the recording is reported, and does not end
    /// the replay; a trap that was not recorded ends the instance, and the replay goes on
    /// with a new one where the recording has one.
    Fitting,
}

impl Recording {
    /// Open a file. Fails if it is no recording, or one of another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, Error> {
        let (reader, header) = Reader::open(path.as_ref())?;
        Ok(Recording { reader, header })
    }

    /// The name of the module that was recorded.
    pub fn module(&self) -> &str {
        &self.header.module
    }

    /// The SHA-256 of that module's file, in hexadecimal.
    pub fn module_sha256(&self) -> &str {
        &self.header.module_sha256
    }

    /// What wrote it, on which machine.
    pub fn host(&self) -> &str {
        &self.header.host
    }

    /// When it began.
    pub fn began(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + self.header.began
    }

    /// Run a module through it, with the limits that were in force. Takes as much CPU time
    /// as the module did then, and no other time.
    ///
    /// Fails if the file is damaged; one that was cut short ends there.
    pub fn replay(self, module: &Module, mode: Mode) -> Result<Report, Error> {
        if module.component().is_none() {
            return Err(Error::Module {
                module: module.name().to_owned(),
                reason: format!("a {}; recordings are of components", module.info().kind),
            });
        }
        match mode {
            Mode::Exact => exact::replay(self.reader, &self.header, module),
            Mode::Fitting => fitting::replay(self.reader, &self.header, module),
        }
    }
}
