//! Captures a packet with a number each time that it asks for the wishes of its user.

use watm_host_kit::capture::{self, Direction, Wishes};
use watm_host_kit::{Case, ConfigError, StartOptions, case, done, same};

const TEXTS: [&[u8]; 3] = [b"packet one", b"packet two", b"packet three"];

struct Captures {
    asked: usize,
}

impl Captures {
    fn ask(&mut self) {
        let packets = self.asked == 1;
        let wishes = Wishes {
            packets,
            secrets: false,
        };
        same("the wishes", &capture::wanted(), &wishes);
        capture::packet("kit", Direction::FromPeer, &packet(TEXTS[self.asked]));
        self.asked += 1;
        if self.asked == TEXTS.len() {
            done();
        }
    }
}

/// Returns a packet of IPv4 with a datagram (RFC 791, RFC 768), without checksums.
fn packet(text: &[u8]) -> Vec<u8> {
    let length = |headers: usize| ((headers + text.len()) as u16).to_be_bytes();
    let mut packet = vec![0x45, 0];
    packet.extend(length(28));
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend([0x10, 0, 0x20, 0]);
    packet.extend(length(8));
    packet.extend([0, 0]);
    packet.extend(text);
    packet
}

impl Case for Captures {
    fn start(_: StartOptions, _: u64) -> Result<Self, ConfigError> {
        let mut case = Captures { asked: 0 };
        case.ask();
        Ok(case)
    }

    fn reconfigure(&mut self, _: Vec<u8>) -> Result<(), ConfigError> {
        if self.asked < TEXTS.len() {
            self.ask();
        }
        Ok(())
    }
}

case!(Captures);
