//! The transport: connections and datagrams together.

use watm_core::{
    ByteStream, ClientConfig, ConfigError, Destination, ErrorCode, Host, Instant, StartOptions,
    Status, Token, Transport, Wakeup,
};
use watm_stream::Streams;

use crate::codec::ProxyProtocol;
use crate::datagrams::Datagrams;

/// [`ProxyProtocol`] for connections and for datagrams: those of the listener and of the datagram
/// socket granted as `listen`, of which either may be missing, and dialled connections.
pub struct ProxyServer {
    streams: Streams<ProxyProtocol>,
    datagrams: Option<Datagrams>,
}

impl Transport for ProxyServer {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        let streams = Streams::<ProxyProtocol>::start(options.clone(), host)?;
        let protocol = streams.transport();
        let (config, account) = (protocol.config().clone(), protocol.account().clone());
        let datagrams = Datagrams::start(config, account, &options, host)?;
        Ok(ProxyServer { streams, datagrams })
    }

    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError> {
        self.streams.reconfigure(config, host)?;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.reconfigure(self.streams.transport().config().clone());
        }
        Ok(())
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        let Some(datagrams) = &mut self.datagrams else {
            return self.streams.process(ready, host);
        };
        let (theirs, others): (Vec<_>, Vec<_>) =
            ready.iter().partition(|token| Datagrams::is_token(**token));
        let first = datagrams.process(theirs.into_iter(), host);
        first.or_earlier(self.streams.process(&others, host))
    }

    fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.streams.dial(destination, application, host)
    }

    fn snapshot(&mut self, _now: Instant) -> Vec<u8> {
        let datagrams = self.datagrams.as_ref();
        datagrams.map(Datagrams::snapshot).unwrap_or_default()
    }

    fn serving(&mut self, generation: u32, host: &mut dyn Host) {
        self.streams.serving(generation, host);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.serving(generation);
        }
    }

    fn status(&self, now: Instant) -> Status {
        let streams = self.streams.status(now);
        let flows = self.datagrams.as_ref().map_or(0, Datagrams::flows);
        Status {
            peers: self.streams.transport().account().clients(),
            flows: streams
                .flows
                .saturating_add(u32::try_from(flows).unwrap_or(u32::MAX)),
            counters: streams.counters,
        }
    }

    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        self.streams.client_configs(public)
    }
}
