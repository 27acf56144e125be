//! Parts of a server's status.

use std::fmt;
use std::time::Duration;

/// The phase of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The module runs.
    Running,
    /// The module failed; a new instance will start. The sockets stay bound.
    Restarting,
    /// The last attempt to restart failed, for this reason; the host keeps trying.
    Failed(String),
    /// The server is closed.
    Closed,
}

/// An instance of a server's module: the one that serves, or a former one that finishes its flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationStatus {
    /// The number, counted from 0.
    pub number: u32,
    /// The name that its module was loaded under.
    pub module: String,
    /// The SHA-256 of the module's bytes, in hexadecimal.
    pub sha256: String,
    /// The number of flows that are open now.
    pub flows: u32,
    /// The time since it was started.
    pub age: Duration,
    /// The time since another one serves; `None` for the serving one.
    pub draining: Option<Duration>,
}

/// A remote party that the transport knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The name that [`FlowInfo::peer`](crate::FlowInfo::peer) carries.
    pub name: String,
    /// The address where the peer was last heard, as `address:port`.
    pub endpoint: Option<String>,
    /// The age of the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// The inner bytes from the peer.
    pub received_bytes: u64,
    /// The inner bytes to the peer.
    pub sent_bytes: u64,
    /// The round-trip time to the peer, as the module estimates it from recent traffic.
    pub round_trip: Option<Duration>,
    /// The thousandths of the peer's packets that were lost lately.
    pub loss_permille: Option<u16>,
}

/// The configuration that one client needs in order to connect. Contains secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The peer that it is for, if the transport distinguishes peers.
    pub peer: Option<String>,
    /// A file name to suggest, such as `wg0.conf`.
    pub name: String,
    /// The content's media type.
    pub media_type: String,
    /// The content of the file.
    pub content: String,
}

/// Formats it without the content, which holds secrets.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("peer", &self.peer)
            .field("name", &self.name)
            .field("media_type", &self.media_type)
            .finish_non_exhaustive()
    }
}
