//! The fields of both formats. Used by `json` and `wg`.

use watm_schema::{Described, Field, Kind, fields};

const KEY: Kind = Kind::Text("44 characters of base64");
const NETWORKS: Kind = Kind::List("networks such as `10.0.0.2/32`, separated by commas");

/// The largest inner packet: from the least that IPv6 asks of a link (RFC 8200, section 5) to the most
/// that fits into a UDP datagram with the 32 bytes that WireGuard adds.
const fn mtu(name: &'static str) -> Described {
    (
        Field::number(name, "bytes", 1280, 65475)
            .or_else("the size that the path carries, at most 1420"),
        "The largest inner packet.",
    )
}

/// The idle time of UDP flows: up to a day.
const fn udp_idle_timeout(name: &'static str) -> Described {
    (
        Field::number(name, "seconds", 1, 86400).or_number(60),
        "The time without traffic before a UDP flow ends.",
    )
}

/// The most flows: up to the number of ports.
const fn max_flows(name: &'static str) -> Described {
    (
        Field::number(name, "", 1, 65535).or_number(16384),
        "The most flows at once.",
    )
}

const fn handshakes_per_second(name: &'static str) -> Described {
    (
        Field::number(name, "", 1, 1_000_000).or_number(100),
        "Handshakes per second beyond which senders must prove their address.",
    )
}

/// The congestion control of TCP in the tunnel.
const fn congestion_control(name: &'static str) -> Described {
    (
        Field::choice(name, &["cubic", "bbr"]).or("cubic"),
        "How TCP in the tunnel finds its rate: CUBIC grows until the path's queue is full, BBR measures \
         the path and tolerates random losses.",
    )
}

const fn network(name: &'static str) -> Described {
    (
        watm_netem::field(name),
        "The [bad network](networks.md) between the peers and this end.",
    )
}

/// The fields of `[Interface]`.
pub const INTERFACE: [Described; 5] = [
    (
        Field::new("PrivateKey", KEY).required(),
        "The key, as `wg genkey` prints it.",
    ),
    (
        Field::number("ListenPort", "", 0, 65535).or_else("any"),
        "The port of the socket. The host's port takes precedence.",
    ),
    (
        Field::new("Address", NETWORKS),
        "The addresses of this end in the tunnel.",
    ),
    (
        Field::new(
            "DNS",
            Kind::List("addresses and domains, separated by commas"),
        )
        .or_else("`10.0.0.53` for clients"),
        "Servers and search domains for names in the tunnel.",
    ),
    mtu("MTU"),
];

/// The fields of `[Peer]`.
pub const PEER: [Described; 6] = [
    (Field::new("PublicKey", KEY).required(), "The peer's key."),
    (
        Field::new("PresharedKey", KEY),
        "A key that both ends share, as `wg genpsk` prints it.",
    ),
    (
        Field::new("AllowedIPs", NETWORKS).or_else("none: nothing is admitted"),
        "The networks of the peer, in both directions.",
    ),
    (
        Field::new("DisallowedIPs", NETWORKS),
        "Networks that are subtracted from `AllowedIPs`.",
    ),
    (
        Field::new(
            "Endpoint",
            Kind::Text("a host and a port, such as `vpn.example.org:51820`"),
        )
        .or_else("the address where the peer was last heard"),
        "The [address of the peer](#endpoints).",
    ),
    (
        Field::new(
            "PersistentKeepalive",
            Kind::Any("a number of seconds from 0 to 65535, or `off`"),
        )
        .or("off"),
        "The interval of packets that keep the session alive.",
    ),
];

/// The fields of `[Watm]`, which wg(8) does not have.
pub const WATM: [Described; 6] = [
    (
        Field::new(
            "Target",
            Kind::Text("an address and a port, such as `10.9.8.7:80`"),
        ),
        "The destination in the tunnel of connections that name none.",
    ),
    udp_idle_timeout("UdpIdleTimeout"),
    max_flows("MaxFlows"),
    handshakes_per_second("HandshakesPerSecond"),
    congestion_control("CongestionControl"),
    network("Network"),
];

/// The default addresses of a client: 10.0.0.1, as in mitmproxy's own configuration, and an address
/// of the private IPv6 range (RFC 4193).
pub(super) const CLIENT_ADDRESS: &str = "10.0.0.1/32, fd77:6174:6d::1/128";

/// The address of the resolver in mitmproxy's own mode, as its clients are told.
pub(super) const DEFAULT_DNS: &str = "10.0.0.53";

/// The fields of mitmproxy's `wireguard.conf`, and those that this transport adds.
pub const MITMPROXY: [Described; 11] = [
    (
        Field::new("server_key", KEY).required(),
        "The server's private key.",
    ),
    (
        Field::new("client_key", KEY).or_else("required without `peer_public_keys`"),
        "The client's private key, for the client configuration that the page shows.",
    ),
    (
        Field::new(
            "peer_public_keys",
            Kind::List("a list of keys, each 44 characters of base64"),
        ),
        "The public keys of further clients.",
    ),
    mtu("mtu"),
    udp_idle_timeout("udp_idle_timeout"),
    max_flows("max_flows"),
    handshakes_per_second("handshakes_per_second"),
    congestion_control("congestion_control"),
    network("network"),
    (
        Field::new("client_address", NETWORKS).or(CLIENT_ADDRESS),
        "The addresses of clients in the tunnel, in one string.",
    ),
    (
        Field::new(
            "dns",
            Kind::List("addresses and domains, separated by commas"),
        )
        .or(DEFAULT_DNS),
        "The servers for clients, in one string.",
    ),
];

pub(super) static OF_INTERFACE: [Field; 5] = fields(&INTERFACE);
pub(super) static OF_PEER: [Field; 6] = fields(&PEER);
pub(super) const OF_WATM: [Field; 6] = fields(&WATM);
pub(super) static OF_MITMPROXY: [Field; 11] = fields(&MITMPROXY);
