//! The transport: streams and datagrams together.

use watm_core::{
    ByteStream, ClientConfig, ConfigError, DatagramFlow, Destination, ErrorCode, Host, Instant,
    StartOptions, Status, Token, Transport, Wakeup,
};
use watm_stream::Streams;

use crate::datagram::{self, Datagrams};
use crate::snapshot::Snapshot;
use crate::stream::ShadowsocksStreams;

/// The label of the socket and of the listener.
const LABEL: &str = "listen";

/// Shadowsocks: a server on the listener and on the datagram socket that are granted as `listen`,
/// of which either may be missing, and a client for flows that the host dials. A client's datagrams
/// use the socket too.
pub struct Shadowsocks {
    streams: Streams<ShadowsocksStreams>,
    datagrams: Option<Datagrams>,
    generation: u32,
}

impl Transport for Shadowsocks {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        let (generation, serves) = (options.generation, options.predecessor.is_none());
        let before = options.predecessor.as_deref().and_then(Snapshot::read);
        let streams = Streams::<ShadowsocksStreams>::start(options, host)?;
        let mut datagrams = match host.datagram_socket(LABEL, datagram::SOCKET) {
            Ok(socket) => {
                let config = streams.transport().config().clone();
                Some(Datagrams::new(config, socket, serves))
            }
            // Without a socket the transport is for streams only.
            Err(ErrorCode::AccessDenied | ErrorCode::NotSupported) => None,
            Err(error) => {
                return Err(ConfigError::Other(format!(
                    "the socket granted as '{LABEL}': {error}"
                )));
            }
        };
        if let (Some(datagrams), Some(before)) = (&mut datagrams, before) {
            datagrams.succeed(before.datagrams, host.now());
        }
        Ok(Shadowsocks {
            streams,
            datagrams,
            generation,
        })
    }

    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError> {
        self.streams.reconfigure(config, host)?;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.reconfigure(self.streams.transport().config().clone());
        }
        Ok(())
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        let of_streams: Vec<Token> = ready
            .iter()
            .copied()
            .filter(|&token| !Datagrams::owns(token))
            .collect();
        let streams = self.streams.process(&of_streams, host);
        let Some(datagrams) = &mut self.datagrams else {
            return streams;
        };
        datagrams.process(ready, host);
        streams.or_earlier(datagrams.wakeup())
    }

    fn snapshot(&mut self, now: Instant) -> Vec<u8> {
        let mut snapshot = self.streams.snapshot(now);
        if let Some(datagrams) = &self.datagrams {
            datagrams.snapshot(now, &mut snapshot);
        }
        snapshot
    }

    fn serving(&mut self, generation: u32, host: &mut dyn Host) {
        self.streams.serving(generation, host);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.set_retired(generation != self.generation, host.now());
        }
    }

    fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.streams.dial(destination, application, host)
    }

    fn dial_datagrams(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn DatagramFlow>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        match &mut self.datagrams {
            Some(datagrams) => datagrams.dial(destination, application, host),
            None => Err(ErrorCode::NotSupported),
        }
    }

    fn status(&self, now: Instant) -> Status {
        let mut status = self.streams.status(now);
        if let Some(datagrams) = &self.datagrams {
            let flows = u32::try_from(datagrams.flows()).unwrap_or(u32::MAX);
            status.flows = status.flows.saturating_add(flows);
            status.counters.extend(datagrams.counters());
        }
        status
    }

    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        self.streams.client_configs(public)
    }
}
