//! The trait that every transport implements, and its types: the exports of `wit/endpoint.wit`. The
//! shells of guests and the tests call it.

use std::net::SocketAddr;
use std::time::Duration;
use std::{error, fmt};

use crate::{ByteStream, DatagramFlow, Destination, ErrorCode, Host, Instant, Level, Token};

/// The reason why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// The bytes are not in the transport's format: the error and its position.
    Syntax(String),
    /// A field is missing, unknown or out of range: its path and the reason.
    Field(String, String),
    /// The configuration is valid, but a resource that it needs is missing.
    Other(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Syntax(text) | ConfigError::Other(text) => f.write_str(text),
            ConfigError::Field(path, why) => write!(f, "{path}: {why}"),
        }
    }
}

impl error::Error for ConfigError {}

/// The arguments of [`Transport::start`].
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The configuration, in the transport's own format.
    pub config: Vec<u8>,
    /// The lowest level that the host keeps. Records below it are not worth building.
    pub log_level: Level,
    /// The number of the module behind a set of sockets: 0 for the first, one more for each that
    /// follows.
    pub generation: u32,
    /// The snapshot ([`Transport::snapshot`]) of the generation that serves, if there is one.
    pub predecessor: Option<Vec<u8>>,
}

/// The time at which a transport needs its next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// Soon: work is left.
    Again,
    /// On a ready token, or at this time at the latest.
    At(Instant),
    /// On a ready token only.
    OnReady,
    /// Never: another generation serves, and this one has nothing left to do.
    Finished,
}

impl Wakeup {
    /// Combines the two parts of a transport: returns the earlier wakeup. The result is `Finished`
    /// only if both are.
    pub fn or_earlier(self, other: Wakeup) -> Wakeup {
        match (self, other) {
            (Wakeup::Again, _) | (_, Wakeup::Again) => Wakeup::Again,
            (Wakeup::At(one), Wakeup::At(other)) => Wakeup::At(one.min(other)),
            (Wakeup::At(due), _) | (_, Wakeup::At(due)) => Wakeup::At(due),
            (Wakeup::Finished, Wakeup::Finished) => Wakeup::Finished,
            (Wakeup::OnReady | Wakeup::Finished, Wakeup::OnReady | Wakeup::Finished) => {
                Wakeup::OnReady
            }
        }
    }
}

/// A remote party that the transport knows by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerStatus {
    /// The name that [`FlowInfo::peer`](crate::FlowInfo::peer) carries.
    pub name: String,
    /// The address from which the peer was last heard.
    pub endpoint: Option<SocketAddr>,
    /// The age of the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// Inner bytes from the peer.
    pub received_bytes: u64,
    /// Inner bytes to the peer.
    pub sent_bytes: u64,
    /// The round-trip time to the peer, estimated from recent packets.
    pub round_trip: Option<Duration>,
    /// Recent loss of the peer's packets, in thousandths.
    pub loss_permille: Option<u16>,
}

/// The state of a transport.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The peers, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// The number of open flows.
    pub flows: u32,
    /// Counters by name. They are never reset.
    pub counters: Vec<(&'static str, u64)>,
}

/// A file that one client needs in order to connect. Contains secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The peer that the file is for, if the transport distinguishes peers.
    pub peer: Option<String>,
    /// A file name to suggest.
    pub name: String,
    /// The content's media type.
    pub media_type: String,
    /// The content of the file.
    pub content: String,
}

/// A transport: the exports of `wit/endpoint.wit`. See the crate's documentation for the run
/// loop.
pub trait Transport: Sized {
    /// Read the configuration and open the sockets. Without a predecessor the transport serves
    /// from now on; with one it waits until [`serving`](Self::serving) names it.
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError>;

    /// Replace the configuration; on an error the old one stays in force.
    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError>;

    /// Make progress on the resources in `ready`, and on timers due by
    /// [`host.now()`](Host::now). Spurious calls are harmless.
    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup;

    /// Carry a stream of the application to `destination`, or if that is `None`, to the destination
    /// in the configuration. Returns the token that the transport chose for `application`, which is
    /// armed for reading. Later failures reset the stream.
    ///
    /// Fails with [`ErrorCode::NotSupported`] if the transport only accepts connections.
    fn dial(
        &mut self,
        _destination: Option<&Destination>,
        _application: Box<dyn ByteStream>,
        _host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Carry datagrams of the application to `destination`, or if that is `None`, to the
    /// destination in the configuration, and the answers back. Returns the token that the transport
    /// chose for `application`, which is armed for reading. The transport drops the flow after too
    /// long an idle time, or when it can carry nothing any more.
    ///
    /// Fails with [`ErrorCode::NotSupported`] if the transport carries no datagrams, or only
    /// accepts connections.
    fn dial_datagrams(
        &mut self,
        _destination: Option<&Destination>,
        _application: Box<dyn DatagramFlow>,
        _host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// The data that the next generation needs in order to meet the same peers again, in a format
    /// that it can tell from others. Contains no session keys. Empty if it needs none.
    fn snapshot(&mut self, _now: Instant) -> Vec<u8> {
        Vec::new()
    }

    /// Report the generation that serves from now on. If that is another one, finish the open flows
    /// and take no more; then [`process`](Self::process) returns [`Wakeup::Finished`].
    fn serving(&mut self, _generation: u32, _host: &mut dyn Host) {}

    /// Report that the machine's addresses or routes have changed, which may break sessions with
    /// others.
    fn network_changed(&mut self, _host: &mut dyn Host) {}

    /// The state of the transport at `now`.
    fn status(&self, now: Instant) -> Status;

    /// The files that clients need in order to connect, given the host and port at which they reach
    /// the first socket.
    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode>;
}
