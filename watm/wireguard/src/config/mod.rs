//! The configuration: the format of wg(8) and wg-quick(8), or the JSON of mitmproxy's
//! `wireguard.conf`.

mod check;
pub mod fields;
mod json;
mod value;
mod wg;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use boringtun::x25519::{PublicKey, StaticSecret};
use watm_core::{ConfigError, Destination};
use watm_netem::Rule;
use watm_netstack::Algorithm;
use watm_schema::field;

use fields::OF_WATM;

/// A checked configuration.
#[derive(Clone)]
pub struct Config {
    pub private_key: StaticSecret,
    pub public_key: PublicKey,
    /// The port in the file. The host's port takes precedence.
    pub listen_port: Option<u16>,
    /// The largest inner packet, in bytes. `None`: the path MTU to the peer, up to [`DEFAULT_MTU`].
    pub mtu: Option<u16>,
    /// The inner addresses that dialled connections come from, each with its network.
    pub addresses: Vec<Network>,
    /// The destination of a dialled connection whose application names none.
    pub target: Option<SocketAddr>,
    /// The addresses and resolvers in client configurations, in wg-quick's notation.
    pub client: ClientSettings,
    /// The peers, in the order of the file.
    pub peers: Vec<PeerConfig>,
    pub limits: Limits,
    /// The congestion control of TCP in the tunnel.
    pub congestion: Algorithm,
    /// The bad network between the peers and this end. Empty: a perfect one.
    pub network: Vec<Rule>,
    /// Likely mistakes that the user should look at.
    pub warnings: Vec<String>,
    /// A sentence on the fields that change the system in wg-quick and have no effect here.
    pub without_effect: Option<String>,
}

impl Config {
    /// The largest inner packet, in bytes.
    pub fn largest_packet(&self) -> u16 {
        self.mtu.unwrap_or(DEFAULT_MTU)
    }
}

/// The values in client configurations that are not derived from the peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// The addresses of a client whose peer entry names none.
    pub addresses: Vec<Network>,
    pub dns: Vec<String>,
}

#[derive(Clone)]
pub struct PeerConfig {
    pub public_key: PublicKey,
    /// The client's own key, which only mitmproxy's format contains.
    pub private_key: Option<StaticSecret>,
    pub preshared_key: Option<[u8; 32]>,
    pub allowed_ips: AllowedIps,
    /// Networks excluded from `allowed_ips`.
    pub disallowed_ips: Vec<Network>,
    /// The interval in seconds.
    pub persistent_keepalive: Option<u16>,
    pub endpoint: Option<Destination>,
}

/// The inner addresses that a peer may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedIps {
    /// All addresses, as in mitmproxy's own mode, whose peers are keys only.
    Any,
    /// These networks.
    Networks(Vec<Network>),
}

/// An address prefix. The bits of the address beyond the prefix stay as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub prefix: u8,
}

impl Network {
    /// Returns true if the network is a single address.
    pub fn is_host(&self) -> bool {
        self.prefix == if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Settings that wg(8) does not have: the section `[Watm]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The idle time after which a UDP flow ends.
    pub udp_idle_timeout: Duration,
    /// The most flows open at once.
    pub max_flows: u32,
    /// Handshake messages in a second beyond which senders must prove their address. One sender
    /// gets a part of them: see the module `admission`. A handshake costs half a millisecond in a
    /// module, so that the default keeps strangers below a twentieth of the time.
    pub handshakes_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            udp_idle_timeout: const {
                Duration::from_secs(field(&OF_WATM, "UdpIdleTimeout").default_number())
            },
            max_flows: const { field(&OF_WATM, "MaxFlows").default_number() as u32 },
            handshakes_per_second: const {
                field(&OF_WATM, "HandshakesPerSecond").default_number() as u32
            },
        }
    }
}

/// The MTU that leaves room for IPv6, UDP and WireGuard in 1500 bytes of Ethernet.
pub const DEFAULT_MTU: u16 = 1420;

/// Reads a configuration. JSON is detected by its first character.
pub fn parse(bytes: &[u8]) -> Result<Config, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        ConfigError::Syntax(format!(
            "line {line}: not UTF-8; the configuration is a text file"
        ))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') {
        json::parse(text)
    } else {
        wg::parse(text)
    }
}
