//! Has the exports that every module has, and no others. It waits for half a second. It does not use the
//! crate of the kit, which has the optional exports.

use std::cell::{Cell, RefCell};

wit_bindgen::generate!({ path: "../../wit", world: "module" });

use exports::watm::transport::endpoint::{
    ClientConfig, ConfigError, Destination, ErrorCode, Guest, StartOptions, Status, Wakeup,
};
use watm::transport::sockets::{ByteStream, DatagramSocket};

/// The wait, in nanoseconds.
const WAIT: u64 = 500_000_000;

thread_local! {
    static SOCKET: RefCell<Option<DatagramSocket>> = const { RefCell::new(None) };
    static DUE: Cell<u64> = const { Cell::new(0) };
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

struct OptionalLeftOut;

export!(OptionalLeftOut);

impl Guest for OptionalLeftOut {
    fn start(_: StartOptions, now: u64) -> Result<(), ConfigError> {
        DUE.set(now + WAIT);
        match DatagramSocket::open("listen", 1) {
            Ok(socket) => SOCKET.set(Some(socket)),
            Err(code) => return Err(ConfigError::Other(Some(format!("the socket: {code:?}")))),
        }
        Ok(())
    }

    fn process(now: u64, _: Vec<u64>) -> Wakeup {
        WAITED.set(now >= DUE.get());
        match WAITED.get() {
            true => Wakeup::OnReady,
            false => Wakeup::At(DUE.get()),
        }
    }

    fn reconfigure(_: Vec<u8>, _: u64) -> Result<(), ConfigError> {
        Ok(())
    }

    fn dial(_: Option<Destination>, _: ByteStream, _: u64) -> Result<u64, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    fn snapshot(_: u64) -> Vec<u8> {
        Vec::new()
    }

    fn serving(_: u32, _: u64) {}

    fn get_status(_: u64) -> Status {
        let waited = u64::from(WAITED.get());
        Status {
            peers: Vec::new(),
            flows: 0,
            counters: vec![
                ("kit.checks".to_owned(), waited),
                ("kit.failed".to_owned(), 0),
                ("kit.done".to_owned(), waited),
            ],
        }
    }

    fn client_configs(_: Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }
}
