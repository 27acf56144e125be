use std::net::{IpAddr, SocketAddr};

use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn};

/// A batch this large is sent before more is added: what the socket takes at once by far, and
/// little enough to wait for one that takes nothing.
const BATCH_BYTES: usize = 128 << 10;

/// What is on its way to the proxies. What the network does not take stays, and while there is any
/// of it nothing more is asked of the application.
#[derive(Default)]
pub struct Outgoing {
    batch: DatagramBatch,
    blocked: bool,
}

impl Outgoing {
    /// Whether the network has to take something first.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// It may take more than it did.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Whether so much is there that it should be sent.
    pub fn is_full(&self) -> bool {
        self.batch.payload.len() >= BATCH_BYTES
    }

    pub fn push(&mut self, header: &[u8], datagram: &[u8], to: SocketAddr, from: Option<IpAddr>) {
        self.batch.payload.extend_from_slice(header);
        self.batch.payload.extend_from_slice(datagram);
        let len = header.len() + datagram.len();
        self.batch.datagrams.push(Datagram {
            // A datagram of the application's has 65,527 bytes at most.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            segment_size: None,
            remote: to,
            local: from,
            ecn: Ecn::NotEct,
        });
    }

    pub fn flush(&mut self, socket: &mut dyn DatagramSocket) {
        if self.blocked || self.batch.is_empty() {
            return;
        }
        let given = self.batch.datagrams.len();
        // An error is of a socket that is gone: what is for it is lost.
        let taken = socket
            .send(&self.batch)
            .map_or(given, |taken| taken as usize);
        if taken >= given {
            self.batch.datagrams.clear();
            self.batch.payload.clear();
            return;
        }
        let gone = self.batch.datagrams.drain(..taken);
        let bytes: usize = gone.map(|datagram| datagram.len as usize).sum();
        self.batch.payload.drain(..bytes);
        self.blocked = true;
    }
}
