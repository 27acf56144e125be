//! The transport: streams and datagrams together.

use watm_core::{
    ByteStream, ClientConfig, ConfigError, DatagramFlow, Destination, ErrorCode, Host, Instant,
    StartOptions, Status, Token, Transport, Wakeup,
};
use watm_stream::Streams;

use crate::codec::SocksStreams;
use crate::datagrams::{self, Datagrams};

/// The label of the socket and of the listener.
const LABEL: &str = "listen";

/// SOCKS5: a server on the listener and on the datagram socket that are granted as `listen`, of which either may be
/// missing, and a client for flows that the host dials. A client's datagrams use the socket too.
pub struct Socks5 {
    streams: Streams<SocksStreams>,
    datagrams: Option<Datagrams>,
    generation: u32,
}

impl Transport for Socks5 {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        let (generation, serves) = (options.generation, options.predecessor.is_none());
        let streams = Streams::<SocksStreams>::start(options, host)?;
        let datagrams = match host.datagram_socket(LABEL, datagrams::SOCKET) {
            Ok(socket) => Some(Datagrams::new(streams.transport(), socket, serves)),
            // Without a socket the transport is for streams only.
            Err(ErrorCode::AccessDenied | ErrorCode::NotSupported) => None,
            Err(error) => {
                let why = format!("the socket granted as '{LABEL}': {error}");
                return Err(ConfigError::Other(why));
            }
        };
        Ok(Socks5 {
            streams,
            datagrams,
            generation,
        })
    }

    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError> {
        self.streams.reconfigure(config, host)?;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.reconfigure(self.streams.transport().config());
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
        match &mut self.datagrams {
            Some(datagrams) => {
                datagrams.process(ready, &mut self.streams, host);
                streams.or_earlier(datagrams.wakeup())
            }
            None => streams,
        }
    }

    fn serving(&mut self, generation: u32, host: &mut dyn Host) {
        self.streams.serving(generation, host);
        if let Some(datagrams) = &mut self.datagrams {
            let retired = generation != self.generation;
            if retired {
                // The next generation has the socket, so that no association is of use here.
                self.streams.end_controls();
            }
            datagrams.set_retired(retired);
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
            Some(datagrams) => datagrams.dial(destination, application, &mut self.streams, host),
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
