//! What happened so far, by name.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Something that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        const NAMES: &[&str] = &[$($name),*];
    };
}

counters! {
    /// Outer datagrams from the network, trains taken apart.
    DatagramsReceived = "wireguard.datagrams_received",
    /// Their bytes.
    BytesReceived = "wireguard.bytes_received",
    /// Outer datagrams that the host has taken.
    DatagramsSent = "wireguard.datagrams_sent",
    /// Their bytes.
    BytesSent = "wireguard.bytes_sent",
    /// Handshakes completed: as responder, with the first packet of the new session.
    Handshakes = "wireguard.handshakes",
    /// Handshake initiations sent.
    InitiationsSent = "wireguard.initiations_sent",
    /// Handshakes that tell how long a round trip takes.
    RoundTrips = "wireguard.round_trips",
    /// How long all of them took.
    RoundTripMicroseconds = "wireguard.round_trip_microseconds",
    /// Packets that the peers have sent in their sessions, by the numbers on them.
    PathExpected = "wireguard.packets_expected",
    /// Those of them that have come. The rest is lost, or late.
    PathReceived = "wireguard.packets_received",
    /// Cookie replies sent, because of load.
    CookiesSent = "wireguard.cookies_sent",
    /// Empty packets received.
    KeepalivesReceived = "wireguard.keepalives_received",
    /// Empty packets sent.
    KeepalivesSent = "wireguard.keepalives_sent",
    /// Peers whose session has been forgotten.
    SessionsExpired = "wireguard.sessions_expired",
    /// Endpoints that have moved.
    Roamed = "wireguard.roamed",
    /// The way to a peer takes smaller packets than was thought.
    Narrower = "wireguard.narrower",
    /// Not a WireGuard message.
    NotWireGuard = "wireguard.dropped.not_wireguard",
    /// A handshake message whose sender does not know our public key.
    InvalidMac = "wireguard.dropped.invalid_mac",
    /// A handshake by a key that is no peer's.
    UnknownPeer = "wireguard.dropped.unknown_peer",
    /// A message for a session or a handshake that is not there.
    NoSession = "wireguard.dropped.no_session",
    /// More handshakes than we answer, proven address or not.
    HandshakeLimit = "wireguard.dropped.handshake_limit",
    /// A handshake or a packet seen before.
    Replay = "wireguard.dropped.replay",
    /// What does not decrypt.
    NotAuthentic = "wireguard.dropped.not_authentic",
    /// Authentic, but not an IP packet.
    NotIp = "wireguard.dropped.not_ip",
    /// An inner source that the peer may not use.
    SourceNotAllowed = "wireguard.dropped.source_not_allowed",
    /// An inner destination that is not (or no longer) the peer's.
    DestinationNotAllowed = "wireguard.dropped.destination_not_allowed",
    /// For a peer that has not been heard and has no endpoint in the configuration.
    NoEndpoint = "wireguard.dropped.no_endpoint",
    /// The network takes less than we have to send.
    SendBacklog = "wireguard.dropped.send_backlog",
    /// A message for another generation that has no room for it.
    MailLost = "wireguard.dropped.mail",
    /// A message of another generation that says nothing, or of nothing that is here.
    MailStrange = "wireguard.dropped.strange_mail",
    /// For a peer whose session was here and has been given up.
    SessionGone = "wireguard.dropped.session_gone",
    /// The host's socket failed.
    SocketError = "wireguard.dropped.socket_error",
}

/// The counters, all of which begin at zero.
#[derive(Debug, Default)]
pub struct Counters([u64; NAMES.len()]);

impl Counters {
    /// One more.
    pub fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// So many more.
    pub fn add(&mut self, counter: Counter, amount: u64) {
        let counted = &mut self.0[counter as usize];
        *counted = counted.saturating_add(amount);
    }

    /// Name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().copied().zip(self.0)
    }
}
