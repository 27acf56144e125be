//! The implementation of the exports: it keeps the transport between calls, and converts types.

use std::cell::RefCell;
use std::panic;

use watm_core::{ConfigError, ErrorCode, Instant, Level, StartOptions, Transport, Wakeup};

use crate::bindings::exports::watm::transport::endpoint as wit;
use crate::bindings::watm::transport::{flows, log};
use crate::convert::{
    error_result, from_client_config, from_config_error, from_status, from_wakeup, to_destination,
    to_level,
};
use crate::crypto;
use crate::host::{self, Imports};

/// The state of a module. A component is not entered again during a call, so that the borrow never
/// fails.
pub struct Shell<T>(RefCell<Option<Running<T>>>);

struct Running<T> {
    transport: T,
    log_level: Level,
}

impl<T: Transport> Shell<T> {
    /// The state before `start`.
    #[expect(
        clippy::new_without_default,
        reason = "used in a const, by the macro alone"
    )]
    pub const fn new() -> Self {
        Shell(RefCell::new(None))
    }

    /// `endpoint.start`.
    pub fn start(&self, options: wit::StartOptions, now: u64) -> Result<(), wit::ConfigError> {
        watm_core::crypto::set_provider(Some(crypto::host_key));
        panic::set_hook(Box::new(|info| {
            log::log(log::Level::Error, "panic", &info.to_string());
        }));
        let log_level = to_level(options.log_level);
        let options = StartOptions {
            config: options.config,
            log_level,
            generation: options.generation,
            predecessor: options.predecessor,
        };
        let transport =
            T::start(options, &mut imports(now, log_level)).map_err(from_config_error)?;
        *self.0.borrow_mut() = Some(Running {
            transport,
            log_level,
        });
        Ok(())
    }

    /// `endpoint.reconfigure`.
    pub fn reconfigure(&self, config: &[u8], now: u64) -> Result<(), wit::ConfigError> {
        match self.0.borrow_mut().as_mut() {
            Some(running) => running
                .transport
                .reconfigure(config, &mut imports(now, running.log_level)),
            None => Err(ConfigError::Other("the module is not started".to_owned())),
        }
        .map_err(from_config_error)
    }

    /// `endpoint.process`.
    pub fn process(&self, now: u64, ready: &[u64]) -> wit::Wakeup {
        let wakeup = match self.0.borrow_mut().as_mut() {
            Some(running) => running
                .transport
                .process(ready, &mut imports(now, running.log_level)),
            None => Wakeup::OnReady,
        };
        from_wakeup(wakeup)
    }

    /// `endpoint.snapshot`.
    pub fn snapshot(&self, now: u64) -> Vec<u8> {
        let mut running = self.0.borrow_mut();
        running
            .as_mut()
            .map_or_else(Vec::new, |running| running.transport.snapshot(Instant(now)))
    }

    /// `endpoint.serving`.
    pub fn serving(&self, generation: u32, now: u64) {
        if let Some(running) = self.0.borrow_mut().as_mut() {
            running
                .transport
                .serving(generation, &mut imports(now, running.log_level));
        }
    }

    /// `network-observer.network-changed`.
    pub fn network_changed(&self, now: u64) {
        if let Some(running) = self.0.borrow_mut().as_mut() {
            running
                .transport
                .network_changed(&mut imports(now, running.log_level));
        }
    }

    /// `endpoint.dial`.
    pub fn dial(
        &self,
        destination: Option<wit::DestinationResult>,
        application: wit::ByteStream,
        now: u64,
    ) -> Result<u64, wit::ErrorCodeResult> {
        match self.0.borrow_mut().as_mut() {
            Some(running) => running.transport.dial(
                destination.map(to_destination).as_ref(),
                host::stream(application),
                &mut imports(now, running.log_level),
            ),
            None => Err(ErrorCode::InvalidState),
        }
        .map_err(error_result)
    }

    /// `datagram-dialer.dial-datagrams`.
    pub fn dial_datagrams(
        &self,
        destination: Option<wit::DestinationResult>,
        application: flows::DatagramFlow,
        now: u64,
    ) -> Result<u64, wit::ErrorCodeResult> {
        match self.0.borrow_mut().as_mut() {
            Some(running) => running.transport.dial_datagrams(
                destination.map(to_destination).as_ref(),
                host::datagrams(application),
                &mut imports(now, running.log_level),
            ),
            None => Err(ErrorCode::InvalidState),
        }
        .map_err(error_result)
    }

    /// `endpoint.get-status`.
    pub fn status(&self, now: u64) -> wit::Status {
        let running = self.0.borrow();
        from_status(running.as_ref().map_or_else(Default::default, |running| {
            running.transport.status(Instant(now))
        }))
    }

    /// `endpoint.client-configs`.
    pub fn client_configs(
        &self,
        public: wit::DestinationResult,
    ) -> Result<Vec<wit::ClientConfig>, wit::ErrorCodeResult> {
        match self.0.borrow().as_ref() {
            Some(running) => running.transport.client_configs(&to_destination(public)),
            None => Err(ErrorCode::InvalidState),
        }
        .map(|configs| configs.into_iter().map(from_client_config).collect())
        .map_err(error_result)
    }
}

fn imports(now: u64, log_level: Level) -> Imports {
    Imports {
        now: Instant(now),
        log_level,
    }
}
