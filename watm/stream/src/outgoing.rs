//! A datagram socket with a send queue. Transports that carry datagrams beside streams use it.

use std::net::SocketAddr;

use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn, ErrorCode};

/// The size of a batch that is sent at once.
const FULL_DATAGRAMS: usize = 64;
const FULL_BYTES: usize = 128 << 10;

/// The most bytes queued while the network accepts none. Further ones are lost, as in a network.
const MOST_BYTES: usize = 1 << 20;

/// The longest payload of UDP over IPv4, in bytes.
const LARGEST: usize = 65_507;

/// A datagram socket with a queue of at most 1 MiB.
pub struct Outgoing {
    socket: Box<dyn DatagramSocket>,
    batch: DatagramBatch,
    blocked: bool,
}

impl Outgoing {
    /// Makes a queue in front of this socket.
    pub fn new(socket: Box<dyn DatagramSocket>) -> Outgoing {
        Outgoing {
            socket,
            batch: DatagramBatch::default(),
            blocked: false,
        }
    }

    /// See [`DatagramSocket::receive`].
    pub fn receive(&mut self, datagrams: u32, bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        self.socket.receive(datagrams, bytes)
    }

    /// Queue the datagram that `write` appends, of at most `most` bytes. Returns false if there is
    /// no room for that many, or if it is too long for UDP.
    pub fn push(
        &mut self,
        remote: SocketAddr,
        most: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        if self.batch.payload.len() + most > MOST_BYTES {
            return false;
        }
        let start = self.batch.payload.len();
        write(&mut self.batch.payload);
        let written = self.batch.payload.len() - start;
        if written > LARGEST {
            self.batch.payload.truncate(start);
            return false;
        }
        self.batch.datagrams.push(Datagram {
            len: written as u32,
            segment_size: None,
            remote,
            local: None,
            ecn: Ecn::default(),
        });
        true
    }

    /// Send if the batch is full. Returns the number of datagrams lost.
    pub fn flush_if_full(&mut self) -> u64 {
        let full =
            self.batch.datagrams.len() >= FULL_DATAGRAMS || self.batch.payload.len() >= FULL_BYTES;
        if full { self.flush() } else { 0 }
    }

    /// Send the batch, unless the network accepts nothing. Returns the number of datagrams lost.
    pub fn flush(&mut self) -> u64 {
        if self.blocked || self.batch.is_empty() {
            return 0;
        }
        let count = self.batch.datagrams.len();
        let sent = match self.socket.send(&self.batch) {
            Ok(sent) => (sent as usize).min(count),
            // The host may forbid some destinations, and logs them. The other datagrams are gone.
            Err(ErrorCode::AccessDenied) => count,
            Err(_) => {
                self.batch.payload.clear();
                self.batch.datagrams.clear();
                return count as u64;
            }
        };
        let bytes: usize = self.batch.datagrams[..sent]
            .iter()
            .map(|datagram| datagram.len as usize)
            .sum();
        self.batch.datagrams.drain(..sent);
        self.batch.payload.drain(..bytes);
        self.blocked = sent < count;
        0
    }

    /// Returns true if the network accepts nothing for now.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Record that the network may accept more.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }
}
