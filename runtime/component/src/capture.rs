//! The import `capture`: copies of packets and secrets for the user. The linker of `component`
//! calls it.

use super::State;
use super::bindings::watm::transport::capture;

/// Calls that the tape does not record: a capture does not change the module's behaviour otherwise,
/// and a replay has no capture.
impl capture::Host for State {
    fn wanted(&mut self) -> wasmtime::Result<capture::Wishes> {
        self.capture_known = true;
        let wanted = self.capture.as_ref().map(crate::Capture::wishes);
        let (packets, secrets) = wanted.unwrap_or_default();
        Ok(capture::Wishes { packets, secrets })
    }

    fn packet(
        &mut self,
        peer: String,
        direction: capture::Direction,
        packet: Vec<u8>,
    ) -> wasmtime::Result<()> {
        if let Some(capture) = &self.capture {
            let from_peer = direction == capture::Direction::FromPeer;
            capture.packet(&peer, from_peer, &packet);
        }
        Ok(())
    }

    fn secret(&mut self, lines: String) -> wasmtime::Result<()> {
        if let Some(capture) = &self.capture {
            capture.secret(&lines);
        }
        Ok(())
    }
}
