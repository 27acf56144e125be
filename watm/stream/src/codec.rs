use std::net::SocketAddr;

use watm_core::{ClientConfig, ConfigError, Destination, ErrorCode, FlowInfo};

use crate::Buffer;

/// What a transport does to the bytes of one connection.
///
/// Each function takes from `from` all that it can make something of, and leaves an
/// incomplete message there for the next call, when more has come behind it. A message
/// has at most [`CHUNK`](crate::CHUNK) bytes, and what is made of one is at most a little
/// longer: that is what bounds a connection's memory. An error ends the connection: both
/// streams are reset.
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

/// A transport whose connections are each a stream of the application's over a stream of
/// the network's.
pub trait StreamTransport: Sized {
    /// What it does to the bytes of a connection.
    type Codec: Codec;

    /// Read a configuration.
    fn configure(config: &[u8]) -> Result<Self, ConfigError>;

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
