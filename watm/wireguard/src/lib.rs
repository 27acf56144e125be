//! A WireGuard server as a transport: peers' IP packets become flows.
//!
//! # The path of a packet
//!
//! 1. [`WireGuard::process`](watm_core::Transport::process) receives a batch from the
//!    socket granted as `listen` and takes its trains apart. If that is a listener,
//!    datagrams come in streams: see [`FramedSocket`](watm_stream::FramedSocket).
//! 2. The receiver index says which peer a datagram is for; for a handshake initiation
//!    it is the key inside, after the rate limiter has let it pass.
//! 3. boringtun decrypts. Only now is the sender known, and its address remembered.
//! 4. The inner source address is checked against the peer's AllowedIPs, and the packet
//!    goes to the network stack, which offers its flow to the application.
//! 5. What the stack answers is encrypted into the outgoing batch, equal sizes to one
//!    address as a train, and sent when all of the incoming batch is done.
//!
//! A server can be put in the place of another while traffic flows: see `generations`.
//!
//! Timers run once a second, for the peers that have a session or a handshake under way.
//!
//! Time and randomness are arguments: boringtun's clock is the thread's
//! [`MockClock`](mock_instant::MockClock), set from [`Host::now`](watm_core::Host::now)
//! at the start of each call, and its random numbers come from this workspace's
//! `getrandom`, which a test can seed.

mod client;
mod clock;
mod config;
mod counters;
mod floor;
mod generations;
mod handshake_time;
mod key;
mod names;
mod outgoing;
mod peer;
mod peers;
mod routes;
mod server;

pub use server::WireGuard;

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(WireGuard, capture);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Hosted<WireGuard>);
