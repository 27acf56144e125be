//! Programs: components for the world `wasi:cli/command` of WASI 0.2, which know nothing of this
//! host. `roles` runs them.
//!
//! A program is what `cargo build --target wasm32-wasip2` makes of a `main`, or wasi-sdk of C. Such
//! a component listens and connects itself. `wasmtime-wasi` provides its clocks, random numbers,
//! streams and datagrams, and this crate everything that a seal and a grant bound:
//!
//! - **Addresses to listen on.** The host binds them, and lends a listener to the program that binds
//!   its address. Other addresses are refused.
//! - **Connections.** [`Access`](watm_policy::access::Access) judges and makes them, as for all
//!   modules. A program connects to addresses, so a name counts for the addresses that it was found
//!   to have when the program looked it up.
//! - **Names.** A program looks up only names that it may reach at some port.
//! - **Datagrams.** Each address to bind and to send to is judged before the system sees it.
//! - **Resources.** Memory, CPU, descriptors, handles, log records and the bytes that wait for a
//!   slow peer have limits.
//!
//! There are no files, no environment and no terminal. The arguments are what the application gives,
//! and the standard input is the configuration.
//!
//! In a server, a connection to the reserved name [`APPLICATION`] becomes a flow of the application.
//! It has the client whose connection the program accepted first, of those that have no flow yet.
//!
//! The life of a program:
//!
//! 1. The application grants addresses, and the host binds them.
//! 2. The host instantiates the component, and calls `run`, in a task of its own.
//! 3. The program ends by itself, fails, or is cancelled. Its connections close. After a failure
//!    they are reset, since truncated data must not look complete.

mod clients;
mod connection;
mod lines;
mod names;
mod network;
mod ports;
mod program;
mod state;
mod tasks;
mod tcp;
mod udp;

pub use network::{APPLICATION, Application};
pub use ports::Ports;
pub use program::{Options, Start, Stop, check_linked};
