//! Counters of the transport by name, for its status. Used by `transport`.

/// Amounts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets from the device.
    pub packets_received: u64,
    /// Bytes of these packets.
    pub bytes_received: u64,
    /// Packets that the host has accepted.
    pub packets_sent: u64,
    /// Bytes of these packets.
    pub bytes_sent: u64,
    /// Packets for which the host had no room.
    pub dropped_full: u64,
}

impl Counters {
    /// Returns the counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tun.packets_received", self.packets_received),
            ("tun.bytes_received", self.bytes_received),
            ("tun.packets_sent", self.packets_sent),
            ("tun.bytes_sent", self.bytes_sent),
            ("tun.dropped.full", self.dropped_full),
        ]
        .into_iter()
    }
}
