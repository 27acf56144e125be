use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{ClientConfig, ConfigError, Destination, ErrorCode, FlowInfo};

use crate::Buffer;

/// What a transport does to the bytes of one connection.
///
/// Each function takes from `from` all that it can make something of, and leaves an
/// incomplete message there for the next call, when more has come behind it. A message
/// has at most [`CHUNK`](crate::CHUNK) bytes, and what is made of one is at most a little
/// longer: that is what bounds a connection's memory. An error ends the connection: what the
/// codec had to say to the network is written as far as it takes it at once, and the
/// application's stream is reset.
pub trait Codec {
    /// Called once, before anything else: what is to be said to the network first.
    fn begin(&mut self, _network: &mut Buffer) {}

    /// Whether the handshake is over. Until then only [`inward`](Codec::inward) is
    /// called, and nothing is read from the application.
    fn established(&self) -> bool {
        true
    }

    /// Add what the handshake has told of the flow. Called once, when it is over, for a
    /// connection that was accepted.
    fn describe(&self, _info: &mut FlowInfo) {}

    /// What the application is told before anything else, of an accepted connection between
    /// these two ends: the source and the destination of what [`describe`](Codec::describe)
    /// left, where the host tells them. Called once, when the handshake is over.
    fn introduce(&self, _ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
        Vec::new()
    }

    /// What has come from the network, on its way to the application; `network` is for
    /// what has to be answered. `application` stays as it is until the connection is
    /// established, and may be given something in the call that establishes it.
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode>;

    /// What has come from the application, on its way to the network.
    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode>;

    /// Whether the other end has said that it will say no more. Then what comes from the
    /// network is no longer looked at, and the application has the end, without
    /// [`end_inward`](Codec::end_inward).
    fn has_ended_inward(&self) -> bool {
        false
    }

    /// The network has ended, and `rest` is what could not be used. Fails if that is in the
    /// middle of something.
    fn end_inward(&mut self, rest: &Buffer, _application: &mut Buffer) -> Result<(), ErrorCode> {
        if rest.is_empty() {
            Ok(())
        } else {
            Err(ErrorCode::Other(
                "the network's stream ended in the middle of a message".to_owned(),
            ))
        }
    }

    /// The application has ended: what is to be said to the network last.
    fn end_outward(&mut self, _network: &mut Buffer) -> Result<(), ErrorCode> {
        Ok(())
    }
}

/// How long connections may take, and last. The other end is told of the last two as it is of
/// an end by the application, which is told [`ErrorCode::Timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of a connection that was accepted: until the codec is established. See
    /// [`StreamTransport::handshake_timeout`].
    pub handshake: Duration,
    /// Since anything could be read or written.
    pub idle: Option<Duration>,
    /// Since the connection was accepted or dialled.
    pub lifetime: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Some round trips of a bad path, with retransmissions.
            handshake: Duration::from_secs(10),
            idle: None,
            lifetime: None,
        }
    }
}

/// A transport whose connections are each a stream of the application's over a stream of
/// the network's.
pub trait StreamTransport: Sized {
    /// What it does to the bytes of a connection.
    type Codec: Codec;

    /// Read a configuration.
    fn configure(config: &[u8]) -> Result<Self, ConfigError>;

    /// Read another configuration; on an error the old one stays in force.
    fn reconfigure(&mut self, config: &[u8]) -> Result<(), ConfigError> {
        *self = Self::configure(config)?;
        Ok(())
    }

    /// What the configuration lacks for connections to be accepted. Asked where there is a
    /// listener.
    fn check_accepting(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// As [`watm_core::Transport::snapshot`].
    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Follow the generation that returned `snapshot`. What is not understood is left alone.
    fn succeed(&mut self, _snapshot: &[u8]) {}

    /// What the user should look at in the configuration, although it can be used.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What has become of it since then that the user should look at, once. Asked when connections
    /// come.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// How long connections may take, and last.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// How long a connection that is accepted now may take until its codec is established. Asked
    /// once for each connection, so that each may have another.
    fn handshake_timeout(&self) -> Duration {
        self.limits().handshake
    }

    /// Counters by name; never reset, but by another configuration.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// For a connection that somebody opened to here, from `remote`, if the host tells that.
    fn accept(&self, remote: Option<SocketAddr>) -> Result<Self::Codec, ErrorCode>;

    /// For a connection that was opened from here in order to reach `destination`; `None`
    /// if only the configuration, or nobody, can say what that is.
    fn dial(&self, destination: Option<&Destination>) -> Result<Self::Codec, ErrorCode>;

    /// The address to connect to in order to reach `destination`, or what the configuration
    /// names; `None` if that is nothing.
    fn outer(&self, destination: Option<&Destination>) -> Option<Destination>;

    /// As [`watm_core::Transport::client_configs`].
    fn client_configs(&self, _public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }
}
