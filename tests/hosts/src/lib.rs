//! The part that all modules of the kit share: bindings of `wit/`, the exports of a module with defaults, and
//! the module's verdict on its host. The modules are in `cases/`.
//!
//! A module reports its verdict in three counters of `endpoint.get-status`:
//!
//! | counter | value |
//! |---|---|
//! | `kit.checks` | the checks that the module has made |
//! | `kit.failed` | those of them that failed; each is explained by a log record of the level `error` |
//! | `kit.done` | 1 once the module has made its last check, before that 0 |

use std::cell::Cell;
use std::fmt::Debug;

/// The bindings of `wit/`, or of its version 0.1.
#[allow(missing_docs, reason = "`wit/` has the documentation")]
pub mod bindings {
    #[cfg(not(feature = "interface-0-1"))]
    wit_bindgen::generate!({
        path: "../../wit",
        world: "complete",
        pub_export_macro: true,
        default_bindings_module: "watm_host_kit::bindings",
        additional_derives: [PartialEq],
    });

    #[cfg(feature = "interface-0-1")]
    wit_bindgen::generate!({
        path: "wit-0.1",
        world: "module",
        pub_export_macro: true,
        default_bindings_module: "watm_host_kit::bindings",
        additional_derives: [PartialEq],
    });
}

pub use bindings::exports::watm::transport::endpoint::{
    ClientConfig, ConfigError, Destination, ErrorCode, Guest, StartOptions, Status, Wakeup,
};
pub use bindings::watm::transport::flows::{DatagramFlow, Datagrams, FlowInfo};
#[cfg(not(feature = "interface-0-1"))]
pub use bindings::watm::transport::pacing;
pub use bindings::watm::transport::sockets::{
    ByteStream, DatagramBatch, DatagramInfo, DatagramSocket, Direction, Ecn, Listener,
};
pub use bindings::watm::transport::types::{IpAddress, IpSocketAddress};
pub use bindings::watm::transport::{
    capture, crypto, flows, generations, log, names, packets, signing, sockets,
};

/// A millisecond, in the unit of the host's clock.
pub const MILLISECOND: u64 = 1_000_000;

/// The limits of a call that receives or reads everything.
pub const ALL: u32 = 1 << 20;

/// A module of the kit. Functions that a case has no use for do nothing, or are not supported.
pub trait Case: Sized {
    /// Starts the case.
    fn start(options: StartOptions, now: u64) -> Result<Self, ConfigError>;

    /// Continues it.
    fn process(&mut self, now: u64, ready: &[u64]) -> Wakeup {
        let _ = (now, ready);
        Wakeup::OnReady
    }

    /// Takes another configuration.
    fn reconfigure(&mut self, config: Vec<u8>) -> Result<(), ConfigError> {
        let _ = config;
        Ok(())
    }

    /// Carries a stream of the application.
    fn dial(&mut self, to: Option<Destination>, application: ByteStream) -> Result<u64, ErrorCode> {
        let _ = (to, application);
        Err(ErrorCode::NotSupported)
    }

    /// Carries datagrams of the application.
    fn dial_datagrams(
        &mut self,
        to: Option<Destination>,
        application: DatagramFlow,
    ) -> Result<u64, ErrorCode> {
        let _ = (to, application);
        Err(ErrorCode::NotSupported)
    }

    /// Returns the data for the next generation.
    fn snapshot(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Learns which generation serves.
    fn serving(&mut self, generation: u32) {
        let _ = generation;
    }

    /// Learns that the network has changed.
    fn network_changed(&mut self, now: u64) {
        let _ = now;
    }

    /// Returns the files of clients.
    fn client_configs(&mut self, public: Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        let _ = public;
        Err(ErrorCode::NotSupported)
    }
}

/// Exports a case as a module.
#[macro_export]
macro_rules! case {
    ($case:ty) => {
        ::std::thread_local! {
            static CASE: ::std::cell::RefCell<Option<$case>> = const { ::std::cell::RefCell::new(None) };
        }

        /// Calls the case, which `start` has made.
        fn with<T>(act: impl FnOnce(&mut $case) -> T) -> T {
            CASE.with_borrow_mut(|case| act(case.as_mut().expect("started")))
        }

        struct Exported;
        $crate::bindings::export!(Exported with_types_in $crate::bindings);

        impl $crate::Guest for Exported {
            fn start(options: $crate::StartOptions, now: u64) -> Result<(), $crate::ConfigError> {
                let case = <$case as $crate::Case>::start(options, now)?;
                CASE.set(Some(case));
                Ok(())
            }

            fn reconfigure(config: Vec<u8>, _: u64) -> Result<(), $crate::ConfigError> {
                with(|case| $crate::Case::reconfigure(case, config))
            }

            fn process(now: u64, ready: Vec<u64>) -> $crate::Wakeup {
                with(|case| $crate::Case::process(case, now, &ready))
            }

            fn dial(
                to: Option<$crate::Destination>,
                application: $crate::ByteStream,
                _: u64,
            ) -> Result<u64, $crate::ErrorCode> {
                with(|case| $crate::Case::dial(case, to, application))
            }

            fn snapshot(_: u64) -> Vec<u8> {
                with($crate::Case::snapshot)
            }

            fn serving(generation: u32, _: u64) {
                with(|case| $crate::Case::serving(case, generation));
            }

            $crate::in_0_1!();

            fn get_status(_: u64) -> $crate::Status {
                $crate::status()
            }

            fn client_configs(
                public: $crate::Destination,
            ) -> Result<Vec<$crate::ClientConfig>, $crate::ErrorCode> {
                with(|case| $crate::Case::client_configs(case, public))
            }
        }

        $crate::since_0_2!();
    };
}

/// Carries datagrams of the application: the function of each version.
#[doc(hidden)]
#[macro_export]
macro_rules! dial_datagrams {
    () => {
        fn dial_datagrams(
            to: Option<$crate::Destination>,
            application: $crate::DatagramFlow,
            _: u64,
        ) -> Result<u64, $crate::ErrorCode> {
            with(|case| $crate::Case::dial_datagrams(case, to, application))
        }
    };
}

/// Learns that the network has changed: the function of each version.
#[doc(hidden)]
#[macro_export]
macro_rules! network_changed {
    () => {
        fn network_changed(now: u64) {
            with(|case| $crate::Case::network_changed(case, now));
        }
    };
}

/// Functions that `endpoint` has in version 0.1 alone.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "interface-0-1")]
macro_rules! in_0_1 {
    () => {
        $crate::dial_datagrams!();
        $crate::network_changed!();
    };
}

/// Functions that `endpoint` has in version 0.1 alone.
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "interface-0-1"))]
macro_rules! in_0_1 {
    () => {};
}

/// The optional exports, which version 0.1 does not have.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "interface-0-1")]
macro_rules! since_0_2 {
    () => {};
}

/// The optional exports, which version 0.1 does not have.
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "interface-0-1"))]
macro_rules! since_0_2 {
    () => {
        impl $crate::bindings::exports::watm::transport::datagram_dialer::Guest for Exported {
            $crate::dial_datagrams!();
        }

        impl $crate::bindings::exports::watm::transport::network_observer::Guest for Exported {
            $crate::network_changed!();
        }
    };
}

thread_local! {
    static CHECKS: Cell<u64> = const { Cell::new(0) };
    static FAILED: Cell<u64> = const { Cell::new(0) };
    static DONE: Cell<bool> = const { Cell::new(false) };
}

/// Checks that the host does as it must.
pub fn check(holds: bool, what: &str) {
    CHECKS.set(CHECKS.get() + 1);
    if !holds {
        fail(what);
    }
}

/// Checks that the host returns this.
pub fn same<T: Debug + PartialEq>(what: &str, found: &T, expected: &T) {
    CHECKS.set(CHECKS.get() + 1);
    if found != expected {
        fail(&format!("{what}: {found:?}, and not {expected:?}"));
    }
}

fn fail(what: &str) {
    FAILED.set(FAILED.get() + 1);
    log::log(log::Level::Error, "kit", what);
}

/// Notes that the last check is made.
pub fn done() {
    DONE.set(true);
}

/// Returns true if the last check is made.
pub fn is_done() -> bool {
    DONE.get()
}

/// Returns the verdict.
pub fn status() -> Status {
    let counter = |name: &str, value: u64| (name.to_owned(), value);
    Status {
        peers: Vec::new(),
        flows: 0,
        counters: vec![
            counter("kit.checks", CHECKS.get()),
            counter("kit.failed", FAILED.get()),
            counter("kit.done", DONE.get().into()),
        ],
    }
}

/// Returns the error for a resource that the host refuses at the start.
pub fn refused(code: ErrorCode) -> ConfigError {
    ConfigError::Other(Some(format!("the host refuses a socket: {code:?}")))
}

/// Returns the address `127.0.0.1:port`.
pub fn loopback(port: u16) -> IpSocketAddress {
    address(127, 0, 0, 1, port)
}

/// Returns an address of IPv4.
pub fn address(a: u8, b: u8, c: u8, d: u8, port: u16) -> IpSocketAddress {
    IpSocketAddress {
        address: IpAddress::Ipv4((a, b, c, d)),
        port,
    }
}

/// Parses the configuration `127.0.0.1:port`.
pub fn parse_address(config: &[u8]) -> Result<IpSocketAddress, ConfigError> {
    let parsed = std::str::from_utf8(config)
        .ok()
        .and_then(|text| text.parse::<std::net::SocketAddrV4>().ok());
    let Some(parsed) = parsed else {
        return Err(ConfigError::Syntax(
            "the configuration is an address of IPv4 and a port".to_owned(),
        ));
    };
    let [a, b, c, d] = parsed.ip().octets();
    Ok(address(a, b, c, d, parsed.port()))
}

/// Returns the facts about a flow to this destination.
pub fn info_to(destination: IpSocketAddress) -> FlowInfo {
    FlowInfo {
        source: address(198, 51, 100, 7, 4321),
        destination: Destination::Address(destination),
        peer: None,
        underlay: None,
        attributes: Vec::new(),
    }
}

/// Returns the facts about a flow, for cases in which they do not matter.
pub fn info() -> FlowInfo {
    info_to(address(192, 0, 2, 1, 80))
}

/// Returns an entry of a batch.
pub fn entry(remote: IpSocketAddress, len: usize, segment_size: Option<u16>) -> DatagramInfo {
    DatagramInfo {
        len: len as u32,
        segment_size,
        remote_address: remote,
        local_address: None,
        ecn: Ecn::NotEct,
    }
}

/// Returns the bytes of the pattern of an expectation: byte i is i modulo 251.
pub fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|i| (i % 251) as u8).collect()
}

/// Sends these messages to a generation. Returns the number that the host took.
pub fn send_mail(
    mailbox: &generations::Mailbox,
    generation: u32,
    texts: &[&[u8]],
) -> Result<u32, ErrorCode> {
    mailbox.send(&generations::Messages {
        payload: texts.concat(),
        messages: texts
            .iter()
            .map(|text| generations::MessageInfo {
                generation,
                len: text.len() as u32,
            })
            .collect(),
    })
}

/// Receives all datagrams that are there, with the senders.
pub fn received(socket: &DatagramSocket) -> Vec<(IpSocketAddress, Vec<u8>)> {
    match socket.receive(ALL, ALL) {
        Ok(batch) => datagrams(&batch),
        Err(_) => Vec::new(),
    }
}

/// Returns the datagrams of a batch, with the senders. Fails the case if the lengths are wrong.
pub fn datagrams(batch: &DatagramBatch) -> Vec<(IpSocketAddress, Vec<u8>)> {
    let mut rest = batch.payload.as_slice();
    let mut found = Vec::new();
    for info in &batch.datagrams {
        if info.len as usize > rest.len() {
            fail("the lengths of a batch exceed its payload");
            return found;
        }
        let (entry, tail) = rest.split_at(info.len as usize);
        rest = tail;
        let size = info.segment_size.map_or(entry.len(), usize::from).max(1);
        match entry {
            [] => found.push((info.remote_address, Vec::new())),
            _ => found.extend(
                entry
                    .chunks(size)
                    .map(|datagram| (info.remote_address, datagram.to_vec())),
            ),
        }
    }
    if !rest.is_empty() {
        fail("the payload of a batch exceeds its lengths");
    }
    found
}
