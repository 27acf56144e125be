//! Conversions between the types of the WIT and those of [`watm_core`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use watm_core::{
    ClientConfig, ConfigError, Datagram, DatagramBatch, Datagrams, Destination, Direction, Ecn,
    ErrorCode, Level, PeerStatus, Status, Wakeup,
};

use crate::bindings::exports::watm::transport::endpoint as wit_endpoint;
use crate::bindings::watm::transport::{
    flows as wit_flows, log as wit_log, sockets as wit_sockets, types as wit,
};

pub fn to_ip(address: wit::IpAddress) -> IpAddr {
    match address {
        wit::IpAddress::Ipv4((a, b, c, d)) => Ipv4Addr::new(a, b, c, d).into(),
        wit::IpAddress::Ipv6((a, b, c, d, e, f, g, h)) => {
            Ipv6Addr::new(a, b, c, d, e, f, g, h).into()
        }
    }
}

pub fn from_ip(address: IpAddr) -> wit::IpAddress {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            wit::IpAddress::Ipv4((a, b, c, d))
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, h] = address.segments();
            wit::IpAddress::Ipv6((a, b, c, d, e, f, g, h))
        }
    }
}

pub fn to_socket_address(address: wit::IpSocketAddress) -> SocketAddr {
    SocketAddr::new(to_ip(address.address), address.port)
}

pub fn from_socket_address(address: SocketAddr) -> wit::IpSocketAddress {
    wit::IpSocketAddress {
        address: from_ip(address.ip()),
        port: address.port(),
    }
}

pub fn to_destination(destination: wit::DestinationResult) -> Destination {
    match destination {
        wit::DestinationResult::Address(address) => to_socket_address(address).into(),
        wit::DestinationResult::Name((name, port)) => Destination::Name(name, port),
    }
}

pub fn from_destination(destination: &Destination) -> wit::DestinationParam<'_> {
    match destination {
        Destination::Address(address) => {
            wit::DestinationParam::Address(from_socket_address(*address))
        }
        Destination::Name(name, port) => wit::DestinationParam::Name((name, *port)),
    }
}

pub fn to_error(error: wit::ErrorCodeResult) -> ErrorCode {
    use wit::ErrorCodeResult as E;
    match error {
        E::AccessDenied => ErrorCode::AccessDenied,
        E::NotSupported => ErrorCode::NotSupported,
        E::InvalidArgument => ErrorCode::InvalidArgument,
        E::InvalidState => ErrorCode::InvalidState,
        E::LimitReached => ErrorCode::LimitReached,
        E::Timeout => ErrorCode::Timeout,
        E::RemoteUnreachable => ErrorCode::RemoteUnreachable,
        E::ConnectionRefused => ErrorCode::ConnectionRefused,
        E::ConnectionReset => ErrorCode::ConnectionReset,
        E::ConnectionAborted => ErrorCode::ConnectionAborted,
        E::DatagramTooLarge => ErrorCode::DatagramTooLarge,
        E::NameUnresolvable => ErrorCode::NameUnresolvable,
        E::Other(text) => ErrorCode::Other(text.unwrap_or_default()),
    }
}

/// Converts an error to one of the two types that are generated for it.
macro_rules! convert_error {
    ($error:expr, $type:ident) => {
        match $error {
            ErrorCode::AccessDenied => wit::$type::AccessDenied,
            ErrorCode::NotSupported => wit::$type::NotSupported,
            ErrorCode::InvalidArgument => wit::$type::InvalidArgument,
            ErrorCode::InvalidState => wit::$type::InvalidState,
            ErrorCode::LimitReached => wit::$type::LimitReached,
            ErrorCode::Timeout => wit::$type::Timeout,
            ErrorCode::RemoteUnreachable => wit::$type::RemoteUnreachable,
            ErrorCode::ConnectionRefused => wit::$type::ConnectionRefused,
            ErrorCode::ConnectionReset => wit::$type::ConnectionReset,
            ErrorCode::ConnectionAborted => wit::$type::ConnectionAborted,
            ErrorCode::DatagramTooLarge => wit::$type::DatagramTooLarge,
            ErrorCode::NameUnresolvable => wit::$type::NameUnresolvable,
            ErrorCode::Other(text) => wit::$type::Other(Some(text)),
        }
    };
}

/// Converts to a parameter, which borrows the text.
pub fn error_param(error: &ErrorCode) -> wit::ErrorCodeParam<'_> {
    convert_error!(error, ErrorCodeParam)
}

/// Converts to a result, which owns the text.
pub fn error_result(error: ErrorCode) -> wit::ErrorCodeResult {
    convert_error!(error, ErrorCodeResult)
}

pub fn to_level(level: wit_log::Level) -> Level {
    match level {
        wit_log::Level::Trace => Level::Trace,
        wit_log::Level::Debug => Level::Debug,
        wit_log::Level::Info => Level::Info,
        wit_log::Level::Warn => Level::Warn,
        wit_log::Level::Error => Level::Error,
    }
}

pub fn from_level(level: Level) -> wit_log::Level {
    match level {
        Level::Trace => wit_log::Level::Trace,
        Level::Debug => wit_log::Level::Debug,
        Level::Info => wit_log::Level::Info,
        Level::Warn => wit_log::Level::Warn,
        Level::Error => wit_log::Level::Error,
    }
}

pub fn to_batch(batch: wit_sockets::DatagramBatchResult) -> DatagramBatch {
    DatagramBatch {
        payload: batch.payload,
        datagrams: batch
            .datagrams
            .into_iter()
            .map(|datagram| Datagram {
                len: datagram.len,
                segment_size: datagram.segment_size,
                remote: to_socket_address(datagram.remote_address),
                local: datagram.local_address.map(to_ip),
                ecn: match datagram.ecn {
                    wit_sockets::Ecn::NotEct => Ecn::NotEct,
                    wit_sockets::Ecn::Ect1 => Ecn::Ect1,
                    wit_sockets::Ecn::Ect0 => Ecn::Ect0,
                    wit_sockets::Ecn::Ce => Ecn::Ce,
                },
            })
            .collect(),
    }
}

pub fn from_datagram(datagram: &Datagram) -> wit_sockets::DatagramInfo {
    wit_sockets::DatagramInfo {
        len: datagram.len,
        segment_size: datagram.segment_size,
        remote_address: from_socket_address(datagram.remote),
        local_address: datagram.local.map(from_ip),
        ecn: match datagram.ecn {
            Ecn::NotEct => wit_sockets::Ecn::NotEct,
            Ecn::Ect1 => wit_sockets::Ecn::Ect1,
            Ecn::Ect0 => wit_sockets::Ecn::Ect0,
            Ecn::Ce => wit_sockets::Ecn::Ce,
        },
    }
}

pub fn to_datagrams(datagrams: wit_flows::DatagramsResult) -> Datagrams {
    Datagrams {
        payload: datagrams.payload,
        lengths: datagrams.lengths,
    }
}

pub fn from_direction(direction: Direction) -> wit_sockets::Direction {
    match direction {
        Direction::Read => wit_sockets::Direction::Read,
        Direction::Write => wit_sockets::Direction::Write,
        Direction::Both => wit_sockets::Direction::Both,
    }
}

pub fn from_config_error(error: ConfigError) -> wit_endpoint::ConfigError {
    match error {
        ConfigError::Syntax(text) => wit_endpoint::ConfigError::Syntax(text),
        ConfigError::Field(path, why) => wit_endpoint::ConfigError::Field((path, why)),
        ConfigError::Other(text) => wit_endpoint::ConfigError::Other(Some(text)),
    }
}

pub fn from_wakeup(wakeup: Wakeup) -> wit_endpoint::Wakeup {
    match wakeup {
        Wakeup::Again => wit_endpoint::Wakeup::Again,
        Wakeup::At(instant) => wit_endpoint::Wakeup::At(instant.0),
        Wakeup::OnReady => wit_endpoint::Wakeup::OnReady,
        Wakeup::Finished => wit_endpoint::Wakeup::Finished,
    }
}

pub fn from_status(status: Status) -> wit_endpoint::Status {
    wit_endpoint::Status {
        peers: status.peers.into_iter().map(from_peer_status).collect(),
        flows: status.flows,
        counters: status
            .counters
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

fn from_peer_status(peer: PeerStatus) -> wit_endpoint::PeerStatus {
    wit_endpoint::PeerStatus {
        name: peer.name,
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        last_handshake: peer.last_handshake.map(nanoseconds),
        received_bytes: peer.received_bytes,
        sent_bytes: peer.sent_bytes,
        round_trip: peer.round_trip.map(nanoseconds),
        loss_permille: peer.loss_permille,
    }
}

pub fn from_client_config(config: ClientConfig) -> wit_endpoint::ClientConfig {
    wit_endpoint::ClientConfig {
        peer: config.peer,
        name: config.name,
        media_type: config.media_type,
        content: config.content,
    }
}

/// Converts to nanoseconds. Saturates after 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
