//! Conversions between the WIT's types and this crate's, for the imports and for `instance`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use quinn_udp::EcnCodepoint;

use super::bindings::exports::watm::transport::endpoint;
use super::bindings::watm::transport::{flows, log, sockets, types};
use crate::{ClientConfig, Destination, ErrorCode, FlowInfo, PeerStatus};
use watm_engine::log::MAX_MESSAGE;
use watm_types::{one_line, printable};

impl From<ErrorCode> for types::ErrorCode {
    fn from(code: ErrorCode) -> types::ErrorCode {
        match code {
            ErrorCode::AccessDenied => types::ErrorCode::AccessDenied,
            ErrorCode::NotSupported => types::ErrorCode::NotSupported,
            ErrorCode::InvalidArgument => types::ErrorCode::InvalidArgument,
            ErrorCode::InvalidState => types::ErrorCode::InvalidState,
            ErrorCode::LimitReached => types::ErrorCode::LimitReached,
            ErrorCode::Timeout => types::ErrorCode::Timeout,
            ErrorCode::RemoteUnreachable => types::ErrorCode::RemoteUnreachable,
            ErrorCode::ConnectionRefused => types::ErrorCode::ConnectionRefused,
            ErrorCode::ConnectionReset => types::ErrorCode::ConnectionReset,
            ErrorCode::ConnectionAborted => types::ErrorCode::ConnectionAborted,
            ErrorCode::DatagramTooLarge => types::ErrorCode::DatagramTooLarge,
            ErrorCode::NameUnresolvable => types::ErrorCode::NameUnresolvable,
            ErrorCode::Other(text) => types::ErrorCode::Other(Some((*text).to_owned())),
        }
    }
}

impl From<types::ErrorCode> for ErrorCode {
    fn from(code: types::ErrorCode) -> ErrorCode {
        match code {
            types::ErrorCode::AccessDenied => ErrorCode::AccessDenied,
            types::ErrorCode::NotSupported => ErrorCode::NotSupported,
            types::ErrorCode::InvalidArgument => ErrorCode::InvalidArgument,
            types::ErrorCode::InvalidState => ErrorCode::InvalidState,
            types::ErrorCode::LimitReached => ErrorCode::LimitReached,
            types::ErrorCode::Timeout => ErrorCode::Timeout,
            types::ErrorCode::RemoteUnreachable => ErrorCode::RemoteUnreachable,
            types::ErrorCode::ConnectionRefused => ErrorCode::ConnectionRefused,
            types::ErrorCode::ConnectionReset => ErrorCode::ConnectionReset,
            types::ErrorCode::ConnectionAborted => ErrorCode::ConnectionAborted,
            types::ErrorCode::DatagramTooLarge => ErrorCode::DatagramTooLarge,
            types::ErrorCode::NameUnresolvable => ErrorCode::NameUnresolvable,
            types::ErrorCode::Other(text) => ErrorCode::Other(match text {
                // The length is bounded, because a flow keeps the text for as long as the
                // application has its end.
                Some(text) => printable(&text, LONGEST_TEXT).into(),
                None => "unspecified error".into(),
            }),
        }
    }
}

pub(super) fn ip_from_guest(address: types::IpAddress) -> IpAddr {
    match address {
        types::IpAddress::Ipv4((a, b, c, d)) => Ipv4Addr::new(a, b, c, d).into(),
        types::IpAddress::Ipv6((a, b, c, d, e, f, g, h)) => {
            Ipv6Addr::new(a, b, c, d, e, f, g, h).into()
        }
    }
}

pub(super) fn ip_to_guest(address: IpAddr) -> types::IpAddress {
    match address {
        IpAddr::V4(address) => types::IpAddress::Ipv4(address.octets().into()),
        IpAddr::V6(address) => types::IpAddress::Ipv6(address.segments().into()),
    }
}

pub(super) fn address_from_guest(address: types::IpSocketAddress) -> SocketAddr {
    SocketAddr::new(ip_from_guest(address.address), address.port)
}

pub(super) fn address_to_guest(address: SocketAddr) -> types::IpSocketAddress {
    types::IpSocketAddress {
        address: ip_to_guest(address.ip()),
        port: address.port(),
    }
}

pub(super) fn destination_to_guest(destination: Destination) -> types::Destination {
    match destination {
        Destination::Address(address) => types::Destination::Address(address_to_guest(address)),
        Destination::Name(name, port) => types::Destination::Name((name, port)),
    }
}

pub(super) fn ecn_from_guest(ecn: sockets::Ecn) -> Option<EcnCodepoint> {
    match ecn {
        sockets::Ecn::NotEct => None,
        sockets::Ecn::Ect0 => Some(EcnCodepoint::Ect0),
        sockets::Ecn::Ect1 => Some(EcnCodepoint::Ect1),
        sockets::Ecn::Ce => Some(EcnCodepoint::Ce),
    }
}

pub(super) fn ecn_to_guest(ecn: Option<EcnCodepoint>) -> sockets::Ecn {
    match ecn {
        None => sockets::Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => sockets::Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => sockets::Ecn::Ect1,
        Some(EcnCodepoint::Ce) => sockets::Ecn::Ce,
    }
}

impl From<types::Destination> for Destination {
    fn from(destination: types::Destination) -> Destination {
        match destination {
            types::Destination::Address(address) => {
                Destination::Address(address_from_guest(address))
            }
            types::Destination::Name((name, port)) => Destination::Name(name, port),
        }
    }
}

impl From<flows::FlowInfo> for FlowInfo {
    fn from(info: flows::FlowInfo) -> FlowInfo {
        FlowInfo {
            source: address_from_guest(info.source),
            destination: info.destination.into(),
            // Programs keep the names of peers beyond the flow, as labels of metrics for example.
            peer: info.peer.map(shortened),
            underlay: info
                .underlay
                .map(|(remote, local)| (address_from_guest(remote), address_from_guest(local))),
            attributes: info.attributes,
        }
    }
}

impl From<endpoint::PeerStatus> for PeerStatus {
    fn from(peer: endpoint::PeerStatus) -> PeerStatus {
        PeerStatus {
            name: shortened(peer.name),
            endpoint: peer.endpoint.map(shortened),
            last_handshake: peer.last_handshake.map(Duration::from_nanos),
            received_bytes: peer.received_bytes,
            sent_bytes: peer.sent_bytes,
            round_trip: peer.round_trip.map(Duration::from_nanos),
            loss_permille: peer.loss_permille.map(|loss| loss.min(1000)),
        }
    }
}

impl From<endpoint::ClientConfig> for ClientConfig {
    fn from(config: endpoint::ClientConfig) -> ClientConfig {
        ClientConfig {
            peer: config.peer.map(shortened),
            name: shortened(config.name),
            media_type: shortened(config.media_type),
            content: config.content,
        }
    }
}

/// Returns the error in the guest's words, on one line, cut to the length of a log record.
pub(super) fn config_error(error: endpoint::ConfigError) -> String {
    let text = match error {
        endpoint::ConfigError::Syntax(text) => text,
        endpoint::ConfigError::Field((path, why)) => format!("{path}: {why}"),
        endpoint::ConfigError::Other(text) => text.unwrap_or_else(|| "no reason given".to_owned()),
    };
    one_line(&text, MAX_MESSAGE)
}

/// The longest name of a peer, or text of an error, that a module may give, in bytes. Longer ones
/// are cut, and none has control characters, which could forge log lines.
const LONGEST_TEXT: usize = 256;

pub(super) fn shortened(text: String) -> String {
    match printable(&text, LONGEST_TEXT) {
        Cow::Borrowed(same) if same.len() == text.len() => text,
        other => other.into_owned(),
    }
}

/// The longest name of a host, in bytes (RFC 1035, section 2.3.4, as text with a dot at its end).
const LONGEST_HOST: usize = 255;

/// Refuses a destination whose name is longer than any host name, since the name is kept for as
/// long as the flow.
pub(super) fn check_destination(destination: &Destination) -> Result<(), ErrorCode> {
    match destination {
        Destination::Name(name, _) if name.len() > LONGEST_HOST => Err(ErrorCode::InvalidArgument),
        _ => Ok(()),
    }
}

/// Returns the level of `wit/` for one of this process.
pub fn guest_level(level: tracing::Level) -> log::Level {
    match level {
        tracing::Level::ERROR => log::Level::Error,
        tracing::Level::WARN => log::Level::Warn,
        tracing::Level::INFO => log::Level::Info,
        tracing::Level::DEBUG => log::Level::Debug,
        tracing::Level::TRACE => log::Level::Trace,
    }
}

/// Returns the level of this process for one of `wit/`.
pub fn tracing_level(level: log::Level) -> tracing::Level {
    match level {
        log::Level::Error => tracing::Level::ERROR,
        log::Level::Warn => tracing::Level::WARN,
        log::Level::Info => tracing::Level::INFO,
        log::Level::Debug => tracing::Level::DEBUG,
        log::Level::Trace => tracing::Level::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_module_are_one_line() {
        let forged = || "wrong\x1b[2J\nERROR forged".to_owned();
        let error = endpoint::ConfigError::Field((forged(), forged()));
        let code = ErrorCode::from(types::ErrorCode::Other(Some(forged())));
        for said in [config_error(error), code.to_string(), shortened(forged())] {
            assert!(!said.contains(char::is_control), "{said:?}");
            assert!(said.contains("forged"), "{said:?}");
        }
    }

    #[test]
    fn the_name_of_a_flows_peer_is_cut() {
        let unknown = || types::IpSocketAddress {
            address: types::IpAddress::Ipv4((0, 0, 0, 0)),
            port: 0,
        };
        let info = flows::FlowInfo {
            source: unknown(),
            destination: types::Destination::Address(unknown()),
            peer: Some("p".repeat(10_000)),
            underlay: None,
            attributes: Vec::new(),
        };
        let peer = FlowInfo::from(info).peer.expect("a peer");
        assert_eq!(peer, "p".repeat(LONGEST_TEXT));
    }
}
