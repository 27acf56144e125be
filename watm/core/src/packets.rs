//! Devices for IP packets: `wit/packets.wit`.
//!
//! The shell that links the transport to its host sets the provider once for the thread, as with
//! [`crypto`](crate::crypto). No provider is set natively and in WATER modules, unless a test sets one.

use std::cell::Cell;

use crate::{ErrorCode, Token};

/// The checksum of the TCP segment or UDP datagram in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    /// The field holds it, and nobody has verified it.
    #[default]
    Complete,
    /// The other side has verified it, or vouches that the packet crossed no network.
    Verified,
    /// The field holds the sum of the pseudo-header alone.
    Partial {
        /// The bytes before the segment or datagram, from the start of the packet.
        start: u16,
        /// The bytes from there to the field.
        offset: u16,
    },
}

/// One entry of a [`PacketBatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketInfo {
    /// Bytes of the payload that this entry covers.
    pub len: u32,
    /// The state of the checksum.
    pub checksum: Checksum,
    /// The payload of each packet, if the entry stands for several.
    pub segment_size: Option<u16>,
}

/// A batch of packets, laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PacketBatch {
    /// The packets' bytes, without gaps.
    pub payload: Vec<u8>,
    /// The entries, in order. Their lengths add up to the payload's.
    pub packets: Vec<PacketInfo>,
}

impl PacketBatch {
    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Iterates over the entries.
    pub fn iter(&self) -> impl Iterator<Item = (&PacketInfo, &[u8])> {
        let mut rest = self.payload.as_slice();
        self.packets.iter().map(move |info| {
            let (packet, tail) = rest.split_at((info.len as usize).min(rest.len()));
            rest = tail;
            (info, packet)
        })
    }

    /// Append one packet with its checksum.
    pub fn push(&mut self, packet: &[u8]) {
        self.push_unfinished(packet, PacketInfo::default());
    }

    /// Append an entry of this description, whose length is set.
    pub fn push_unfinished(&mut self, packet: &[u8], info: PacketInfo) {
        self.payload.extend_from_slice(packet);
        self.packets.push(PacketInfo {
            len: u32::try_from(packet.len()).expect("a packet is shorter than 4 GiB"),
            ..info
        });
    }

    /// Remove all entries, and keep the capacity.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.packets.clear();
    }
}

/// Work that one side may leave to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// Checksums may be [partial](Checksum::Partial).
    pub checksum: bool,
    /// An entry may stand for several TCP segments.
    pub tcp_segments: bool,
    /// An entry may stand for several UDP datagrams.
    pub udp_segments: bool,
}

/// A device for IP packets, granted by the host. Closed when dropped.
pub trait PacketDevice {
    /// Receive packets until there are `max_packets` or `max_bytes`, which the last one may exceed.
    /// Empty: nothing is waiting.
    ///
    /// Fails with [`ErrorCode::ConnectionAborted`] if the device is gone.
    fn receive(&mut self, max_packets: u32, max_bytes: u32) -> Result<PacketBatch, ErrorCode>;

    /// Give packets to the system, in order. Returns the number of entries accepted; the caller keeps
    /// the rest. Packets that the system refuses are lost, and count as accepted.
    fn send(&mut self, batch: &PacketBatch) -> Result<u32, ErrorCode>;

    /// Set the offloads that entries may use in both directions from now on. Returns those of
    /// `wanted` that the device has. None at first.
    fn set_offloads(&mut self, wanted: Offloads) -> Offloads;

    /// The longest packet that the system sends into the device, in bytes, unless the entry stands
    /// for several.
    fn mtu(&self) -> u32;
}

/// Takes the device that the host granted under a label. Fails with [`ErrorCode::AccessDenied`] if
/// there is none, and with [`ErrorCode::InvalidState`] if it was already taken.
pub type Provider = fn(&str, Token) -> Result<Box<dyn PacketDevice>, ErrorCode>;

thread_local! {
    static PROVIDER: Cell<Option<Provider>> = const { Cell::new(None) };
}

/// Set the provider for the transports that this thread starts from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.set(provider);
}

/// Take the device that the host granted under `label`. Fails with [`ErrorCode::NotSupported`] if no
/// provider is set.
pub fn open(label: &str, token: Token) -> Result<Box<dyn PacketDevice>, ErrorCode> {
    match PROVIDER.get() {
        Some(provider) => provider(label, token),
        None => Err(ErrorCode::NotSupported),
    }
}
