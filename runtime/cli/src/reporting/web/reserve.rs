//! Reserved file descriptors, so that status pages answer when the process has no others.

use std::io;

use socket2::{Domain, Socket, Type};

use crate::system::lacks_descriptors;

/// The number of reserved descriptors: enough for clients of the pages while the process has no
/// others.
const KEPT: usize = 8;

/// Descriptors for when the process has no others left.
///
/// The system gives a freed descriptor to the first that asks. There are several, so that other
/// threads, which want one too, do not always win.
pub(super) struct Reserve(Vec<Socket>);

impl Default for Reserve {
    fn default() -> Reserve {
        let mut reserve = Reserve(Vec::new());
        reserve.fill();
        reserve
    }
}

impl Reserve {
    /// Refills the reserve, as far as descriptors are available.
    pub(super) fn fill(&mut self) {
        while self.0.len() < KEPT {
            match Socket::new(Domain::IPV4, Type::STREAM, None) {
                Ok(socket) => self.0.push(socket),
                Err(_) => break,
            }
        }
    }

    /// Frees a descriptor if this error reports a lack of them and one is left.
    pub(super) fn relieve(&mut self, error: &io::Error) -> bool {
        lacks_descriptors(error) && self.0.pop().is_some()
    }
}
