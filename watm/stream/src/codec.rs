//! The traits that a stream transport implements: a codec for each connection, and the
//! configuration that makes them.

use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{ClientConfig, ConfigError, Destination, ErrorCode, FlowInfo};

use crate::Buffer;

/// The translation between the network's bytes and the application's, for one connection.
///
/// Each function consumes all of `from` that it can use, and leaves an incomplete message there for
/// the next call, which finds more bytes behind it. A message has at most [`CHUNK`](crate::CHUNK)
/// bytes, and its translation is at most a little longer: this bounds the memory of a connection.
/// An error ends the connection: the codec's last output to the network is written as far as the
/// network takes it at once, and the application's stream is reset.
pub trait Codec {
    /// Write the codec's first bytes to the network. Called once, before anything else.
    fn begin(&mut self, _network: &mut Buffer) {}

    /// Returns true if the handshake is over. Until then only [`inward`](Codec::inward) is called,
    /// and nothing is read from the application.
    fn established(&self) -> bool {
        true
    }

    /// Add what the handshake revealed about the flow. Called once, after the handshake of an
    /// accepted connection.
    fn describe(&self, _info: &mut FlowInfo) {}

    /// The bytes that the application reads before anything else, on an accepted connection between
    /// these two ends: the source and the destination after [`describe`](Codec::describe), if the
    /// host tells them. Called once, after the handshake.
    fn introduce(&self, _ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
        Vec::new()
    }

    /// Answer the request of an accepted connection: the application has taken its flow, or refused
    /// it for this reason. Called once, after the handshake. The answer precedes everything else.
    fn answer(&mut self, _outcome: Result<(), &ErrorCode>, _network: &mut Buffer) {}

    /// Returns true if an established connection carries no flow, but controls something beside it.
    /// It stays open until the other end closes it. The relay drops the bytes that
    /// [`inward`](Codec::inward) writes for the application.
    fn is_control(&self) -> bool {
        false
    }

    /// Returns true if the application of a dialled connection waits until the connection is
    /// established. Otherwise it may write once the network is connected.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Translate bytes from the network for the application. Answers to the network go to
    /// `network`. `application` stays unchanged until the connection is established; the call that
    /// establishes it may write to it.
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode>;

    /// Translate bytes from the application for the network.
    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode>;

    /// Returns true if the other end has announced the end of its data. Later bytes from the
    /// network are then ignored, and the application reads the end without a call of
    /// [`end_inward`](Codec::end_inward).
    fn has_ended_inward(&self) -> bool {
        false
    }

    /// Handle the end of the network's stream, with `rest` unused. Fails if `rest` is part of a
    /// message.
    fn end_inward(&mut self, rest: &Buffer, _application: &mut Buffer) -> Result<(), ErrorCode> {
        if rest.is_empty() {
            Ok(())
        } else {
            Err(ErrorCode::Other(
                "the network's stream ended in the middle of a message".to_owned(),
            ))
        }
    }

    /// Write the codec's last bytes to the network: the application has ended.
    fn end_outward(&mut self, _network: &mut Buffer) -> Result<(), ErrorCode> {
        Ok(())
    }
}

/// Time limits of connections. A connection that exceeds one of the last two ends for the other end
/// as if the application had ended it; the application gets [`ErrorCode::Timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the accept of a connection until its codec is established. See
    /// [`StreamTransport::handshake_timeout`].
    pub handshake: Duration,
    /// From the dial of a connection until its codec is established, if somebody waits for that.
    pub answer: Duration,
    /// Since the last read or write that moved bytes.
    pub idle: Option<Duration>,
    /// Since the connection was accepted or dialled.
    pub lifetime: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Several round trips of a bad path, with retransmissions.
            handshake: Duration::from_secs(10),
            // The other end may connect to a third one, over paths as bad.
            answer: Duration::from_secs(60),
            idle: None,
            lifetime: None,
        }
    }
}

/// A transport whose connections each carry one stream of the application over one stream of the
/// network.
pub trait StreamTransport: Sized {
    /// The translation of the bytes of a connection.
    type Codec: Codec;

    /// Read a configuration.
    fn configure(config: &[u8]) -> Result<Self, ConfigError>;

    /// Read another configuration; on an error the old one stays in force.
    fn reconfigure(&mut self, config: &[u8]) -> Result<(), ConfigError> {
        *self = Self::configure(config)?;
        Ok(())
    }

    /// Fails if the configuration lacks something that accepted connections need. Called if there
    /// is a listener.
    fn check_accepting(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// See [`watm_core::Transport::snapshot`].
    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Follow the generation that returned `snapshot`. Unknown content is ignored.
    fn succeed(&mut self, _snapshot: &[u8]) {}

    /// Problems of a usable configuration that the user should look at.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Problems since the last call that the user should look at; each is returned once. Called
    /// when connections arrive.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The time limits of connections.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// The time that a connection accepted now has until its codec is established. Called once for
    /// each connection, so that each may have another.
    fn handshake_timeout(&self) -> Duration {
        self.limits().handshake
    }

    /// Counters by name. Only another configuration resets them.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Make the codec of an accepted connection from `remote`, if the host tells that address.
    fn accept(&self, remote: Option<SocketAddr>) -> Result<Self::Codec, ErrorCode>;

    /// Make the codec of a connection dialled in order to reach `destination`. `None` if only the
    /// configuration, or nothing, names the destination.
    fn dial(&self, destination: Option<&Destination>) -> Result<Self::Codec, ErrorCode>;

    /// The address to connect to in order to reach `destination`, or if that is `None`, the address
    /// in the configuration. `None` if there is none.
    fn outer(&self, destination: Option<&Destination>) -> Option<Destination>;

    /// See [`watm_core::Transport::client_configs`].
    fn client_configs(&self, _public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }
}
