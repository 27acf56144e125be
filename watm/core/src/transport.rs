use std::net::SocketAddr;
use std::time::Duration;
use std::{error, fmt};

use crate::{ByteStream, DatagramFlow, Destination, ErrorCode, Host, Instant, Level, Token};

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// The bytes are not in the transport's format: what is wrong, and where.
    Syntax(String),
    /// A field is missing, unknown or out of range: its path, and why.
    Field(String, String),
    /// The configuration is fine, but a resource it needs is not there.
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

/// What a transport is started with.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// In the transport's own format.
    pub config: Vec<u8>,
    /// Records below this level are not worth building.
    pub log_level: Level,
    /// 0 for the first module behind a set of sockets, one more for each that follows.
    pub generation: u32,
    /// What [`Transport::snapshot`] of the generation that serves returned, if there is one.
    pub predecessor: Option<Vec<u8>>,
}

/// When a transport wants to be called next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// Work is left over: soon.
    Again,
    /// When a token is ready, or at this time at the latest.
    At(Instant),
    /// When a token is ready.
    OnReady,
    /// Never: another generation serves, and nothing is left to be done.
    Finished,
}

impl Wakeup {
    /// Of a transport of two parts: whichever part's is earlier. It is finished when both are.
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

/// One remote party the transport knows by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerStatus {
    /// The name that [`FlowInfo::peer`](crate::FlowInfo::peer) carries.
    pub name: String,
    /// Where the peer was last heard.
    pub endpoint: Option<SocketAddr>,
    /// Age of the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// Inner bytes from the peer.
    pub received_bytes: u64,
    /// Inner bytes to the peer.
    pub sent_bytes: u64,
    /// How long the way to the peer and back takes, by what was seen of it lately.
    pub round_trip: Option<Duration>,
    /// How many of a thousand packets of the peer's were lost lately.
    pub loss_permille: Option<u16>,
}

/// How a transport is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The peers, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// Flows open now.
    pub flows: u32,
    /// Counters by name; never reset.
    pub counters: Vec<(&'static str, u64)>,
}

/// What one client needs in order to connect. Contains secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The peer this is for, if the transport tells peers apart.
    pub peer: Option<String>,
    /// A file name to suggest.
    pub name: String,
    /// The content's media type.
    pub media_type: String,
    /// The file.
    pub content: String,
}

/// A transport: the exports of `wit/endpoint.wit`. See the crate's page for the run loop.
pub trait Transport: Sized {
    /// Read the configuration and open the sockets. Without a predecessor the transport serves
    /// from now on; with one it waits until [`serving`](Self::serving) names it.
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError>;

    /// Replace the configuration; on an error the old one stays in force.
    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError>;

    /// Make progress on the resources in `ready`, and on timers due by
    /// [`host.now()`](Host::now). Spurious calls are harmless.
    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup;

    /// Carry a stream of the application's to `destination`, or to where the configuration
    /// says if that is `None`. Returns the token that the transport chose for `application`,
    /// which is armed for reading. What fails later resets the stream.
    ///
    /// Fails with [`ErrorCode::NotSupported`] if the transport only takes connections on.
    fn dial(
        &mut self,
        _destination: Option<&Destination>,
        _application: Box<dyn ByteStream>,
        _host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Carry datagrams of the application's to `destination`, or to where the configuration says
    /// if that is `None`, and the answers back. Returns the token that the transport chose for
    /// `application`, which is armed for reading. The flow is dropped when it has been idle for
    /// too long, or when nothing can be carried any more.
    ///
    /// Fails with [`ErrorCode::NotSupported`] if the transport carries no datagrams, or only
    /// takes connections on.
    fn dial_datagrams(
        &mut self,
        _destination: Option<&Destination>,
        _application: Box<dyn DatagramFlow>,
        _host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// What the next generation needs in order to meet the same peers again, in a format that
    /// it tells from others. No session keys. Empty: nothing.
    fn snapshot(&mut self, _now: Instant) -> Vec<u8> {
        Vec::new()
    }

    /// From now on this generation serves. If it is another than this one, finish what there
    /// is, and take no more; then [`process`](Self::process) returns [`Wakeup::Finished`].
    fn serving(&mut self, _generation: u32, _host: &mut dyn Host) {}

    /// The machine's addresses or routes have changed, so that sessions with others may be broken.
    fn network_changed(&mut self, _host: &mut dyn Host) {}

    /// How the transport is doing at `now`.
    fn status(&self, now: Instant) -> Status;

    /// What clients need in order to connect, given the host and port that they reach
    /// the first socket at.
    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode>;
}
