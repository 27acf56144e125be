//! The send queue of the datagram socket.

use std::net::{IpAddr, SocketAddr};

use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn};

/// The size in bytes from which on a batch is sent before more is added: far below the most that
/// the socket takes at once, and small enough to hold for a socket that takes nothing.
const BATCH_BYTES: usize = 128 << 10;

/// Datagrams for the proxies. The queue keeps those that the network does not take, and nothing
/// more is read from the application meanwhile.
#[derive(Default)]
pub struct Outgoing {
    batch: DatagramBatch,
    blocked: bool,
}

impl Outgoing {
    /// Returns true if the network must take something first.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Record that the network may take more.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Returns true if the batch should be sent.
    pub fn is_full(&self) -> bool {
        self.batch.payload.len() >= BATCH_BYTES
    }

    pub fn push(&mut self, header: &[u8], datagram: &[u8], to: SocketAddr, from: Option<IpAddr>) {
        self.batch.payload.extend_from_slice(header);
        self.batch.payload.extend_from_slice(datagram);
        let len = header.len() + datagram.len();
        self.batch.datagrams.push(Datagram {
            // A datagram of the application has at most 65,527 bytes.
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
        // An error means that the socket is gone: its datagrams are lost.
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
