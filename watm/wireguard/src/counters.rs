//! Counters of the transport by name, for its status. Used throughout the crate.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An event or an amount that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        const NAMES: &[&str] = &[$($name),*];
    };
}

counters! {
    /// Outer datagrams from the network, with trains split.
    DatagramsReceived = "wireguard.datagrams_received",
    /// Bytes of the outer datagrams received.
    BytesReceived = "wireguard.bytes_received",
    /// Outer datagrams that the host has accepted.
    DatagramsSent = "wireguard.datagrams_sent",
    /// Bytes of the outer datagrams sent.
    BytesSent = "wireguard.bytes_sent",
    /// Handshakes completed: as responder, with the first packet of the new session.
    Handshakes = "wireguard.handshakes",
    /// Initiations passed to the worker that has their peer.
    Passed = "wireguard.initiations_passed",
    /// Handshake initiations sent.
    InitiationsSent = "wireguard.initiations_sent",
    /// Handshakes that allow a measurement of the round trip.
    RoundTrips = "wireguard.round_trips",
    /// The sum of all measured round trips.
    RoundTripMicroseconds = "wireguard.round_trip_microseconds",
    /// Packets that the peers have sent in their sessions, by the packets' numbers.
    PathExpected = "wireguard.packets_expected",
    /// The received part of them. The rest is lost, or late.
    PathReceived = "wireguard.packets_received",
    /// Cookie replies sent, because of load.
    CookiesSent = "wireguard.cookies_sent",
    /// Empty packets received.
    KeepalivesReceived = "wireguard.keepalives_received",
    /// Empty packets sent.
    KeepalivesSent = "wireguard.keepalives_sent",
    /// Peers whose session has expired.
    SessionsExpired = "wireguard.sessions_expired",
    /// Changes of endpoints.
    Roamed = "wireguard.roamed",
    /// Decreases of the path MTU to a peer.
    Narrower = "wireguard.narrower",
    /// Datagrams that are not WireGuard messages.
    NotWireGuard = "wireguard.dropped.not_wireguard",
    /// Handshake messages whose sender does not know the server's public key.
    InvalidMac = "wireguard.dropped.invalid_mac",
    /// Handshakes by a key that belongs to no peer.
    UnknownPeer = "wireguard.dropped.unknown_peer",
    /// Messages for an unknown session or handshake.
    NoSession = "wireguard.dropped.no_session",
    /// Handshakes beyond the limit, with or without a proven address.
    HandshakeLimit = "wireguard.dropped.handshake_limit",
    /// Handshakes or packets seen before.
    Replay = "wireguard.dropped.replay",
    /// Messages that do not decrypt.
    NotAuthentic = "wireguard.dropped.not_authentic",
    /// Authentic payloads that are not IP packets.
    NotIp = "wireguard.dropped.not_ip",
    /// Packets with an inner source that the peer may not use.
    SourceNotAllowed = "wireguard.dropped.source_not_allowed",
    /// Packets to an inner destination that is not (or no longer) the peer's.
    DestinationNotAllowed = "wireguard.dropped.destination_not_allowed",
    /// Packets for a peer that has not been heard and has no endpoint in the configuration.
    NoEndpoint = "wireguard.dropped.no_endpoint",
    /// Packets lost because the network accepts less than there is to send.
    SendBacklog = "wireguard.dropped.send_backlog",
    /// Messages lost because another generation has no room for them.
    MailLost = "wireguard.dropped.mail",
    /// Malformed messages from another generation, and messages about unknown things.
    MailStrange = "wireguard.dropped.strange_mail",
    /// Packets for a peer whose session here has been given up.
    SessionGone = "wireguard.dropped.session_gone",
    /// Failures of the host's socket.
    SocketError = "wireguard.dropped.socket_error",
}

/// The counters. All begin at zero.
#[derive(Debug)]
pub struct Counters([u64; NAMES.len()]);

impl Default for Counters {
    fn default() -> Self {
        Counters([0; NAMES.len()])
    }
}

impl Counters {
    /// Adds one.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `amount`.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        let counted = &mut self.0[counter as usize];
        *counted = counted.saturating_add(amount);
    }

    /// The name and the value of each counter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().copied().zip(self.0)
    }
}
