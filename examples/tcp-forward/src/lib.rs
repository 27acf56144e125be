//! Offers every TCP connection on the listener `listen` to the application as a flow, makes
//! connections for the application, and copies both ways. The smallest whole transport: no
//! crate of the project, no WASI.

wit_bindgen::generate!({ path: "../../wit", world: "module" });

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use exports::watm::transport::endpoint::{
    ClientConfig, ConfigError, Destination, ErrorCode, Guest, StartOptions, Status, Wakeup,
};
use watm::transport::flows::{self, FlowInfo};
use watm::transport::sockets::{self, ByteStream, Direction, Listener};

/// The description of the module, by which hosts name it.
const ABOUT: &[u8] = br#"{
  "about": 1, "name": "tcp-forward", "title": "tcp-forward",
  "summary": "Passes connections on unchanged.",
  "accepts": true, "dials": true, "destinations": false,
  "sockets": [{"label": "listen", "transport": "tcp"}]
}"#;

#[used]
#[cfg_attr(target_family = "wasm", unsafe(link_section = "watm.about"))]
static SECTION: [u8; ABOUT.len()] = *ABOUT.as_array().unwrap();

const LISTENER: u64 = 0;
/// Bytes a read, and reads of one direction in one call: 1 MiB, a millisecond's work.
const CHUNK: u32 = 64 << 10;
const ROUNDS: usize = 16;

/// One direction of a connection.
#[derive(Default)]
struct Copy {
    pending: Vec<u8>,
    finished: bool,
}

impl Copy {
    /// Move what can be moved. `true`: more could be moved right away.
    fn run(&mut self, from: &ByteStream, to: &ByteStream) -> Result<bool, ErrorCode> {
        for _ in 0..ROUNDS {
            if self.finished {
                return Ok(false);
            }
            let written = match to.write(&self.pending) {
                Ok(count) => count as usize,
                // `to` has stopped reading, but its written data still counts.
                Err(ErrorCode::ConnectionAborted) => {
                    self.finished = true;
                    self.pending.clear();
                    from.shutdown(Direction::Read)?;
                    return Ok(false);
                }
                Err(reason) => return Err(reason),
            };
            self.pending.drain(..written);
            if !self.pending.is_empty() {
                return Ok(false); // The host names `to` when it has room.
            }
            match from.read(CHUNK)? {
                Some(data) if data.is_empty() => return Ok(false), // ... and `from` here.
                Some(data) => self.pending = data,
                None => {
                    self.finished = true;
                    to.shutdown(Direction::Write)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// A connection under tokens 2n (outer end) and 2n + 1 (inner end), n > 0.
struct Connection {
    ends: [ByteStream; 2],
    inward: Copy,
    outward: Copy,
}

impl Connection {
    fn run(&mut self) -> Result<bool, ErrorCode> {
        let [outer, inner] = &self.ends;
        Ok(self.inward.run(outer, inner)? | self.outward.run(inner, outer)?)
    }
}

struct Forward {
    /// `None` in a host that only dials.
    listener: Option<Listener>,
    connections: BTreeMap<u64, Connection>,
    unfinished: BTreeSet<u64>,
    last: u64,
    generation: u32,
    /// Another generation serves.
    retired: bool,
}

impl Forward {
    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            // Errors are of one connection; it is gone.
            let Ok(Some(outer)) = listener.accept((self.last + 1) * 2) else {
                break;
            };
            let (Some(remote), local) = (outer.remote_address(), listener.local_address()) else {
                continue;
            };
            let info = FlowInfo {
                source: remote,
                destination: Destination::Address(local),
                peer: None,
                underlay: Some((remote, local)),
                attributes: Vec::new(),
            };
            self.last += 1;
            if let Ok(inner) = flows::open_stream(&info, self.last * 2 + 1) {
                self.insert([outer, inner]);
            } // Otherwise `outer` is dropped, which resets it.
        }
    }

    fn dial(&mut self, to: &Destination, inner: ByteStream) -> Result<u64, ErrorCode> {
        self.last += 1;
        let outer = sockets::connect(to, self.last * 2)?;
        self.insert([outer, inner]);
        Ok(self.last * 2 + 1)
    }

    fn insert(&mut self, ends: [ByteStream; 2]) {
        let (inward, outward) = Default::default();
        let connection = Connection {
            ends,
            inward,
            outward,
        };
        self.connections.insert(self.last, connection);
    }

    fn process(&mut self, ready: Vec<u64>) -> Wakeup {
        let mut due = std::mem::take(&mut self.unfinished);
        for token in ready {
            if token == LISTENER {
                self.accept();
            } else {
                due.insert(token / 2);
            }
        }
        for number in due {
            let Some(connection) = self.connections.get_mut(&number) else {
                continue; // It ended earlier.
            };
            match connection.run() {
                Ok(true) => {
                    self.unfinished.insert(number);
                }
                Ok(false) if !connection.inward.finished || !connection.outward.finished => {}
                // Both directions are at their end: dropping is the regular end of both.
                Ok(false) => drop(self.connections.remove(&number)),
                Err(reason) => {
                    connection.ends.iter().for_each(|end| end.reset(&reason));
                    self.connections.remove(&number);
                }
            }
        }
        if self.retired && self.connections.is_empty() {
            Wakeup::Finished
        } else if self.unfinished.is_empty() {
            Wakeup::OnReady
        } else {
            Wakeup::Again
        }
    }
}

thread_local! {
    static FORWARD: RefCell<Option<Forward>> = const { RefCell::new(None) };
}

struct Module;
export!(Module);

impl Guest for Module {
    fn start(options: StartOptions, _: u64) -> Result<(), ConfigError> {
        let listener = match Listener::open("listen", LISTENER) {
            Ok(listener) => Some(listener),
            Err(ErrorCode::AccessDenied) => None,
            Err(code) => {
                let reason = format!("the listener `listen`: {code:?}");
                return Err(ConfigError::Other(Some(reason)));
            }
        };
        let (connections, unfinished) = Default::default();
        let forward = Forward {
            listener,
            connections,
            unfinished,
            last: 0,
            generation: options.generation,
            retired: options.predecessor.is_some(),
        };
        FORWARD.set(Some(forward));
        Ok(())
    }

    fn reconfigure(_: Vec<u8>, _: u64) -> Result<(), ConfigError> {
        Ok(())
    }

    fn process(_: u64, ready: Vec<u64>) -> Wakeup {
        FORWARD.with_borrow_mut(|forward| match forward {
            Some(forward) => forward.process(ready),
            None => Wakeup::OnReady,
        })
    }

    fn snapshot(_: u64) -> Vec<u8> {
        Vec::new() // Connections are independent of each other.
    }

    fn serving(generation: u32, _: u64) {
        FORWARD.with_borrow_mut(|forward| {
            if let Some(forward) = forward {
                forward.retired = generation != forward.generation;
            }
        });
    }

    fn dial(to: Option<Destination>, inner: ByteStream, _: u64) -> Result<u64, ErrorCode> {
        FORWARD.with_borrow_mut(|forward| match (forward, to) {
            (Some(forward), Some(to)) => forward.dial(&to, inner),
            _ => Err(ErrorCode::InvalidArgument), // There is no configuration that names the upstream.
        })
    }

    fn get_status(_: u64) -> Status {
        let flows =
            FORWARD.with_borrow(|forward| forward.as_ref().map_or(0, |f| f.connections.len()));
        Status {
            peers: Vec::new(),
            flows: flows as u32,
            counters: Vec::new(),
        }
    }

    fn client_configs(_: Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }
}
