//! WireGuard as a transport: the IP packets of peers become flows.
//!
//! # The path of a packet
//!
//! 1. [`WireGuard::process`](watm_core::Transport::process) receives a batch from the socket
//!    granted as `listen` and splits its trains. If `listen` is a listener, datagrams come in
//!    streams: see [`FramedSocket`](watm_stream::FramedSocket).
//! 2. The receiver index identifies the peer of a datagram. For a handshake initiation, the key
//!    inside does, if the limits on handshakes admit it (`admission`).
//! 3. boringtun decrypts. Only now is the sender known, and its address is remembered.
//! 4. The inner source address is checked against the peer's AllowedIPs, and the packet
//!    goes to the network stack, which offers its flow to the application.
//! 5. The stack's answers are encrypted into the outgoing batch, equal sizes to one address as a
//!    train. The batch is sent when all of the incoming batch is done.
//!
//! A server can replace another one while traffic flows: see `generations`. Several can share an address: see `home`.
//!
//! Timers run once a second, for the peers that have a session or a handshake under way.
//!
//! Time and randomness are arguments: boringtun's clock is the thread's
//! [`MockClock`](mock_instant::MockClock), set from [`Host::now`](watm_core::Host::now)
//! at the start of each call, and its random numbers come from this workspace's
//! `getrandom`, which a test can seed.
//!
//! # Costs as a client
//!
//! `make bench-tunnel` runs iperf3 through a port forward of `watm dial`, of onetun 0.3.10, of
//! wireguard-go with its own `tun/netstack`, and of wireguard-go with gVisor's TCP without RACK
//! (`tests/wgclient`), to wireguard-go. The table's column for wireguard-go is the last of these,
//! since the one before was not measured then. It shows Mbit/s, and the client's processor time in
//! seconds for a GB (commit fe934b4; two cores of an AMD EPYC with nothing beside it; one round,
//! two at 0 ms):
//!
//! | | this | onetun | wireguard-go | the kernel's TCP |
//! |---|---|---|---|---|
//! | 0 ms, up, 1 stream | 1497, 3.9 s | 5, 1783 s | 955, 7.8 s | 2370 |
//! | 0 ms, down, 1 stream | 2358, 2.9 s | 161, 13.6 s | 1676, 5.4 s | 2449 |
//! | 0 ms, up, 4 streams | 2019, 3.1 s | did not end | 706, 12.9 s | 2201 |
//! | 0 ms, down, 4 streams | 1892, 3.5 s | 359, 11.1 s | 1483, 6.6 s | 2217 |
//! | 20 ms, 200 Mbit/s, up, 1 stream | 186, 10.2 s | 5, 1574 s | 72, 83.6 s | 188 |
//! | 20 ms, 200 Mbit/s, down, 1 stream | 190, 12.6 s | 21, 47.1 s | 188, 29.8 s | 188 |
//! | 20 ms, 200 Mbit/s, up, 4 streams | 190, 9.9 s | did not end | 188, 22.5 s | 188 |
//! | 20 ms, 200 Mbit/s, down, 4 streams | 190, 14.7 s | 81, 27.3 s | 188, 30.5 s | 188 |
//! | 100 ms, 100 Mbit/s, up, 1 stream | 95, 13.0 s | 5, 1940 s | 94, 50.7 s | 92 |
//! | 100 ms, 100 Mbit/s, down, 1 stream | 95, 14.5 s | 5, 140 s | 94, 58.1 s | 89 |
//! | 100 ms, 100 Mbit/s, up, 4 streams | 95, 14.7 s | did not end | 90, 59.8 s | 88 |
//! | 100 ms, 100 Mbit/s, down, 4 streams | 87, 19.8 s | 19, 58.3 s | 93, 54.3 s | 88 |
//! | 20 ms, 200 Mbit/s, 1 % lost, up, 1 stream | 86, 14.2 s | 2, 5428 s | 5, 50.6 s | 188 |
//! | 20 ms, 200 Mbit/s, 1 % lost, down, 1 stream | 189, 11.8 s | 14, 70.1 s | 181, 29.8 s | 188 |
//! | 20 ms, 200 Mbit/s, 1 % lost, up, 4 streams | 141, 14.3 s | did not end | 24, 33.0 s | 195 |
//! | 20 ms, 200 Mbit/s, 1 % lost, down, 4 streams | 188, 13.4 s | 63, 33.0 s | 197, 28.7 s | 192 |
//! | round trip of 64 bytes, 0 ms | 315 µs | 3966 µs | 337 µs | 310 µs |
//!
//! On a path with a delay, packets arrive one by one when downloading, and waking for each costs
//! more than its processing. Calls are therefore kept apart by a thirty-second of the round trip
//! while they are dense (`pacing.coalesce`), as network cards do with interrupts. Without this, 20
//! ms took 20 s a GB.
//!
//! The kernel's TCP runs through wireguard-go's interface, with BBR, over the same paths. Headers
//! leave at most 95 of the 100 Mbit/s and 190 of the 200. When downloading, the kernel sends.

mod about;
mod admission;
mod ahead;
mod client;
mod clock;
mod config;
mod counters;
mod floor;
mod generations;
mod handshake_time;
mod home;
mod key;
mod names;
mod outgoing;
mod peer;
mod peers;
mod routes;
mod transport;

pub use about::ABOUT;
pub use config::fields;
pub use transport::WireGuard;

watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(WireGuard, capture);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Hosted<WireGuard>);
