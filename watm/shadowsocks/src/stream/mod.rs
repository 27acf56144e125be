//! Shadowsocks over streams. Used by `transport`.

mod chunk;
mod codec;
mod insecure;
mod request;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::{ClientConfig, ConfigError, Destination, ErrorCode};
use watm_stream::StreamTransport;

pub use self::codec::ShadowsocksCodec;
use crate::address;
use crate::cipher;
use crate::config::Config;
use crate::salts::Salts;
use crate::snapshot::Snapshot;

/// The range of the handshake timeout in milliseconds: each connection gets a random time in it.
const SHORTEST_HANDSHAKE_MS: u32 = 30_000;
const LONGEST_HANDSHAKE_MS: u32 = 60_000;

/// The state that outlives a configuration.
#[derive(Debug)]
pub(crate) struct Memory {
    pub salts_2017: RefCell<Salts>,
    pub salts_2022: RefCell<Salts>,
    /// Requests left unanswered, by reason: strangers' requests, and replays.
    pub probes: Cell<u64>,
    pub replays: Cell<u64>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            salts_2017: RefCell::new(Salts::new(false)),
            salts_2022: RefCell::new(Salts::new(true)),
            probes: Cell::new(0),
            replays: Cell::new(0),
        }
    }
}

/// Shadowsocks over streams. Its configuration is described in [`crate::config`].
#[derive(Debug)]
pub struct ShadowsocksStreams {
    config: Rc<Config>,
    memory: Rc<Memory>,
}

impl ShadowsocksStreams {
    pub(crate) fn config(&self) -> &Rc<Config> {
        &self.config
    }
}

impl StreamTransport for ShadowsocksStreams {
    type Codec = ShadowsocksCodec;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        Ok(ShadowsocksStreams {
            config: Rc::new(Config::parse(config)?),
            memory: Rc::default(),
        })
    }

    fn reconfigure(&mut self, config: &[u8]) -> Result<(), ConfigError> {
        self.config = Rc::new(Config::parse(config)?);
        Ok(())
    }

    fn snapshot(&self) -> Vec<u8> {
        Snapshot::write(
            &self.memory.salts_2017.borrow(),
            &self.memory.salts_2022.borrow(),
        )
    }

    fn succeed(&mut self, snapshot: &[u8]) {
        if let Some(snapshot) = Snapshot::read(snapshot) {
            self.memory.salts_2017.replace(snapshot.salts_2017);
            self.memory.salts_2022.replace(snapshot.salts_2022);
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.config.warnings.clone()
    }

    /// A prober measures how long a server keeps a connection that it does not answer. Each
    /// connection gets another time here, from the range in which shadowsocks-libev gives up on
    /// silent connections and Outline on all (59 s), so that no fixed number identifies this
    /// server.
    fn handshake_timeout(&self) -> Duration {
        let more = u64::from(cipher::random_below(
            LONGEST_HANDSHAKE_MS - SHORTEST_HANDSHAKE_MS,
        ));
        Duration::from_millis(u64::from(SHORTEST_HANDSHAKE_MS) + more)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let remembered =
            self.memory.salts_2017.borrow().len() + self.memory.salts_2022.borrow().len();
        vec![
            ("shadowsocks.probes", self.memory.probes.get()),
            ("shadowsocks.replays", self.memory.replays.get()),
            ("shadowsocks.salts", remembered as u64),
        ]
    }

    fn accept(&self, _remote: Option<SocketAddr>) -> Result<ShadowsocksCodec, ErrorCode> {
        if !self.config.mode.streams() {
            return Err(ErrorCode::NotSupported);
        }
        Ok(ShadowsocksCodec::accepting(
            Rc::clone(&self.config),
            Rc::clone(&self.memory),
        ))
    }

    fn dial(&self, destination: Option<&Destination>) -> Result<ShadowsocksCodec, ErrorCode> {
        let destination = destination.or(self.config.target.as_ref()).ok_or_else(|| {
            ErrorCode::Other("target: missing, and no destination was given".to_owned())
        })?;
        let mut target = Vec::with_capacity(address::LONGEST);
        if !address::write(destination, &mut target) {
            return Err(ErrorCode::InvalidArgument);
        }
        Ok(ShadowsocksCodec::dialling(
            Rc::clone(&self.config),
            Rc::clone(&self.memory),
            target,
        ))
    }

    fn outer(&self, _destination: Option<&Destination>) -> Option<Destination> {
        self.config.server.clone()
    }

    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Ok(self.config.client_configs(public))
    }
}
