use std::io;

use socket2::{Domain, Socket, Type};

use crate::system::lacks_descriptors;

/// Descriptors that are kept back: enough for who asks while the process has no others.
const KEPT: usize = 8;

/// Descriptors for when the process has no others left.
///
/// A system gives a descriptor that becomes free to whoever asks first. There are several, so that
/// other threads of the process, which want one too, are not always faster.
pub(super) struct Reserve(Vec<Socket>);

impl Default for Reserve {
    fn default() -> Reserve {
        let mut reserve = Reserve(Vec::new());
        reserve.fill();
        reserve
    }
}

impl Reserve {
    /// Takes back what was given away, as far as there are descriptors.
    pub(super) fn fill(&mut self) {
        while self.0.len() < KEPT {
            match Socket::new(Domain::IPV4, Type::STREAM, None) {
                Ok(socket) => self.0.push(socket),
                Err(_) => break,
            }
        }
    }

    /// Frees a descriptor, if this error is about a lack of them and one is left.
    pub(super) fn relieve(&mut self, error: &io::Error) -> bool {
        lacks_descriptors(error) && self.0.pop().is_some()
    }
}
