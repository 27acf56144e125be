//! The codec of connections, and the transport of streams.

use std::net::SocketAddr;
use std::rc::Rc;

use watm_core::{ConfigError, Destination, ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec, StreamTransport};

use crate::client::Dialled;
use crate::config::Config;
use crate::server::Accepted;
use crate::shared::Shared;

/// SOCKS5 over streams, and HTTP CONNECT for connections that are dialled. Its configuration has the fields in
/// [`FIELDS`](crate::FIELDS).
pub struct SocksStreams {
    config: Rc<Config>,
    shared: Rc<Shared>,
}

/// The codec of a connection: first a handshake, then unchanged bytes.
pub struct SocksCodec(End);

enum End {
    Accepted(Accepted),
    Dialled(Dialled),
}

impl SocksStreams {
    /// The configuration.
    pub(crate) fn config(&self) -> &Rc<Config> {
        &self.config
    }

    /// The state that datagrams share.
    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl SocksCodec {
    /// Makes the codec of a dialled connection.
    pub(crate) fn dialled(dialled: Dialled) -> SocksCodec {
        SocksCodec(End::Dialled(dialled))
    }
}

impl StreamTransport for SocksStreams {
    type Codec = SocksCodec;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        Ok(SocksStreams {
            config: Rc::new(Config::parse(config)?),
            shared: Rc::default(),
        })
    }

    fn reconfigure(&mut self, config: &[u8]) -> Result<(), ConfigError> {
        self.config = Rc::new(Config::parse(config)?);
        Ok(())
    }

    fn accept(&self, remote: Option<SocketAddr>) -> Result<SocksCodec, ErrorCode> {
        let accepted = Accepted::new(self.config.clone(), self.shared.clone(), remote);
        Ok(SocksCodec(End::Accepted(accepted)))
    }

    fn dial(&self, destination: Option<&Destination>) -> Result<SocksCodec, ErrorCode> {
        let proxy = self.config.proxy().map_err(ErrorCode::Other)?;
        let target = self.config.target(destination).map_err(ErrorCode::Other)?;
        Dialled::connect(proxy, target).map(SocksCodec::dialled)
    }

    fn outer(&self, _destination: Option<&Destination>) -> Option<Destination> {
        Some(self.config.proxy.as_ref()?.address.clone())
    }
}

impl SocksCodec {
    /// Reads the next message of the handshake. Returns false if it is not complete.
    fn step(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<bool, ErrorCode> {
        match &mut self.0 {
            End::Accepted(accepted) => accepted.step(from, network),
            End::Dialled(dialled) => dialled.step(from, network),
        }
    }
}

impl Codec for SocksCodec {
    fn begin(&mut self, network: &mut Buffer) {
        if let End::Dialled(dialled) = &self.0 {
            dialled.begin(network);
        }
    }

    fn established(&self) -> bool {
        match &self.0 {
            End::Accepted(accepted) => accepted.is_established(),
            End::Dialled(dialled) => dialled.is_established(),
        }
    }

    fn is_control(&self) -> bool {
        match &self.0 {
            End::Accepted(accepted) => accepted.is_control(),
            End::Dialled(dialled) => dialled.is_control(),
        }
    }

    fn is_awaited(&self) -> bool {
        matches!(self.0, End::Dialled(_))
    }

    fn describe(&self, info: &mut FlowInfo) {
        if let End::Accepted(accepted) = &self.0 {
            accepted.describe(info);
        }
    }

    fn answer(&mut self, outcome: Result<(), &ErrorCode>, network: &mut Buffer) {
        if let End::Accepted(accepted) = &self.0 {
            accepted.answer(outcome, network);
        }
    }

    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        while !self.established() {
            if !self.step(from, network)? {
                return Ok(());
            }
        }
        // The other end of an association has nothing more to say.
        match self.is_control() {
            true => from.clear(),
            false => application.append(from),
        }
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }
}
