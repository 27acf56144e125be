//! Runs sandboxed transport modules.
//!
//! A *transport* turns traffic on outer sockets into flows: a WireGuard server turns UDP datagrams
//! into the TCP and UDP flows of its peers. Here it is a WebAssembly component for the package
//! `watm:transport` (see `wit/`), without files, sockets or clocks of its own. This library owns
//! all of these, calls the module, and gives the application the flows.
//!
//! # The run loop
//!
//! 1. **Load.** [`Engine::load_file`] verifies the seal of the file ([`Trust`]), inspects the
//!    module and its imports, refuses what it must not have, and compiles it; the compiled form is
//!    cached.
//! 2. **Start.** [`Server::builder`] grants sockets by label, passes the configuration, and starts
//!    the module on a thread of its own.
//! 3. **Accept.** [`Server::poll_accept`] returns the flows that the module opens. Each knows its
//!    source and its destination.
//! 4. **Read and write** each flow until it ends. No call of the application enters the module:
//!    flows are queues, bounded both ways, and a full one stops the sender at the other end of the
//!    transport. If the application is a socket, [`StreamFlow::join`] and [`DatagramFlow::join`]
//!    let the module's thread read and write it, without queues.
//! 5. **Close**, or drop the last handle. Flows are reset, ports are free.
//!
//! The library does not depend on the caller's executor. It wakes the application through
//! [`Waker`](std::task::Waker)s, once for a whole batch of datagrams.
//!
//! ```no_run
//! use watm_runtime::{Engine, EngineConfig, Flow, Server};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // 1.
//! let engine = Engine::new(EngineConfig::default())?;
//! let module = engine.load_file("wireguard.wasm")?;
//! // 2.
//! let server = Server::builder(&module)
//!     .config(std::fs::read("server.conf")?)
//!     .udp("listen", "[::]:51820".parse()?)
//!     .start()?;
//! // 3.
//! while let Some(flow) = server.accept().await {
//!     println!("{} -> {}", flow.info().source, flow.info().destination);
//!     // 4.
//!     match flow {
//!         Flow::Stream(stream) => stream.queue_write(b"hello")?,
//!         Flow::Datagrams(datagrams) => {
//!             datagrams.send(b"hello")?;
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The example `serve` of this package is a whole program.
//!
//! # Connections through modules
//!
//! A stream through a module looks like one of tokio's: [`Dialer`] dials an address, and
//! [`FixedDialer`] one that the module chooses; [`Listener`] accepts, and [`Relay`] accepts and
//! passes on. Modules for them are components of stream transports, and WATER modules of v0 and v1
//! (<https://github.com/refraction-networking/water>), from whatever language and for whatever
//! runtime they were built. A WATER module has one instance for each connection, which is compiled
//! once, made from memory, and run as a task of the caller's tokio runtime: it has no thread and no
//! descriptor of its own, and a failure costs only its own connection. A component has one
//! instance, on a thread of its own, for all connections of a dialer or listener, except those that
//! are dialled with a configuration of their own ([`DialOptions`]). A module may reach the caller's
//! address, and the destinations in a [`Reach`]. [`Server`] runs WATER listeners too.
//!
//! # Swaps
//!
//! [`Server::swap`] puts another module behind the same sockets while flows are open. The serving
//! module is a *generation*; former ones *drain*: they keep their flows, until these end or a
//! deadline comes, and take no new ones. The new one starts with the old one's snapshot, and
//! generations send each other messages that are opaque to the host (`wit/generations.wit`), so
//! that a transport with sessions can hand them over. All generations of a server run on its one
//! thread, and know each other only by these messages. [`Dialer`], [`FixedDialer`], [`Listener`]
//! and [`Relay`] have a `swap` too.
//!
//! # When a module fails
//!
//! A module that traps, takes too long or too much memory ([`Limits`]) loses its instance: its
//! flows are reset, an error is logged, and a new instance starts on the same sockets with the
//! configuration that was last accepted. The wait before it doubles from 100 ms to 10 s while the
//! module keeps failing. Other servers of the process do not notice. Only the first start is
//! different: its failure is returned. A swapped-in module that fails in its first second is rolled
//! back at once. Later it is rolled back after three failures without a healthy minute between
//! them, once, and never to a release that is below a floor by now.
//!
//! # Seals
//!
//! A module needs a seal under a root that the user trusts, or is refused: see [`Trust`], and
//! [`seal`] for seals. Unsealed modules are for development ([`Trust::allow_unsealed`],
//! [`LoadOptions::unsealed`]); each causes a WARN record, and is shown by [`Module::warnings`]. A
//! module that expires while it runs continues, with a warning in both; it is not loaded again.
//!
//! [`Status::used`] has the usage of a module. It is also written beside the state once a minute
//! and when the module ends, for [`Trust::last_use`] and the command `watm inspect`. With the
//! feature `update`, [`Updates`] take newer modules from a source and swap them in.
//!
//! # Recordings
//!
//! [`ServerBuilder::record`] writes everything that a module is told to a file, and [`Recording`]
//! replays it: to the same module, which does the same bit for bit, or to another version of it.
//! The command `watm replay` does this for people. Nothing is recorded by default, since the file
//! holds all payload and keys.
//!
//! # Logs
//!
//! Records go through `tracing`. Records of the host about a server have the target `watm::server`
//! and the field `server`, those of a module the target `watm::module` and the fields `server` and
//! `part`. Those about seals have the target `watm::trust` and the field `module`, and those about
//! compiled modules `watm::engine`. A module's records are limited in rate and length, and stripped
//! of control characters. Events that strangers can trigger have DEBUG at most. A refusal by the
//! application's own options has INFO, names the option that would allow it, and is
//! [limited](log_refusal) in rate.
//!
//! # Counters
//!
//! [`Status::counters`] has the module's own counters, and those of the host:
//!
//! | name | counts |
//! |---|---|
//! | `host.datagrams_received`, `host.bytes_received` | datagrams that the module received, and their bytes |
//! | `host.datagrams_sent`, `host.bytes_sent` | datagrams that the kernel accepted |
//! | `host.receive_calls`, `host.send_calls` | system calls for them |
//! | `host.connections_accepted` | connections on granted listeners |
//! | `host.connections_open` | those of them that a component has now |
//! | `host.accept_shortages` | failures to accept, for lack of descriptors or memory |
//! | `host.flows` | flows open now |
//! | `host.flows_opened` | flows offered to the application, and those that it dialled |
//! | `host.flows_refused.backlog`, `.limit` | flows refused because too many wait to be accepted, or are open |
//! | `host.dropped.restarting` | datagrams that came while no instance ran |
//! | `host.dropped.receive_limit` | datagrams larger than the module was ready for |
//! | `host.dropped.send_denied` | datagrams to addresses that the module may not send to, see [`Reach`] |
//! | `host.dropped.pass` | datagrams that the module passed to another socket of its address in vain |
//! | `host.dropped.send_too_large`, `.send_unreachable`, `.send_buffer`, `.send_other` | datagrams that the network refused, by reason |
//! | `host.dropped.flow_to_module` | datagrams of the application that found the flow's queue full |
//! | `host.dropped.flow_to_application` | datagrams of the module that the host had no room left for |
//! | `host.dropped.log_records` | records beyond the rate |
//! | `host.restarts` | instances started after a failure |
//! | `host.process_calls`, `host.guest_time_ns` | calls of `process`, and time spent in all calls |
//! | `host.memory_bytes` | memory of the module's instances, now; a swap has two of them |
//! | `host.kept.memory_bytes` | memory that the host keeps beside it on behalf of the module, now |
//!
//! # Panics
//!
//! No module, configuration or traffic can cause a panic. A panic is a broken invariant of this
//! crate; it closes the server that it happens in.

mod backoff;
mod driver;
mod engine;
mod incoming;
#[cfg(feature = "programs")]
mod program;
mod replay;
mod roles;
mod server;
mod status;
mod swap_options;
#[cfg(feature = "update")]
mod updates;
mod water;

pub use engine::{Engine, EngineConfig};
pub use replay::{Difference, LogRecord, Mode, Recording, RecordingEnd, Report};
#[cfg(feature = "socks")]
pub use roles::{Carrier, DialerWithOptions};
pub use roles::{Connection, DialOptions, Dialer, FixedDialer, Listener, Relay, RoleBuilder};
#[cfg(feature = "programs")]
pub use roles::{Program, ProgramOptions};
pub use server::{Server, ServerBuilder, swap_all};
pub use status::Status;
pub use swap_options::SwapOptions;
#[cfg(feature = "update")]
pub use updates::{
    UpdateError, UpdateOptions, UpdateStatus, UpdateWaiting, Updates, UpdatesHandle,
};
pub use watm_engine::{CacheDir, Execution, Module, note_usage};
pub use watm_net::flow::{DatagramFlow, Flow, JoinError, Meter, StreamFlow};
pub use watm_net::sockets::{
    Accepted, Admission, BindTransparent, DatagramSocket, Doorbell, MOST_STEERED, PacketDevice,
    TransparentOptions, UpstreamStream, connect_upstream, connect_upstream_datagrams,
    share_address, share_datagram_address,
};
pub use watm_net::{Connect, Limits, Wire, log_refusal};
pub use watm_policy::inspection::{About, ModuleInfo, inspect, worlds};
pub use watm_policy::{BuiltIn, Capture, Grants, Keys, LastUse, LoadOptions, Reach, Signer, Trust};
#[doc(no_inline)]
pub use watm_seal as seal;
pub use watm_seal::private;
#[doc(hidden)]
pub use watm_types::printable;
pub use watm_types::{
    ClientConfig, Destination, Error, ErrorCode, Family, FlowInfo, GenerationStatus, ModuleKind,
    Network, PeerStatus, Phase, Role, Steer, Target, Used, UsedDestination,
};
#[cfg(feature = "update")]
#[doc(no_inline)]
pub use watm_update as update;
