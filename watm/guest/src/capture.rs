//! Captures, on the import `capture`. Transports that offer them name `capture` in
//! `export!`.

use watm_core::capture::{Capture, Direction, set_provider};

use crate::bindings::watm::transport::capture as wit;

/// Enables captures for this thread's transport. A module without this call does not import the
/// interface.
pub fn provide() {
    set_provider(Some(wanted));
}

fn wanted() -> Option<Box<dyn Capture>> {
    let wanted = wit::wanted();
    (wanted.packets || wanted.secrets).then(|| Box::new(Wanted(wanted)) as Box<dyn Capture>)
}

struct Wanted(wit::Wishes);

impl Capture for Wanted {
    fn wants_packets(&self) -> bool {
        self.0.packets
    }

    fn wants_secrets(&self) -> bool {
        self.0.secrets
    }

    fn packet(&self, peer: &str, direction: Direction, packet: &[u8]) {
        let direction = match direction {
            Direction::FromPeer => wit::Direction::FromPeer,
            Direction::ToPeer => wit::Direction::ToPeer,
        };
        wit::packet(peer, direction, packet);
    }

    fn secret(&self, lines: &str) {
        wit::secret(lines);
    }
}
