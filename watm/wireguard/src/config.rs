//! The configuration: the format of wg(8) and wg-quick(8), or the JSON of mitmproxy's
//! `wireguard.conf`.

mod check;
mod json;
mod value;
mod wg;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use boringtun::x25519::{PublicKey, StaticSecret};
use watm_core::{ConfigError, Destination};

/// A configuration whose every field has been checked.
#[derive(Clone)]
pub struct Config {
    pub private_key: StaticSecret,
    pub public_key: PublicKey,
    /// The port that the file names. The host has the last word.
    pub listen_port: Option<u16>,
    /// The largest inner packet; `None`: what the way to the peer takes, up to [`DEFAULT_MTU`].
    pub mtu: Option<u16>,
    /// Our own inner addresses, which connections from here come from, with the networks that they
    /// are of.
    pub addresses: Vec<Network>,
    /// Where a connection from here goes whose application names no destination.
    pub target: Option<SocketAddr>,
    /// What clients are told, in wg-quick's notation.
    pub client: ClientSettings,
    /// In the order of the file.
    pub peers: Vec<PeerConfig>,
    pub limits: Limits,
    /// What the user should look at.
    pub warnings: Vec<String>,
    /// Fields that change the system in wg-quick, and nothing here, in a sentence.
    pub without_effect: Option<String>,
}

impl Config {
    /// The largest inner packet that there is.
    pub fn largest_packet(&self) -> u16 {
        self.mtu.unwrap_or(DEFAULT_MTU)
    }
}

/// What goes into client configurations and is not derived from the peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// For a client whose peer entry names no address of its own.
    pub addresses: Vec<Network>,
    pub dns: Vec<String>,
}

#[derive(Clone)]
pub struct PeerConfig {
    pub public_key: PublicKey,
    /// The client's own key, which only mitmproxy's format has.
    pub private_key: Option<StaticSecret>,
    pub preshared_key: Option<[u8; 32]>,
    pub allowed_ips: AllowedIps,
    /// What is taken away from those again.
    pub disallowed_ips: Vec<Network>,
    /// In seconds.
    pub persistent_keepalive: Option<u16>,
    pub endpoint: Option<Destination>,
}

/// Which inner addresses a peer may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedIps {
    /// Any, as with mitmproxy's own mode, whose peers are keys and nothing else.
    Any,
    /// These.
    Networks(Vec<Network>),
}

/// An address prefix, with the bits beyond it as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub prefix: u8,
}

impl Network {
    /// Whether this is one address.
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
    /// A UDP flow that is idle for this long ends.
    pub udp_idle_timeout: Duration,
    /// Most flows at a time.
    pub max_flows: u32,
    /// Handshake messages in a second beyond which senders have to prove their address; one
    /// sender gets a part of them. See the module `admission`. A handshake costs half a
    /// millisecond in a module, so the default keeps strangers below a twentieth of the time.
    pub handshakes_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            udp_idle_timeout: Duration::from_secs(60),
            max_flows: 16384,
            handshakes_per_second: 100,
        }
    }
}

/// The MTU that leaves room for IPv6, UDP and WireGuard in 1500 bytes of Ethernet.
pub const DEFAULT_MTU: u16 = 1420;

/// Where mitmproxy's own mode has its resolver, and what its clients are told.
pub const DEFAULT_DNS: &str = "10.0.0.53";

/// Read a configuration. JSON is told by its first character.
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
