//! A device for IP packets as a transport: the traffic that a system sends into it becomes flows.
//!
//! # The path of a packet
//!
//! 1. [`Tun::process`](watm_core::Transport::process) receives a batch from the device granted as
//!    `tun`.
//! 2. It passes the bad network that the configuration asks for, if any.
//! 3. The network stack offers each flow to the application, for any destination. It answers echo
//!    requests itself.
//! 4. The stack's answers pass the bad network, are gathered in a batch, and are given to the device
//!    once all of the incoming batch is done.
//!
//! The device belongs to one system, which is trusted to name its own addresses: there is one peer,
//! and no check of source addresses.
//!
//! # Dialling
//!
//! With `addresses`, the application's own connections come out of the device, from the first of
//! these addresses that has the family of the destination.
//!
//! # Swaps
//!
//! The generation that serves reads from the device and writes to it. It passes packets of flows that
//! it does not have to the older ones, and they pass their answers to it: see `generations`. So its bad
//! network and its capture see all packets.

mod about;
mod config;
mod counters;
mod device;
mod generations;
mod transport;

pub use about::ABOUT;
pub use config::FIELDS;
pub use transport::Tun;

watm_schema::about!(ABOUT);

#[cfg(target_family = "wasm")]
watm_guest::export!(Tun, packets, capture);
