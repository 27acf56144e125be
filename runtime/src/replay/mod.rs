//! Replays recordings, for `watm replay` and other applications.
//!
//! A [`Recording`] has everything that a module was told, so it takes the host's place:
//! [`Recording::replay`] makes the same calls in the same order and answers the module's imports as
//! the host did. A module's actions depend only on what it is told, so the same module does the
//! same again, bit for bit, and another one shows where it differs.
//!
//! - [`Mode::Exact`]: everything that the module does must be what was recorded. The replay ends at
//!   the first difference.
//! - [`Mode::Fitting`], for another version of the module: the module gets the recorded data of
//!   each resource as it asks for it. See [`Mode::Fitting`] for the rules.
//!
//! A recorded trap must happen again. Only an interruption by the host, for the CPU time of a call
//! or because the server closed, meets the module at another instruction each time: there the
//! replay stops the call too, anywhere after the last action that was recorded.

mod answers;
mod exact;
mod fitting;
mod report;
mod run;
mod signing;
mod world;

use std::path::Path;

pub use report::{Difference, LogRecord, RecordingEnd, Report};

use crate::{Error, Module};
use watm_component::recording::{Header, Reader};

/// A file that [`ServerBuilder::record`](crate::ServerBuilder::record) has written.
pub struct Recording {
    reader: Reader,
    header: Header,
}

/// The strictness of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The module must do exactly what was recorded.
    Exact,
    /// The module is another version than the recorded one.
    ///
    /// Calls are made as recorded, and imports answered as recorded, up to the first import in a
    /// call that was not made in the recording. From there on in that call, a socket is identified
    /// by its label, a flow by its source and destination, an accepted connection by its listener
    /// and its number. The data that the recorded module received from one of these during a call
    /// is available to this module from that call on; what it sends is accepted whole. Tokens are
    /// those that this module gave to the same resources, and it is called again while it has not
    /// taken everything. Random numbers and times are the recorded ones in their order, and are
    /// generated after that. A module that draws other random numbers than the recorded one makes
    /// other keys, and cannot follow an encrypted conversation.
    ///
    /// The first difference is reported, and does not end the replay. A trap that was not recorded
    /// ends the instance, and the replay continues with the next instance of the recording.
    Fitting,
}

impl Recording {
    /// Opens a file. Fails if it is not a recording, or has another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, Error> {
        let (reader, header) = Reader::open(path.as_ref())?;
        Ok(Recording { reader, header })
    }

    /// Returns the name of the recorded module.
    pub fn module(&self) -> &str {
        &self.header.module
    }

    /// Returns the SHA-256 of that module's file, in hexadecimal.
    pub fn module_sha256(&self) -> &str {
        &self.header.module_sha256
    }

    /// Returns the host that wrote it, and its machine.
    pub fn host(&self) -> &str {
        &self.header.host
    }

    /// Returns the time at which it began.
    pub fn began(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + self.header.began
    }

    /// Runs a module through it, with the limits that were in force. Takes as much CPU time as the
    /// module did then, and does not wait.
    ///
    /// Fails if the file is damaged; a truncated one ends at that point.
    pub fn replay(self, module: &Module, mode: Mode) -> Result<Report, Error> {
        if !module.is_component() {
            return Err(Error::Module {
                module: module.name().to_owned(),
                reason: format!(
                    "is a {}; only components can be recorded and replayed",
                    module.info().kind
                ),
            });
        }
        match mode {
            Mode::Exact => exact::replay(self.reader, &self.header, module),
            Mode::Fitting => fitting::replay(self.reader, &self.header, module),
        }
    }
}
